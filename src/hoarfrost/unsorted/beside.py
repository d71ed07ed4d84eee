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
        for centres in _first_centres(points, base, drawn[first : first + some]):
            labels, distances = _settled(points, centres, base)
            total = float(np.minimum(distances.min(axis=0), base).sum())
            if total < best.total:
                left = np.isfinite(distances).any(axis=1)
                renumbered = np.where(labels < 0, -1, left.cumsum()[labels] - 1)
                best = FreeCentres(total, renumbered, distances[left].T)
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
    """``(n,)``: the free centre of each point, once none changes; ``(k, n)`` squared distances from all of them.

    Distances from a centre that was taken away are infinite. Points that change at once can go to and fro for ever:
    after some rounds every second one may change, in turns. Only centres whose points have changed are looked at again.
    """
    apart, every = squared_distances(centres, points), np.arange(len(points))
    labels, sizes = np.full(len(points), -1), np.full(len(centres), 2)
    before, turn = [labels] * 4, 0  # the labels of four rounds
    while True:
        at = np.flatnonzero(labels >= 0)
        own = labels[at]
        to_own = apart[own, at]
        apart[own, at] *= np.square(sizes / np.maximum(sizes - 1, 1))[own]
        nearest = apart.argmin(axis=0)
        wanted = np.where(apart[nearest, every] < base, nearest, -1)
        changes = wanted != labels
        if turn >= ROUNDS or not changes.any():
            return wanted, apart
        apart[own, at] = to_own
        if turn >= TOGETHER:
            changes[turn % 2 :: 2] = False
        now = np.where(changes, wanted, labels)
        changed = np.unique(np.concatenate([labels[changes], wanted[changes]])) if turn else np.arange(len(centres))
        changed = changed[changed >= 0]
        members = now == changed[:, None]
        sizes[changed] = members.sum(axis=1)
        means = members.astype(points.dtype) @ points / np.maximum(sizes[changed], 1)[:, None]
        apart[changed] = np.where(sizes[changed, None] > 1, squared_distances(means, points), np.inf)
        labels = np.where((now >= 0) & (sizes[now] > 1), now, -1)
        turn += 1
        if turn > TOGETHER + 4 and np.array_equal(labels, before[turn % 4]):
            turn += (ROUNDS - turn) // 4 * 4  # for ever the same four rounds: the last of them are left
        before[turn % 4] = labels
