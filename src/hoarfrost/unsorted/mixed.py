"""Folders in which images of known and of new classes are mixed: which image is of which, and whether anything is new.

K-means in the space in which the decision measures, whitened and with few directions: the means of the known classes
stay where they are, and free centres, one for each new class, move. An image that comes nearest to a known mean is of
that class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.rows import Rows
from hoarfrost.unsorted.beside import FreeCentres, k_means_beside, up_to_limit
from hoarfrost.unsorted.clusters import squared_distances
from hoarfrost.unsorted.known import KnownClasses
from hoarfrost.unsorted.number import LEAST, MOST, Count, Levels, count_classes

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

STRANGE = 3
"""centres more than classes, which may go to a few strange images"""
CERTAIN = 2.0
"""times what one free centre explains without anything new: then something is new"""
PART_SHARE, PART_GAIN = 0.9, 3.0
"""the share of the images of a free centre that come nearest to one known class: then they are a part of it, unless the
centre explains so many times what one does without anything new"""
STANDARD_ERRORS = 3.0
"""by which images lie farther off than unseen ones of known classes: then something is new"""
UNSURE_BEYOND = 6.0
"""times the median squared distance of the images that are taken for old, or for new: what is farther off is unsure"""
FEW_STARTS = 6
"""of k-means, where a number is looked for and not yet the classes themselves"""
BESIDE = 3
"""free centres more than there are new classes, from which it is learned what such centres explain"""
MOST_TRIED = 24
"""numbers of free centres that are compared by what they explain"""
COME_BACK = 0.1
"""more than this share of a folder's images must be of known classes, for these to show how large a class is there"""
MANY_FREE = 8
"""free centres at least, to find images that are surely of known classes in a folder that has new ones"""


def _surely_known(points: Floats, fixed: Floats, seed: int, least: int = 2) -> NDArray[np.bool_]:
    """``(n,)``: of a known class even where many free centres, and at ``least`` so many, take what they can."""
    return k_means_beside(points, fixed, max(least, len(fixed) // 2), seed, starts=FEW_STARTS).labels < 0


def _known_size(of_known: Ids) -> float:
    """Images in the class of a random one of these images, which have the known classes ``(n,)``."""
    counts = np.bincount(of_known)
    return max(float(np.square(counts).sum() / max(counts.sum(), 1)), 2.0)


def _usual_size(of_known: Ids, images: int, learned: float) -> float:
    """How many images a class is taken to have in a folder of so many ``images``.

    It is the median of the known classes, of those images that surely have one, ``of_known``. Where that is less than
    they were ``learned`` from, it is the geometric mean of both, since new classes may be as large as any; and where
    hardly any image is of a known class, as many as they were learned from.
    """
    counts = np.bincount(of_known)
    counts = counts[counts >= LEAST]
    if counts.sum() <= COME_BACK * images:
        return learned
    size = float(np.median(counts))
    return max(size, math.sqrt(size * learned))


def first_gain(points: Floats, fixed: Floats, seed: int) -> float:
    """What one free centre explains, as a part of what a known class in the folder has.

    It is Hartigan's number for one cluster more, divided by the number of images in a known class.
    """
    size = _known_size(squared_distances(points, fixed).argmin(axis=1)[_surely_known(points, fixed, seed)])
    none, one = (k_means_beside(points, fixed, free, seed, starts=FEW_STARTS).total for free in (0, 1))
    return float((none - one) * max(len(points) - len(fixed), 1) / max(none, 1e-12) / size)


def unexplained(found: FreeCentres) -> float:
    """What centres leave of a folder, as a logarithm: one more takes about Hartigan's number from it."""
    return len(found.labels) * math.log(max(found.total, 1e-12))


def worth_of(points: Floats, fixed: Floats, new: int, seed: int) -> float:
    """The most that a free centre explains where there are more of them than ``new`` classes, as `Expected` has it."""
    some = range(new, new + BESIDE + 1)
    left = [unexplained(k_means_beside(points, fixed, free, seed, starts=FEW_STARTS)) for free in some]
    most = max((left[0] - left[more]) / more for more in range(1, BESIDE + 1))
    known = squared_distances(points, fixed).argmin(axis=1)[_surely_known(points, fixed, seed, least=MANY_FREE)]
    return max(most, 0.0) / math.sqrt(_known_size(known))


UNKNOWN = 1e30
"""more than any squared distance, or deviation of one, can be"""


@dataclass(frozen=True)
class Expected:
    """What is to be expected of a folder, from known classes alone."""

    gain: float
    """what one free centre explains where nothing is new"""
    distance: float
    deviation: float
    """how far unseen images of known classes lie from the nearest mean, and the standard deviation of that"""
    margin: float = 0.0
    """an image is unsure whose squared distances from old and new differ by less, as a part of their sum"""
    error: float | None = None
    """the share of the sure images that are taken for old and are new, or the other way round"""
    images: int = 10**9
    """of which the distance is the mean; models of earlier versions do not say it"""
    worth: float = 0.0
    """what a free centre must explain to be a class of its own, by the square root of the images in a known class; 0
    where nobody knows, as in models of earlier versions"""


def anything_new(known: KnownClasses, points: Rows, expected: Expected, seed: int) -> bool:
    """Whether a free centre explains much more than without anything new, or the images lie farther off than that."""
    farther = (float(known.nearest(points).mean()) - expected.distance) / expected.deviation
    error = math.sqrt(1 / len(points) + 1 / max(expected.images, 1))
    return first_gain(*known.reduced(points), seed) > CERTAIN * expected.gain or farther > STANDARD_ERRORS * error


NOTHING = Count(0, 0, 0, 0.0, ())


def count_new_classes(
    known: KnownClasses, points: Rows, counted: Rows, expected: Expected, levels: Levels, seed: int
) -> Count:
    """The number of new classes in a mixed folder, 0 where nothing is new; ``counted`` are the points for Ward.

    It is the largest number of free centres for which Ward finds as many clusters, or more, in the images they take,
    and which `tell_apart` will find again. Centres with fewer images than a class must have, and those of a part of a
    known class, do not count, and no more count than are worth it. How large new classes are is told by known ones in
    this folder.
    """
    whole = len(points)
    if whole > MOST:
        sample = np.sort(np.random.default_rng(seed).permutation(len(points))[:MOST])
        levels = replace(levels, images_a_class=levels.images_a_class * MOST / whole)
        points, counted = points[sample], counted[sample]
    if not anything_new(known, points, expected, seed):
        return NOTHING
    seen, fixed = known.reduced(points)
    # Few free centres beside few known classes would leave many new images among the known ones.
    to_known, sure = squared_distances(seen, fixed), _surely_known(seen, fixed, seed, least=MANY_FREE)
    base, of_known = up_to_limit(to_known.min(axis=1)), to_known.argmin(axis=1)
    size = _known_size(of_known[sure])
    levels = levels.for_classes_of(_usual_size(of_known[sure], len(points), levels.images_a_class))
    usual = expected.gain * size * (base[sure].mean() if sure.any() else 0.0)

    @cache
    def with_centres(free: int) -> FreeCentres:
        return k_means_beside(seen, fixed, free, seed, starts=FEW_STARTS)

    def found(free: int) -> tuple[int, Count]:
        """How many of so many free centres are classes, and what Ward counts in the images that those take."""
        beside = with_centres(free)
        labels = _new_classes(beside, base, of_known, usual)
        taken = labels >= 0
        return len(np.unique(labels[taken])), count_classes(counted[taken], levels, seed) if taken.any() else NOTHING

    number, best = most_classes(found)
    if number and expected.worth:
        some = np.unique(np.linspace(1, number, min(number, MOST_TRIED)).round().astype(int)).tolist()
        left = np.array([unexplained(with_centres(free)) for free in some])
        worth_it = some[int(np.argmin(left + expected.worth * math.sqrt(size) * np.array(some)))]
        if worth_it < number:
            number, (classes, fewer) = worth_it, found(worth_it)
            best = fewer if classes else best  # its curve is of the images that are left
    while number and _with_classes(seen, fixed, number, seed) is None:
        number -= 1
    if not number:
        return NOTHING
    each = round(levels.images_a_class * whole / len(points), 2)
    return replace(best, number=number, least=min(best.least, number), most=max(best.most, number), images_a_class=each)


def most_classes(found: Callable[[int], tuple[int, Count]]) -> tuple[int, Count]:
    """The most classes for which Ward counts as many or more, with that count; (0, NOTHING) where there are none.

    The number of free centres, of which not all are classes, is doubled as long as that is so, and then halved in
    between.
    """
    number, best, enough, too_many = 0, NOTHING, 0, 1

    def is_enough(free: int) -> bool:
        nonlocal number, best
        classes, count = found(free)
        if classes < max(number, 1) or count.number < classes:
            return False
        number, best = classes, count
        return True

    while too_many <= 4 * number + 1 + STRANGE:
        if not is_enough(too_many) and number:
            break
        enough, too_many = too_many, 2 * too_many
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if is_enough(middle) else (enough, middle)
    return number, best


def _new_classes(beside: FreeCentres, base: Floats, of_known: Ids, usual: float) -> Ids:
    """``(n,)``: the free centre of each image, -1 where it has too few, or such as are a part of a known class.

    ``base`` are the squared distances from the known classes, ``of_known`` the nearest of them, and ``usual`` is what a
    free centre explains without anything new.
    """
    labels, sizes, new = beside.labels, beside.sizes, np.flatnonzero(beside.labels >= 0)
    if not len(sizes):
        return labels
    nearest = np.zeros((len(sizes), int(of_known.max()) + 1))
    np.add.at(nearest, (labels[new], of_known[new]), 1)
    gains = np.bincount(labels[new], (base - beside.nearest())[new], minlength=len(sizes))
    a_part = (nearest.max(axis=1) >= PART_SHARE * sizes) & (gains < PART_GAIN * usual)
    return np.where((labels >= 0) & ((sizes >= LEAST) & ~a_part)[labels], labels, -1)


def _with_classes(points: Floats, fixed: Floats, new: int, seed: int) -> FreeCentres | None:
    """K-means with as few free centres as so many ``new`` classes need, when some go to strange images.

    None where they are not found: each has at least as many images as a class must have.
    """
    for free in range(new, new + STRANGE + 1):
        found = k_means_beside(points, fixed, free, seed)
        if (found.sizes >= LEAST).sum() >= new:
            return found
    return None


@dataclass(frozen=True)
class OldOrNew:
    """What each image of a mixed folder is."""

    labels: Ids
    """(n,): the known class, from 0; -1 for what is new"""
    gap: Floats
    """(n,): by how much a new class is nearer than the known ones, from -1 to 1: the difference of their squared
    distances as a part of the sum"""
    distance: Floats
    """(n,): squared, from the nearest class"""
    strange: NDArray[np.bool_]
    """(n,): whether it is one of a few that are like each other and like no class"""

    def unsure(self, expected: Expected) -> NDArray[np.bool_]:
        """``(n,)``: whether old and new are nearly as near, or both far, or it is strange."""
        unsure: NDArray[np.bool_] = (np.abs(self.gap) < expected.margin) | self.strange
        for group in (self.labels < 0, self.labels >= 0):
            if group.any():
                unsure |= group & (self.distance > UNSURE_BEYOND * np.median(self.distance[group]))
        return unsure


def tell_apart(known: KnownClasses, points: Rows, new: int, seed: int) -> OldOrNew:
    """Each of the points ``(n, D)`` goes to a known class or to one of so many ``new`` ones."""
    return told_apart(*known.reduced(points, new), new, seed)


def told_apart(seen: Floats, fixed: Floats, new: int, seed: int) -> OldOrNew:
    """The same of points ``(n, q)`` and known means, both in few directions."""
    found = _with_classes(seen, fixed, new, seed)
    if found is None:  # there are so few images, or whoever gave the number knows better
        found = k_means_beside(seen, fixed, new, seed)
        classes = np.ones(len(found.sizes), dtype=bool)
    else:
        classes = found.sizes >= LEAST
    to_known = squared_distances(seen, fixed)
    old, free = to_known.min(axis=1), np.minimum(found.nearest(classes), UNKNOWN)
    strange = (found.labels >= 0) & ~np.append(classes, True)[found.labels]
    labels = np.where(free < old, -1, to_known.argmin(axis=1))
    return OldOrNew(labels, (old - free) / np.maximum(old + free, 1e-12), np.minimum(old, free), strange)
