"""The terms of continual category discovery, against loops written from their equations."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch.nn import functional

from hoarfrost.losses import functional as F
from hoarfrost.losses.continual import ClusterLabels, GroupEntropy, SelfDistillation
from hoarfrost.losses.inputs import FIRST, SECOND
from hoarfrost.losses.terms import Replay, SelfTraining, Term
from hoarfrost.models.heads import CosineLinear
from hoarfrost.models.network import set_nearest
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.training.rehearsal import Rehearsal, hardness

from .naive import IMAGES, NOVEL, SEEN, example, rows
from .test_functional import close, random

CPU = torch.device("cpu")


def naive_softmax(row: list[float]) -> list[float]:
    whole = sum(math.exp(value) for value in row)
    return [math.exp(value) / whole for value in row]


@pytest.mark.parametrize("sharpness", [0.5, 1.0])
def test_each_view_predicts_what_the_other_says_only_surer(sharpness: float) -> None:
    inputs = example()
    views = [rows(inputs.logits("joint", view)) for view in (FIRST, SECOND)]
    expected = 0.0
    for said, other in (views, views[::-1]):
        for image, target in zip(said, other, strict=True):
            sharp = naive_softmax([value / sharpness for value in target])
            expected -= sum(q * math.log(p) for q, p in zip(sharp, naive_softmax(image), strict=True)) / IMAGES / 2
    assert close(SelfDistillation(sharpness=sharpness).loss(inputs), expected)


def test_the_targets_of_self_distillation_have_no_gradient() -> None:
    inputs = example()
    first, second = (inputs.logits("joint", view) for view in (FIRST, SECOND))
    torch.autograd.backward(SelfDistillation().loss(inputs))
    assert first.grad is not None
    held = (second.detach() / 0.5).softmax(dim=1)
    torch.testing.assert_close(first.grad, (first.detach().softmax(dim=1) - held) / IMAGES / 2)


@pytest.mark.parametrize(("between", "among"), [(1.0, 1.0), (2.0, 0.5)])
def test_group_entropy_is_what_lacks_between_and_within_old_and_new(between: float, among: float) -> None:
    inputs = example()
    every = [naive_softmax(row) for view in (FIRST, SECOND) for row in rows(inputs.logits("joint", view))]
    mean = [sum(row[c] for row in every) / len(every) for c in range(SEEN + NOVEL)]
    old, new = mean[:SEEN], mean[SEEN:]

    def lacks(parts: list[float]) -> float:
        whole = sum(parts)
        return math.log(len(parts)) + sum(part / whole * math.log(part / whole) for part in parts)

    expected = between * lacks([sum(old), sum(new)]) + among * (lacks(old) + lacks(new))
    assert close(GroupEntropy(between=between, among=among).loss(inputs), expected)


def test_group_entropy_is_0_where_all_is_even_and_finite_where_a_class_is_never_said() -> None:
    even = torch.tensor([0.25, 0.25, 0.5])
    assert F.group_entropy(even, 2, 1.0, 1.0).item() == pytest.approx(0, abs=1e-6)
    one_sided = torch.tensor([1.0, 0.0, 0.0, 0.0], requires_grad=True)
    loss = F.group_entropy(one_sided, 2, 1.0, 1.0)
    torch.autograd.backward(loss)
    assert loss.isfinite()
    assert one_sided.grad is not None
    assert one_sided.grad.isfinite().all()


def test_cluster_labels_are_those_of_the_novel_head() -> None:
    inputs = example()
    expected = 0.0
    for joint, novel in zip(rows(inputs.logits("joint")), rows(inputs.logits("novel")), strict=True):
        expected -= math.log(naive_softmax(joint)[SEEN + novel.index(max(novel))]) / IMAGES
    assert close(ClusterLabels().loss(inputs), expected)
    assert "novel" not in ClusterLabels.trains


def test_every_kind_of_term_is_tested() -> None:
    kinds = (*Term.__subclasses__(), *SelfTraining.__subclasses__())
    ours = {kind for kind in kinds if kind.__module__ == "hoarfrost.losses.continual"}
    assert ours == {ClusterLabels, SelfDistillation, GroupEntropy}


def remembered(means: torch.Tensor, variance: torch.Tensor, count: int = 9) -> ClassStatistics:
    return ClassStatistics(mean=means, variance=variance, count=torch.full((len(means),), count))


def test_classes_that_are_like_others_are_drawn_more_often() -> None:
    means = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 2.0]])
    expected = []
    for i in range(3):
        others = [torch.cosine_similarity(means[i], means[k], dim=0).item() for k in range(3) if k != i]
        expected.append(sum(others) / 2 / 0.1)
    found = hardness(means, 0.1)
    assert found.tolist() == pytest.approx(naive_softmax(expected), rel=1e-4)
    assert found[2] < min(found[:2])
    rehearsal = Rehearsal(
        remembered(means, torch.ones(3, 2)), Replay(per_class=3000, sampling="hard", temperature=0.5), CPU
    )
    _, labels = rehearsal.draw(torch.Generator().manual_seed(0))
    times = Counter(labels.tolist())
    for label, share in enumerate(hardness(means, 0.5).tolist()):
        assert times[label] / 9000 == pytest.approx(share, abs=0.02)


def test_an_isotropic_spread_is_one_number() -> None:
    statistics = remembered(torch.zeros(2, 3), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]]))
    assert statistics.deviation("isotropic").tolist() == [pytest.approx([2.0] * 3)] * 2


def test_a_head_of_cosines() -> None:
    head, features = CosineLinear(5, 3), random(IMAGES, 5).float()
    for i, image in enumerate(head(features)):
        for k, logit in enumerate(image):
            cosine = functional.cosine_similarity(features[i], head.weight[k], dim=0)
            torch.testing.assert_close(logit, cosine / 0.1 + head.bias[k])
    means = random(3, 5, seed=2).float()
    set_nearest(head, means)
    assert head(5 * means).argmax(dim=1).tolist() == [0, 1, 2]
