"""Whole folders, made of Gaussians: what is known is found, what is new is counted, and nothing new is nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hoarfrost.metrics import match_clusters
from hoarfrost.sorting.evidence import Evidence, Floats, Ids
from hoarfrost.sorting.folder import CERTAIN, DOUBT, LEAST, Found, Sorter, Sorting, renumbered, sort_folder
from hoarfrost.sorting.joining import Joined
from hoarfrost.sorting.space import KnownClasses, Space

GAUSSIAN = Sorter(0.4, 0.4)
WIDTH, OLD, NEW, IMAGES = 24, 6, 3, 20


def drawn(seed: int) -> tuple[KnownClasses, Floats, Ids]:
    """What is known of the first classes, and a folder of images of all: its features and classes."""
    random = np.random.default_rng(seed)
    stretch = random.uniform(0.5, 2, size=WIDTH)
    means = random.normal(scale=3, size=(OLD + NEW, WIDTH)) * stretch
    labels = np.repeat(np.arange(OLD + NEW), IMAGES)

    def images(of: Ids) -> Floats:
        return means[of] + random.normal(size=(len(of), WIDTH)) * stretch

    labelled = labels[labels < OLD]
    order = random.permutation(len(labels))
    return KnownClasses.of(images(labelled), labelled), images(labels)[order], labels[order]


@pytest.mark.parametrize("seed", range(3))
def test_a_mixed_folder_is_sorted(seed: int) -> None:
    known, folder, true = drawn(seed)
    found = sort_folder(known, folder, GAUSSIAN)
    assert found.novel == NEW
    old = true < OLD
    assert (found.labels[old] == true[old]).mean() > 0.97
    matched = match_clusters(found.labels[~old] - OLD, true[~old] - OLD, NEW)
    assert (found.labels[~old] == OLD + matched[true[~old] - OLD]).mean() > 0.97


@pytest.mark.parametrize("seed", range(3))
def test_a_folder_without_anything_new_has_no_new_class(seed: int) -> None:
    known, folder, true = drawn(seed)
    found = sort_folder(known, folder[true < OLD], GAUSSIAN)
    assert found.novel == 0
    assert (found.labels < OLD).all()


def test_with_only_new_none_is_of_a_known_class() -> None:
    known, folder, _ = drawn(0)
    found = sort_folder(known, folder, GAUSSIAN, only_new=True)
    assert found.novel == OLD + NEW
    assert found.labels.min() == OLD


@pytest.mark.parametrize("novel", [1, 2, 4])
def test_a_given_number_is_found(novel: int) -> None:
    known, folder, true = drawn(1)
    found = sort_folder(known, folder[true >= OLD], GAUSSIAN, novel=novel, only_new=True)
    assert found.novel == novel
    assert set(found.labels.tolist()) == set(range(OLD, OLD + novel))


def test_the_same_folder_is_sorted_the_same_again() -> None:
    known, folder, _ = drawn(2)
    first, second = (sort_folder(known, folder, GAUSSIAN).labels for _ in range(2))
    assert (first == second).all()


def test_features_moved_and_scaled_are_sorted_the_same() -> None:
    known, folder, _ = drawn(0)
    moved = KnownClasses(known.count, known.mean * 7 + 2, known.within * 49, known.degrees)
    found, expected = sort_folder(moved, folder * 7 + 2, GAUSSIAN), sort_folder(known, folder, GAUSSIAN)
    assert (found.labels == expected.labels).all()


def test_a_point_is_moved_without_its_own_part_in_its_class() -> None:
    random = np.random.default_rng(0)
    points, labels = random.normal(size=(12, 2)) * 3, random.integers(0, 4, 12)
    between, count, mean = np.array([4.0, 2.0]), np.array([5.0]), np.array([[1.0, -1.0]])
    evidence = Evidence(between, 0.4)
    sorting = Sorting(evidence, points, count, mean)
    sorting.moves = 1
    found, expected = sorting._moved(labels), []
    for at, point in enumerate(points):
        scores = []
        for label in range(labels.max() + 1):
            members = [points[i] for i in range(12) if labels[i] == label and i != at]
            own = [*members, *([mean[0]] * 5 if label == 0 else [])]
            images = np.array([float(len(own))])
            centre = np.mean(own, axis=0) if own else np.zeros(2)
            alone = not own and label == labels[at]
            scores.append(-np.inf if alone else evidence.densities(point[None], images, centre[None])[0, 0])
        expected.append(int(np.argmax(scores)))
    assert found.tolist() == renumbered(np.array(expected), 1).tolist()


def test_a_few_images_like_each_other_are_strange_and_no_class() -> None:
    known, folder, true = drawn(0)
    few = np.flatnonzero(true == OLD)[: LEAST - 1]
    rest = np.flatnonzero(true < OLD + NEW - 1)
    chosen = np.concatenate([rest[true[rest] != OLD], few])
    found = sort_folder(known, folder[chosen], GAUSSIAN)
    assert found.novel == NEW - 2
    assert found.strange[-len(few) :].all()
    assert not found.strange[: -len(few)].any()


def test_what_is_worth_no_more_than_twice_what_chance_makes_is_not_new() -> None:
    known, folder, _ = drawn(0)
    worth = sort_folder(known, folder, GAUSSIAN).worth
    some = Sorter(0.4, 0.4, chance=float(worth.sum()) / CERTAIN * 0.99)
    found = sort_folder(known, folder, some)
    assert found.novel == found.least == found.most == NEW
    none = sort_folder(known, folder, Sorter(0.4, 0.4, chance=float(worth.sum()) / CERTAIN))
    assert none.novel == none.most == 0
    assert (none.labels < OLD).all()


def test_the_range_is_without_what_is_worth_little_and_with_what_was_joined_for_little() -> None:
    for nearer in np.linspace(0.05, 1, 6):
        known, folder, true = drawn(0)
        own = true == OLD
        folder[own] += (nearer - 1) * (folder[own].mean(axis=0) - known.mean[0])  # a new class comes near a known one
        found = sort_folder(known, folder, GAUSSIAN)
        assert found.least == (found.worth > DOUBT).sum() <= found.novel <= found.most
    labels, smaller = np.repeat([0, 1], 20), np.array([20.0, 20.0, 3.0])
    joined = Joined(np.zeros(0, dtype=np.int64), np.array([DOUBT - 1, DOUBT + 1, DOUBT - 1]), smaller)
    assert Found(labels, np.zeros((0, 2)), joined, np.zeros(40)).halves == 1, "one was joined for little, one is small"


def test_the_typical_images_of_a_class_are_the_four_fifths_nearest_to_its_mean() -> None:
    known, folder, _ = drawn(1)
    found = sort_folder(known, folder, GAUSSIAN)
    for label in np.unique(found.labels):
        own = found.labels == label
        assert found.typical[own].sum() == math.ceil(0.8 * own.sum())
        assert found.distance[own & found.typical].max() <= found.distance[own & ~found.typical].min()


def test_a_half_of_a_class_is_most_like_its_other_half() -> None:
    known, folder, true = drawn(2)
    found = sort_folder(known, folder[true >= OLD], GAUSSIAN, novel=NEW + 1, only_new=True)
    own = true[true >= OLD]
    of = [np.bincount(own[found.labels == OLD + c]).argmax() for c in range(NEW + 1)]
    halves = [c for c in range(NEW + 1) if of.count(of[c]) == 2]
    assert len(halves) == 2
    among_new = found.likeness[:, OLD:]
    assert np.nanargmax(among_new[halves[0]]) == halves[1]
    assert np.isnan(among_new[halves[0], halves[0]])


def test_classes_are_round_in_the_space_that_is_looked_at() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 100)
    mixing = np.linalg.qr(random.normal(size=(10, 10)))[0] * random.uniform(0.5, 2, size=10)
    features = (random.normal(size=(40, 10)) * 2)[labels] @ mixing + random.normal(size=(4000, 10)) @ mixing
    known = KnownClasses.of(features, labels)
    space = Space.of(known, features[::7])
    points = space.points(features)
    apart = points - (np.add.reduceat(points, np.arange(0, 4000, 100)) / 100)[labels]
    assert np.allclose(apart.T @ apart / known.degrees, np.eye(10), atol=0.05)
    assert (np.diff(space.between) <= 1e-9).all()
    assert abs(space.between.mean() - 4) < 1
