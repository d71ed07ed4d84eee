"""The objective against its parts, and which parameters it leaves alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from hoarfrost.losses.functional import sigmoid_rampup
from hoarfrost.losses.inputs import FIRST, SECOND, LossInputs
from hoarfrost.losses.terms import (
    Consistency,
    CrossEntropy,
    FeatureDistillation,
    OldHeadDistillation,
    Pairwise,
    Replay,
    SelfTraining,
    Term,
)
from hoarfrost.methods import METHODS
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Network, grow
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.training.objective import Objective, choose_trained

FROST: tuple[Term, ...] = (
    Pairwise(weight=1.0, top_k=3),
    Consistency(weight=5.0, ramp=10),
    SelfTraining(weight=0.1, ramp=10),
    Replay(weight=1.0, per_class=2),
    FeatureDistillation(weight=10.0),
)


@pytest.fixture
def teacher() -> Network:
    torch.manual_seed(0)
    return Network(build_backbone("small", 1), 3)


def objective_of(teacher: Network, terms: tuple[Term, ...], *, together: bool = True) -> Objective:
    statistics = ClassStatistics.of(torch.rand(30, 64), torch.arange(30) % 3, 3)
    objective = Objective(
        grow(teacher, 2), terms=terms, teacher=teacher, statistics=statistics, views_together=together
    )
    objective.train()
    return objective


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def test_the_loss_is_the_weighted_sum_of_the_terms(teacher: Network) -> None:
    objective, images = objective_of(teacher, FROST), torch.rand(12, 1, 16, 16)
    objective.set_epoch(4)
    total, statistics, _ = objective(images, None, objective.draw(generator()))
    weights = [term.weight * sigmoid_rampup(4, term.ramp) for term in FROST]
    inputs = objective.inputs(images, None, objective.draw(generator()))
    values = [term.loss(inputs).item() for term in FROST]
    assert total.item() == pytest.approx(sum(w * v for w, v in zip(weights, values, strict=True)), rel=1e-5)
    assert statistics[1:-1].tolist() == pytest.approx(values, rel=1e-4)
    assert objective.statistics == ("loss", *(term.kind for term in FROST))


def test_inputs_are_what_their_names_say(teacher: Network) -> None:
    objective, images = objective_of(teacher, FROST), torch.rand(12, 1, 16, 16)
    inputs = objective.inputs(images, None, objective.draw(generator()))
    student = objective.student
    features = student(images)
    assert (inputs.labelled_classes, inputs.seen_classes, inputs.novel_classes) == (3, 3, 2)
    assert torch.allclose(inputs.features(), features[:6])
    assert torch.allclose(inputs.logits("joint"), student.joint(features[:6]))
    assert torch.allclose(inputs.logits("novel", SECOND), student.novel[-1](features[6:]))
    assert inputs.teacher is not None
    assert torch.allclose(inputs.teacher.features(), teacher(images[:6]))
    assert not inputs.teacher.features().requires_grad
    assert inputs.labels is None


def test_every_earlier_head_of_the_teacher_is_asked_of_both_networks_features() -> None:
    torch.manual_seed(0)
    design = METHODS["restune"].design
    teacher = grow(grow(Network(build_backbone("small", 1), 3, design), 2), 4).eval()
    objective = Objective(grow(teacher, 2), terms=(OldHeadDistillation(),), teacher=teacher)
    objective.train()
    images = torch.rand(6, 1, 16, 16)
    inputs = objective.inputs(images, None, None)
    now, before = objective.student(images), teacher(images)
    assert inputs.old_heads is not None
    assert inputs.teacher is not None
    assert [inputs.old_heads.logits(name).shape for name in inputs.earlier_heads] == [(6, 2), (6, 4)]
    for step, name in enumerate(inputs.earlier_heads):
        assert torch.allclose(inputs.old_heads.logits(name), teacher.novel_logits(now, step), atol=1e-6)
        assert torch.allclose(inputs.teacher.logits(name), teacher.novel_logits(before, step), atol=1e-6)
        assert not inputs.teacher.logits(name).requires_grad
    assert torch.allclose(inputs.old_heads.logits("joint"), teacher.joint_logits(now), atol=1e-6)


def test_views_apart_have_batch_statistics_of_their_own(teacher: Network) -> None:
    objective, images = objective_of(teacher, FROST, together=False), torch.rand(12, 1, 16, 16)
    inputs = objective.inputs(images, None, objective.draw(generator()))
    assert torch.allclose(inputs.features(), objective.student(images[:6]), atol=1e-6)
    assert not torch.allclose(inputs.features(), objective.student(images)[:6], atol=1e-6)


def test_the_teacher_stays_as_it_is(teacher: Network) -> None:
    objective = objective_of(teacher, FROST)
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    assert not teacher.training
    assert objective.student.training
    objective.set_epoch(0)
    loss, _, _ = objective(torch.rand(12, 1, 16, 16), None, objective.draw(generator()))
    torch.autograd.backward(loss)
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())


def test_what_no_term_needs_is_not_computed(teacher: Network) -> None:
    objective = objective_of(teacher, (SelfTraining(), Replay(weight=0.0), FeatureDistillation(weight=0.0)))
    assert objective.views == (FIRST,)
    inputs = objective.inputs(torch.rand(6, 1, 16, 16), None, objective.draw(generator()))
    assert inputs.teacher is None
    assert inputs.replay_logits is None
    assert list(inputs.student.features_by_view) == ["first"]
    assert set(inputs.student.logits_by_head) == {("novel", "first"), ("joint", "first")}


@pytest.mark.parametrize(
    ("terms", "joint", "novel"),
    [
        (FROST, True, True),
        ((Pairwise(), Consistency()), False, True),
        ((CrossEntropy(),), True, False),
    ],
)
def test_only_heads_with_a_loss_are_trained(
    terms: tuple[Term, ...], joint: bool, novel: bool, teacher: Network
) -> None:
    student = grow(grow(teacher, 2), 2)
    choose_trained(student, frozen=("stem", "stage1"), terms=terms)
    trained = {name for name, parameter in student.named_parameters() if parameter.requires_grad}
    assert ("joint.weight" in trained, "novel.1.weight" in trained) == (joint, novel)
    assert "novel.0.weight" not in trained
    assert not any(name.startswith(("backbone.stem", "backbone.stages.stage1")) for name in trained)
    assert any(name.startswith("backbone.stages.stage2") for name in trained)


def test_replay_does_not_reach_the_backbone(teacher: Network) -> None:
    objective = objective_of(teacher, (Replay(per_class=2),))
    objective.set_epoch(0)
    loss, _, _ = objective(torch.rand(6, 1, 16, 16), None, objective.draw(generator()))
    torch.autograd.backward(loss)
    assert all(parameter.grad is None for parameter in objective.student.backbone.parameters())
    assert objective.student.joint.weight.grad is not None


def test_hits_count_right_labels(teacher: Network) -> None:
    objective = Objective(teacher, terms=(CrossEntropy(),))
    objective.set_epoch(0)
    images = torch.rand(8, 1, 16, 16)
    labels = teacher.train().joint(teacher(images)).argmax(dim=1)
    _, statistics, _ = objective(images, labels, objective.draw(generator()))
    assert statistics[-1].item() == 8


@dataclass(frozen=True, kw_only=True)
class Mistaken(Term):
    kind: ClassVar[str] = "mistaken"
    read: str = "student"

    def loss(self, inputs: LossInputs) -> Tensor:
        return inputs.features().square() if self.read == "student" else inputs.memory(self.read)


@pytest.mark.parametrize(("read", "words"), [("student", r"the shape \(8, 64\)"), ("queue", "queue")])
def test_a_mistake_in_a_term_says_which_one_it_is(teacher: Network, read: str, words: str) -> None:
    objective = Objective(teacher, terms=(CrossEntropy(), Mistaken(read=read)))
    objective.set_epoch(0)
    with pytest.raises(Exception, match=words) as raised:
        objective(torch.rand(8, 1, 16, 16), torch.zeros(8, dtype=torch.long), None)
    assert raised.value.__notes__ == ["in the loss of the term 'mistaken'"]
