"""How a novel head may begin: from k-means of the features that the model before it has of the images."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hoarfrost.clusters import k_means, principal_components
from hoarfrost.losses.functional import student_t_logits
from hoarfrost.models.heads import Cosine
from hoarfrost.models.network import Centres, Network, set_nearest
from hoarfrost.training.processes import Processes


def start_from_clusters(
    student: Network, features: NDArray[np.floating[Any]], seed: int, processes: Processes
) -> Tensor:
    """Sets the newest novel head by clusters of ``features`` (N, D); gives the images' probabilities of them, (N, n).

    A head with centres gets those of the principal components; its linear layer stays random. A linear head gets those
    of the features themselves, one of cosines those of the features' directions.
    """
    novel, head, points = student.novel_per_step[-1], student.novel[-1], features
    if isinstance(head, Centres):
        points = principal_components(features, novel)
    elif isinstance(head, Cosine):
        points = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    found = processes.first(lambda: k_means(points, novel, seed))
    centres = torch.from_numpy(np.asarray(found, dtype=np.float32))
    if isinstance(head, Centres):
        with torch.no_grad():
            head.centres.copy_(centres)
    elif isinstance(head, Cosine):
        with torch.no_grad():
            head.weight.copy_(centres)
    elif isinstance(head, nn.Linear):
        set_nearest(head, centres)
    return student_t_logits(torch.from_numpy(points.astype(np.float32)), centres).softmax(dim=1)
