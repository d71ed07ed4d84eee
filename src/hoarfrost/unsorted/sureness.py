"""How sure one may be of what a model says of photographs: from known classes, some of which are held back as new ones.

Where features never change, this can be tried out before there is a folder with anything new in it. A ridge is what is
added to the variances of features before distances are measured by them, as in `KnownClasses`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.unsure import UNSURE_BELOW
from hoarfrost.metrics import match_clusters
from hoarfrost.unsorted.draws import from_each
from hoarfrost.unsorted.expectations import Decide
from hoarfrost.unsorted.known import KnownClasses, spanned, with_clusters

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

DRAWS = 32
"""times that a third of the classes is held back as new"""
UNLIKE, PARTS = 2.0, 6
"""times the median squared distance of held-out images of known classes: what lies farther off is unlike everything;
and in how many parts they are held out"""
LOOKED_AT = np.geomspace(0.05, 100, 120)
"""temperatures that are tried"""
IMPURITIES = np.linspace(0, 0.5, 51)
"""shares of images that look like a new class and are of another that are tried"""


@dataclass(frozen=True)
class Sureness:
    """How scores become probabilities."""

    old: float
    new: float
    """temperatures for images that look like an old class, and for those that look like a new one"""
    impurity: float
    """the share of the latter that are of another class, however much they look like it: a discovered class may hold
    images of two"""

    def highest(self, scores: Floats, is_new: NDArray[np.bool_]) -> Floats:
        """``(N,)``: the probability of the class with the highest of these scores ``(N, C)``."""
        tempered = scores / np.where(is_new, self.new, self.old)[:, None]
        return _highest(tempered) * np.where(is_new, 1 - self.impurity, 1.0)


def held_back_sureness(
    measured: Floats, labels: Ids, ridge: float, seed: int, tell: Callable[[], None]
) -> Sureness | None:
    """From known classes, a third of which is held back and discovered; of each class some images are held out.

    Of features ``(N, D)`` as a readout with this ``ridge``, and one covariance for all classes, looks at them, and
    class ids. Temperatures make the mean probability the share that is right, both of what looks old and of what looks
    new; under the impurity it is likeliest that just these images are right. None where classes are too few. ``tell``
    is called after each of the draws.
    """
    several = np.bincount(labels)[labels] > 1  # one is held out, one is left
    measured, labels = measured[several], labels[several]
    random, classes = np.random.default_rng(seed), len(np.unique(labels))
    if classes < 3:
        return None
    old, new = classes - classes // 3, classes // 3
    draws = [_held_back(labels, old, random) for _ in range(DRAWS)]
    points, made_of = spanned(measured), partial(KnownClasses.of, features=measured.shape[1], diagonal=False)

    def scored(draw: HeldBack) -> tuple[Floats, NDArray[np.bool_]] | None:
        """Scores of what was held out, and what is right."""
        ids, folder = draw.ids, draw.folder
        known = made_of(points[draw.fitted], ids[draw.fitted])
        found = with_clusters(known, len(draw.fitted), points[folder], new, draw.seed)
        if found is None:
            return None
        both, clusters = found
        scores = replace(both, ridge=ridge).scores(points[draw.tested])
        target = np.concatenate([np.arange(old), old + match_clusters(clusters, ids[folder] - old, new)])
        return scores, scores.argmax(axis=1) == target[ids[draw.tested]]

    cases = [case for case in from_each(scored, draws, size=points.size, tell=tell) if case is not None]
    if not cases:
        return None

    def looking(new: bool) -> list[tuple[Floats, NDArray[np.bool_]]]:
        """Of each draw what looks new, or old."""
        some = [(scores.argmax(axis=1) >= old) == new for scores, _ in cases]
        return [(scores[which], right[which]) for (scores, right), which in zip(cases, some, strict=True)]

    of_old, _ = temperature_and_impurity(looking(new=False), IMPURITIES[:1])
    return Sureness(of_old, *temperature_and_impurity(looking(new=True), IMPURITIES))


def temperature_and_impurity(cases: list[tuple[Floats, NDArray[np.bool_]]], impurities: Floats) -> tuple[float, float]:
    """A temperature, and one of some impurities, from scores of images and whether they are right, draw by draw.

    To each impurity belongs the temperature with which the mean of the highest probabilities is the share of the images
    that are right; of these pairs it is the one with which it is likeliest that just these images are right.
    """
    right = np.concatenate([own for _, own in cases])
    if not len(right):
        return float(LOOKED_AT[0]), float(impurities[0])
    sure = np.stack(
        [np.concatenate([_highest(scores / temperature) for scores, _ in cases]) for temperature in LOOKED_AT]
    )
    apart = np.abs(np.multiply.outer(1 - impurities, sure.mean(axis=1)) - right.mean())
    fitting = apart.argmin(axis=1)
    probabilities = ((1 - impurities)[:, None] * sure[fitting]).clip(1e-6, 1 - 1e-6)
    best = np.log(np.where(right, probabilities, 1 - probabilities)).sum(axis=1).argmax()
    return float(LOOKED_AT[fitting[best]]), float(impurities[best])


def unlike_beyond(measured: Floats, labels: Ids, ridge: float) -> float | None:
    """The squared distance from the nearest class beyond which an image is unlike everything, from features as a
    readout with this ``ridge`` looks at them ``(N, D)``, and class ids.

    Each part of the images is compared with classes that are made of the others. None where those would have next to
    nothing that says how their images vary.
    """
    order = np.argsort(labels, kind="stable")
    part = np.empty_like(labels)
    part[order] = np.arange(len(labels)) % PARTS
    points, classes = spanned(measured), len(np.unique(labels))
    if len(labels) * (PARTS - 1) / PARTS < 2 * classes:
        return None

    def distances(number: int) -> Floats:
        rest = part != number
        known = KnownClasses.of(points[rest], labels[rest], features=measured.shape[1], diagonal=False)
        scores = replace(known, ridge=ridge).scores(points[~rest])
        found: Floats = -2 * scores.max(axis=1)
        return found

    usual = float(np.median(np.concatenate([distances(number) for number in range(PARTS)])))
    return UNLIKE * usual if usual > 0 else None


def old_or_new(sureness: Sureness, ridge: float) -> Decide:
    """What a readout that is so sure, and has this ridge, takes points for."""

    def decide(classes: KnownClasses, points: Floats, old: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        scores = replace(classes, ridge=ridge).scores(points)
        is_new = scores.argmax(axis=1) >= old
        return is_new, sureness.highest(scores, is_new) >= UNSURE_BELOW

    return decide


def _highest(scores: Floats) -> Floats:
    """``(N,)``: the highest probability of each row."""
    found: Floats = 1 / np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)
    return found


@dataclass(frozen=True)
class HeldBack:
    """A third of the classes as new ones, at random: the last ids are theirs."""

    ids: Ids
    """(N,): of all images"""
    tested: Ids
    fitted: Ids
    folder: Ids
    """positions of what is held out, of what is learned from, and of the new ones that are discovered"""
    seed: int


def _held_back(labels: Ids, old: int, random: np.random.Generator) -> HeldBack:
    order = random.permutation(np.unique(labels))
    ids = np.argsort(order)[np.searchsorted(np.sort(order), labels)]
    members = [random.permutation(np.flatnonzero(ids == label)) for label in range(len(order))]
    cut = [max(1, len(own) // 6) for own in members]
    tested = np.concatenate([own[:first] for own, first in zip(members, cut, strict=True)])
    rest = [own[first:] for own, first in zip(members, cut, strict=True)]
    return HeldBack(ids, tested, np.concatenate(rest[:old]), np.concatenate(rest[old:]), int(random.integers(2**31)))
