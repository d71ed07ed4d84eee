"""How a novel head may begin: from k-means of the features that the model before it has of the images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hoarfrost.computing.processes import Processes
from hoarfrost.data.rows import Rows, chunks, mapped
from hoarfrost.losses.functional import student_t_logits, unit_rows
from hoarfrost.models.heads import Cosine
from hoarfrost.models.network import Centres, Network, set_nearest
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.training.expecting import known_classes, sorting_points
from hoarfrost.unsorted.clusters import in_few_directions, k_means, principal_components, typical_of

MOST_DIRECTIONS = 128
"""of them, where the backbone stays as it is, unless there are more clusters: memory would grow with the square of the
number of images"""


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
    student: Network,
    features: Rows,
    statistics: ClassStatistics,
    seed: int,
    processes: Processes,
    most_directions: int | None = None,
    labels: NDArray[np.int64] | None = None,
) -> Clusters:
    """Sets the newest novel head by clusters of ``features`` (N, D); ``statistics`` are of the classes before.

    They are k-means's, or begin with ``labels`` (N,), -1 for none.

    A head with centres gets those of the principal components; its linear layer stays random. Where likelihoods decide,
    clusters are looked for where distances are measured as those do. Otherwise a linear head gets the clusters of the
    features themselves, one of cosines those of their directions.
    """
    novel, head = student.novel_per_step[-1], student.novel[-1]
    if isinstance(head, Centres):
        points = principal_components(features, novel)
    elif student.design.readout.by_likelihood:
        known, _ = known_classes(statistics.for_readout)
        white, _ = known.whitened(sorting_points(features, student))
        white = mapped(white, lambda rows: rows.astype(np.float32))
        points = in_few_directions(white, student.decisive_width, novel, most_directions)
    elif isinstance(head, Cosine):
        points = unit_rows(torch.from_numpy(np.asarray(features))).numpy()
    else:
        points = np.asarray(features)
    if labels is None:
        found = processes.first(lambda: k_means(points, novel, seed))
        centres = torch.from_numpy(np.asarray(found, dtype=np.float32))
    else:
        centres = _means(points[labels >= 0].astype(np.float32), labels[labels >= 0], novel)
    near = student_t_logits(torch.from_numpy(points.astype(np.float32)), centres)
    clusters = Clusters(near.softmax(dim=1), typical_of(near.numpy()))
    seen = mapped(features, lambda rows: student.backbone_features(torch.from_numpy(rows)).numpy())
    with torch.no_grad():
        if isinstance(head, Centres):
            head.centres.copy_(centres)
        elif isinstance(head, Cosine):
            directions = mapped(seen, lambda rows: unit_rows(torch.from_numpy(rows)).numpy())
            head.weight.copy_(unit_rows(_means(directions, clusters.labels, novel)))
        elif isinstance(head, nn.Linear):
            by_likelihood = student.design.readout.by_likelihood
            set_nearest(head, _means(seen, clusters.labels, novel) if by_likelihood else centres)
    return clusters


def start_joint_head(student: Network, before: Network, features: Rows, seed: int, processes: Processes) -> None:
    """Sets the new rows of the joint head, as Happy does: by k-means of ``features`` (N, D) of old and new images.

    There are as many clusters as classes, old and new. Those of which the model before says least that they are of a
    known class become the new rows, with the mean length and bias of the others.
    """
    novel, joint = student.novel_per_step[-1], student.joint
    points = unit_rows(torch.from_numpy(np.asarray(features))).numpy()
    found = processes.first(lambda: k_means(points, min(student.classes, len(points)), seed))
    centres = unit_rows(torch.from_numpy(np.asarray(found, dtype=np.float32)).to(joint.weight.device))
    with torch.no_grad():
        strange = before.joint_logits(centres).amax(dim=1).argsort(stable=True)[:novel]
        first = student.classes - novel
        joint.weight[first:] = centres[strange] * torch.linalg.vector_norm(joint.weight[:first], dim=1).mean()
        joint.bias[first:] = joint.bias[:first].mean()


def _means(features: Rows, labels: NDArray[np.int64], clusters: int) -> Tensor:
    """``(clusters, D)``; 0 for a cluster without images."""
    start, ids, total = 0, torch.from_numpy(labels), torch.zeros(())
    for part in map(torch.from_numpy, chunks(features)):
        own = ids[start : (start := start + len(part))]
        total = total + torch.zeros(clusters, part.shape[1]).index_add_(0, own, part)
    return total / torch.from_numpy(np.bincount(labels, minlength=clusters)).clamp(min=1)[:, None]
