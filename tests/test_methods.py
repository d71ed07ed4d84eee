"""One suite over all presets: whatever the method, two discoveries on the digits keep these promises."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from hoarfrost.errors import InputError
from hoarfrost.losses.terms import Term
from hoarfrost.methods import FROST, METHODS, get_method
from hoarfrost.models.network import Network
from hoarfrost.scenario import Scenario
from hoarfrost.training.learner import Learner
from hoarfrost.training.observers import Entry, Observer

from .conftest import TINY


class Keep(Observer):
    """Keeps the log's entries."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def epoch_done(self, entry: Entry, network: Network) -> None:
        self.entries.append(entry)


@dataclass
class Course:
    """A learner after each of its steps, and what was logged."""

    learner: Learner
    states: list[dict[str, torch.Tensor]]
    entries: list[Entry]


@pytest.fixture(scope="module", params=METHODS)
def course(request: pytest.FixtureRequest, three_steps: Scenario) -> Course:
    learner, keep, states = Learner(request.param, seed=1, recipe="digits", device="cpu", settings=TINY), Keep(), []
    for step in three_steps:
        learner.learn(step, observer=keep)
        states.append({name: tensor.clone() for name, tensor in learner.network.state_dict().items()})
    return Course(learner, states, keep.entries)


def test_losses_are_finite(course: Course) -> None:
    assert [(e["stage"], e["epoch"]) for e in course.entries] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert all(np.isfinite([e["loss"], *e["terms"].values()]).all() for e in course.entries)
    assert set(course.entries[-1]["terms"]) == {term.kind for term in course.learner.config.method.active}


def test_heads_grow(course: Course) -> None:
    assert [len(state["joint.bias"]) for state in course.states] == [4, 7, 10]
    assert course.learner.novel_per_step == (3, 3)
    assert len(course.learner.model.statistics) == len(course.learner.class_names) == 10


def test_frozen_parameters_stay_bit_for_bit(course: Course) -> None:
    network = course.learner.network
    frozen = [
        f"backbone.{prefix}.{name}"
        for prefix, part in (("stem", "stem"), ("stages.stage1", "stage1"))
        for name, _ in network.backbone.part(part).named_parameters()
    ]
    assert len(frozen) > 6
    for name in frozen:
        assert torch.equal(course.states[0][name], course.states[2][name])
    assert not torch.equal(
        course.states[0]["backbone.stages.stage2.0.conv1.weight"],
        course.states[2]["backbone.stages.stage2.0.conv1.weight"],
    )


def test_batch_statistics_of_frozen_parts_go_on(course: Course) -> None:
    name = "backbone.stem.1.running_mean"
    assert not torch.equal(course.states[0][name], course.states[1][name])


def test_earlier_novel_heads_stay_bit_for_bit(course: Course) -> None:
    assert torch.equal(course.states[1]["novel.0.weight"], course.states[2]["novel.0.weight"])
    assert torch.equal(course.states[1]["novel.0.bias"], course.states[2]["novel.0.bias"])


def test_a_joint_head_without_a_loss_does_not_decay(course: Course) -> None:
    heads = {head for term in course.learner.config.method.active for head in term.trains}
    same = torch.equal(course.states[1]["joint.weight"][:4], course.states[0]["joint.weight"])
    assert same == ("joint" not in heads)


def test_saved_and_loaded_it_predicts_the_same(course: Course, three_steps: Scenario, tmp_path: Path) -> None:
    course.learner.save(tmp_path / "model")
    loaded = Learner.load(tmp_path / "model", device="cpu")
    test = three_steps.truths[-1].test
    assert np.array_equal(loaded.predict_proba(test), course.learner.predict_proba(test))
    assert loaded.config == course.learner.config
    assert torch.equal(loaded.model.statistics.mean, course.learner.model.statistics.mean)


def test_probabilities_cover_all_classes(course: Course, three_steps: Scenario) -> None:
    probabilities = course.learner.predict_proba(three_steps.truths[-1].test)
    assert probabilities.shape[1] == 10
    assert np.allclose(probabilities.sum(axis=1), 1)


def test_ablations_differ_from_frost_in_weights_alone() -> None:
    ablations = [method for name, method in METHODS.items() if name.startswith("frost-")]
    assert len(ablations) == 5
    for method in ablations:
        kept = [term for term in method.terms if term.weight]
        assert [term.kind for term in method.terms] == [term.kind for term in FROST.terms]
        assert all(term in FROST.terms for term in kept)
        assert 0 < len(kept) < len(FROST.terms)


@pytest.mark.parametrize("name", METHODS)
def test_presets_describe_themselves(name: str) -> None:
    method = METHODS[name]
    assert method.name == name
    assert method.summary
    assert method.paper
    kinds = [term.kind for term in method.terms]
    assert len(kinds) == len(set(kinds))
    assert all(isinstance(term, Term) for term in method.terms)


def test_unknown_methods_get_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'frost'"):
        get_method("forst")
