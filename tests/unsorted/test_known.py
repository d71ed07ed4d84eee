"""Known classes, as images are compared with them."""

from __future__ import annotations

import numpy as np

from hoarfrost.unsorted.known import KnownClasses


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
