"""Known classes, as images of an unsorted folder are compared with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.rows import Rows, chunks, mapped
from hoarfrost.unsorted.clusters import Directions, squared_distances

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

RIDGE = 7 / 3
"""added to the variances that features are whitened by, as a part of their mean: ridge to mean variance as 7 to 3"""


@dataclass(frozen=True)
class KnownClasses:
    """Of K classes, what is needed to compare images with them."""

    means: Floats
    """(K, D)"""
    covariance: Floats
    """(D, D) within classes, or (D,): the variances alone"""
    features: int
    """over how many the mean variance is taken: D, or more where `spanned` has left out empty directions"""
    ridge: float = RIDGE
    """added to the variances that points are whitened by, as a part of the mean variance of all features"""

    @classmethod
    def of(cls, points: Floats, labels: Ids, features: int, *, diagonal: bool) -> KnownClasses:
        """Of points ``(n, D)`` with class ids; ``diagonal``: without what features have in common."""
        labels = np.unique(labels, return_inverse=True)[1]
        members = (labels == np.arange(labels.max() + 1)[:, None]).astype(points.dtype)
        means = members @ points / np.bincount(labels)[:, None]
        apart = points - means[labels]
        within = np.square(apart).mean(axis=0) if diagonal else apart.T @ apart / len(points)
        return cls(means, within, features)

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

    def reduced(self, points: Rows, free: int = 0) -> tuple[Floats, Floats]:
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


def spanned(points: Floats) -> Floats:
    """The points in no more directions than there are points: the same distances in fewer numbers."""
    centred = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    if len(points) < points.shape[1]:
        turned: Floats = np.asarray(np.linalg.qr(centred.T, mode="r"))  # Q, which only turns them, is not needed
        centred = turned.T
    return np.asarray(centred)
