"""The few directions in which a folder is sorted, turned and scaled so that classes are round in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.sparse import csr_array

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

LEAST_DIRECTIONS, MOST_DIRECTIONS = 8, 96
DEGREES_A_DIRECTION = 8
"""degrees of freedom, images less classes, that the covariance within classes has for each direction"""
LEAST_BETWEEN = 0.02
"""variance between classes in a direction, at least, where that within classes is 1"""


@dataclass(frozen=True)
class KnownClasses:
    """What is remembered of K classes: no image, only sums."""

    count: Floats
    """(K,) images of each"""
    mean: Floats
    """(K, D)"""
    within: Floats
    """(D, D): the covariance within classes, of all classes together"""
    degrees: int
    """of freedom of that covariance: images less classes"""

    @property
    def directions(self) -> int:
        """In how many a folder is sorted beside them."""
        return min(MOST_DIRECTIONS, max(LEAST_DIRECTIONS, self.degrees // DEGREES_A_DIRECTION))

    @classmethod
    def of(cls, features: Floats, labels: Ids, *, diagonal: bool = False) -> KnownClasses:
        """From features ``(N, D)`` with class ids 0 to K - 1, each of which has an image.

        ``diagonal``: variances alone, without what features have in common.
        """
        count = np.bincount(labels).astype(np.float64)
        of_class = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))))
        mean = (of_class @ features) / count[:, None]
        apart = features - mean[labels]
        degrees = max(len(features) - len(count), 1)
        within = np.diag((apart * apart).sum(axis=0)) if diagonal else apart.T @ apart
        return cls(count, mean, within / degrees, degrees)


@dataclass(frozen=True)
class Space:
    """The q strongest directions of known classes and a folder together."""

    middle: Floats
    """(D,) of all images"""
    turn: Floats
    """(D, q): features less the middle, times this, are points"""
    between: Floats
    """(q,): the variance between classes, where the variance within classes is 1"""

    @classmethod
    def of(cls, known: KnownClasses, folder: Floats, directions: int | None = None) -> Space:
        """For a folder's features ``(N, D)``, with as many directions as suit the known classes, or those given.

        The covariance within classes is drawn towards a round one, the more the fewer images it is made of.
        """
        directions = min(directions or known.directions, folder.shape[1])
        images = known.count.sum() + len(folder)
        middle = (known.count @ known.mean + folder.sum(axis=0)) / images
        means, rest = (known.mean - middle) * np.sqrt(known.count)[:, None], folder - middle
        total = (known.within * known.count.sum() + means.T @ means + rest.T @ rest) / images
        size = len(total)
        strongest = eigh(total, subset_by_index=[size - directions, size - 1])[1]
        within = strongest.T @ known.within @ strongest
        drawn = min(0.5, directions / known.degrees)
        round_one = np.trace(within) / directions * np.eye(directions)
        root = cholesky((1 - drawn) * within + drawn * round_one, lower=True)
        turn = solve_triangular(root, strongest.T, lower=True).T
        spread, axes = eigh(turn.T @ total @ turn)
        return cls(middle, turn @ axes[:, ::-1], np.maximum(spread[::-1] - 1, LEAST_BETWEEN))

    def points(self, features: Floats) -> Floats:
        """Features ``(N, D)`` in this space, ``(N, q)``."""
        found: Floats = (features - self.middle) @ self.turn
        return found
