"""How a novel head may begin: from k-means of the features that the model before it has of the images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hoarfrost.clusters import k_means, principal_components
from hoarfrost.losses.functional import student_t_logits, unit_rows
from hoarfrost.mixed import RIDGE
from hoarfrost.models.gaussians import whitened
from hoarfrost.models.heads import Cosine
from hoarfrost.models.network import Centres, Network, set_nearest
from hoarfrost.models.statistics import ClassStatistics, Kept
from hoarfrost.training.processes import Processes

Floats = NDArray[np.floating[Any]]

IMAGES_A_DIRECTION = 32
"""so many images there must be for each direction in which clusters are looked for"""
TYPICAL = 0.8
"""the share of a cluster's images, the nearest to its centre, that say what is typical of it"""


@dataclass(frozen=True)
class Clusters:
    """What k-means found."""

    probabilities: Tensor
    """(N, n) of the images' clusters"""
    typical: NDArray[np.bool_]
    """(N,): whether an image is one of the nearest to the centre of its cluster"""

    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,): the nearest cluster of each image, from 0"""
        labels: NDArray[np.int64] = self.probabilities.argmax(dim=1).numpy()
        return labels


def start_from_clusters(
    student: Network, features: Floats, statistics: ClassStatistics, seed: int, processes: Processes
) -> Clusters:
    """Sets the newest novel head by clusters of ``features`` (N, D); ``statistics`` are of the classes before.

    A head with centres gets those of the principal components; its linear layer stays random. Where likelihoods decide,
    clusters are looked for where distances are measured as those do. Otherwise a linear head gets the clusters of the
    features themselves, one of cosines those of their directions.
    """
    novel, head, points = student.novel_per_step[-1], student.novel[-1], features
    if isinstance(head, Centres):
        points = principal_components(features, novel)
    elif student.design.readout.by_likelihood:
        points = as_measured(features, statistics, student.kept, novel)
    elif isinstance(head, Cosine):
        points = unit_rows(torch.from_numpy(features)).numpy()
    found = processes.first(lambda: k_means(points, novel, seed))
    centres = torch.from_numpy(np.asarray(found, dtype=np.float32))
    near = student_t_logits(torch.from_numpy(points.astype(np.float32)), centres)
    clusters = Clusters(near.softmax(dim=1), typical_of(near.numpy()))
    seen = student.backbone_features(torch.from_numpy(features))
    with torch.no_grad():
        if isinstance(head, Centres):
            head.centres.copy_(centres)
        elif isinstance(head, Cosine):
            head.weight.copy_(unit_rows(_means(unit_rows(seen), clusters.labels, novel)))
        elif isinstance(head, nn.Linear):
            by_likelihood = student.design.readout.by_likelihood
            set_nearest(head, _means(seen, clusters.labels, novel) if by_likelihood else centres)
    return clusters


def as_measured(features: Floats, statistics: ClassStatistics, kept: Kept, novel: int, ridge: float = RIDGE) -> Floats:
    """Transformed as a readout has it, whitened, and no more directions than the number of images allows."""
    points = kept.transformed(torch.from_numpy(features.astype(np.float32)))
    white: Floats = whitened(points, statistics.for_readout, ridge).numpy()
    directions = max(novel, len(features) // IMAGES_A_DIRECTION)
    return principal_components(white, directions) if directions < white.shape[1] else white


def _means(features: Tensor, labels: NDArray[np.int64], clusters: int) -> Tensor:
    """``(clusters, D)``; 0 for a cluster without images."""
    total = torch.zeros(clusters, features.shape[1]).index_add_(0, torch.from_numpy(labels), features)
    return total / torch.from_numpy(np.bincount(labels, minlength=clusters)).clamp(min=1)[:, None]


def typical_of(near: Floats) -> NDArray[np.bool_]:
    """``(N,)``: whether an image is one of the nearest to its centre, from how near each is to each, ``(N, n)``."""
    labels, typical = near.argmax(axis=1), np.zeros(len(near), dtype=bool)
    for cluster in range(near.shape[1]):
        own = np.flatnonzero(labels == cluster)
        typical[own[np.argsort(-near[own, cluster], kind="stable")[: math.ceil(TYPICAL * len(own))]]] = True
    return typical
