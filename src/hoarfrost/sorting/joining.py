"""Groups of images are joined, two at a time, as long as that gains evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.sorting.evidence import Evidence

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]


STEP = 0.1
"""of the logarithm of the number of images, for which evidence is computed; it is smooth in between"""


@dataclass(frozen=True)
class Joined:
    """What is left after joining."""

    to: Ids
    """(M,): where each group is now: a known class, 0 to K - 1, or K and more for a new one"""
    gains: Floats
    """of each joining, in their order"""
    smaller: Floats
    """of each, how many images the smaller of both groups had"""


class Groups:
    """Groups that can be joined, the first K of them known classes, which are not joined with each other."""

    def __init__(self, evidence: Evidence, count: Floats, mean: Floats, known: int) -> None:
        self.evidence, self.known = evidence, known
        self.count, self.mean = count.astype(np.float64), mean.astype(np.float64)
        least, most = np.log(max(self.count.min(initial=1.0), 1.0)), np.log(max(self.count.sum(), 2.0))
        self.levels = np.arange(least, most + STEP, STEP)
        """logarithms of numbers of images"""
        self.redundancy = evidence.redundancy(np.exp(self.levels))
        self.alone = np.stack([evidence.of(self.count / many, self.mean) for many in self.redundancy], axis=1)
        """(M, L): the evidence of each group as a part of classes of so many images"""

    def gains(self, one: int, others: Ids) -> Floats:
        """``(n,)``: the evidence of a group together with each of some others, less that of both apart.

        All are looked at as parts of the class that they would be together, as `Evidence.gains` has it.
        """
        whole = self.count[one] + self.count[others]
        middle = (self.count[one] * self.mean[one] + self.count[others, None] * self.mean[others]) / whole[:, None]
        both = self.evidence.of(whole / self.evidence.redundancy(whole), middle)
        at = (np.log(whole) - self.levels[0]) / STEP
        level = np.minimum(at.astype(np.int64), len(self.levels) - 2)
        above = at - level
        apart = [
            (1 - above) * self.alone[group, level] + above * self.alone[group, level + 1] for group in (one, others)
        ]
        found: Floats = both - apart[0] - apart[1]
        return found

    def join(self, one: int, into: int) -> None:
        """Makes a group part of another."""
        count = self.count[one] + self.count[into]
        self.mean[into] += (self.mean[one] - self.mean[into]) * (self.count[one] / count)
        self.count[into] = count
        same = np.broadcast_to(self.mean[into], (len(self.levels), len(self.mean[into])))
        self.alone[into] = self.evidence.of(count / self.redundancy, same)


def join(groups: Groups, novel: int | None = None) -> Joined:
    """Joins the pair that gains most, again and again, while it gains anything.

    With ``novel`` groups are joined until so many of those that are not known are left.
    """
    known, size = groups.known, len(groups.count)
    into, alive = np.arange(size), np.ones(size, dtype=bool)
    table = np.full((size, size), -np.inf, dtype=np.float32)
    """of each group that is not known, the gains of joining it with those before it"""
    for group in range(max(known, 1), size):
        table[group, :group] = groups.gains(group, np.arange(group))
    best = table.argmax(axis=1)
    most = table[np.arange(size), best]
    found, smaller = list[float](), list[float]()
    left = size - known
    while left > (novel or 0):
        one = int(most.argmax())
        if most[one] == -np.inf or (novel is None and most[one] <= 0):
            break
        other = int(best[one])
        found.append(float(most[one]))
        smaller.append(float(min(groups.count[one], groups.count[other])))
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
    return Joined(into[known:], np.array(found), np.array(smaller))
