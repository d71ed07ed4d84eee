"""Self-labelling and contrast between images, against loops written from their equations."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
import torch
from torch import Tensor

from hoarfrost.data.augment import Strong
from hoarfrost.losses import functional as F
from hoarfrost.losses.inputs import FIRST, SECOND, LossInputs, Sizes
from hoarfrost.losses.self_labelling import InstanceContrast, OverClustering, SelfLabelling
from hoarfrost.losses.terms import Term
from hoarfrost.models.heads import Cosine

from .naive import Rows, activations, rows, unit
from .test_functional import close, directions, random

IMAGES, CLUSTERS = 6, 3


def naive_labels(logits: Rows, rounds: int) -> Rows:
    """In turn: every cluster has as many images as any other, every image adds up to 1."""
    labels = [[math.exp(value) for value in row] for row in logits]
    for _ in range(rounds):
        for cluster in range(len(labels[0])):
            whole = sum(row[cluster] for row in labels)
            for row in labels:
                row[cluster] *= len(labels) / len(labels[0]) / whole
        labels = [[value / sum(row) for value in row] for row in labels]
    return labels


def naive_labels_in_logarithms(logits: Rows, rounds: int) -> Rows:
    """The same, in numbers that no exponential is too large for."""
    with localcontext() as context:
        context.prec = 60
        exact = [[Decimal(value).exp() for value in row] for row in logits]
        for _ in range(rounds):
            sums = [sum(row[cluster] for row in exact) for cluster in range(len(exact[0]))]
            exact = [[value / whole for value, whole in zip(row, sums, strict=True)] for row in exact]
            exact = [[value / sum(row) for value in row] for row in exact]
        return [[float(value) for value in row] for row in exact]


def naive_log_softmax(row: list[float]) -> list[float]:
    whole = math.log(sum(math.exp(value) for value in row))
    return [value - whole for value in row]


def naive_swapped(first: Rows, second: Rows, first_labels: Rows, second_labels: Rows) -> float:
    total = 0.0
    for logits, labels in ((first, second_labels), (second, first_labels)):
        for row, target in zip(logits, labels, strict=True):
            total -= sum(q * p for q, p in zip(target, naive_log_softmax(row), strict=True)) / len(logits) / 2
    return total


def naive_contrast(points: Rows, temperature: float) -> float:
    """SimCLR: -log of the partner's share among all others."""
    half, total = len(points) // 2, 0.0
    for i, point in enumerate(points):
        like = [math.exp(sum(a * b for a, b in zip(point, other, strict=True)) / temperature) for other in points]
        total -= math.log(like[(i + half) % len(points)] / (sum(like) - like[i])) / len(points)
    return total


@pytest.mark.parametrize("rounds", [1, 3, 200])
def test_balanced_labels(rounds: int) -> None:
    logits = 3 * random(IMAGES, CLUSTERS)
    labels = F.balanced_labels(logits, rounds)
    assert close(labels, naive_labels(rows(logits), rounds))
    assert close(labels.sum(dim=1), [1.0] * IMAGES)
    if rounds == 200:
        assert labels.sum(dim=0).tolist() == pytest.approx([IMAGES / CLUSTERS] * CLUSTERS, abs=1e-3)


def test_balanced_labels_of_large_logits_are_numbers() -> None:
    logits = 200 * random(64, 8)
    assert F.balanced_labels(logits.float(), 3).isfinite().all()
    assert close(F.balanced_labels(logits, 3), naive_labels_in_logarithms(rows(logits), 3))


def test_balanced_labels_of_images_and_clusters_that_are_far_from_the_others() -> None:
    far = torch.tensor([[16.0, 15], [15, 16], [-2, -1], [-2, -3]]).double()
    assert close(F.balanced_labels(far, 3), naive_labels(rows(far), 3))
    disliked = 3 * random(IMAGES, CLUSTERS)
    disliked[:, 1] -= 40
    assert close(F.balanced_labels(disliked, 3), naive_labels(rows(disliked), 3))


def test_swapped_cross_entropy() -> None:
    first, second = random(IMAGES, CLUSTERS), random(IMAGES, CLUSTERS, seed=1)
    labels = [random(IMAGES, CLUSTERS, seed=seed).softmax(dim=1) for seed in (2, 3)]
    expected = naive_swapped(rows(first), rows(second), rows(labels[0]), rows(labels[1]))
    assert close(F.swapped_cross_entropy(first, second, *labels), expected)


def test_instance_contrast() -> None:
    points = directions(2 * IMAGES, 5)
    assert close(F.instance_contrast(points, 0.3), naive_contrast(rows(points), 0.3))


def test_cosine_distillation() -> None:
    student, teacher = random(IMAGES, 5), random(IMAGES, 5, seed=1)
    cosines = [
        sum(a * b for a, b in zip(unit(s), unit(t), strict=True))
        for s, t in zip(rows(student), rows(teacher), strict=True)
    ]
    assert close(F.feature_distillation(student, teacher, "cosine"), 1 - sum(cosines) / IMAGES)


def inputs_of(head: str, views: tuple[object, ...], *logits: Tensor) -> LossInputs:
    found = {(head, view): tensor for view, tensor in zip(views, logits, strict=True)}
    return LossInputs(labelled_classes=2, seen_classes=2, novel_classes=3, student=activations({}, found))  # type: ignore[arg-type]


@pytest.mark.parametrize("term", [SelfLabelling(), OverClustering()], ids=lambda term: term.kind)
def test_each_view_predicts_the_labels_of_the_other(term: SelfLabelling) -> None:
    first, second = random(IMAGES, CLUSTERS).requires_grad_(), random(IMAGES, CLUSTERS, seed=1).requires_grad_()
    loss = term.loss(inputs_of(term.heads[0], (FIRST, SECOND), first, second))
    labels = [naive_labels([[value / 0.5 for value in row] for row in rows(view)], 3) for view in (first, second)]
    assert close(loss, naive_swapped(rows(first), rows(second), *labels))
    torch.autograd.backward(loss)
    # With the labels held, the gradient of a cross-entropy: probabilities minus labels.
    assert first.grad is not None
    expected = (first.detach().softmax(dim=1) - torch.tensor(labels[1], dtype=torch.float64)) / IMAGES / 2
    torch.testing.assert_close(first.grad, expected)


def test_instance_contrast_compares_projections_of_its_own_views() -> None:
    term = InstanceContrast(temperature=0.3)
    first, second = random(IMAGES, 4), random(IMAGES, 4, seed=1)
    points = [unit(row) for row in (*rows(first), *rows(second))]
    assert close(term.loss(inputs_of("projection", term.views, first, second)), naive_contrast(points, 0.3))
    assert {view.augment for view in term.views} == {Strong()}


def test_heads_that_terms_make() -> None:
    sizes = Sizes(features=7, images=9, labelled_classes=4, seen_classes=4, novel_classes=3)
    head = OverClustering(times=4).make_heads(sizes)["over-clusters"]
    assert isinstance(head, Cosine)
    features = random(5, 7).float()
    logits = head(features)
    assert logits.shape == (5, 12)
    for i in range(5):
        for k in range(12):
            cosine = torch.cosine_similarity(features[i], head.weight[k], dim=0)
            torch.testing.assert_close(logits[i, k], cosine / 0.1)
    assert InstanceContrast(size=6).make_heads(sizes)["projection"](features).shape == (5, 6)


def test_every_kind_of_term_is_tested() -> None:
    kinds = (*Term.__subclasses__(), *SelfLabelling.__subclasses__())
    ours = {kind for kind in kinds if kind.__module__ == "hoarfrost.losses.self_labelling"}
    assert ours == {SelfLabelling, OverClustering, InstanceContrast}
