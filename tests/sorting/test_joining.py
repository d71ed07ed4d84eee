"""Joining against the same written plainly: all pairs anew, each time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hoarfrost.sorting.evidence import Evidence, Floats, Roughness
from hoarfrost.sorting.joining import Groups, Ids, join

EVIDENCE = Evidence(np.array([3.0, 1.0, 0.3]), Roughness(1.5, 0.2))


def some_groups(seed: int, known: int, others: int) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    return random.integers(1, 30, known + others).astype(float), random.normal(scale=1.5, size=(known + others, 3))


def of(count: float, mean: Floats) -> float:
    effective = EVIDENCE.roughness.effective(np.array([count]))
    return float(EVIDENCE.of(effective, mean[None])[0])


def gain(first: tuple[float, Floats], second: tuple[float, Floats]) -> float:
    """Both means weigh as much as their effective images; the evidence of the whole adds those up."""
    (n, x), (m, y) = first, second
    one, other = (float(EVIDENCE.roughness.effective(np.array([v]))[0]) for v in (n, m))
    mean = (one * x + other * y) / (one + other)
    return float(EVIDENCE.of(np.array([one + other]), mean[None])[0]) - of(n, x) - of(m, y)


def naive(count: Floats, mean: Floats, known: int, cost: float, novel: int | None) -> Ids:
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
        if novel is None and gain(groups[into], groups[one]) <= -cost:
            break
        (n, x), (m, y) = groups[into], groups.pop(one)
        groups[into] = (n + m, (n * x + m * y) / (n + m))
        members[into] += members.pop(one)
    found = np.zeros(len(count), dtype=np.int64)
    for into, own in members.items():
        found[own] = into
    return found[known:]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("known", "cost", "novel"), [(0, 0.0, None), (3, 0.0, None), (3, 4.0, None), (2, 0.0, 2)])
def test_the_same_pairs_are_joined(seed: int, known: int, cost: float, novel: int | None) -> None:
    count, mean = some_groups(seed, known, 12)
    found = join(Groups(EVIDENCE, count, mean, known), cost, novel)
    assert found.to.tolist() == naive(count, mean, known, cost, novel).tolist()
    assert len(found.gains) == 12 - len(np.unique(found.to[found.to >= known]))


def test_known_classes_are_never_joined() -> None:
    count, mean = np.full(5, 20.0), np.zeros((5, 3))
    found = join(Groups(EVIDENCE, count, mean, 4), 0.0)
    assert found.to.tolist() == [0]


def test_a_higher_cost_leaves_fewer_classes() -> None:
    count, mean = some_groups(5, 2, 25)
    left = [len(np.unique(join(Groups(EVIDENCE, count, mean, 2), cost).to)) for cost in (0.0, 5.0, 50.0)]
    assert left == sorted(left, reverse=True)
    assert left[0] > left[-1]
