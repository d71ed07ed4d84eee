"""Each term against plain loops over the images of a batch, and what it declares against what it does."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from hoarfrost.losses.terms import (
    Consistency,
    CrossEntropy,
    FeatureDistillation,
    LogitDistillation,
    LossInputs,
    Pairwise,
    Replay,
    SelfTraining,
    Term,
)

KNOWN, NOVEL, IMAGES, FEATURES, REPLAYED = 3, 2, 6, 8, 5
TERMS: tuple[Term, ...] = (
    CrossEntropy(),
    Pairwise(top_k=2),
    Pairwise(top_k=2, similarity="logistic"),
    Consistency(),
    SelfTraining(),
    Replay(),
    FeatureDistillation(),
    FeatureDistillation(form="sample"),
    LogitDistillation(),
    LogitDistillation(form="presoftmax"),
)


@pytest.fixture
def inputs() -> LossInputs:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    return LossInputs(
        known=KNOWN,
        features=random(IMAGES, FEATURES),
        joint=random(IMAGES, KNOWN + NOVEL),
        labels=torch.tensor([0, 1, 2, 4, 3, 0]),
        novel=random(IMAGES, NOVEL),
        novel_second=random(IMAGES, NOVEL),
        teacher_features=random(IMAGES, FEATURES),
        teacher_joint=random(IMAGES, KNOWN),
        replay_joint=random(REPLAYED, KNOWN + NOVEL),
        replay_labels=torch.tensor([0, 1, 2, 0, 1]),
    )


def without(inputs: LossInputs, *names: str) -> LossInputs:
    nothing: dict[str, Any] = dict.fromkeys(names)
    return replace(inputs, **nothing)


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


def rows(tensor: Tensor | None) -> list[list[float]]:
    assert tensor is not None
    result: list[list[float]] = tensor.tolist()
    return result


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def top(row: list[float], k: int) -> set[int]:
    return set(sorted(range(len(row)), key=lambda index: (-row[index], index))[:k])


def test_pairwise(inputs: LossInputs) -> None:
    first, second = ([softmax(row) for row in rows(part)] for part in (inputs.novel, inputs.novel_second))
    features = rows(inputs.features)
    losses = []
    for i in range(IMAGES):
        for j in range(IMAGES):
            together = sum(a * b for a, b in zip(first[i], second[j], strict=True))
            same = top(features[i], 2) == top(features[j], 2)
            losses.append(-math.log((together if same else 1 - together) + 1e-7))
    assert Pairwise(top_k=2).loss(inputs).item() == pytest.approx(mean(losses))


def test_consistency(inputs: LossInputs) -> None:
    first, second = ([softmax(row) for row in rows(part)] for part in (inputs.novel, inputs.novel_second))
    squares = [(first[i][c] - second[i][c]) ** 2 for i in range(IMAGES) for c in range(NOVEL)]
    assert Consistency().loss(inputs).item() == pytest.approx(mean(squares))


@pytest.mark.parametrize("class_mean", [False, True])
def test_self_training(inputs: LossInputs, class_mean: bool) -> None:
    losses = []
    for joint, novel in zip(rows(inputs.joint), rows(inputs.novel), strict=True):
        label = KNOWN + novel.index(max(novel))
        losses.append(-math.log(softmax(joint)[label]))
    expected = mean(losses) / (KNOWN + NOVEL if class_mean else 1)
    assert SelfTraining(class_mean=class_mean).loss(inputs).item() == pytest.approx(expected)


def test_replay_is_cross_entropy_over_all_classes(inputs: LossInputs) -> None:
    assert inputs.replay_labels is not None
    labelled = zip(rows(inputs.replay_joint), inputs.replay_labels.tolist(), strict=True)
    assert Replay().loss(inputs).item() == pytest.approx(mean([-math.log(softmax(j)[label]) for j, label in labelled]))


def test_feature_distillation_of_samples(inputs: LossInputs) -> None:
    pairs = zip(rows(inputs.features), rows(inputs.teacher_features), strict=True)
    distances = [math.dist(student, teacher) for student, teacher in pairs]
    assert FeatureDistillation(form="sample").loss(inputs).item() == pytest.approx(mean(distances))


@pytest.mark.parametrize("class_mean", [False, True])
def test_logit_distillation_looks_at_old_classes_alone(inputs: LossInputs, class_mean: bool) -> None:
    losses = []
    for joint, teacher in zip(rows(inputs.joint), rows(inputs.teacher_joint), strict=True):
        target, student = softmax([v / 2 for v in teacher]), softmax([v / 2 for v in joint[:KNOWN]])
        losses.append(-sum(t * math.log(s) for t, s in zip(target, student, strict=True)))
    expected = mean(losses) / (KNOWN if class_mean else 1)
    assert LogitDistillation(class_mean=class_mean).loss(inputs).item() == pytest.approx(expected)


@pytest.mark.parametrize("term", TERMS, ids=repr)
def test_a_term_trains_the_heads_that_it_declares(term: Term, inputs: LossInputs) -> None:
    torch.autograd.backward(term.loss(inputs))
    heads: dict[str, tuple[Tensor | None, ...]] = {
        "joint": (inputs.joint, inputs.replay_joint),
        "novel": (inputs.novel, inputs.novel_second),
    }
    reached = {name for name, tensors in heads.items() if any(t is not None and t.grad is not None for t in tensors)}
    assert reached == term.trains


@pytest.mark.parametrize("term", TERMS, ids=repr)
def test_a_term_asks_for_no_more_than_it_needs(term: Term, inputs: LossInputs) -> None:
    given_by = {
        "second view": ("novel_second",),
        "teacher": ("teacher_features", "teacher_joint"),
        "replay": ("replay_joint", "replay_labels"),
    }
    removed = [name for need, names in given_by.items() if need not in term.needs for name in names]
    assert term.loss(without(inputs, *removed)).item() == term.loss(inputs).item()
    for need in term.needs:
        with pytest.raises(RuntimeError, match="asks for"):
            term.loss(without(inputs, *given_by[need]))


def test_only_stage_one_sees_labels(inputs: LossInputs) -> None:
    blind = replace(inputs, labels=None)
    for term in TERMS[1:]:
        assert torch.isfinite(term.loss(blind))
    with pytest.raises(RuntimeError, match="labels"):
        TERMS[0].loss(blind)


def test_pseudo_labels_and_pairs_pass_no_gradient(inputs: LossInputs) -> None:
    torch.autograd.backward(SelfTraining().loss(inputs))
    assert inputs.novel is not None
    assert inputs.novel.grad is None
    torch.autograd.backward(Pairwise().loss(inputs))
    assert inputs.features.grad is None


def test_every_kind_of_term_is_tested() -> None:
    assert {type(term) for term in TERMS} == set(Term.__subclasses__())
    assert all(f.name in {"weight", "ramp"} for f in fields(Term))
