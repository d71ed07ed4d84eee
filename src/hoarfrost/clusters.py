"""Clusters of features before anything is learned of them: principal components and k-means."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

STARTS = 20
"""of k-means, of which the best is taken"""


def principal_components(features: Floats, count: int) -> Floats:
    """The features ``(N, D)`` along their ``count`` strongest directions, centred, not whitened: ``(N, count)``.

    Where there are fewer directions than that, the others are 0. The sign of a direction is such that its largest
    weight is positive.
    """
    centred = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    if 2 * len(features) <= features.shape[1]:  # there are no more directions than points, found in far less time
        strongest = np.linalg.svd(centred, full_matrices=False)[2][:count].T
    else:
        strongest = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :count]
    largest = np.abs(strongest).argmax(axis=0)
    strongest = strongest * np.sign(strongest[largest, np.arange(strongest.shape[1])])
    found = np.zeros((len(features), count))
    found[:, : strongest.shape[1]] = centred @ strongest
    return found


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
