"""Each term against plain loops over the images of a batch, and what it declares against what it does."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Literal

import pytest
import torch

from hoarfrost.errors import InputError
from hoarfrost.losses.inputs import LossInputs, Sizes
from hoarfrost.losses.terms import (
    ClusterConsistency,
    Clustering,
    Consistency,
    Contrast,
    CrossEntropy,
    ExtremePairs,
    FeatureDistillation,
    LabelledContrast,
    LabelledCrossEntropy,
    LogitDistillation,
    OldHeadConsistency,
    OldHeadDistillation,
    Pairwise,
    Replay,
    SelfTraining,
    Term,
)

from .naive import (
    FEATURES,
    IMAGES,
    LABELLED,
    MIXED_IN,
    NOVEL,
    QUEUE,
    SEEN,
    both_views,
    example,
    limited,
    mean,
    mixed_example,
    rows,
    softmax,
    taught,
    top,
)

TERMS: tuple[Term, ...] = (
    CrossEntropy(),
    Pairwise(top_k=2),
    Pairwise(top_k=2, similarity="logistic"),
    Pairwise(pairs="cosine", threshold=0.2),
    Consistency(),
    SelfTraining(),
    Replay(),
    Replay(over="earlier"),
    Replay(over="labelled"),
    FeatureDistillation(),
    FeatureDistillation(form="sample"),
    LogitDistillation(),
    LogitDistillation(form="presoftmax"),
    OldHeadDistillation(),
    Clustering(),
    ClusterConsistency(),
    ClusterConsistency(target="ensemble"),
    ExtremePairs(positives=2, negatives=2),
    Contrast(size=QUEUE),
    OldHeadConsistency(),
    LabelledCrossEntropy(),
    LabelledContrast(size=QUEUE),
)


SIZES = Sizes(
    features=FEATURES,
    images=IMAGES,
    labelled_classes=LABELLED,
    seen_classes=SEEN,
    novel_classes=NOVEL,
    labelled_images=MIXED_IN,
    clusters=torch.ones(IMAGES, NOVEL) / NOVEL,
)


def batch_for(term: Term) -> LossInputs:
    """With labelled images for those terms alone that need some."""
    if "labelled images" in term.needs:
        return mixed_example()
    features = torch.zeros(1, SIZES.features)
    return example(heads={name: head(features).shape[1] for name, head in term.make_heads(SIZES).items()})


@pytest.fixture
def inputs() -> LossInputs:
    return example()


def test_pairwise(inputs: LossInputs) -> None:
    first, second = ([softmax(row) for row in view] for view in both_views(inputs, "novel"))
    features = rows(inputs.features())
    losses = []
    for i in range(IMAGES):
        for j in range(IMAGES):
            together = sum(a * b for a, b in zip(first[i], second[j], strict=True))
            same = top(features[i], 2) == top(features[j], 2)
            losses.append(-math.log((together if same else 1 - together) + 1e-7))
    assert Pairwise(top_k=2).loss(inputs).item() == pytest.approx(mean(losses))


def test_consistency(inputs: LossInputs) -> None:
    first, second = ([softmax(row) for row in view] for view in both_views(inputs, "novel"))
    squares = [(first[i][c] - second[i][c]) ** 2 for i in range(IMAGES) for c in range(NOVEL)]
    assert Consistency().loss(inputs).item() == pytest.approx(mean(squares))


@pytest.mark.parametrize("class_mean", [False, True])
def test_self_training(inputs: LossInputs, class_mean: bool) -> None:
    losses = []
    for joint, novel in zip(rows(inputs.logits("joint")), rows(inputs.logits("novel")), strict=True):
        label = SEEN + novel.index(max(novel))
        losses.append(-math.log(softmax(joint)[label]))
    expected = mean(losses) / (SEEN + NOVEL if class_mean else 1)
    assert SelfTraining(class_mean=class_mean).loss(inputs).item() == pytest.approx(expected)


@pytest.mark.parametrize(("over", "classes"), [("all", SEEN + NOVEL), ("earlier", SEEN), ("labelled", LABELLED)])
def test_replay_is_cross_entropy_over_the_classes_that_compete(
    inputs: LossInputs, over: Literal["all", "earlier", "labelled"], classes: int
) -> None:
    labels = [0, 1, classes - 1, 0, classes - 1]
    labelled = zip(rows(inputs.replay_logits), labels, strict=True)
    expected = mean([-math.log(softmax(joint[:classes])[label]) for joint, label in labelled])
    batch = replace(inputs, replay_labels=torch.tensor(labels))
    assert Replay(over=over).loss(batch).item() == pytest.approx(expected)


@pytest.mark.parametrize(("over", "classes"), [("earlier", SEEN), ("labelled", LABELLED)])
def test_replay_leaves_alone_what_does_not_compete(
    inputs: LossInputs, over: Literal["earlier", "labelled"], classes: int
) -> None:
    torch.autograd.backward(Replay(over=over).loss(inputs))
    assert inputs.replay_logits is not None
    assert inputs.replay_logits.grad is not None
    assert inputs.replay_logits.grad[:, :classes].all()
    assert not inputs.replay_logits.grad[:, classes:].any()


def test_feature_distillation_of_samples(inputs: LossInputs) -> None:
    pairs = zip(rows(inputs.features()), rows(taught(inputs).features()), strict=True)
    distances = [math.dist(student, teacher) for student, teacher in pairs]
    assert FeatureDistillation(form="sample").loss(inputs).item() == pytest.approx(mean(distances))


@pytest.mark.parametrize("class_mean", [False, True])
def test_logit_distillation_looks_at_old_classes_alone(inputs: LossInputs, class_mean: bool) -> None:
    losses = []
    for joint, teacher in zip(rows(inputs.logits("joint")), rows(taught(inputs).logits("joint")), strict=True):
        target, student = softmax([v / 2 for v in teacher]), softmax([v / 2 for v in joint[:SEEN]])
        losses.append(-sum(t * math.log(s) for t, s in zip(target, student, strict=True)))
    expected = mean(losses) / (SEEN if class_mean else 1)
    assert LogitDistillation(class_mean=class_mean).loss(inputs).item() == pytest.approx(expected)


@pytest.mark.parametrize("term", TERMS, ids=repr)
def test_a_term_trains_the_heads_that_it_declares(term: Term) -> None:
    inputs = batch_for(term)
    torch.autograd.backward(term.loss(inputs))
    reached = {"joint"} if inputs.replay_logits is not None and inputs.replay_logits.grad is not None else set()
    for part in (inputs, inputs.labelled_part or inputs):
        reached |= {head for (head, _), logits in part.student.logits_by_head.items() if logits.grad is not None}
    assert reached == term.trains


def memory_names(term: Term) -> set[str]:
    """What the term's own memory gives."""
    memory = term.make_memory(SIZES)
    return set() if memory is None else set(memory.loss_inputs(torch.arange(IMAGES)))


@pytest.mark.parametrize("term", TERMS, ids=repr)
def test_a_term_asks_for_no_more_than_it_declares(term: Term) -> None:
    inputs = batch_for(term)
    declared = {view.name for view in term.views} | {*term.heads} | term.needs | memory_names(term)
    assert term.loss(limited(inputs, declared)).item() == term.loss(inputs).item()
    for name in declared - {"first", "k-means start"}:  # the one is always there, the other is for the memory
        with pytest.raises(RuntimeError, match="asks for"):
            term.loss(limited(inputs, declared - {name}))


def test_a_memory_that_starts_from_k_means_says_so() -> None:
    assert "k-means start" in Clustering().needs
    with pytest.raises(RuntimeError, match="asks for 'k-means start'"):
        Clustering().make_memory(replace(SIZES, clusters=None))


def test_only_stage_one_sees_labels_of_the_images_to_learn(inputs: LossInputs) -> None:
    for term in TERMS[1:]:
        assert torch.isfinite(term.loss(replace(batch_for(term), labels=None)))
    with pytest.raises(RuntimeError, match="labels"):
        TERMS[0].loss(replace(inputs, labels=None))


def test_pseudo_labels_and_pairs_pass_no_gradient(inputs: LossInputs) -> None:
    torch.autograd.backward(SelfTraining().loss(inputs))
    assert inputs.logits("novel").grad is None
    for pairwise in (Pairwise(), Pairwise(pairs="cosine")):
        torch.autograd.backward(pairwise.loss(inputs))
        assert inputs.features().grad is None
    inputs = example()
    torch.autograd.backward(ExtremePairs(positives=2, negatives=2).loss(inputs))
    assert inputs.logits("joint").grad is None


@pytest.mark.parametrize(("start", "ramp"), [(0, 0), (0, 4), (3, 0), (3, 4)])
def test_the_weight_rises_from_the_epoch_in_which_a_term_takes_part(start: int, ramp: int) -> None:
    term = Consistency(weight=5.0, start=start, ramp=ramp)
    for epoch in range(12):
        expected = 0.0
        if epoch >= start:
            risen = min((epoch - start) / ramp, 1.0) if ramp else 1.0
            expected = 5.0 * math.exp(-5 * (1 - risen) ** 2)
        assert term.weight_at(epoch) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("scale", "expected"),
    [(1.0, (5, 10, 30, 20)), (2.0, (10, 20, 60, 40)), (0.3, (2, 3, 9, 6)), (0.01, (1, 1, 1, 1))],
)
def test_a_course_of_another_length_stretches_all_that_is_counted_in_epochs(
    scale: float, expected: tuple[int, ...]
) -> None:
    term = Clustering(weight=3.0, momentum=0.6, ramp=5, start=10, update=30, warm_up=20)
    stretched = term.stretched(scale)
    assert (stretched.ramp, stretched.start, stretched.update, stretched.warm_up) == expected
    assert (stretched.weight, stretched.momentum) == (3.0, 0.6)


@pytest.mark.parametrize("term", TERMS, ids=repr)
def test_what_is_0_stays_0_however_long_the_course(term: Term) -> None:
    stretched = term.stretched(7.0)
    assert (stretched.ramp, stretched.start) == (0, 0)
    assert type(stretched) is type(term)
    if not isinstance(term, Clustering):  # nothing else of theirs is counted in epochs
        assert stretched == term


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Consistency, {"start": -1}),
        (Clustering, {"update": 0}),
        (Clustering, {"warm_up": -1}),
        (Clustering, {"momentum": 1.0}),
        (ClusterConsistency, {"momentum": -0.1}),
        (ExtremePairs, {"positives": 0}),
        (ExtremePairs, {"negatives": -1}),
        (Contrast, {"size": 0}),
        (Contrast, {"own": 1.0}),
        (Contrast, {"temperature": 0.0}),
        (OldHeadDistillation, {"temperature": 0.0}),
        (Pairwise, {"threshold": -0.5}),
    ],
)
def test_a_value_without_a_meaning_is_refused(kind: type[Term], values: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(values))):
        kind(**values)  # type: ignore[arg-type]


def test_every_kind_of_term_is_tested() -> None:
    ours = {kind for kind in Term.__subclasses__() if kind.__module__ == "hoarfrost.losses.terms"}
    assert {type(term) for term in TERMS} == ours
    assert all(f.name in {"weight", "ramp", "start"} for f in fields(Term))
