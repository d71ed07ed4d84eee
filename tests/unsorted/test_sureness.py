"""How sure one may be, from classes that are held back."""

from __future__ import annotations

import numpy as np
import pytest

from hoarfrost.unsorted.sureness import held_back_temperatures, unlike_beyond


def test_a_class_of_one_image_has_no_part_in_the_temperatures_of_held_back_classes() -> None:
    random, labels = np.random.default_rng(0), np.arange(9 * 14) % 9
    points = 2.5 * random.normal(size=(9, 12))[labels] + random.normal(size=(len(labels), 12))
    found = held_back_temperatures(points, labels, 0.5, 0, lambda: None)
    assert found is not None
    assert max(found) < 10, "nearly all are right"
    more, ids = np.concatenate([points, points[:1] + 9]), np.append(labels + 1, 0)
    assert held_back_temperatures(more, ids, 0.5, 0, lambda: None) == found
    assert held_back_temperatures(points[:3], labels[:3], 0.5, 0, lambda: None) is None


def test_an_image_is_unlike_everything_at_twice_the_usual_distance_of_others() -> None:
    random, labels = np.random.default_rng(0), np.arange(9 * 14) % 9
    points = 2.5 * random.normal(size=(9, 12))[labels] + random.normal(size=(len(labels), 12))
    found = unlike_beyond(points, labels, ridge=0.5)
    held_out = (np.arange(len(labels)) // 9 + 14 * labels) % 6  # the sixth that each is in
    distances = []
    for part in range(6):
        rest = held_out != part
        means = np.stack([points[rest & (labels == k)].mean(axis=0) for k in range(9)])
        apart = points[rest] - means[labels[rest]]
        within = apart.T @ apart / rest.sum()
        inverse = np.linalg.inv(within + 0.5 * np.trace(within) / 12 * np.eye(12))
        distances += [min((point - mean) @ inverse @ (point - mean) for mean in means) for point in points[~rest]]
    assert found == pytest.approx(2 * np.median(distances))
    assert unlike_beyond(points[:36], labels[:36], ridge=0.5) is not None
    assert unlike_beyond(points[:18], labels[:18], ridge=0.5) is None, "of two images a class one says nothing"
    assert unlike_beyond(points[labels], labels, ridge=0.5) is None, "nor do copies"
