"""How many classes there are among unlabelled images: Ward's clusters, cut where known classes came out right.

Ward's method joins, step by step, the two clusters whose union adds least to the sum of squares. Hartigan's number says
what one more cluster is worth, H(k) = (n - k) (SSE(k) - SSE(k + 1)) / SSE(k); the number of classes is the first k with
H(k) at or below a level. The level comes from random subsets of the known classes, whose number is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.rows import Rows
from hoarfrost.errors import InputError
from hoarfrost.unsorted.clusters import squared_distances

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

MOST = 4000
"""images that are clustered, at random; memory grows with their square"""
ROWS = 256
"""of their distances that are computed at once"""
SUBSETS, SUBSET = 12, 1000
"""random subsets of the known classes for each size, and about how many images the largest have"""
LARGEST, LEAST = 64, 4
"""images that a class of usual size has in the largest subsets and in the smallest; fewer are no class"""
GROWTH = 0.5
"""the power of the images a class with which levels are taken to grow beyond the largest subsets"""
SPREAD = (0.1, 0.9)
"""of the levels of all subsets, those from here to there make the range of the number"""
SHOWN = 3
"""times the upper end of its range, as far as the curve of the number is kept"""


@dataclass(frozen=True)
class Levels:
    """At which Hartigan's number splitting ends, by the number of images a class. It grows with that."""

    images_a_class: float = 0.0
    """of the known classes, the median; new ones are taken to be as large"""
    sizes: tuple[float, ...] = ()
    """images of a class of usual size, rising, at which the levels are known"""
    low: tuple[float, ...] = ()
    level: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """of each size the median over the subsets, and its spread"""

    @property
    def _rows(self) -> tuple[tuple[float, ...], ...]:
        return self.low, self.level, self.high

    def at(self, size: float) -> tuple[float, float, float]:
        """Low, middle and high for so many images a class, between those that are known."""
        found = [np.interp(np.log(size), np.log(self.sizes), np.log(row)) for row in self._rows]
        low, level, high = np.exp(found).tolist()
        return low, level, high

    def for_classes_of(self, images: float) -> Levels:
        """The same where new classes are taken to have so many images."""
        size = min(images, float(LARGEST))
        if not self.sizes or size <= self.sizes[-1]:
            return replace(self, images_a_class=images)
        low, level, high = ((*row, row[-1] * (size / self.sizes[-1]) ** GROWTH) for row in self._rows)
        return Levels(images, (*self.sizes, size), low, level, high)


@dataclass(frozen=True)
class Count:
    """How many new classes there are, as estimated."""

    number: int
    least: int
    most: int
    """the range that the spread of the level leaves, or that the evidence does"""
    level: float = 0.0
    """Hartigan's number at which splitting ended, where the network goes on learning"""
    curve: tuple[float, ...] = ()
    """Hartigan's number for 1, 2, ... classes, as far as is of interest"""
    images_a_class: float = 0.0
    """which each new class was taken to have, about; models of earlier versions do not say it"""

    @property
    def condition(self) -> str:
        """On which the number is right, in words.

        >>> Count(8, 7, 10, 4.2, (), images_a_class=31.5).condition
        ', assuming about 32 images in each, as in known classes'
        """
        size = f"{self.images_a_class:.0f}"
        return f", assuming about {size} images in each, as in known classes" if self.images_a_class else ""

    def in_words(self) -> str:
        """One number, or a range behind it.

        >>> Count(8, 7, 10, 4.2, ()).in_words(), Count(1, 1, 1, 4.2, ()).in_words()
        ('8 (7 to 10)', '1')
        """
        return f"{self.number}" if self.least == self.most else f"{self.number} ({self.least} to {self.most})"


def hartigan(points: Floats) -> Floats:
    """``(n - 1,)``: Hartigan's number for 1, 2, ... of Ward's clusters of points ``(n, D)``."""
    from scipy.cluster.hierarchy import linkage

    centred = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    # A merge at height h adds h^2 / 2 to the sum of squares.
    gains = linkage(np.sqrt(condensed_distances(centred)), "ward")[::-1, 2] ** 2 / 2
    left = np.square(centred).sum() - np.concatenate([[0], np.cumsum(gains)[:-1]])
    numbers: Floats = gains * (len(points) - np.arange(1, len(points))) / np.maximum(left, 1e-12)
    return numbers


def condensed_distances(points: Floats) -> Floats:
    """``(n (n - 1) / 2,)``: squared, of each of the points ``(n, D)`` from those behind it, as SciPy has them."""
    found, filled = np.empty(len(points) * (len(points) - 1) // 2), 0
    for start in range(0, len(points), ROWS):
        block = squared_distances(points[start : start + ROWS], points[start:])
        for row in range(len(block)):
            found[filled : (filled := filled + len(points) - start - row - 1)] = block[row, row + 1 :]
    return found


def first_below(numbers: Floats, level: float) -> int:
    """The first k, from 1, with H(k) at or below the level; one more than there are where none is.

    >>> first_below(np.array([9.0, 5.0, 2.0, 3.0]), 4.0)
    3
    """
    below = numbers <= level
    return int(below.argmax()) + 1 if below.any() else len(numbers) + 1


def learned_levels(points: Floats, labels: Ids, seed: int) -> Levels:
    """From points ``(n, D)`` of known classes ``(n,)``; without sizes, where the classes are too small for it.

    Subsets have a share of each class, so that large and small ones are in them as people have them.
    """
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    members = [own for own in members if len(own) >= LEAST]
    if len(members) < 2:
        return Levels()
    usual, random = float(np.median([len(own) for own in members])), np.random.default_rng(seed)
    whole = min(1.0, LARGEST / usual)
    shares = [part * whole for part in (0.25, 0.5, 1) if part * whole * usual >= LEAST]
    found = [np.quantile(_own_levels(points, members, share, random), [SPREAD[0], 0.5, SPREAD[1]]) for share in shares]
    low, level, high = np.transpose(found).tolist()
    return Levels(usual, tuple(share * usual for share in shares), tuple(low), tuple(level), tuple(high))


def _own_levels(points: Floats, members: list[Ids], share: float, random: np.random.Generator) -> list[float]:
    """Of random subsets of the classes, the level at which each comes out with its own number of classes."""
    size = share * float(np.mean([len(own) for own in members]))
    most = min(max(2, 3 * len(members) // 4), max(2, int(SUBSET / size)))
    found = []
    for _ in range(SUBSETS):
        classes = int(random.integers(min(max(2, len(members) // 4), most), most + 1))
        chosen = [random.permutation(members[k]) for k in random.permutation(len(members))[:classes]]
        numbers = hartigan(points[np.concatenate([own[: max(1, round(share * len(own)))] for own in chosen])])
        # Any level from H(classes) to the smallest before it makes that number of them.
        found.append(float(np.sqrt(max(numbers[classes - 1], 1e-9) * max(numbers[: classes - 1].min(), 1e-9))))
    return found


def count_classes(points: Rows, levels: Levels, seed: int) -> Count:
    """The number of classes among points ``(n, D)``, about as large each as the known ones."""
    if not levels.sizes:
        raise InputError(
            "this model cannot tell how many new classes there are: say how many (--novel N), or fit again"
        )
    share = min(1.0, MOST / len(points), levels.sizes[-1] / levels.images_a_class)
    taken = max(round(share * len(points)), min(len(points), 2 * LEAST))
    sample = np.sort(np.random.default_rng(seed).permutation(len(points))[:taken])
    low, level, high = levels.at(levels.images_a_class * taken / len(points))
    numbers = hartigan(np.asarray(points[sample])) if taken > 1 else np.zeros(1)
    number, least, most = (min(first_below(numbers, cut), taken) for cut in (level, high, low))
    curve = tuple(numbers[: SHOWN * most].round(4).tolist())
    return Count(number, least, most, level, curve, round(levels.images_a_class, 2))
