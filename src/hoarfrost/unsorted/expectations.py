"""What is to be expected of a mixed folder, from known classes alone: parts of them are held back as new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.unsorted.known import KnownClasses, spanned
from hoarfrost.unsorted.mixed import UNKNOWN, Expected, first_gain, tell_apart, worth_of
from hoarfrost.unsorted.number import LEAST

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

GAINS, DRAWS = 12, 8
"""folders that are made of known classes to learn from: without anything new, and with a third of the classes as new"""
FOLDS = (8, 4)
"""of cross-validation, for how far unseen images lie off: two numbers, from which it follows without folds"""
UNSURE, TOLERATED = 0.05, 0.02
"""the share of the images in those folders that are unsure, since old and new are nearly as near; none are, where no
more than the second share is taken for old and is new, or the other way round"""
USUAL = 0.5
"""the least that a free centre is taken to explain where nothing is new, as a part of what a known class has: of small
classes it may be nothing"""


def expectations(
    points: Floats, labels: Ids, seed: int, *, diagonal: bool, learned: bool, shaped: bool = False
) -> Expected | None:
    """From points ``(n, D)`` of known classes ``(n,)``; None where they are too few.

    ``diagonal`` says whether variances alone are known of the classes, ``learned`` whether the network has learned
    these images: then others lie farther off, new or not, and distances say nothing. ``shaped`` says whether labels had
    a part in the features: then known classes are tighter than new ones, and do not show what a centre is worth.
    """
    random, features = np.random.default_rng(seed), points.shape[1]
    counts = np.bincount(labels)
    enough = counts[labels] >= LEAST
    points, labels = points[enough], labels[enough]
    if len(np.unique(labels)) < 2:
        return None
    made_of = partial(KnownClasses.of, features=features, diagonal=diagonal)
    points = points.astype(np.float64) if diagonal else spanned(points)
    found = []
    for _ in range(GAINS):
        fit, rest = _halves(labels, random)
        known = made_of(points[fit], labels[fit])
        found.append(first_gain(*known.reduced(points[rest]), 0))
    many, few = (_unseen_distances(points, labels, made_of, parts, random) for parts in FOLDS)
    made = [_made_folder(points, labels, made_of, random) for _ in range(DRAWS)]
    gap, wrong = np.concatenate([own.gap for own in made]), np.concatenate([own.wrong for own in made])
    margin = float(np.quantile(np.abs(gap), UNSURE)) if wrong.mean() > TOLERATED else 0.0
    return Expected(
        gain=max(float(np.mean(found)), USUAL),
        distance=_with_all(float(many.mean()), float(few.mean())),
        deviation=UNKNOWN if learned else max(float(many.std()), 1e-12),
        images=len(labels),
        margin=margin,
        worth=0.0 if shaped else float(np.median([own.worth(seed) for own in made])),
        error=float(wrong[np.abs(gap) >= margin].mean()),
    )


def _unseen_distances(
    points: Floats,
    labels: Ids,
    made_of: Callable[[Floats, Ids], KnownClasses],
    parts: int,
    random: np.random.Generator,
) -> Floats:
    """``(n,)``: squared, of each image from the nearest mean of the classes as all parts but its own show them."""
    part, nearest = np.empty(len(labels), dtype=np.int64), np.empty(len(labels))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        part[own] = random.permutation(len(own)) % parts
    for number in np.unique(part):
        known = made_of(points[part != number], labels[part != number])
        nearest[part == number] = known.nearest(points[part == number])
    return nearest


def _with_all(many: float, few: float) -> float:
    """The distance where no part is left out, from those with one of many and one of few parts left out.

    The more images there are to learn from, the nearer unseen ones lie: as a line in 1 / (the share that is learned
    from), which is carried on to the whole.
    """
    of_many, of_few = (parts / (parts - 1) for parts in FOLDS)
    return many - (few - many) * (of_many - 1) / (of_few - of_many)


@dataclass(frozen=True)
class MadeFolder:
    """A mixed folder of known classes, a third of them held back as new."""

    known: KnownClasses
    points: Floats
    new: int
    """how many classes are held back"""
    gap: Floats
    wrong: NDArray[np.bool_]
    """of each image: by how much new is nearer than old, and whether it is taken for one and is the other"""

    def worth(self, seed: int) -> float:
        """What a free centre must explain here to be a class of its own."""
        return worth_of(*self.known.reduced(self.points), self.new, seed)


def _made_folder(
    points: Floats, labels: Ids, made_of: Callable[[Floats, Ids], KnownClasses], random: np.random.Generator
) -> MadeFolder:
    classes = random.permutation(np.unique(labels))
    held = classes[: max(1, len(classes) // 3)]
    new = np.isin(labels, held)
    fit, rest = _halves(labels, random)
    fit = fit[~new[fit]]
    folder = np.concatenate([rest, np.setdiff1d(np.flatnonzero(new), rest)])
    known = made_of(points[fit], labels[fit])
    found = tell_apart(known, points[folder], len(held), int(random.integers(2**31)))
    return MadeFolder(known, points[folder], len(held), found.gap, (found.labels < 0) != new[folder])


def _halves(labels: Ids, random: np.random.Generator) -> tuple[Ids, Ids]:
    """Positions of two random halves of each class."""
    parts = [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    halves = [(own[: (len(own) + 1) // 2], own[(len(own) + 1) // 2 :]) for own in parts]
    return np.concatenate([first for first, _ in halves]), np.concatenate([second for _, second in halves])
