"""How sure one may be, from classes that are held back."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hoarfrost.unsorted.sureness import (
    IMPURITIES,
    LOOKED_AT,
    Sureness,
    held_back_sureness,
    temperature_and_impurity,
    unlike_beyond,
)


def test_a_class_of_one_image_has_no_part_in_what_held_back_classes_show() -> None:
    random, labels = np.random.default_rng(0), np.arange(9 * 14) % 9
    points = 2.5 * random.normal(size=(9, 12))[labels] + random.normal(size=(len(labels), 12))
    found = held_back_sureness(points, labels, 0.5, 0, lambda: None)
    assert found is not None
    assert max(found.old, found.new) < 10, "nearly all are right"
    assert found.impurity < 0.1
    more, ids = np.concatenate([points, points[:1] + 9]), np.append(labels + 1, 0)
    assert held_back_sureness(more, ids, 0.5, 0, lambda: None) == found
    assert held_back_sureness(points[:3], labels[:3], 0.5, 0, lambda: None) is None


def test_the_highest_probability_is_a_softmax_and_that_of_a_new_class_less_by_its_impurity() -> None:
    rows, is_new = [[1.0, 3.0, -2.0], [0.5, 0.0, 4.0]], np.array([False, True])
    found = Sureness(old=2.0, new=4.0, impurity=0.1).highest(np.array(rows), is_new)
    for own, row, temperature, part in zip(found, rows, (2.0, 4.0), (1.0, 0.9), strict=True):
        assert own == pytest.approx(
            part * math.exp(max(row) / temperature) / sum(math.exp(x / temperature) for x in row)
        )


def test_temperature_and_impurity_are_found_again_where_right_and_wrong_come_from_them() -> None:
    random = np.random.default_rng(0)
    scores, all_new = 6 * random.normal(size=(5_000, 5)), np.ones(5_000, dtype=bool)
    right = random.random(len(scores)) < Sureness(old=1.0, new=3.0, impurity=0.2).highest(scores, all_new)
    temperature, impurity = temperature_and_impurity([(scores[:99], right[:99]), (scores[99:], right[99:])], IMPURITIES)
    assert temperature == pytest.approx(3.0, rel=0.15)
    assert impurity == pytest.approx(0.2, abs=0.03)

    def likelihood_of(impurity: float) -> tuple[float, float]:
        """With the temperature that belongs to it."""
        pairs = []
        for temperature in LOOKED_AT:
            sure = Sureness(1.0, temperature, impurity).highest(scores, all_new)
            pairs.append((abs(sure.mean() - right.mean()), temperature, sure))
        _, temperature, sure = min(pairs, key=lambda pair: pair[:2])
        return sum(math.log(p if own else 1 - p) for p, own in zip(sure, right, strict=True)), temperature

    best = likelihood_of(impurity)
    assert best[1] == temperature
    assert all(likelihood_of(other)[0] < best[0] for other in (0.0, impurity - 0.04, impurity + 0.04))


def test_without_an_impurity_the_mean_probability_is_the_share_that_is_right() -> None:
    random = np.random.default_rng(0)
    scores, is_new = 6 * random.normal(size=(500, 5)), np.zeros(500, dtype=bool)
    right = random.random(500) < 0.7
    temperature, impurity = temperature_and_impurity([(scores, right)], IMPURITIES[:1])
    assert impurity == 0
    assert Sureness(temperature, 1.0, 0.5).highest(scores, is_new).mean() == pytest.approx(right.mean(), abs=0.02)
    assert temperature_and_impurity([(scores[:0], right[:0])], IMPURITIES) == (LOOKED_AT[0], 0), "nothing looks new"


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
