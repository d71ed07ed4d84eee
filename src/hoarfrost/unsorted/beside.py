"""K-means beside centres that stay where they are: free ones take what those do not explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.unsorted.clusters import squared_distances

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

STARTS = 20
"""of which the best is taken"""
TRIES = 8
"""points that are tried for each first centre, of which the best is taken"""
NEIGHBOURS = 5
"""a first centre is the mean of so many points, the nearest to the one that is tried"""
TOGETHER, ROUNDS = 10, 100
"""rounds in which all points may change at once, and rounds at most"""
LIMIT = 36.0
"""times the median squared distance from the fixed centres: what lies farther counts as that far, so that one image
does not decide alone"""
AT_ONCE = 2**20
"""distances in one array: so many starts are taken together as have no more, one at least"""


@dataclass(frozen=True)
class FreeCentres:
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


def up_to_limit(distances: Floats) -> Floats:
    """Squared distances, none above the limit."""
    return np.minimum(distances, LIMIT * np.median(distances) or np.inf)


def k_means_beside(points: Floats, fixed: Floats, free: int, seed: int, *, starts: int = STARTS) -> FreeCentres:
    """K-means of points ``(n, q)`` with ``free`` centres that move, beside ``fixed`` ones ``(K, q)`` that do not.

    The distance of a point from its own free centre is that from the mean of the other points there, since the fixed
    centres have not seen it either: with m points it is m / (m - 1) times as far. A centre that is left with one point
    is taken away. The best of several starts, each by greedy k-means++ from means of neighbours.
    """
    if not len(points):
        return FreeCentres(0.0, np.zeros(0, dtype=np.int64), np.zeros((0, 0)))
    base = up_to_limit(squared_distances(points, fixed).min(axis=1))
    best = FreeCentres(float(base.sum()), np.full(len(points), -1), np.zeros((len(points), 0)))
    drawn = np.random.default_rng(seed).random((starts if free else 0, free, TRIES))
    some = max(1, AT_ONCE // (len(points) * max(free, TRIES)))
    for first in range(0, len(drawn), some):
        labels, distances = _settled(points, _first_centres(points, base, drawn[first : first + some]), base)
        totals = np.minimum(distances.min(axis=1), base).sum(axis=1)
        start = int(totals.argmin())
        if totals[start] < best.total:
            left = np.isfinite(distances[start]).any(axis=1)
            renumbered = np.where(labels[start] < 0, -1, left.cumsum()[labels[start]] - 1)
            best = FreeCentres(float(totals[start]), renumbered, distances[start, left].T)
    return best


def _to_points(centres: Floats, points: Floats) -> Floats:
    """``(s, k, n)`` squared distances of centres ``(s, k, q)`` from points ``(n, q)``."""
    return squared_distances(centres.reshape(-1, centres.shape[-1]), points).reshape(*centres.shape[:-1], -1)


def _first_centres(points: Floats, base: Floats, drawn: Floats) -> Floats:
    """``(s, free, q)`` by k-means++ from random numbers ``(s, free, tries)``: one after the other, the best of some.

    ``base`` are the squared distances from the fixed centres.
    """
    starts, few = np.arange(len(drawn)), min(NEIGHBOURS, len(points))
    left = np.broadcast_to(base, (len(drawn), len(points)))
    centres = np.empty((*drawn.shape[:2], points.shape[1]))
    for at in range(drawn.shape[1]):
        chance = np.where(left.sum(axis=1, keepdims=True) > 0, left, 1.0).cumsum(axis=1)
        chance /= chance[:, -1:]
        picked = [own.searchsorted(numbers, side="right") for own, numbers in zip(chance, drawn[:, at], strict=True)]
        near = np.argpartition(_to_points(points[np.array(picked)], points), few - 1, axis=2)[:, :, :few]
        tried = points[near].mean(axis=2)
        after = np.minimum(left[:, None], _to_points(tried, points))
        chosen = after.sum(axis=2).argmin(axis=1)
        centres[:, at], left = tried[starts, chosen], after[starts, chosen]
    return centres


def _settled(points: Floats, centres: Floats, base: Floats) -> tuple[Ids, Floats]:
    """``(s, n)``: the free centre of each point, once none changes; ``(s, k, n)`` squared distances from all of them.

    Distances from a centre that was taken away are infinite. Points that change at once can go to and fro for ever:
    after some rounds every second one may change, in turns. Only centres whose points have changed are looked at again.
    """
    starts, free, _ = centres.shape
    found, distances = np.full((starts, len(points)), -1), np.empty((starts, free, len(points)))
    moving, rounds = np.arange(starts), 0
    turns = np.zeros(starts, dtype=np.int64)  # rounds of each start, and those that it skipped, by fours
    apart, labels, sizes = _to_points(centres, points), found.copy(), np.full((starts, free), 2)
    earlier = np.stack([labels] * 4)  # labels of the last four rounds
    while True:
        start, point = np.nonzero(labels >= 0)
        own = labels[start, point]
        to_own = apart[start, own, point]
        apart[start, own, point] = to_own * np.square(sizes / np.maximum(sizes - 1, 1))[start, own]
        nearest = apart.argmin(axis=1)
        wanted = np.where(np.take_along_axis(apart, nearest[:, None], axis=1)[:, 0] < base, nearest, -1)
        changes = wanted != labels
        goes_on = changes.any(axis=1) & (turns < ROUNDS)
        found[moving[~goes_on]], distances[moving[~goes_on]] = wanted[~goes_on], apart[~goes_on]
        if not goes_on.any():
            return found, distances
        apart[start, own, point] = to_own
        if not goes_on.all():
            every = (moving, turns, apart, labels, sizes, wanted, changes)
            moving, turns, apart, labels, sizes, wanted, changes = (of_start[goes_on] for of_start in every)
            earlier = earlier[:, goes_on]
        for half in (0, 1):
            changes[(turns >= TOGETHER) & (turns % 2 == half), half::2] = False
        start, point = np.nonzero(changes)
        changed = np.full((len(moving), free + 1), rounds == 0)
        changed[start, labels[start, point]] = changed[start, wanted[start, point]] = True
        labels = np.where(changes, wanted, labels)
        start, centre = np.nonzero(changed[:, :-1])  # -1 is no centre
        members = labels[start] == centre[:, None]
        size = sizes[start, centre] = members.sum(axis=1)
        means = members.astype(points.dtype) @ points / np.maximum(size, 1)[:, None]
        apart[start, centre] = np.where(size[:, None] > 1, squared_distances(means, points), np.inf)
        if (size < 2).any():  # a point by itself goes back to the fixed centres
            alone = np.take_along_axis(sizes, np.maximum(labels, 0), axis=1) < 2
            labels = np.where((labels >= 0) & ~alone, labels, -1)
        turns += 1
        if turns.max() > TOGETHER + 4:
            repeats = (turns > TOGETHER + 4) & (labels == earlier[rounds % 4]).all(axis=1)
            turns[repeats] += (ROUNDS - turns[repeats]) // 4 * 4  # the same four again and again: on to the last
        earlier[rounds % 4] = labels
        rounds += 1
