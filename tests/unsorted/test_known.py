"""Known classes, as images are compared with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from hoarfrost.models.readout import Gaussians
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.unsorted.clusters import squared_distances
from hoarfrost.unsorted.known import KnownClasses


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


def test_means_and_covariance_are_those_of_each_class() -> None:
    random = np.random.default_rng(0)
    points, labels = random.normal(size=(30, 4)), np.array([7, 2, 5])[np.arange(30) % 3]
    found = KnownClasses.of(points, labels, 4, diagonal=False)
    means = [points[labels == label].mean(axis=0) for label in (2, 5, 7)]
    np.testing.assert_allclose(found.means, means)
    apart = np.concatenate([points[labels == label] - mean for label, mean in zip((2, 5, 7), means, strict=True)])
    np.testing.assert_allclose(found.covariance, sum(np.outer(row, row) for row in apart) / 30)
    alone = KnownClasses.of(points, labels, 4, diagonal=True)
    np.testing.assert_allclose(alone.covariance, found.covariance.diagonal())
