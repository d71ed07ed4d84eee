"""Folders in which images of known and of new classes are mixed: which image is of which, and whether anything is new.

K-means in the space in which the decision measures, whitened and with few directions: the means of the known classes
stay where they are, and free centres, one for each new class, move. An image that comes nearest to a known mean is of
that class. What is to be expected of such a folder is learned from known classes: parts of them are held back as new.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.clusters import Directions
from hoarfrost.data.rows import Rows, chunks, mapped
from hoarfrost.number import LEAST, MOST, Count, Levels, count_classes, squared_distances

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

RIDGE = 7 / 3
"""added to the variances that features are whitened by, as a part of their mean: both count as 7 to 3"""
STARTS, TRIES, NEIGHBOURS, AT_ONCE, ROUNDS = 20, 8, 5, 10, 100
"""of k-means: starts, of which the best is taken; images that are tried for each first centre, and how many nearest
to each have it as their mean; rounds in which all points may change, and rounds at most"""
FAREST = 36.0
"""times the median squared distance from the fixed centres: what lies farther counts as that far, so that one image
does not decide alone"""
STRANGE = 3
"""centres more than classes, which may go to a few strange images"""
CERTAIN, USUAL = 2.0, 0.5
"""times what one free centre explains without anything new: then something is new; and the least that it is taken to
explain there, as a part of what a known class has: of small classes it may be nothing"""
ALIKE, APART = 0.9, 3.0
"""the share of the images of a free centre that come nearest to one known class: then they are a part of it, unless the
centre explains so many times what one does without anything new"""
DRAWS, FOLDS = 8, (8, 4)
"""folders that are made of known classes to learn from; parts in which unseen images are looked at, many and few"""
FARTHER = 3.0
"""standard errors by which images lie farther off than unseen ones of known classes: then something is new"""
UNSURE, TOLERATED = 0.05, 0.02
"""the share of the images in those folders that are unsure, since old and new are nearly as near; and of those taken
for old that are new, or the other way round, up to which none are"""
FAR = 6.0
"""times the median distance of the images that are taken for old, or for new: what lies farther is unsure too"""


@dataclass(frozen=True)
class KnownClasses:
    """Of K classes, what is needed to compare images with them."""

    means: Floats
    """(K, D)"""
    covariance: Floats
    """(D, D) within classes, or (D,): the variances alone"""
    features: int
    """D, or more where these are the directions in which there is anything"""
    ridge: float = RIDGE
    """added to the variances that points are whitened by, as a part of the mean variance of all features"""

    @classmethod
    def of(cls, points: Floats, labels: Ids, features: int, *, diagonal: bool) -> KnownClasses:
        """Of points ``(n, D)`` with class ids; ``diagonal``: without what features have in common."""
        labels = np.unique(labels, return_inverse=True)[1]
        means = sums_of(points, labels, labels.max() + 1) / np.bincount(labels)[:, None]
        apart = points - means[labels]
        within = np.square(apart).mean(axis=0) if diagonal else apart.T @ apart / len(points)
        return cls(means, within, features)

    def joined(self, more: KnownClasses, share: float) -> KnownClasses:
        """With the classes of ``more`` behind these, which have that share of all images."""
        covariance = (1 - share) * self.covariance + share * more.covariance
        return replace(self, means=np.concatenate([self.means, more.means]), covariance=covariance)

    def whitened(self, points: Rows) -> tuple[Rows, Floats]:
        """Points and means where the covariance, with its ridge, is the same in all directions."""
        from scipy.linalg import solve_triangular

        alone = self.covariance.ndim == 1
        variances = self.covariance if alone else self.covariance.diagonal()
        ridge = self.ridge * max(variances.sum() / self.features, 1e-12)
        if alone:
            deviations = np.sqrt(variances + ridge)
            return mapped(points, lambda rows: rows / deviations), self.means / deviations
        factor = np.linalg.cholesky(self.covariance + ridge * np.eye(len(variances)))

        def white(rows: Floats) -> Floats:
            found: Floats = solve_triangular(factor, rows.T, lower=True).T
            return found

        return mapped(points, white), white(self.means)

    def view(self, points: Rows, free: int = 0) -> tuple[Floats, Floats]:
        """Both in the directions in which they vary most: as many as classes, known or new."""
        white, means = self.whitened(points)
        directions = Directions.of(white, means, count=max(len(means), free, 2))
        return directions.along(white), directions.along(means)

    def nearest(self, points: Rows) -> Floats:
        """``(n,)`` squared distances from the nearest mean, in the directions in which the means differ."""
        white, means = self.whitened(points)
        middle = means.mean(axis=0)
        _, lengths, directions = np.linalg.svd(means - middle, full_matrices=False)
        apart = directions[lengths > 1e-9 * max(lengths[0], 1e-12)].T
        centres = (means - middle) @ apart
        parts = [squared_distances((rows - middle) @ apart, centres).min(axis=1) for rows in chunks(white)]
        return np.concatenate(parts)


@dataclass(frozen=True)
class Beside:
    """Free centres that k-means found beside fixed ones."""

    total: float
    """the sum of the squared distances from the nearest centre, fixed or free, each up to a limit"""
    labels: Ids
    """(n,): the free centre of each point, -1 where a fixed one is nearer"""
    distances: Floats
    """(n, k): squared, from each of the free centres that are left"""

    @property
    def sizes(self) -> Ids:
        """(k,): the points of each free centre."""
        return np.bincount(self.labels[self.labels >= 0], minlength=self.distances.shape[1])

    def nearest(self, centres: NDArray[np.bool_] | None = None) -> Floats:
        """(n,): the squared distance from the nearest free centre, or of those ``(k,)``; infinite without any."""
        chosen = self.distances if centres is None else self.distances[:, centres]
        found: Floats = chosen.min(axis=1, initial=np.inf)
        return found


def k_means_beside(points: Floats, fixed: Floats, free: int, seed: int, *, starts: int = STARTS) -> Beside:
    """K-means of points ``(n, q)`` with ``free`` centres that move, beside ``fixed`` ones ``(K, q)`` that do not.

    The distance of a point from its own free centre is that from the mean of the other points there, since the fixed
    centres have not seen it either: with m points it is m / (m - 1) times as far. A centre that is left with one point
    is taken away. The best of several starts, each by greedy k-means++ from means of neighbours.
    """
    random, squares = np.random.default_rng(seed), np.square(points).sum(axis=1)
    base, few = _up_to_limit(squared_distances(points, fixed, squares).min(axis=1)), min(NEIGHBOURS, len(points))
    best = Beside(float(base.sum()), np.full(len(points), -1), np.zeros((len(points), 0)))
    for _ in range(starts if free else 0):
        left, centres = base, list[Floats]()
        while len(centres) < free:
            whole = left.sum()
            chance = left / whole if whole > 0 else None
            tried = points[random.choice(len(points), TRIES, p=chance)]
            near = np.argpartition(squared_distances(points, tried, squares), few - 1, axis=0)[:few]
            tried = points[near].mean(axis=0)
            after = np.minimum(left[:, None], squared_distances(points, tried, squares))
            chosen = int(after.sum(axis=0).argmin())
            centres.append(tried[chosen])
            left = after[:, chosen]
        labels, distances = _settled(points, np.array(centres), base, squares)
        total = float(np.minimum(distances.min(axis=1, initial=np.inf), base).sum())
        if total < best.total:
            best = Beside(total, labels, distances)
    return best


def sums_of(points: Floats, labels: Ids, classes: int) -> Floats:
    """``(classes, D)``: of the points ``(n, D)`` of each; those with a label of -1 are left out."""
    members: Floats = (labels == np.arange(classes)[:, None]).astype(points.dtype)
    return members @ points


def _up_to_limit(distances: Floats) -> Floats:
    """Squared distances, none above the limit."""
    return np.minimum(distances, FAREST * np.median(distances) or np.inf)


def _settled(points: Floats, centres: Floats, base: Floats, squares: Floats) -> tuple[Ids, Floats]:
    """The free centre of each point, once none changes, and the squared distances from all that are left.

    ``base`` are the squared distances from the fixed centres. Points that change at once can go to and fro for ever:
    after some rounds every second one may change, in turns.
    """
    labels, sizes, turn = np.full(len(points), -1), np.zeros(len(centres), dtype=np.int64), 0
    while True:
        distances = squared_distances(points, centres, squares)
        taken = np.flatnonzero(labels >= 0)
        distances[taken, labels[taken]] *= np.square(sizes / np.maximum(sizes - 1, 1))[labels[taken]]
        if not len(centres):
            return labels, distances
        wanted = np.where(distances.min(axis=1) < base, distances.argmin(axis=1), -1)
        changes = wanted != labels
        if turn == ROUNDS or not changes.any():
            return wanted, distances
        if turn >= AT_ONCE:
            changes[turn % 2 :: 2] = False
        labels = np.where(changes, wanted, labels)
        sizes = np.bincount(labels[labels >= 0], minlength=len(centres))
        lasting = sizes > 1
        labels = np.where((labels >= 0) & lasting[labels], lasting.cumsum()[labels] - 1, -1)
        sizes = sizes[lasting]
        centres, turn = sums_of(points, labels, len(sizes)) / sizes[:, None], turn + 1


def _surely_known(points: Floats, fixed: Floats, seed: int, least: int = 2) -> NDArray[np.bool_]:
    """``(n,)``: of a known class even where many free centres, and at ``least`` so many, take what they can."""
    return k_means_beside(points, fixed, max(least, len(fixed) // 2), seed, starts=6).labels < 0


def _known_size(of_known: Ids) -> float:
    """Images of a known class in a folder, as one of these images ``(n,)`` of known classes finds it."""
    counts = np.bincount(of_known)
    return max(float(np.square(counts).sum() / max(counts.sum(), 1)), 2.0)


def first_gain(points: Floats, fixed: Floats, seed: int) -> float:
    """What one free centre explains, as a part of what a known class in the folder has.

    It is Hartigan's number for one cluster more, divided by the number of images in a known class.
    """
    size = _known_size(squared_distances(points, fixed).argmin(axis=1)[_surely_known(points, fixed, seed)])
    none, one = (k_means_beside(points, fixed, free, seed, starts=6).total for free in (0, 1))
    return float((none - one) * max(len(points) - len(fixed), 1) / max(none, 1e-12) / size)


UNKNOWN = 1e30
"""a deviation that no distance comes near to"""


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


def anything_new(known: KnownClasses, points: Rows, expected: Expected, seed: int) -> bool:
    """Whether a free centre explains much more than without anything new, or the images lie farther off than that."""
    farther = (float(known.nearest(points).mean()) - expected.distance) / expected.deviation
    error = math.sqrt(1 / len(points) + 1 / max(expected.images, 1))
    return first_gain(*known.view(points), seed) > CERTAIN * expected.gain or farther > FARTHER * error


NOTHING = Count(0, 0, 0, 0.0, ())


def count_beside(
    known: KnownClasses, points: Rows, counted: Rows, expected: Expected, levels: Levels, seed: int
) -> Count:
    """The number of new classes in a mixed folder, 0 where nothing is new; ``counted`` are the points for Ward.

    It is the largest number of free centres for which Ward finds as many clusters, or more, in the images they take.
    Centres with fewer images than a class must have, and those of a part of a known class, do not count.
    """
    if len(points) > MOST:
        sample = np.sort(np.random.default_rng(seed).permutation(len(points))[:MOST])
        levels = replace(levels, images_a_class=levels.images_a_class * MOST / len(points))
        points, counted = points[sample], counted[sample]
    if not anything_new(known, points, expected, seed):
        return NOTHING
    seen, fixed = known.view(points)
    # Few free centres beside few known classes would leave many new images among the known ones.
    to_known, sure = squared_distances(seen, fixed), _surely_known(seen, fixed, seed, least=8)
    base, of_known = _up_to_limit(to_known.min(axis=1)), to_known.argmin(axis=1)
    usual = expected.gain * _known_size(of_known[sure]) * (base[sure].mean() if sure.any() else 0.0)

    def classes_of(free: int) -> Ids:
        """The free centre of each image, -1 where it has too few images, or such as are a part of a known class."""
        beside = k_means_beside(seen, fixed, free, seed, starts=6)
        labels, sizes, new = beside.labels, beside.sizes, np.flatnonzero(beside.labels >= 0)
        if not len(sizes):
            return labels
        nearest = np.zeros((len(sizes), len(fixed)))
        np.add.at(nearest, (labels[new], of_known[new]), 1)
        gains = np.bincount(labels[new], (base - beside.nearest())[new], minlength=len(sizes))
        a_part = (nearest.max(axis=1) >= ALIKE * sizes) & (gains < APART * usual)
        return np.where((labels >= 0) & ((sizes >= LEAST) & ~a_part)[labels], labels, -1)

    few, many, best, number = 0, 1, NOTHING, 0

    def enough(free: int) -> bool:
        """Whether Ward finds as many clusters, or more, in what is left of the free centres."""
        nonlocal best, number
        labels = classes_of(free)
        taken, classes = labels >= 0, len(np.unique(labels[labels >= 0]))
        if classes < max(number, 1):
            return False
        more = count_classes(counted[taken], levels, seed)
        if more.number >= classes:
            best, number = more, classes
        return more.number >= classes

    while many <= 2 * number + 1 + STRANGE:
        if not enough(many) and number:
            break
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if enough(middle) else (few, middle)
    while number and _with_classes(seen, fixed, number, seed) is None:
        number -= 1
    if not number:
        return NOTHING
    return replace(best, number=number, least=min(best.least, number), most=max(best.most, number))


def _with_classes(points: Floats, fixed: Floats, new: int, seed: int) -> Beside | None:
    """K-means with as few free centres as so many ``new`` classes need, when some go to strange images.

    None where they are not found: each has at least as many images as a class must have.
    """
    for free in range(new, new + STRANGE + 1):
        found = k_means_beside(points, fixed, free, seed)
        if (found.sizes >= LEAST).sum() >= new:
            return found
    return None


@dataclass(frozen=True)
class Sorted:
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
                unsure |= group & (self.distance > FAR * np.median(self.distance[group]))
        return unsure


def sort(known: KnownClasses, points: Rows, new: int, seed: int) -> Sorted:
    """Each of the points ``(n, D)`` goes to a known class or to one of so many ``new`` ones."""
    seen, fixed = known.view(points, new)
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
    return Sorted(labels, (old - free) / np.maximum(old + free, 1e-12), np.minimum(old, free), strange)


def expectations(points: Floats, labels: Ids, seed: int, *, diagonal: bool, learned: bool) -> Expected | None:
    """From points ``(n, D)`` of known classes ``(n,)``; None where they are too few.

    ``diagonal`` says whether variances alone are known of the classes, ``learned`` whether the network has learned
    these images: then others lie farther off, new or not, and distances say nothing.
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
    for _ in range(DRAWS + 4):
        fit, rest = _halves(labels, random)
        known = made_of(points[fit], labels[fit])
        found.append(first_gain(*known.view(points[rest]), 0))
    many, few = (_unseen_distances(points, labels, made_of, parts, random) for parts in FOLDS)
    made = [_made_folder(points, labels, made_of, random) for _ in range(DRAWS)]
    gap, wrong = np.concatenate([gap for gap, _ in made]), np.concatenate([wrong for _, wrong in made])
    margin = float(np.quantile(np.abs(gap), UNSURE)) if wrong.mean() > TOLERATED else 0.0
    return Expected(
        gain=max(float(np.mean(found)), USUAL),
        distance=_with_all(float(many.mean()), float(few.mean())),
        deviation=UNKNOWN if learned else max(float(many.std()), 1e-12),
        images=len(labels),
        margin=margin,
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


def spanned(points: Floats) -> Floats:
    """The points in the directions in which they differ: the same distances in fewer numbers."""
    centred = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    if len(points) <= points.shape[1]:
        _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
        centred = centred @ directions[lengths > 1e-6 * lengths[0]].T
    return np.asarray(centred)


def _made_folder(
    points: Floats, labels: Ids, made_of: Callable[[Floats, Ids], KnownClasses], random: np.random.Generator
) -> tuple[Floats, NDArray[np.bool_]]:
    """A mixed folder of known classes, a third of them held back as new: the gap, and whether it is wrong."""
    classes = random.permutation(np.unique(labels))
    held = classes[: max(1, len(classes) // 3)]
    new = np.isin(labels, held)
    fit, rest = _halves(labels, random)
    fit = fit[~new[fit]]
    folder = np.concatenate([rest, np.setdiff1d(np.flatnonzero(new), rest)])
    known = made_of(points[fit], labels[fit])
    found = sort(known, points[folder], len(held), int(random.integers(2**31)))
    return found.gap, (found.labels < 0) != new[folder]


def _halves(labels: Ids, random: np.random.Generator) -> tuple[Ids, Ids]:
    """Positions of two random halves of each class."""
    parts = [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    halves = [(own[: (len(own) + 1) // 2], own[(len(own) + 1) // 2 :]) for own in parts]
    return np.concatenate([first for first, _ in halves]), np.concatenate([second for _, second in halves])
