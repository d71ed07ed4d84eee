"""What the core is open for: terms with views and heads of their own, and copies that discover and are thrown away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hoarfrost.config import Method
from hoarfrost.data.augment import Affine, Augment
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError
from hoarfrost.experiment import Shelf
from hoarfrost.losses.inputs import LossInputs, Sizes, View, present
from hoarfrost.losses.memory import Memory, Queue
from hoarfrost.losses.self_labelling import InstanceContrast
from hoarfrost.losses.terms import CrossEntropy, Need, Term
from hoarfrost.methods import FROST, HOARFROST, METHODS
from hoarfrost.models.network import Design, Network
from hoarfrost.models.readout import ClassMeans
from hoarfrost.recipes import get_recipe
from hoarfrost.scenario import Scenario, build_scenario
from hoarfrost.settings import from_json, override, to_json
from hoarfrost.store import CheckpointFile
from hoarfrost.training.held_out import FOLDS, folds
from hoarfrost.training.images import new_network
from hoarfrost.training.learner import Learner
from hoarfrost.training.observers import Entry, Observer
from hoarfrost.training.resolve import by_another_method

from .conftest import TINY

SEEN: list[dict[str, tuple[int, ...]]] = []
"""the shapes that the term below was given, a batch each"""


class Cosine(nn.Module):
    """Cosines to unit rows."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, features))

    def forward(self, features: Tensor) -> Tensor:
        return functional.normalize(features) @ functional.normalize(self.weight).T / 0.1


@dataclass(frozen=True, kw_only=True)
class Swapped(Term):
    """Two strong views agree with a weak one on more clusters than there are classes, and in a projection."""

    kind: ClassVar[str] = "test-swapped"
    heads: ClassVar[tuple[str, ...]] = ("clusters", "projection")
    trains: ClassVar[frozenset[str]] = frozenset({"clusters", "projection"})

    strong: Affine = field(default_factory=lambda: Affine(rotate=0.5, shift=0.3))
    weak: Augment = field(default_factory=Augment)
    size: int = 8

    @property
    def views(self) -> tuple[View, ...]:
        return (View("strong 1", self.strong), View("weak", self.weak), View("strong 2", self.strong))

    def make_heads(self, sizes: Sizes) -> Mapping[str, nn.Module]:
        classes = sizes.novel_classes or sizes.labelled_classes
        return {
            "clusters": Cosine(sizes.features, 4 * classes),
            "projection": nn.Sequential(nn.Linear(sizes.features, 32), nn.ReLU(), nn.Linear(32, 8)),
        }

    def make_memory(self, sizes: Sizes) -> Memory:
        return Queue(self.size, sizes.features)

    def loss(self, inputs: LossInputs) -> Tensor:
        strong_1, weak, strong_2 = self.views
        target = inputs.logits("clusters", weak).detach().softmax(dim=1)
        agree = [functional.cross_entropy(inputs.logits("clusters", view), target) for view in (strong_1, strong_2)]
        apart = functional.mse_loss(inputs.logits("projection", strong_1), inputs.logits("projection", strong_2))
        away = (functional.normalize(inputs.features(weak)) @ inputs.memory("queue").T).mean()
        computed = inputs.student.logits_by_head
        SEEN.append({f"{head} {view}": tuple(logits.shape) for (head, view), logits in computed.items()})
        return torch.stack(agree).mean() + apart + away


def learner_of(method: Method, **settings: object) -> Learner:
    config = override(get_recipe("digits").config(method, 1), {**TINY, **settings})
    return Learner.from_config(config, "cpu")


class TestATermOfItsOwn:
    def test_in_discovery(self, three_steps: Scenario, tmp_path: Path) -> None:
        method = replace(FROST, name="swapped", terms=(*FROST.terms, Swapped()))
        assert from_json(Method, to_json(method)) == method
        learner = learner_of(method)
        SEEN.clear()
        for step in three_steps:
            learner.learn(step)
        for shapes in SEEN:
            batch = shapes["novel first"][0]
            assert shapes["clusters weak"] == (batch, 12)
            assert shapes["projection strong 1"] == shapes["projection strong 2"] == (batch, 8)
            assert shapes["novel second"] == (batch, 3)
            assert "clusters first" not in shapes, "what no term reads is not computed"
        assert not learner.network.heads, "they are gone with their stage"
        learner.save(tmp_path / "model")
        images = three_steps.truths[-1].test
        assert (Learner.load(tmp_path / "model", "cpu").predict(images) == learner.predict(images)).all()

    def test_in_stage_one(self, three_steps: Scenario) -> None:
        learner = learner_of(replace(FROST, name="swapped", stage_one=(CrossEntropy(), Swapped())))
        SEEN.clear()
        learner.learn(three_steps.steps[0])
        assert {shapes["clusters weak"][1] for shapes in SEEN} == {16}
        assert not learner.network.heads

    def test_with_a_weight_of_0_it_leaves_no_trace_in_stage_one(self, three_steps: Scenario) -> None:
        made: list[str] = []

        @dataclass(frozen=True, kw_only=True)
        class Noticed(Swapped):
            kind: ClassVar[str] = "test-noticed"

            def make_memory(self, sizes: Sizes) -> Memory:
                made.append("memory")
                return super().make_memory(sizes)

            def make_heads(self, sizes: Sizes) -> Mapping[str, nn.Module]:
                made.append("heads")
                return super().make_heads(sizes)

        for weight, expected in ((0.0, []), (1.0, ["heads", "memory"])):
            terms = (CrossEntropy(), Noticed(weight=weight))
            learner_of(replace(FROST, stage_one=terms)).learn(three_steps.steps[0])
            assert made == expected

    def test_it_changes_what_is_learned_and_alone_can_train(self, three_steps: Scenario) -> None:
        plain, swapped = learner_of(FROST), learner_of(replace(FROST, name="swapped", terms=(Swapped(),)))
        for learner in (plain, swapped):
            for step in three_steps.steps[:2]:
                learner.learn(step)
        assert not torch.equal(
            next(iter(plain.network.backbone.part("stage3").parameters())),
            next(iter(swapped.network.backbone.part("stage3").parameters())),
        )

    def test_views_of_one_name_are_one_view(self) -> None:
        @dataclass(frozen=True, kw_only=True)
        class Other(Swapped):
            kind: ClassVar[str] = "test-other"

        with pytest.raises(InputError, match="view 'weak'"):
            replace(FROST, terms=(Swapped(), Other(weak=Affine())))

    @pytest.mark.parametrize(
        ("made", "trained", "message"),
        [("novel", "novel", "'novel', which already exists"), ("mine", "joint", "no term trains")],
    )
    def test_heads_that_would_be_used_otherwise_than_meant_are_refused(
        self, three_steps: Scenario, made: str, trained: str, message: str
    ) -> None:
        @dataclass(frozen=True, kw_only=True)
        class Making(Swapped):
            kind: ClassVar[str] = f"test-making-{made}"
            heads: ClassVar[tuple[str, ...]] = (made,)
            trains: ClassVar[frozenset[str]] = frozenset({trained})

            def make_heads(self, sizes: Sizes) -> Mapping[str, nn.Module]:
                return {made: nn.Linear(sizes.features, 7)}

        learner = learner_of(replace(FROST, terms=(Making(),)))
        with pytest.raises(InputError, match=message):
            learner.learn(three_steps.steps[0])

    def test_two_memories_of_one_name_are_refused(self, three_steps: Scenario) -> None:
        learner = learner_of(replace(FROST, terms=(*METHODS["ncl"].active, Swapped())))
        learner.learn(three_steps.steps[0])
        with pytest.raises(InputError, match="two memories provide the same name: queue, queue"):
            learner.learn(three_steps.steps[1])

    def test_old_heads_alone_are_enough_of_a_need(self, three_steps: Scenario) -> None:
        @dataclass(frozen=True, kw_only=True)
        class Reading(Term):
            kind: ClassVar[str] = "test-old-heads"

            @property
            def needs(self) -> frozenset[Need]:
                return frozenset({"old heads"})

            def loss(self, inputs: LossInputs) -> Tensor:
                return present(inputs.old_heads, "old heads").logits("joint").square().mean()

        learner = learner_of(replace(METHODS["autonovel"], terms=(*METHODS["autonovel"].terms, Reading())))
        for step in three_steps.steps[:2]:
            learner.learn(step)

    def test_its_strong_views_are_the_data_sets(self) -> None:
        config = get_recipe("cifar10").config(replace(FROST, stage_one=(CrossEntropy(), InstanceContrast())), 0)
        (term,) = (term for term in config.method.stage_one if isinstance(term, InstanceContrast))
        assert term.augment == get_recipe("cifar10").strong_augment
        digits = get_recipe("digits").config(replace(FROST, stage_one=(CrossEntropy(), InstanceContrast())), 0)
        assert digits.method.stage_one[1].views[0].augment == get_recipe("digits").strong_augment

    def test_a_head_that_nobody_makes_is_named(self, three_steps: Scenario) -> None:
        @dataclass(frozen=True, kw_only=True)
        class Reading(Swapped):
            kind: ClassVar[str] = "test-reading"
            heads: ClassVar[tuple[str, ...]] = ("projections",)

        learner = learner_of(replace(FROST, terms=(Reading(),)))
        with pytest.raises(InputError, match=r"term 'test-reading': unknown head 'projections'.*'projection'"):
            learner.learn(three_steps.steps[0])  # long before it would be needed

    def test_a_kind_that_is_taken_is_refused_but_not_a_cell_that_is_run_again(self) -> None:
        with pytest.raises(
            InputError, match=r"the kind 'consistency' is already taken by hoarfrost\.losses\.terms\.Consistency"
        ):

            class Taken(Swapped):
                kind: ClassVar[str] = "consistency"

        for _ in range(2):

            class Again(Swapped):
                kind: ClassVar[str] = "test-again"


class TestTheNetworkThatDecides:
    CLUSTERS = replace(
        FROST,
        terms=tuple(term for term in FROST.terms if "joint" not in term.trains),
        design=Design(readout=ClassMeans()),
    )

    def discovered(self, three_steps: Scenario, method: Method) -> list[dict[str, Tensor]]:
        learner, states = learner_of(method), []
        for step in three_steps:
            learner.learn(step)
            states.append({name: tensor.clone() for name, tensor in learner.network.backbone.state_dict().items()})
        return states

    def test_an_unmoved_one_stays_bit_for_bit_while_a_copy_discovers(self, three_steps: Scenario) -> None:
        method = replace(self.CLUSTERS, decides="unmoved")
        first, second, third = self.discovered(three_steps, method)
        for name, tensor in first.items():
            assert torch.equal(tensor, second[name]), name
            assert torch.equal(tensor, third[name]), name

    def test_the_average_is_half_way(self, three_steps: Scenario) -> None:
        trained = self.discovered(three_steps, self.CLUSTERS)
        average = self.discovered(three_steps, replace(self.CLUSTERS, decides="average"))
        for name, tensor in average[1].items():
            if tensor.is_floating_point():
                torch.testing.assert_close(tensor, (trained[0][name] + trained[1][name]) / 2)

    def test_new_classes_are_those_that_the_copy_found(self, three_steps: Scenario) -> None:
        """Their means are of the images that the copy put together, in the features of what stayed."""
        learner = learner_of(replace(self.CLUSTERS, decides="unmoved"))
        first, second = three_steps.steps[:2]
        learner.learn(first)
        features = learner.outputs(second.images, features=True).features
        assert features is not None
        learner.learn(second)
        statistics = learner.model.statistics
        assert int(statistics.count[4:].sum()) == len(second.images)
        count = statistics.count[4:, None]
        whole = (statistics.mean[4:] * count).sum(dim=0) / count.sum()
        np.testing.assert_allclose(whole.numpy(), features.mean(axis=0), rtol=1e-4, atol=1e-5)

    def test_a_trained_head_cannot_decide_for_another_network(self) -> None:
        with pytest.raises(InputError, match=r"decides=unmoved needs a readout from class statistics"):
            replace(FROST, decides="unmoved")


class Killed(Observer):
    """Ends the training after an epoch, as a kill would."""

    def __init__(self, stage: int, epoch: int) -> None:
        self.last = (stage, epoch)

    def epoch_done(self, entry: Entry, network: Network) -> None:
        if (entry["stage"], entry["epoch"]) == self.last:
            raise KeyboardInterrupt


class TestAverageOverTraining:
    AVERAGED = replace(FROST, weight_average=0.9)

    def test_it_is_the_moving_average_of_every_step(self, three_steps: Scenario) -> None:
        """With a decay that hardly forgets the weights stay near the start; they are not those without an average."""
        with_, without = learner_of(replace(FROST, weight_average=0.999999)), learner_of(FROST)
        for learner in (with_, without):
            learner.learn(three_steps.steps[0])
        before = with_.network.joint.weight.detach().clone()
        for learner in (with_, without):
            learner.learn(three_steps.steps[1])
        torch.testing.assert_close(with_.network.joint.weight[:4], before, atol=1e-4, rtol=0)
        assert not torch.allclose(without.network.joint.weight[:4], before, atol=1e-3)

    def test_its_state_survives_a_kill(self, three_steps: Scenario, tmp_path: Path) -> None:
        first, second = three_steps.steps[:2]
        settings = {"discover.epochs": 4}
        whole = learner_of(self.AVERAGED, **settings).learn(first).learn(second)
        killed = learner_of(self.AVERAGED, **settings).learn(first)
        checkpoint = CheckpointFile(tmp_path / "checkpoint.safetensors")
        with pytest.raises(KeyboardInterrupt):
            killed.learn(second, observer=Killed(1, 2), checkpoint=checkpoint)
        assert checkpoint.load() is not None
        killed.learn(second, checkpoint=checkpoint)
        for name, tensor in whole.network.state_dict().items():
            assert torch.equal(tensor, killed.network.state_dict()[name]), name


class TestHalfWayAfterStageOne:
    """Stage one trains, and brings the backbone part of the way back."""

    KEEPS: ClassVar[dict[str, Any]] = {
        **{"fit_keeps": 0.25, "mean": [0.3], "std": [0.3], "fit.epochs": 3},
        **{"method.frozen": ["all"], "method.moving_statistics": False},
    }

    def backbone(self, learner: Learner) -> dict[str, Tensor]:
        return dict(learner.network.backbone.state_dict().items())

    def test_it_is_the_weighted_average_of_before_and_after(self, digits: tuple[ImageSet, ImageSet]) -> None:
        """The last fifth of each class has no part in it."""
        images, _ = digits
        assert images.labels is not None
        learned_from = images.take(folds(images.labels) != FOLDS - 1)
        assert 0.78 < len(learned_from) / len(images) < 0.86
        average = learner_of(HOARFROST, **self.KEEPS).fit(images)
        trained = learner_of(HOARFROST, **{**self.KEEPS, "fit_keeps": 0.0}).fit(learned_from)
        begun = new_network(trained.config, 10).backbone.state_dict()
        for name, tensor in self.backbone(trained).items():
            if tensor.is_floating_point():
                expected = 0.25 * begun[name] + 0.75 * tensor
                torch.testing.assert_close(self.backbone(average)[name], expected, rtol=1e-4, atol=1e-6)
        assert any(not torch.allclose(self.backbone(average)[name], begun[name], atol=1e-3) for name in begun)
        tuned, goes_on = average.model.calibration, trained.model.calibration
        assert tuned.sorter is not None
        assert tuned.expected is None
        assert goes_on.sorter is None, "a network that goes on learning has other features by then"
        assert goes_on.expected is not None

    def test_it_is_scored_by_what_it_did_not_learn_from(self, digits: tuple[ImageSet, ImageSet]) -> None:
        images, _ = digits
        assert images.labels is not None
        learner = learner_of(HOARFROST, **self.KEEPS).fit(images)
        found, last = learner.held_out(images), folds(images.labels) == FOLDS - 1
        assert found is not None
        np.testing.assert_array_equal(found.predicted >= 0, last)
        assert 50 < found.accuracy <= 100
        assert found.scored == f"{last.sum()} of {len(images)} images, each by what was learned from others"

    @pytest.mark.parametrize(
        ("method", "more"), [(HOARFROST, {"method.frozen": ["stem"]}), (METHODS["kmeans"], {})], ids=["moves", "means"]
    )
    def test_nothing_is_held_back_that_would_not_be_scored(
        self, digits: tuple[ImageSet, ImageSet], method: Method, more: dict[str, Any]
    ) -> None:
        images, _ = digits
        average = learner_of(method, **{**self.KEEPS, **more}).fit(images)
        assert average.held_out(images) is None
        trained = learner_of(method, **{**self.KEEPS, **more, "fit_keeps": 0.0}).fit(images)
        begun = new_network(trained.config, 10).backbone.state_dict()
        for name, tensor in self.backbone(trained).items():
            if tensor.is_floating_point():
                expected = 0.25 * begun[name] + 0.75 * tensor
                torch.testing.assert_close(self.backbone(average)[name], expected, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("method", [HOARFROST, METHODS["kmeans"]], ids=lambda method: method.name)
    def test_its_head_suits_the_features_that_stay(self, digits: tuple[ImageSet, ImageSet], method: Method) -> None:
        """It chooses the nearest mean: another method may discover with it."""
        images, tests = digits
        learner = learner_of(method, **self.KEEPS).fit(images)
        features = learner.outputs(tests, features=True).features
        assert features is not None
        means, head = learner.model.statistics.mean.numpy(), learner.network.joint
        nearest = np.square(features[:, None] - means[None]).sum(axis=2).argmin(axis=1)
        chosen = head(torch.from_numpy(np.ascontiguousarray(features[:, : head.in_features]))).argmax(dim=1).numpy()
        assert (chosen == nearest).mean() > 0.99
        learner.reconfigure(by_another_method(learner.config, METHODS["frost"], pretrained=False))
        assert (learner.predictions(tests).ids == nearest).mean() > 0.99
        learner.discover(tests, 2, only_new=True)

    def test_a_shelf_tells_it_from_another(self, three_steps: Scenario, tmp_path: Path) -> None:
        folders = {
            Shelf(tmp_path, override(learner.config, {"fit_keeps": keeps}), three_steps, learner.runtime).folder
            for learner in [learner_of(HOARFROST, **self.KEEPS)]
            for keeps in (0.0, 0.25, 0.5)
        }
        assert len(folders) == 3

    def test_a_kill_changes_nothing(self, digits: tuple[ImageSet, ImageSet], tmp_path: Path) -> None:
        images, _ = digits
        whole, killed = (learner_of(HOARFROST, **self.KEEPS) for _ in range(2))
        whole.fit(images)
        checkpoint = CheckpointFile(tmp_path / "checkpoint.safetensors")
        with pytest.raises(KeyboardInterrupt):
            killed.fit(images, observer=Killed(0, 1), checkpoint=checkpoint)
        assert checkpoint.load() is not None
        killed.fit(images, checkpoint=checkpoint)
        for name, tensor in whole.network.state_dict().items():
            assert torch.equal(tensor, killed.network.state_dict()[name]), name

    @pytest.mark.parametrize("share", [-0.1, 1.0])
    def test_a_part_is_from_0_to_below_1(self, share: float) -> None:
        with pytest.raises(InputError, match="fit_keeps must be at least 0 and below 1"):
            learner_of(HOARFROST, fit_keeps=share)


@pytest.mark.parametrize("name", METHODS)
def test_ten_steps(name: str, digits: tuple[ImageSet, ImageSet], tmp_path: Path) -> None:
    """Two labelled classes and eight discoveries of one: what is kept grows by what a class costs, and no faster."""
    method = METHODS[name]
    scenario = build_scenario(
        *digits, split="2-1-1-1-1-1-1-1-1", supervised=method.supervised, labelled_images=method.labelled_images
    )
    learner = Learner(name, recipe="digits", device="cpu", settings={**TINY, "fit.epochs": 1, "discover.epochs": 1})
    sizes = []
    for step in scenario:
        learner.learn(step)
        learner.save(tmp_path / "model")
        sizes.append(sum(file.stat().st_size for file in (tmp_path / "model").iterdir()))
    assert learner.novel_per_step == (1,) * 8
    added = np.diff(sizes)
    assert added.max() < 1.05 * added.min() + 2000, "a step adds as much as any other"
    assert (Learner.load(tmp_path / "model", "cpu").predict(digits[1]) == learner.predict(digits[1])).all()
