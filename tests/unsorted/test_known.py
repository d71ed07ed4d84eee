"""Known classes, as images are compared with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from hoarfrost.models.readout import Gaussians
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.unsorted.clusters import squared_distances
from hoarfrost.unsorted.known import KnownClasses, sums_of


def test_classes_with_others_behind_them_measure_as_a_readout_of_both_does() -> None:
    random = np.random.default_rng(0)
    points, labels = random.normal(size=(60, 6)) @ random.normal(size=(6, 6)), np.arange(60) % 4
    first, more = labels < 3, labels == 3
    parts = [KnownClasses.of(points[part], labels[part], 6, diagonal=False) for part in (first, more)]
    both = replace(parts[0].joined(parts[1], more.mean()), ridge=0.2)
    white, means = both.whitened(points)
    kind = Gaussians(covariance="shared", ridge=0.2)
    features, ids = torch.from_numpy(points).float(), torch.from_numpy(labels)
    statistics = [ClassStatistics.of(features[ids < 3], ids[ids < 3], 3, kind.kept)]
    statistics.append(ClassStatistics.of(features[ids == 3], ids[ids == 3] - 3, 1, kind.kept))
    gaussians = kind.gaussians(statistics[0].extended(statistics[1]), torch.device("cpu"))
    distances = squared_distances(np.asarray(white), means)
    np.testing.assert_allclose(distances, gaussians.distances(features).numpy(), rtol=1e-3, atol=1e-3)


def test_sums_of_classes_leave_out_what_has_none() -> None:
    points = np.arange(8.0).reshape(4, 2)
    assert sums_of(points, np.array([1, -1, 1, 0]), 3).tolist() == [[6, 7], [4, 6], [0, 0]]
