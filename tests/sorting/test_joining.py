"""Joining against the same written plainly: all pairs anew, each time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hoarfrost.sorting.evidence import Evidence, Floats
from hoarfrost.sorting.joining import Groups, Ids, join

EVIDENCE = Evidence(np.array([3.0, 1.0, 0.3]), 0.4)


def some_groups(seed: int, known: int, others: int) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    return random.integers(1, 30, known + others).astype(float), random.normal(scale=1.5, size=(known + others, 3))


def gain(first: tuple[float, Floats], second: tuple[float, Floats]) -> float:
    (n, x), (m, y) = first, second
    return float(EVIDENCE.gains(n, x, np.array([m]), y[None])[0])


def naive(count: Floats, mean: Floats, known: int, novel: int | None) -> Ids:
    groups = {k: (float(count[k]), mean[k]) for k in range(len(count))}
    members = {k: [k] for k in groups}
    while True:
        left = [k for k in groups if k >= known]
        if len(left) <= (novel or 0):
            break
        pairs = [(a, b) for a, b in itertools.combinations(sorted(groups), 2) if b >= known]
        if not pairs:
            break
        into, one = max(pairs, key=lambda pair: gain(groups[pair[0]], groups[pair[1]]))
        if novel is None and gain(groups[into], groups[one]) <= 0:
            break
        (n, x), (m, y) = groups[into], groups.pop(one)
        groups[into] = (n + m, (n * x + m * y) / (n + m))
        members[into] += members.pop(one)
    found = np.zeros(len(count), dtype=np.int64)
    for into, own in members.items():
        found[own] = into
    return found[known:]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("known", "novel"), [(0, None), (3, None), (2, 2)])
def test_the_same_pairs_are_joined(seed: int, known: int, novel: int | None) -> None:
    count, mean = some_groups(seed, known, 12)
    found = join(Groups(EVIDENCE, count, mean, known), novel)
    assert found.to.tolist() == naive(count, mean, known, novel).tolist()
    assert len(found.gains) == 12 - len(np.unique(found.to[found.to >= known]))


def test_known_classes_are_never_joined() -> None:
    count, mean = np.full(5, 20.0), np.zeros((5, 3))
    found = join(Groups(EVIDENCE, count, mean, 4))
    assert found.to.tolist() == [0]


@pytest.mark.parametrize("seed", range(4))
def test_what_joining_gains_is_read_off_a_table_exactly_enough(seed: int) -> None:
    count, mean = some_groups(seed, 2, 12)
    groups, others = Groups(EVIDENCE, count, mean, 2), np.arange(1, 14)
    groups.join(7, 3)
    expected = EVIDENCE.gains(float(groups.count[0]), groups.mean[0], groups.count[others], groups.mean[others])
    assert np.allclose(groups.gains(0, others), expected, rtol=0.01, atol=0.03)
    assert groups.count[3] == count[3] + count[7]
    assert np.allclose(groups.mean[3], (count[3] * mean[3] + count[7] * mean[7]) / (count[3] + count[7]))


def test_rougher_classes_are_fewer() -> None:
    count, mean = some_groups(5, 2, 25)
    found = [join(Groups(Evidence(EVIDENCE.between, r), count, mean, 2)).to for r in (0.05, 0.4, 3.0)]
    left = [len(np.unique(to)) for to in found]
    assert left == sorted(left, reverse=True)
    assert left[0] > left[-1]
