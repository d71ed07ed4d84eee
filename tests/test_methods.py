"""One suite over all presets: whatever the method, two discoveries on the digits keep these promises."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hoarfrost.cli import options
from hoarfrost.config import Method
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError
from hoarfrost.losses.terms import LabelledContrast, Term
from hoarfrost.methods import DEFAULT, FROST, METHODS, get_method
from hoarfrost.models.backbone import ALL, BUT_LAST
from hoarfrost.models.network import Network
from hoarfrost.scenario import Scenario, build_scenario
from hoarfrost.store import CheckpointFile
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
class Learned:
    """A learner after each of its steps, and what was logged."""

    learner: Learner
    states: list[dict[str, torch.Tensor]]
    entries: list[Entry]

    @property
    def method(self) -> Method:
        return self.learner.config.method

    @property
    def moves(self) -> bool:
        """Whether the network that stays is one that was trained."""
        return bool(self.method.active) and self.method.decides != "unmoved"

    def moved(self, name: str, first: int, last: int) -> bool:
        """Whether a tensor differs between two steps."""
        return not torch.equal(self.states[first][name], self.states[last][name])


def state_of(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in learner.network.state_dict().items()}


def begun(name: str) -> Learner:
    return Learner(name, seed=1, recipe="digits", device="cpu", settings=TINY)


def scenario_for(name: str, digits: tuple[ImageSet, ImageSet]) -> Scenario:
    method = METHODS[name]
    return build_scenario(*digits, split="4-3-3", supervised=method.supervised, labelled_images=method.labelled_images)


@pytest.fixture(scope="module", params=METHODS)
def learned(request: pytest.FixtureRequest, digits: tuple[ImageSet, ImageSet]) -> Learned:
    learner, keep, states = begun(request.param), Keep(), []
    for step in scenario_for(request.param, digits):
        learner.learn(step, observer=keep)
        states.append(state_of(learner))
    return Learned(learner, states, keep.entries)


def test_losses_are_finite(learned: Learned) -> None:
    trained = [0, 1, 2] if learned.method.active else [0]
    assert [(e["stage"], e["epoch"]) for e in learned.entries] == [(s, epoch) for s in trained for epoch in (0, 1)]
    assert all(np.isfinite([e["loss"], *e["terms"].values()]).all() for e in learned.entries)
    if learned.method.active:
        assert set(learned.entries[-1]["terms"]) == {term.kind for term in learned.method.active}


def test_heads_grow(learned: Learned) -> None:
    assert [len(state["joint.bias"]) for state in learned.states] == [4, 7, 10]
    assert learned.learner.novel_per_step == (3, 3)
    assert len(learned.learner.model.statistics) == len(learned.learner.class_names) == 10
    heads = 0 if learned.method.design.novel == "joint" else 2
    assert len(learned.learner.network.novel) == heads
    assert len(learned.learner.network.branches) == (2 if learned.method.design.residual else 0)


def parameters_of(learner: Learner, *parts: str) -> list[str]:
    places = {part: f"backbone.{'' if part == 'stem' else 'stages.'}{part}" for part in parts}
    backbone = learner.network.backbone
    return [f"{places[part]}.{name}" for part in parts for name, _ in backbone.part(part).named_parameters()]


def test_frozen_parameters_stay_bit_for_bit_and_the_others_do_not(learned: Learned) -> None:
    every = ("stem", "stage1", "stage2", "stage3")
    frozen = learned.method.frozen if learned.moves else every
    parts: dict[tuple[str, ...], tuple[str, ...]] = {(ALL,): every, (BUT_LAST,): every[:-1]}
    frozen = parts.get(frozen, frozen)
    if learned.method.supervised:
        frozen = ()
    for name in parameters_of(learned.learner, *frozen):
        assert not learned.moved(name, 0, 2), name
    free = [part for part in ("stem", "stage1", "stage2", "stage3") if part not in frozen]
    for name in parameters_of(learned.learner, *free):
        assert learned.moved(name, 0, 1), name
        assert learned.moved(name, 1, 2), name


def test_batch_statistics_of_frozen_parts_go_on(learned: Learned) -> None:
    assert learned.moved("backbone.stem.1.running_mean", 0, 1) == (learned.moves and learned.method.moving_statistics)


def test_earlier_novel_heads_stay_bit_for_bit_and_branches_go_on(learned: Learned) -> None:
    for name in (name for name in learned.states[1] if name.startswith("branches.0.") and name.endswith("weight")):
        assert learned.moved(name, 1, 2), name
    earlier = [name for name in learned.states[1] if name.startswith(("novel.0.", "auxiliary.0."))]
    assert bool(earlier) == (learned.method.design.novel != "joint")
    for name in earlier:
        assert not learned.moved(name, 1, 2), name


def test_a_head_without_a_loss_does_not_decay(learned: Learned) -> None:
    if learned.method.supervised or learned.method.design.readout.kind == "means":
        pytest.skip("all of it is made anew in each step")
    heads: set[str] = {head for term in learned.method.active for head in term.trains}
    if learned.method.design.novel == "joint" and "novel" in heads:
        heads.add("joint")
    same = torch.equal(learned.states[1]["joint.weight"][:4], learned.states[0]["joint.weight"])
    assert same == ("joint" not in heads)


def test_no_label_is_seen_in_a_discovery(learned: Learned, digits: tuple[ImageSet, ImageSet]) -> None:
    train, test = digits
    assert train.labels is not None
    chance = np.random.default_rng(0).integers(0, 3, len(train))
    firsts = np.select([train.labels < 4, train.labels < 7], [0, 4], 7)
    lied = replace(train, labels=np.where(train.labels < 4, train.labels, firsts + chance))
    learner = begun(learned.method.name)
    for step in scenario_for(learned.method.name, (lied, test)):
        learner.learn(step)
    same = all(torch.equal(tensor, learned.states[-1][name]) for name, tensor in state_of(learner).items())
    assert same == (not learned.method.supervised)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.labelled_images])
def test_a_reference_sees_the_labelled_images_again_and_no_discovery_does(
    name: str, digits: tuple[ImageSet, ImageSet]
) -> None:
    assert all(step.labelled is None for step in build_scenario(*digits, split="4-3-3"))
    steps, states = list(scenario_for(name, digits)), []
    again = steps[1].labelled
    assert again is not None
    assert again.labels is not None
    for labels in (again.labels, again.labels[::-1].copy()):
        learner = begun(name)
        learner.learn(steps[0])
        learner.learn(replace(steps[1], labelled=replace(again, labels=labels)))
        states.append(state_of(learner))
    assert not torch.equal(states[0]["joint.weight"], states[1]["joint.weight"])
    with pytest.raises(InputError, match="needs the labelled images again: use hoarfrost run"):
        learner.learn(replace(steps[2], labelled=None))


def test_terms_on_labelled_images_are_refused_where_those_are_gone() -> None:
    with pytest.raises(InputError, match="labelled-contrast needs the labelled images, which are gone"):
        replace(FROST, terms=(*FROST.terms, LabelledContrast()))


def test_an_interrupted_discovery_goes_on_to_the_same_weights(
    learned: Learned, digits: tuple[ImageSet, ImageSet], tmp_path: Path
) -> None:
    if not learned.method.active:
        pytest.skip("nothing is trained")
    steps, learner = list(scenario_for(learned.method.name, digits)), begun(learned.method.name)
    learner.learn(steps[0])

    class Stop(Observer):
        def epoch_done(self, entry: Entry, network: Network) -> None:
            if entry["epoch"] == 1:
                raise KeyboardInterrupt

    checkpoint = CheckpointFile(tmp_path / "state.safetensors")
    with pytest.raises(KeyboardInterrupt):
        learner.learn(steps[1], observer=Stop(), checkpoint=checkpoint)
    learner.learn(steps[1], checkpoint=checkpoint)
    found = state_of(learner)
    assert all(torch.equal(tensor, learned.states[1][name]) for name, tensor in found.items())


def test_saved_and_loaded_it_predicts_the_same(learned: Learned, three_steps: Scenario, tmp_path: Path) -> None:
    learned.learner.save(tmp_path / "model")
    loaded = Learner.load(tmp_path / "model", device="cpu")
    test = three_steps.truths[-1].test
    assert np.array_equal(loaded.predict_proba(test), learned.learner.predict_proba(test))
    assert loaded.config == learned.learner.config
    assert torch.equal(loaded.model.statistics.mean, learned.learner.model.statistics.mean)


def test_probabilities_cover_all_classes(learned: Learned, three_steps: Scenario) -> None:
    probabilities = learned.learner.predict_proba(three_steps.truths[-1].test)
    assert probabilities.shape[1] == 10
    assert np.allclose(probabilities.sum(axis=1), 1)


def test_ablations_differ_from_frost_in_weights_alone() -> None:
    ablations = [method for name, method in METHODS.items() if name.startswith("frost-without-")]
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


def test_commands_and_learners_have_one_default() -> None:
    parser = argparse.ArgumentParser()
    options.add_method(parser)
    assert parser.parse_args([]).method == DEFAULT == Learner().config.method.name


def test_unknown_methods_get_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'frost'"):
        get_method("forst")
