"""Each function against a naive loop, written from its equation."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hoarfrost.losses import functional as F

from . import naive
from .naive import rows

STEADY = settings(derandomize=True, deadline=None, max_examples=40)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def probabilities(*shape: int, seed: int = 0) -> Tensor:
    return random(*shape, seed=seed).softmax(dim=1)


def directions(*shape: int, seed: int = 0) -> Tensor:
    """Features of length 1."""
    return torch.tensor([naive.unit(row) for row in rows(random(*shape, seed=seed))], dtype=torch.float64)


def close(tensor: Tensor, expected: object) -> bool:
    return torch.allclose(tensor, torch.tensor(expected, dtype=tensor.dtype), rtol=1e-9, atol=1e-12)


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


@STEADY
@given(st.integers(0, 10_000), st.floats(0.0, 0.99))
def test_cosine_pairs_are_those_above_the_threshold(seed: int, threshold: float) -> None:
    features = random(7, 3, seed=seed)
    same = F.cosine_pairs(features, threshold)
    assert same.dtype == torch.bool
    units = [naive.unit(row) for row in rows(features)]
    assert same.tolist() == [[naive.dot(a, b) > threshold for b in units] for a in units]


def test_a_cosine_at_the_threshold_is_not_above_it() -> None:
    features = torch.tensor([[3.0, 4.0], [5.0, 0.0]], dtype=torch.float64)
    assert F.cosine_pairs(features, 0.6).tolist() == [[True, False], [False, True]]
    assert F.cosine_pairs(features, 0.599).all()


def test_unit_rows_have_length_1_and_keep_their_direction() -> None:
    features = random(5, 4) * torch.tensor([[1.0], [1e-3], [10.0], [1e4], [2.0]], dtype=torch.float64)
    assert close(F.unit_rows(features), [naive.unit(row) for row in rows(features)])
    assert not F.unit_rows(torch.zeros(2, 3)).any()


@STEADY
@given(st.integers(0, 10_000), st.integers(1, 14), st.integers(1, 14), st.integers(0, 14))
def test_extreme_pairs(seed: int, images: int, positives: int, negatives: int) -> None:
    p = probabilities(images, 4, seed=seed)
    assert F.extreme_pairs(p, positives, negatives).tolist() == naive.extreme_pairs(rows(p), positives, negatives)


def test_extreme_pairs_of_a_small_batch_are_all_apart_but_for_the_image_itself() -> None:
    expected = [[1.0 if i == j else -1.0 for j in range(4)] for i in range(4)]
    assert F.extreme_pairs(probabilities(4, 3), 10, 10).tolist() == expected
    assert F.extreme_pairs(probabilities(1, 3), 10, 10).tolist() == [[1.0]]


def test_extreme_pairs_choose_as_many_of_equally_similar_images() -> None:
    pairs = F.extreme_pairs(torch.full((6, 1), 1.0), 2, 3)  # a single class
    assert (pairs.diagonal() == 1).all()
    apart = (pairs == -1).sum(dim=1)
    assert ((apart == 3) | (apart == 2)).all()  # one less where the image itself was chosen
    assert ((pairs == 1).sum(dim=1) <= 3).all()


@pytest.mark.parametrize("seed", range(4))
def test_signed_pairwise_bce_is_a_mean_over_all_pairs(seed: int) -> None:
    p = probabilities(9, 4, seed=seed)
    pairs = naive.extreme_pairs(rows(probabilities(9, 3, seed=seed + 100)), 2, 3)
    loss = F.signed_pairwise_bce(p, torch.tensor(pairs, dtype=torch.float64))
    assert loss.item() == pytest.approx(naive.signed_pairwise_bce(rows(p), pairs), rel=1e-9)


def test_signed_pairwise_bce_stays_finite_for_certain_predictions() -> None:
    certain = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
    loss = F.signed_pairwise_bce(certain, torch.tensor([[1.0, -1.0], [0.0, 1.0]]))
    assert loss.item() == pytest.approx(-math.log(1e-7) / 4, rel=1e-3)
    torch.autograd.backward(loss)
    assert certain.grad is not None
    assert torch.isfinite(certain.grad).all()


def test_pairs_of_0_pull_at_nothing() -> None:
    p = probabilities(3, 4).requires_grad_()
    torch.autograd.backward(F.signed_pairwise_bce(p, torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))))
    assert p.grad is not None
    assert p.grad[:2].all()
    assert not p.grad[2].any()


@pytest.mark.parametrize("seed", range(4))
def test_squared_distances(seed: int) -> None:
    points, centres = random(6, 3, seed=seed), random(4, 3, seed=seed + 100)
    expected = [[math.dist(point, centre) ** 2 for centre in rows(centres)] for point in rows(points)]
    assert close(F.squared_distances(points, centres), expected)


def test_squared_distances_are_never_below_0() -> None:
    points = random(50, 7).float() * 100
    near = F.squared_distances(points, points).diagonal()
    assert (near >= 0).all()
    assert (F.student_t_logits(points, points) <= 0).all()


@STEADY
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 5))
def test_the_softmax_of_student_t_logits_falls_with_the_squared_distance(seed: int, images: int, clusters: int) -> None:
    points, centres = random(images, 3, seed=seed), random(clusters, 3, seed=seed + 1)
    q = F.student_t_logits(points, centres).softmax(dim=1)
    assert close(q, naive.student_t(rows(points), rows(centres)))


def test_student_t_logits_move_points_and_centres() -> None:
    points, centres = random(4, 3).requires_grad_(), random(2, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(F.student_t_logits, (points, centres))


@STEADY
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 5))
def test_sharpened(seed: int, images: int, clusters: int) -> None:
    q = probabilities(images, clusters, seed=seed)
    p = F.sharpened(q)
    assert close(p, naive.sharpened(rows(q)))
    assert close(p.sum(dim=1), [1.0] * images)


def test_sharpened_prefers_small_clusters() -> None:
    q = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.9, 0.1]], dtype=torch.float64)
    p = F.sharpened(q)
    assert p[0, 1] > 0.75
    assert p[0, 0] < 0.25


def test_sharpened_without_an_image_in_a_cluster_is_finite() -> None:
    q = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert F.sharpened(q).tolist() == q.tolist()


@STEADY
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 5))
def test_cluster_divergence_is_a_mean_over_all_entries(seed: int, images: int, clusters: int) -> None:
    logits, target = random(images, clusters, seed=seed), probabilities(images, clusters, seed=seed + 1)
    q = [naive.softmax(row) for row in rows(logits)]
    expected = naive.mean_divergence(rows(target), q)
    assert F.cluster_divergence(logits, target).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_cluster_divergence_with_certain_targets() -> None:
    logits, target = random(3, 4), torch.eye(4, dtype=torch.float64)[[2, 0, 3]]
    expected = naive.mean_divergence(rows(target), [naive.softmax(row) for row in rows(logits)])
    assert F.cluster_divergence(logits, target).item() == pytest.approx(expected, rel=1e-9)


def test_cluster_divergence_of_what_is_reached_is_0() -> None:
    logits = random(5, 3).requires_grad_()
    loss = F.cluster_divergence(logits, logits.detach().softmax(dim=1))
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-12


@STEADY
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 9), st.integers(1, 10), st.booleans())
def test_neighbour_contrast(seed: int, images: int, size: int, neighbours: int, alike: bool) -> None:
    query, queue = directions(images, 5, seed=seed), directions(size, 5, seed=seed + 1)
    key = query if alike else directions(images, 5, seed=seed + 2)  # the strongest, or somewhere between
    neighbours = min(neighbours, 1 + size)
    how = {"temperature": 0.1, "own": 0.3}
    expected = naive.neighbour_contrast(rows(query), rows(key), rows(queue), **how, neighbours=neighbours)
    loss = F.neighbour_contrast(query, key, queue, **how, neighbours=neighbours)
    assert loss.item() == pytest.approx(expected, rel=1e-9)


def test_more_neighbours_than_the_queue_has_are_all_that_there_are() -> None:
    query, key, queue = directions(3, 5), directions(3, 5, seed=1), directions(4, 5, seed=2)
    many, all_of_them = (
        F.neighbour_contrast(query, key, queue, temperature=0.1, own=0.2, neighbours=count) for count in (50, 5)
    )
    assert many.item() == all_of_them.item()


def test_the_key_gets_its_own_part_of_the_target_among_the_neighbours_or_not() -> None:
    query, queue = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    for key, first, second in ((query, 0.2, 0.0), (-query, 0.2, 0.8)):
        one, other = ((query * key).sum().item(), 0.0)
        log_total = math.log(math.exp(one) + math.exp(other))
        loss = F.neighbour_contrast(query, key, queue, temperature=1.0, own=0.2, neighbours=1)
        assert loss.item() == pytest.approx(-first * (one - log_total) - second * (other - log_total), rel=1e-5)


def test_the_targets_of_neighbour_contrast_pass_no_gradient() -> None:
    key, queue = directions(3, 5, seed=1), directions(6, 5, seed=2)

    def loss(query: Tensor) -> Tensor:
        return F.neighbour_contrast(query, key, queue, temperature=0.5, own=0.2, neighbours=2)

    assert torch.autograd.gradcheck(loss, (directions(3, 5).requires_grad_(),))
