"""Old and new images in one folder: k-means beside fixed centres against brute force, and what is learned for it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hoarfrost.mixed import (
    NOTHING,
    Expected,
    KnownClasses,
    anything_new,
    count_beside,
    expectations,
    k_means_beside,
    sort,
    sums_of,
)
from hoarfrost.models.readout import Gaussians
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.number import LEAST, Levels, learned_levels, squared_distances

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
FEATURES = 24


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


def images(classes: range, size: int, seed: int) -> tuple[Floats, Ids]:
    """Of classes that lie in the same places each time."""
    places = np.random.default_rng(99).normal(size=(40, FEATURES)) * 1.5
    labels = np.repeat(np.arange(classes.start, classes.stop), size)
    return places[labels] + np.random.default_rng(seed).normal(size=(len(labels), FEATURES)), labels


def learned_of(classes: range, size: int, seed: int) -> tuple[KnownClasses, Expected, Levels]:
    """What is known of these classes, and what is to be expected of folders to come."""
    points, labels = images(classes, size, seed)
    expected = expectations(points, labels, seed=0, diagonal=False, learned=False)
    assert expected is not None
    known = KnownClasses.of(points, labels, FEATURES, diagonal=False)
    return known, expected, learned_levels(points, labels, seed=0)


def test_old_and_new_are_told_apart_and_nothing_new_is_nothing() -> None:
    points, labels = images(range(9), 20, seed=0)
    known = KnownClasses.of(points, labels, FEATURES, diagonal=False)
    expected = expectations(points, labels, seed=0, diagonal=False, learned=False)
    assert expected is not None
    assert expected == expectations(points, labels, seed=0, diagonal=False, learned=False)
    levels = learned_levels(points, labels, seed=0)
    (old, old_labels), (new, new_labels) = images(range(9), 12, seed=1), images(range(9, 12), 20, seed=2)
    assert not anything_new(known, old, expected, seed=0)
    assert count_beside(known, old, old, expected, levels, seed=0).number == 0
    strange = np.concatenate([old, np.full((1, FEATURES), 30.0)])
    assert count_beside(known, strange, strange, expected, levels, seed=0).number == 0, "one image is no class"

    folder, true = np.concatenate([old, new]), np.concatenate([old_labels, new_labels])
    count = count_beside(known, folder, folder, expected, levels, seed=0)
    assert count.number == 3
    found = sort(known, folder, count.number, seed=0)
    sure = ~found.unsure(expected)
    assert sure.mean() > 0.85
    assert np.array_equal(found.labels[sure], np.where(true < 9, true, -1)[sure])
    assert ((found.gap > 0) == (found.labels < 0)).all()
    assert expected.error is not None
    assert expected.error < 0.05

    odd = sort(known, np.concatenate([folder, np.full((1, FEATURES), 60.0)]), 3, seed=0)
    assert odd.unsure(expected)[-1], "what is far from everything is unsure"


def test_a_few_strange_images_beside_a_new_class_are_no_class() -> None:
    known, expected, levels = learned_of(range(9), 20, seed=0)
    (old, _), (new, _) = images(range(9), 12, seed=1), images(range(9, 10), 20, seed=2)
    few, enough = (images(range(10, 11), size, seed=3)[0] for size in (LEAST - 1, LEAST + 2))
    for strange, number in ((few, 1), (enough, 2)):
        folder = np.concatenate([old, new, strange])
        assert count_beside(known, folder, folder, expected, levels, seed=0).number == number
    folder = np.concatenate([old, few])
    assert count_beside(known, folder, folder, expected, levels, seed=0) == NOTHING


@pytest.mark.parametrize(("classes", "size"), [(3, 6), (5, 4), (9, 20)])
def test_folders_of_few_known_images_have_nothing_new(classes: int, size: int) -> None:
    """In small folders a free centre may explain nothing at all, which says little of a folder to come."""
    points, labels = images(range(classes), size, seed=0)
    known = KnownClasses.of(points, labels, FEATURES, diagonal=False)
    expected = expectations(points, labels, seed=0, diagonal=False, learned=False)
    assert expected is not None
    old = [images(range(classes), folder, seed)[0] for folder in (1, 2, 5, 10) for seed in range(1, 7)]
    levels = learned_levels(points, labels, seed=0)
    assert [count_beside(known, folder, folder, expected, levels, seed=0).number for folder in old] == [0] * len(old)
    new = images(range(classes, classes + 1), 6, seed=7)[0]
    assert all(anything_new(known, np.concatenate([folder, new]), expected, seed=0) for folder in old)


def test_parts_of_known_classes_are_no_new_ones() -> None:
    """Their means were learned from few images, so that those in the folder lie beside them, all to the same side."""
    for seed in range(3):
        known, expected, levels = learned_of(range(9), 8, seed)
        (old, _), (new, _) = images(range(9), 12, seed + 10), images(range(9, 11), 12, seed + 20)
        folder = np.concatenate([old, new])
        assert count_beside(known, folder, folder, expected, levels, seed=0).number == 2


@pytest.mark.parametrize(("far", "strange"), [(5, 3), (8, 2), (12, 1), (20, 1), (20, 3)])
def test_new_classes_are_found_beside_images_that_are_stranger(far: float, strange: int) -> None:
    known, expected, levels = learned_of(range(9), 20, seed=0)
    (old, _), (new, _) = images(range(9), 12, seed=1), images(range(9, 12), 20, seed=2)
    odd = far + np.random.default_rng(3).normal(size=(strange, FEATURES))
    folder = np.concatenate([old, new, odd])
    assert count_beside(known, folder, folder, expected, levels, seed=0).number == 3
    found = sort(known, folder, 3, seed=0)
    assert found.unsure(expected)[-strange:].all()
    assert ((found.gap > 0) == (found.labels < 0)).all()
    assert (found.labels[len(old) : len(old) + len(new)] < 0).mean() > 0.95


def test_unseen_images_of_known_classes_lie_as_far_off_as_expected() -> None:
    """Means and covariance of a part of the images are worse than those of all: that had made it too far by much."""
    farther = []
    for seed in range(6):
        points, labels = images(range(9), 8, seed)
        known = KnownClasses.of(points, labels, FEATURES, diagonal=False)
        expected = expectations(points, labels, seed=0, diagonal=False, learned=False)
        assert expected is not None
        assert expected.images == len(points)
        unseen = known.nearest(images(range(9), 50, seed + 100)[0])
        farther.append((float(unseen.mean()) - expected.distance) / expected.deviation)
        new = known.nearest(images(range(9, 12), 50, seed + 100)[0])
        assert (float(new.mean()) - expected.distance) / expected.deviation > 1
    assert abs(np.mean(farther)) < 0.1, farther


def test_the_margin_leaves_unsure_what_errors_are_made_with() -> None:
    random = np.random.default_rng(5)
    labels = np.repeat(np.arange(9), 20)
    points = random.normal(size=(9, FEATURES))[labels] * 0.5 + random.normal(size=(len(labels), FEATURES))
    near = expectations(points, labels, seed=0, diagonal=False, learned=False)
    apart = expectations(*images(range(9), 20, seed=0), seed=0, diagonal=False, learned=False)
    assert near is not None
    assert apart is not None
    assert apart.margin == 0 < near.margin
    assert apart.error is not None
    assert near.error is not None
    assert apart.error < near.error
    assert expectations(points[:3], labels[:3], seed=0, diagonal=False, learned=False) is None


def test_variances_alone_will_do_and_learned_images_say_nothing_by_their_distance() -> None:
    points, labels = images(range(9), 20, seed=0)
    known = KnownClasses.of(points, labels, FEATURES, diagonal=True)
    np.testing.assert_allclose(
        known.covariance, np.diag(KnownClasses.of(points, labels, FEATURES, diagonal=False).covariance)
    )
    as_matrix = replace(known, covariance=np.diag(known.covariance))
    for one, other in zip(known.whitened(points), as_matrix.whitened(points), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-9)
    expected = expectations(points, labels, seed=0, diagonal=True, learned=True)
    assert expected is not None
    farther = points * 1.1
    assert not anything_new(known, farther, expected, seed=0)


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
