"""What is to be expected of a mixed folder, from known classes alone: parts of them are held back as new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.unsorted.draws import from_each
from hoarfrost.unsorted.known import KnownClasses, spanned
from hoarfrost.unsorted.mixed import UNKNOWN, Expected, first_gain, told_apart, worth_of
from hoarfrost.unsorted.number import LEAST

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

GAINS, DRAWS = 12, 8
"""folders that are made of known classes to learn from: without anything new, and with a third of the classes as new"""
FEW_DRAWS = 2
"""of the second kind, from which it is learned what a centre is worth; more would take longer than the training, where
images are few"""
FOLDS = (8, 4)
"""of cross-validation, for how far unseen images lie off: two numbers, from which it follows without folds"""
UNSURE, TOLERATED = 0.05, 0.02
"""the share of the images in those folders that are unsure, since old and new are nearly as near; none are, where no
more than the second share is taken for old and is new, or the other way round"""
FALLS = 0.6
"""what a centre too many explains is taken to fall with the number of known classes to this power: the more directions
there are, the smaller is the part of a distance that one centre can take away"""
USUAL = 0.5
"""the least that a free centre is taken to explain where nothing is new, as a part of what a known class has: of small
classes it may be nothing"""


EXPECTING = GAINS + sum(FOLDS) + DRAWS
"""draws in all"""


def expectations(
    points: Floats,
    labels: Ids,
    seed: int,
    *,
    classes: int = 0,
    diagonal: bool,
    learned: bool,
    tell: Callable[[], None] = lambda: None,
) -> Expected | None:
    """From points ``(n, D)`` of known classes ``(n,)``; None where they are too few.

    ``classes`` is how many known classes there are in all, where the points are of some of them. ``diagonal`` says
    whether variances alone are known of the classes, ``learned`` whether the network has learned these images: then
    others lie farther off, new or not, and distances say nothing. ``tell`` is called after each of the draws.
    """
    random, features = np.random.default_rng(seed), points.shape[1]
    counts = np.bincount(labels)
    enough = counts[labels] >= LEAST
    points, labels = points[enough], labels[enough]
    if len(np.unique(labels)) < 2:
        return None
    made_of = partial(KnownClasses.of, features=features, diagonal=diagonal)
    points = points.astype(np.float64) if diagonal else spanned(points)
    side_by_side = partial(from_each, size=points.size, tell=tell)

    def gain(halves: tuple[Ids, Ids]) -> float:
        fit, rest = halves
        return first_gain(*made_of(points[fit], labels[fit]).reduced(points[rest]), 0)

    def unseen(parts: int) -> Floats:
        """``(n,)``: squared distances of each image from the nearest class, as all parts but its own show them."""
        part, nearest = np.empty(len(labels), dtype=np.int64), np.empty(len(labels))
        for label in np.unique(labels):
            own = np.flatnonzero(labels == label)
            part[own] = random.permutation(len(own)) % parts

        def of_part(number: int) -> None:
            known = made_of(points[part != number], labels[part != number])
            nearest[part == number] = known.nearest(points[part == number])

        side_by_side(of_part, np.unique(part))
        return nearest

    def made_folder(draw: Draw) -> MadeFolder:
        known = made_of(points[draw.fit], labels[draw.fit])
        seen, fixed = known.reduced(points[draw.folder], draw.classes)
        found = told_apart(seen, fixed, draw.classes, draw.seed)
        worth = worth_of(seen, fixed, draw.classes, seed) if draw.shows_worth else None
        return MadeFolder(found.gap, (found.labels < 0) != draw.new, worth)

    tried = len(np.unique(labels))
    showing = FEW_DRAWS if learned else DRAWS
    gains = side_by_side(gain, [_halves(labels, random) for _ in range(GAINS)])
    many, few = (unseen(parts) for parts in FOLDS)
    draws = [replace(Draw.at_random(labels, random), shows_worth=number < showing) for number in range(DRAWS)]
    made = side_by_side(made_folder, draws)
    worths = [own.worth for own in made if own.worth is not None]
    gap, wrong = np.concatenate([own.gap for own in made]), np.concatenate([own.wrong for own in made])
    margin = float(np.quantile(np.abs(gap), UNSURE)) if wrong.mean() > TOLERATED else 0.0
    error = wrong[np.abs(gap) >= margin]
    return Expected(
        gain=max(float(np.mean(gains)), USUAL),
        distance=_with_all(float(many.mean()), float(few.mean())),
        deviation=UNKNOWN if learned else max(float(many.std()), 1e-12),
        images=len(labels),
        margin=margin,
        worth=float(np.median(worths)) * (tried / max(classes, tried)) ** FALLS if worths else 0.0,
        error=float(error.mean()) if error.size else None,
    )


def _with_all(many: float, few: float) -> float:
    """The distance where no part is left out, from those with one of many and one of few parts left out.

    The more images there are to learn from, the nearer unseen ones lie: as a line in 1 / (the share that is learned
    from), which is carried on to the whole.
    """
    of_many, of_few = (parts / (parts - 1) for parts in FOLDS)
    return many - (few - many) * (of_many - 1) / (of_few - of_many)


@dataclass(frozen=True)
class Draw:
    """Of a mixed folder of known classes, a third of them held back as new: positions of images."""

    fit: Ids
    """what is learned from"""
    folder: Ids
    new: NDArray[np.bool_]
    """of each image in the folder, whether its class was held back"""
    classes: int
    """how many were"""
    seed: int
    shows_worth: bool = True
    """whether it is learned here what a free centre is worth"""

    @classmethod
    def at_random(cls, labels: Ids, random: np.random.Generator) -> Draw:
        """Half of the images of each class that is not held back are learned from."""
        classes = random.permutation(np.unique(labels))
        held = classes[: max(1, len(classes) // 3)]
        new = np.isin(labels, held)
        fit, rest = _halves(labels, random)
        folder = np.concatenate([rest, np.setdiff1d(np.flatnonzero(new), rest)])
        return cls(fit[~new[fit]], folder, new[folder], len(held), int(random.integers(2**31)))


@dataclass(frozen=True)
class MadeFolder:
    """What came out of such a folder."""

    gap: Floats
    wrong: NDArray[np.bool_]
    """of each image: by how much new is nearer than old, and whether it is taken for one and is the other"""
    worth: float | None
    """what a free centre must explain here to be a class of its own, if that was looked at"""


def _halves(labels: Ids, random: np.random.Generator) -> tuple[Ids, Ids]:
    """Positions of two random halves of each class."""
    parts = [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    halves = [(own[: (len(own) + 1) // 2], own[(len(own) + 1) // 2 :]) for own in parts]
    return np.concatenate([first for first, _ in halves]), np.concatenate([second for _, second in halves])
