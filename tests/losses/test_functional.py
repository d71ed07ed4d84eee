"""Each function against a naive loop, written from its equation."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hoarfrost.losses import functional as F

STEADY = settings(derandomize=True, deadline=None, max_examples=40)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def probabilities(*shape: int, seed: int = 0) -> Tensor:
    return random(*shape, seed=seed).softmax(dim=1)


def naive_top(values: list[float], k: int) -> set[int]:
    """Indices of the k largest values; between equal ones the lower index."""
    chosen: set[int] = set()
    for _ in range(min(k, len(values))):
        best = None
        for index, value in enumerate(values):
            if index not in chosen and (best is None or value > values[best]):
                best = index
        assert best is not None
        chosen.add(best)
    return chosen


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_rank_statistics_compares_sets_of_strongest_features(k: int) -> None:
    features = random(12, 7).round(decimals=0)  # many equal values
    same = F.rank_statistics(features, k)
    assert same.dtype == torch.bool
    tops = [naive_top(row, k) for row in features.tolist()]
    for i in range(12):
        for j in range(12):
            assert same[i, j].item() == (tops[i] == tops[j])


def test_rank_statistics_ignores_the_order_within_the_strongest() -> None:
    features = torch.tensor([[3.0, 2.0, 1.0, 0.0], [2.0, 3.0, 0.0, 1.0], [3.0, 0.0, 2.0, 1.0]])
    assert F.rank_statistics(features, 2).tolist() == [[True, True, False], [True, True, False], [False, False, True]]


def test_rank_statistics_ties_go_to_the_lower_index() -> None:
    features = torch.tensor([[1.0, 1.0, 1.0], [2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    assert F.rank_statistics(features, 2).tolist() == [[True, True, False], [True, True, False], [False, False, True]]


@STEADY
@given(st.integers(1, 5), st.integers(0, 10_000))
def test_rank_statistics_is_an_equivalence(k: int, seed: int) -> None:
    same = F.rank_statistics(random(8, 5, seed=seed).round(), k)
    assert same.diagonal().all()
    assert torch.equal(same, same.T)
    assert torch.equal(same, (same.float() @ same.float()) > 0)  # transitive


@STEADY
@given(st.integers(0, 10_000), st.floats(0.1, 10.0))
def test_rank_statistics_do_not_depend_on_scale(seed: int, scale: float) -> None:
    features = random(6, 9, seed=seed)
    assert torch.equal(F.rank_statistics(features, 3), F.rank_statistics(features * scale, 3))


def test_pairwise_bce_is_the_mean_over_all_ordered_pairs() -> None:
    p, q = probabilities(6, 4), probabilities(6, 4, seed=1)
    same = F.rank_statistics(random(6, 8, seed=2).round(), 2)
    total = 0.0
    for i in range(6):
        for j in range(6):
            together = sum(p[i, c].item() * q[j, c].item() for c in range(4))
            total -= math.log(together + 1e-7) if same[i, j] else math.log(1 - together + 1e-7)
    assert F.pairwise_bce(p, q, same).item() == pytest.approx(total / 36, rel=1e-9)


def test_pairwise_bce_stays_finite_for_certain_predictions() -> None:
    certain = torch.eye(3)
    assert torch.isfinite(F.pairwise_bce(certain, certain, torch.zeros(3, 3, dtype=torch.bool)))
    assert F.pairwise_bce(certain, certain, torch.eye(3, dtype=torch.bool)).item() == pytest.approx(0, abs=1e-5)


def test_pairwise_bce_logistic_is_the_printed_equation() -> None:
    a, b = random(5, 3), random(5, 3, seed=1)
    same = torch.rand(5, 5, generator=torch.Generator().manual_seed(3)) < 0.4
    total = 0.0
    for i in range(5):
        for j in range(5):
            together = 1 / (1 + math.exp(-sum(a[i, c].item() * b[j, c].item() for c in range(3))))
            total -= math.log(together) if same[i, j] else math.log(1 - together)
    assert F.pairwise_bce_logistic(a, b, same).item() == pytest.approx(total / 25, rel=1e-9)


def test_consistency_is_the_mean_over_entries() -> None:
    p, q = probabilities(5, 4), probabilities(5, 4, seed=1)
    total = sum((p[i, c].item() - q[i, c].item()) ** 2 for i in range(5) for c in range(4))
    assert F.consistency(p, q).item() == pytest.approx(total / 20, rel=1e-12)


@pytest.mark.parametrize("class_mean", [False, True])
def test_cross_entropy(class_mean: bool) -> None:
    logits, labels = random(6, 5), torch.tensor([0, 1, 4, 4, 2, 3])
    total = 0.0
    for i, label in enumerate(labels.tolist()):
        normaliser = sum(math.exp(logits[i, c].item()) for c in range(5))
        total -= math.log(math.exp(logits[i, label].item()) / normaliser)
    expected = total / 6 / (5 if class_mean else 1)
    assert F.cross_entropy(logits, labels, class_mean).item() == pytest.approx(expected, rel=1e-9)


def naive_batch_distance(student: Tensor, teacher: Tensor) -> float:
    s, t = (tensor.flatten().tolist() for tensor in (student, teacher))
    s_length, t_length = (math.sqrt(sum(v * v for v in vector)) for vector in (s, t))
    return math.sqrt(sum((x / s_length - y / t_length) ** 2 for x, y in zip(s, t, strict=True)))


def test_feature_distillation_of_the_batch() -> None:
    student, teacher = random(4, 6), random(4, 6, seed=1)
    expected = naive_batch_distance(student, teacher)
    assert F.feature_distillation(student, teacher, "batch").item() == pytest.approx(expected, rel=1e-9)


def test_feature_distillation_of_samples() -> None:
    student, teacher = random(4, 6), random(4, 6, seed=1)
    distances = [math.sqrt(sum((student[i, d].item() - teacher[i, d].item()) ** 2 for d in range(6))) for i in range(4)]
    assert F.feature_distillation(student, teacher, "sample").item() == pytest.approx(sum(distances) / 4, rel=1e-9)


def test_feature_distillation_of_equal_features_has_a_finite_gradient() -> None:
    student = random(3, 4).requires_grad_()
    torch.autograd.backward(F.feature_distillation(student, student.detach().clone(), "batch"))
    assert student.grad is not None
    assert torch.isfinite(student.grad).all()


def test_logit_distillation_softmax() -> None:
    student, teacher, temperature = random(4, 3), random(4, 3, seed=1), 2.0
    total = 0.0
    for i in range(4):
        t = [math.exp(teacher[i, k].item() / temperature) for k in range(3)]
        s = [math.exp(student[i, k].item() / temperature) for k in range(3)]
        total -= sum(t[k] / sum(t) * math.log(s[k] / sum(s)) for k in range(3))
    loss = F.logit_distillation(student, teacher, temperature, "softmax")
    assert loss.item() == pytest.approx(total / 4, rel=1e-9)


def test_logit_distillation_presoftmax() -> None:
    student, teacher = random(4, 3), random(4, 3, seed=1)
    loss = F.logit_distillation(student, teacher, 2.0, "presoftmax")
    assert loss.item() == pytest.approx(naive_batch_distance(student, teacher), rel=1e-9)


def test_unknown_forms_are_refused() -> None:
    with pytest.raises(ValueError, match="batch"):
        F.feature_distillation(random(2, 2), random(2, 2), "global")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="softmax"):
        F.logit_distillation(random(2, 2), random(2, 2), 2.0, "both")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epoch", "length"), [(0, 50), (1, 50), (25, 50), (49, 50), (50, 50), (80, 50), (-3, 50), (7, 0)]
)
def test_sigmoid_rampup(epoch: int, length: int) -> None:
    clipped = max(0, min(epoch, length))
    expected = math.exp(-5 * (1 - clipped / length) ** 2) if length else 1.0
    assert F.sigmoid_rampup(epoch, length) == pytest.approx(expected, rel=1e-12)


@STEADY
@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 80))
def test_sigmoid_rampup_never_falls(first: int, second: int, length: int) -> None:
    low, high = sorted((first, second))
    assert 0 < F.sigmoid_rampup(low, length) <= F.sigmoid_rampup(high, length) <= 1
