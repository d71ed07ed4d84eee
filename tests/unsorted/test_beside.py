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


def naive(points: Floats, fixed: Floats, free: int, seed: int, starts: int) -> tuple[float, list[int]]:
    """The same, one start after the other and one centre after the other: the total, and the centre of each point."""
    random = np.random.default_rng(seed)

    def apart(centre: Floats) -> Floats:
        return np.asarray(((points - centre) ** 2).sum(axis=1))

    to_fixed = np.min([apart(centre) for centre in fixed], axis=0)
    base = np.minimum(to_fixed, beside.LIMIT * np.median(to_fixed))
    best = float(base.sum()), [-1] * len(points)
    for _ in range(starts):
        left, centres = base, list[Floats]()
        for _ in range(free):
            picked = random.choice(len(points), beside.TRIES, p=left / left.sum())
            tried = [points[np.argsort(apart(points[k]))[: beside.NEIGHBOURS]].mean(axis=0) for k in picked]
            after = [np.minimum(left, apart(centre)) for centre in tried]
            chosen = int(np.argmin([rest.sum() for rest in after]))
            centres.append(tried[chosen])
            left = after[chosen]
        labels, sizes = np.full(len(points), -1), [0] * free
        for turn in range(beside.ROUNDS + 1):
            own = np.array([apart(centre) for centre in centres]).reshape(len(centres), len(points))
            for point, label in enumerate(labels):
                if label >= 0:  # from the mean of the others there
                    own[label, point] *= (sizes[label] / (sizes[label] - 1)) ** 2
            wanted = labels.copy()
            for point in range(len(points)):
                nearest = int(own[:, point].argmin()) if len(centres) else -1
                wanted[point] = nearest if len(centres) and own[nearest, point] < base[point] else -1
            if (wanted == labels).all() or turn == beside.ROUNDS:
                break
            may = [point for point in range(len(points)) if turn < beside.TOGETHER or point % 2 != turn % 2]
            labels[may] = wanted[may]
            kept = [k for k in range(len(centres)) if (labels == k).sum() > 1]
            labels = np.array([kept.index(label) if label in kept else -1 for label in labels])
            sizes = [int((labels == k).sum()) for k in range(len(kept))]
            centres = [points[labels == k].mean(axis=0) for k in range(len(kept))]
        total = float(np.minimum(own.min(axis=0, initial=np.inf), base).sum())
        if total < best[0]:
            best = total, wanted.tolist()
    return best


def groups(labels: Sequence[int]) -> set[frozenset[int]]:
    """Which points are together, whatever their centre is called."""
    return {frozenset(at for at, own in enumerate(labels) if own == label) for label in set(labels) - {-1}}


@pytest.mark.parametrize("starts", [1, 4])  # of one the last round shows, also where rounds repeat to the end
@pytest.mark.parametrize("seed", range(12))
def test_it_finds_what_one_start_after_the_other_finds(seed: int, starts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "TOGETHER", 2)  # so that they take turns now and then
    random = np.random.default_rng(seed)
    points, fixed = random.normal(size=(60, 2)) * 4, random.normal(size=(2, 2))
    found = k_means_beside(points, fixed, 10, seed, starts=starts)
    total, labels = naive(points, fixed, 10, seed, starts=starts)
    assert found.total == pytest.approx(total)
    assert groups(found.labels.tolist()) == groups(labels)
    assert sorted(set(found.labels.tolist()) - {-1}) == list(range(found.distances.shape[1])), "centres that are left"
    assert np.isfinite(found.distances).all()
    assert found.sizes.min() >= 2


def test_as_many_starts_as_there_is_memory_for_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    random, together = np.random.default_rng(0), list[int]()
    points, fixed = random.normal(size=(50, 3)) * 3, random.normal(size=(2, 3))
    first_centres = beside._first_centres

    def counted(points: Floats, base: Floats, drawn: Floats) -> object:
        together.append(len(drawn))
        return first_centres(points, base, drawn)

    monkeypatch.setattr(beside, "_first_centres", counted)
    whole = k_means_beside(points, fixed, 6, seed=0)
    monkeypatch.setattr(beside, "AT_ONCE", 3 * 50 * beside.TRIES)
    parts = k_means_beside(points, fixed, 6, seed=0)
    assert together == [20, 3, 3, 3, 3, 3, 3, 2]
    assert parts.total == pytest.approx(whole.total)
    assert groups(parts.labels.tolist()) == groups(whole.labels.tolist())
    # Of two starts that end alike rounding decides which is taken; one may have the same centres in another order.
    ours, theirs = (found.distances[:, found.distances[0].argsort()] for found in (parts, whole))
    np.testing.assert_allclose(ours, theirs)
    assert whole.total < k_means_beside(points, fixed, 6, seed=0, starts=1).total, "the best of several"


def test_without_points_there_is_nothing() -> None:
    found = k_means_beside(np.zeros((0, 3)), np.zeros((2, 3)), 2, seed=0)
    assert (found.total, found.labels.tolist(), found.distances.shape) == (0.0, [], (0, 0))
