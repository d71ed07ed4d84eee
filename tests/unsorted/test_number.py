"""How many classes there are: Ward's clusters and Hartigan's number, against brute force, and levels."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hoarfrost.errors import InputError
from hoarfrost.unsorted.number import LARGEST, Count, Levels, count_classes, first_below, hartigan, learned_levels

Floats = NDArray[np.float64]


def naive_hartigan(points: Floats) -> list[float]:
    """By its words: of all pairs of clusters the one is joined whose union adds least to the sum of squares."""

    def squares(cluster: list[int]) -> float:
        own = points[cluster]
        return float(((own - own.mean(axis=0)) ** 2).sum())

    clusters = [[index] for index in range(len(points))]
    errors = {len(clusters): 0.0}
    while len(clusters) > 1:
        first, second = min(
            itertools.combinations(clusters, 2), key=lambda pair: squares(pair[0] + pair[1]) - sum(map(squares, pair))
        )
        clusters = [cluster for cluster in clusters if cluster not in (first, second)] + [first + second]
        errors[len(clusters)] = sum(map(squares, clusters))
    n = len(points)
    return [(n - k) * (errors[k] - errors[k + 1]) / errors[k] for k in range(1, n)]


def blobs(classes: int, size: int, seed: int, apart: float = 6.0) -> tuple[Floats, NDArray[np.int64]]:
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), size)
    return random.normal(size=(classes, 16))[labels] * apart / 4 + random.normal(size=(len(labels), 16)), labels


@pytest.mark.parametrize("seed", range(4))
def test_hartigans_number_is_that_of_all_pairs_tried(seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(11, 3)) * 2 + 50
    np.testing.assert_allclose(hartigan(points), naive_hartigan(points), rtol=1e-8)


def test_the_first_number_at_or_below_the_level() -> None:
    numbers = np.array([8.0, 3.0, 5.0, 1.0])
    assert [first_below(numbers, level) for level in (9, 8, 4, 3, 2, 0.5)] == [1, 1, 2, 2, 4, 5]


def test_known_classes_say_how_many_new_ones_there_are() -> None:
    points, labels = blobs(12, 24, seed=0)
    levels = learned_levels(points, labels, seed=0)
    assert levels.sizes == (6, 12, 24)
    assert levels.images_a_class == 24
    assert list(levels.level) == sorted(levels.level), "it grows with the images a class"
    for low, level, high in zip(levels.low, levels.level, levels.high, strict=True):
        assert low <= level <= high
    assert levels == learned_levels(points, labels, seed=0)
    for classes in (2, 5, 9):
        new, _ = blobs(classes, 24, seed=classes)
        count = count_classes(new, levels, seed=0)
        assert count.number == classes
        assert count.least <= classes <= count.most
        assert count.curve[classes - 1] <= count.level < min(count.curve[: classes - 1])


def test_classes_of_different_sizes_are_counted_by_known_ones_of_different_sizes() -> None:
    """Each class is of three kinds; large ones are not to be cut into those by the level of the median class."""
    wrong = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        labels = np.repeat(np.arange(24), np.exp(random.uniform(np.log(5), np.log(60), size=24)).astype(int))
        means, kinds = 2 * random.normal(size=(24, 16)), random.normal(size=(24, 3, 16))
        points = means[labels] + kinds[labels, random.integers(0, 3, size=len(labels))]
        points, known = points + random.normal(size=points.shape), labels < 16
        levels = learned_levels(points[known], labels[known], seed=0)
        wrong.append(abs(count_classes(points[~known], levels, seed=0).number - 8))
    assert np.mean(wrong) < 2, wrong


def test_a_sample_is_counted_by_the_level_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    points, labels = blobs(12, 48, seed=0)
    levels = learned_levels(points, labels, seed=0)
    monkeypatch.setattr("hoarfrost.unsorted.number.MOST", 100)
    new, _ = blobs(6, 48, seed=3)
    count = count_classes(new, levels, seed=0)
    assert count.number == 6
    assert count.level == pytest.approx(levels.at(48 * 100 / len(new))[1])
    assert levels.at(12)[1] <= count.level <= levels.at(24)[1]


def test_levels_lie_between_those_that_are_known_and_go_on_with_the_root_of_the_size() -> None:
    levels = Levels(32.0, sizes=(8.0, 32.0), low=(1.0, 2.0), level=(2.0, 8.0), high=(4.0, 8.0))
    assert levels.at(8) == pytest.approx((1, 2, 4))
    assert levels.at(16) == pytest.approx((2**0.5, 4, 32**0.5)), "half-way, by logarithms"
    assert levels.at(2) == pytest.approx((1, 2, 4))
    assert levels.for_classes_of(16) == replace(levels, images_a_class=16), "nothing else changes"
    beyond = levels.for_classes_of(50)
    assert beyond.at(32) == pytest.approx((2, 8, 8))
    assert beyond.at(50) == pytest.approx((2 * 1.25, 8 * 1.25, 8 * 1.25))
    many = levels.for_classes_of(500)
    assert many.images_a_class == 500
    assert many.sizes == (8, 32, LARGEST), "of more images a sample is counted"
    points, _ = blobs(4, 500, seed=0)
    assert count_classes(points, many, seed=0).level == pytest.approx(8 * 2**0.5)


def test_too_few_images_say_nothing() -> None:
    assert learned_levels(np.zeros((6, 2)), np.array([0, 0, 0, 1, 1, 1]), seed=0) == Levels()
    with pytest.raises(InputError, match=r"--novel N"):
        count_classes(np.zeros((6, 2)), Levels(), seed=0)
    points, labels = blobs(3, 8, seed=0)
    assert count_classes(points[:1], learned_levels(points, labels, seed=0), seed=0).number == 1
    same = count_classes(np.ones((9, 16)), learned_levels(points, labels, seed=0), seed=0)
    assert same == Count(1, 1, 1, same.level, (0.0, 0.0, 0.0), images_a_class=8)
