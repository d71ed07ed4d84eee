"""Groups of images are joined, two at a time, as long as that gains evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.sorting.evidence import Evidence

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Joined:
    """What is left after joining."""

    to: Ids
    """(M,): where each group is now: a known class, 0 to K - 1, or K and more for a new one"""
    gains: Floats
    """of each joining, in their order"""


class Groups:
    """Groups that can be joined, the first K of them known classes, which are not joined with each other."""

    def __init__(self, evidence: Evidence, count: Floats, mean: Floats, known: int) -> None:
        self.evidence, self.known = evidence, known
        self.count, self.mean = count.astype(np.float64), mean.astype(np.float64)
        self.effective = evidence.roughness.effective(self.count)
        self.own = evidence.of(self.effective, self.mean)

    def gains(self, one: int, others: Ids) -> Floats:
        """``(n,)``: the evidence of a group together with each of some others, less that of both apart."""
        effective = self.effective[one] + self.effective[others]
        total = self.effective[one] * self.mean[one] + self.effective[others, None] * self.mean[others]
        both = self.evidence.of(effective, total / effective[:, None])
        gained: Floats = both - self.own[one] - self.own[others]
        return gained

    def join(self, one: int, into: int) -> None:
        """Makes a group part of another."""
        count = self.count[one] + self.count[into]
        self.mean[into] += (self.mean[one] - self.mean[into]) * (self.count[one] / count)
        self.count[into] = count
        at = slice(into, into + 1)
        self.effective[at] = self.evidence.roughness.effective(self.count[at])
        self.own[at] = self.evidence.of(self.effective[at], self.mean[at])


def join(groups: Groups, cost: float, novel: int | None = None) -> Joined:
    """Joins the pair that gains most, again and again, while that gains more than it costs to have a class less.

    A new class costs ``cost``: two groups are joined also where that loses less. With ``novel`` groups are joined until
    so many of those that are not known are left.
    """
    known, size = groups.known, len(groups.count)
    into, alive = np.arange(size), np.ones(size, dtype=bool)
    table = np.full((size, size), -np.inf, dtype=np.float32)
    """of each group that is not known, the gains of joining it with those before it"""
    for group in range(max(known, 1), size):
        table[group, :group] = groups.gains(group, np.arange(group))
    best = table.argmax(axis=1)
    most = table[np.arange(size), best]
    found: list[float] = []
    left = size - known
    while left > (novel or 0):
        one = int(most.argmax())
        if most[one] == -np.inf or (novel is None and most[one] <= -cost):
            break
        other = int(best[one])
        found.append(float(most[one]))
        groups.join(one, other)
        into[one], alive[one] = other, False
        left -= 1
        table[one], table[:, one], most[one] = -np.inf, -np.inf, -np.inf
        if other >= known and other > 0:
            before = np.flatnonzero(alive[:other])
            table[other, before] = groups.gains(other, before)
            best[other] = table[other].argmax()
            most[other] = table[other, best[other]]
        first = max(other + 1, known)
        after = first + np.flatnonzero(alive[first:])
        gains = groups.gains(other, after)
        table[after, other] = gains
        better = gains > most[after]
        most[after[better]], best[after[better]] = gains[better], other
        stale = alive & ((best == one) | (best == other))
        stale[after[better]] = stale[:known] = False
        for group in np.flatnonzero(stale).tolist():
            best[group] = table[group].argmax()
            most[group] = table[group, best[group]]
    for group in range(size):  # a group is joined into one before it
        into[group] = into[into[group]]
    return Joined(into[known:], np.array(found))
