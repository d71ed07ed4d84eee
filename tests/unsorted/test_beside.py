"""K-means beside fixed centres, against brute force."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from hoarfrost.unsorted import beside
from hoarfrost.unsorted.beside import k_means_beside

Floats = NDArray[np.float64]


def naive_total(points: Floats, fixed: Floats, given: Sequence[int]) -> float:
    """The squared distance of each point from the nearest fixed centre where it is given -1, and from the mean of the
    others in its group where it has one; one alone has no others."""
    known = [point for point, group in zip(points, given, strict=True) if group < 0]
    total = sum(min(((point - centre) ** 2).sum() for centre in fixed) for point in known)
    for group in set(given) - {-1}:
        own = [at for at, other in enumerate(given) if other == group]
        if len(own) == 1:
            return np.inf
        whole = sum(points[at] for at in own)
        total += sum(((points[at] - (whole - points[at]) / (len(own) - 1)) ** 2).sum() for at in own)
    return float(total)


@pytest.mark.parametrize("free", [1, 2])
def test_k_means_beside_fixed_centres_finds_the_best_of_all_ways(free: int) -> None:
    places = np.array([[0.0, 0], [6, 0], [0, 6]])[[0, 1, 1, 1, 1, *([2] * 4 if free == 2 else [0])]]
    points, fixed = places + np.random.default_rng(0).normal(size=places.shape), np.array([[0.0, 0], [-2, 4]])
    ways = itertools.product(range(-1, free), repeat=len(points))
    least = min(naive_total(points, fixed, way) for way in ways)
    assert k_means_beside(points, fixed, free, seed=0).total == pytest.approx(least)


@pytest.mark.parametrize("free", [1, 2, 5])
def test_a_point_is_with_the_centre_it_is_nearest_to_without_itself(free: int) -> None:
    for seed in range(5):
        random = np.random.default_rng(seed)
        places = random.normal(size=(6, 3)) * 4
        points, fixed = places[np.arange(40) % 6] + random.normal(size=(40, 3)), places[:2]
        found = k_means_beside(points, fixed, free, seed)
        assert found.total == pytest.approx(naive_total(points, fixed, found.labels.tolist()))
        for point, label in enumerate(found.labels):
            to_fixed = ((points[point] - fixed) ** 2).sum(axis=1).min()
            others = [(found.labels == k) & (np.arange(40) != point) for k in range(found.labels.max() + 1)]
            to_free = [float(((points[point] - points[own].mean(axis=0)) ** 2).sum()) for own in others]
            assert found.nearest()[point] == pytest.approx(min(to_free))
            assert label == (-1 if to_fixed <= min(to_free) else int(np.argmin(to_free)))


def test_one_image_is_no_class_and_without_free_centres_all_go_to_fixed_ones() -> None:
    points, fixed = np.array([[0.0], [3.0]]), np.array([[1.0]])
    for free in (0, 1, 2):
        found = k_means_beside(points, fixed, free, seed=0)
        assert (found.total, found.labels.tolist(), found.nearest().tolist()) == (5.0, [-1, -1], [np.inf, np.inf])
    near = np.concatenate([np.zeros((6, 1)), np.full((1, 1), 90.0)])
    found = k_means_beside(near, np.array([[1.0]]), 2, seed=0)
    assert found.labels.tolist() == [0, 0, 0, 0, 0, 0, -1], "an image that is alone gets no centre of its own"


def test_as_many_starts_as_there_is_memory_for_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    points, fixed = random.normal(size=(50, 3)) * 3, random.normal(size=(2, 3))
    whole = k_means_beside(points, fixed, 6, seed=0)
    monkeypatch.setattr(beside, "AT_ONCE", 3 * 50 * beside.TRIES)
    parts = k_means_beside(points, fixed, 6, seed=0)
    assert parts.total == pytest.approx(whole.total)
    np.testing.assert_allclose(parts.distances, whole.distances)
    assert whole.total < k_means_beside(points, fixed, 6, seed=0, starts=1).total, "the best of several"
