"""Clusters of features before anything is learned of them: principal components and k-means."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.rows import Rows, chunks

Floats = NDArray[np.floating[Any]]

STARTS = 20
"""of k-means, of which the best is taken"""

FEW, SMALL = 10, 128
"""Lanczos' method finds directions sooner than all are found, where a matrix has FEW times as many rows as are asked
for, and more than SMALL"""


IMAGES_A_DIRECTION = 32
"""so many images there must be for each direction in which clusters are looked for"""
TYPICAL = 0.8
"""the share of a cluster's images, the nearest to its centre, that say what is typical of it"""


@dataclass(frozen=True)
class Directions:
    """The strongest directions of points, from their mean."""

    mean: Floats
    """(D,)"""
    strongest: Floats
    """(D, q)"""
    count: int
    """how many were asked for, q or more"""

    @classmethod
    def of(cls, *points: Rows, count: int) -> Directions:
        """Of all rows ``(N, D)``; the sign of a direction is such that its largest weight is positive."""
        number = sum(map(len, points))
        mean = sum(part.sum(axis=0, dtype=np.float64) for part in _parts(points)) / number
        if 2 * number <= len(mean):  # there are no more directions than points, found in far less time
            centred = np.concatenate([part - mean for part in _parts(points)])
            strongest = centred.T @ _strongest(centred @ centred.T, min(count, number))
            lengths = np.linalg.norm(strongest, axis=0)
            strongest = (strongest / np.maximum(lengths, 1e-300))[:, lengths > 1e-6 * lengths.max()]
        else:
            scatter = sum(apart.T @ apart for apart in (part - mean for part in _parts(points)))
            strongest = _strongest(np.asarray(scatter), count)
        largest = np.abs(strongest).argmax(axis=0)
        return cls(mean, strongest * np.sign(strongest[largest, np.arange(strongest.shape[1])]), count)

    def along(self, points: Rows) -> Floats:
        """``(N, count)``: points along the directions; 0 where there are fewer."""
        found, start = np.zeros((len(points), self.count)), 0
        for part in _parts([points]):
            found[start : (start := start + len(part)), : self.strongest.shape[1]] = (part - self.mean) @ self.strongest
        return found


def _strongest(scatter: Floats, count: int) -> Floats:
    """The eigenvectors ``(D, count)`` of the largest eigenvalues; a few of many without the others."""
    if len(scatter) > max(SMALL, FEW * count - 1):
        from scipy.sparse.linalg import ArpackError, eigsh

        begin = np.random.default_rng(0).normal(size=len(scatter))
        with contextlib.suppress(ArpackError):  # where nothing varies, say
            return np.asarray(eigsh(scatter, count, v0=begin)[1][:, ::-1])
    return np.asarray(np.linalg.eigh(scatter)[1][:, ::-1][:, :count])


def _parts(points: Sequence[Rows]) -> Iterator[NDArray[np.float64]]:
    return (part.astype(np.float64) for rows in points for part in chunks(rows))


def principal_components(features: Rows, count: int) -> Floats:
    """The features ``(N, D)`` along their ``count`` strongest directions, centred, not whitened: ``(N, count)``.

    Where there are fewer directions than that, the others are 0.
    """
    return Directions.of(features, count=count).along(features)


def k_means(features: Floats, clusters: int, seed: int, *, starts: int = STARTS) -> Floats:
    """The centres ``(clusters, D)`` of the best of several k-means; the same for the same seed."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different images than clusters
        points = features.astype(np.float64)  # a copy that k-means may work in
        found = KMeans(clusters, n_init=starts, random_state=seed % 2**32, copy_x=False).fit(points)
    centres: Floats = found.cluster_centers_
    return centres


def squared_distances(points: Floats, centres: Floats) -> Floats:
    """``(n, c)`` between points ``(n, D)`` and centres ``(c, D)``."""
    apart = np.square(points).sum(axis=1)[:, None] + np.square(centres).sum(axis=1) - 2 * points @ centres.T
    distances: Floats = np.maximum(apart, 0)
    return distances


def in_few_directions(white: Rows, features: int, novel: int, most: int | None = None) -> Floats:
    """Points with so many features, in no more directions than the number of images allows to look for clusters in."""
    directions = len(white) // IMAGES_A_DIRECTION
    directions = max(novel, min(directions, most or directions))
    return principal_components(white, directions) if directions < features else np.asarray(white)


def typical_of(near: Floats) -> NDArray[np.bool_]:
    """``(N,)``: whether an image is one of the nearest to its centre, from how near each is to each, ``(N, n)``."""
    labels, typical = near.argmax(axis=1), np.zeros(len(near), dtype=bool)
    for cluster in range(near.shape[1]):
        own = np.flatnonzero(labels == cluster)
        typical[own[np.argsort(-near[own, cluster], kind="stable")[: math.ceil(TYPICAL * len(own))]]] = True
    return typical
