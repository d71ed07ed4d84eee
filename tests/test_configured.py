"""How a configuration comes about: the preset, then the data set's recipe, then what the user sets."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from hoarfrost import Learner
from hoarfrost import settings as configuration
from hoarfrost.config import Config, Method
from hoarfrost.data.augment import Crop
from hoarfrost.data.images import container_memory
from hoarfrost.errors import InputError
from hoarfrost.losses.inputs import LossInputs
from hoarfrost.losses.terms import Consistency, CrossEntropy, Pairwise, SelfTraining, Term
from hoarfrost.methods import FROST, METHODS
from hoarfrost.recipes import RECIPES
from hoarfrost.settings import filled, from_json, override, to_json
from hoarfrost.training.observers import Entry, Observer

from . import forked
from .conftest import TINY

IMAGES = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), dtype=np.uint8)
LABELS = np.arange(24) % 3


def digits(method: Method = FROST) -> Config:
    return RECIPES["digits"].config(method, seed=0)


class TestKinds:
    """``--set discover_augment.kind=crop`` and the keys of that kind, in any order."""

    @pytest.mark.parametrize("keys", [("kind", "pad"), ("pad", "kind")])
    def test_a_kind_and_its_keys_are_set_in_any_order(self, keys: tuple[str, ...]) -> None:
        values = {"kind": "crop", "pad": 2}
        changed = override(digits(), {f"discover_augment.{key}": values[key] for key in keys})
        assert changed.discover_augment == Crop(pad=2)

    def test_a_key_of_the_kind_before_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"discover_augment\.rotate"):
            override(digits(), {"discover_augment.kind": "crop", "discover_augment.rotate": 0.1})


class TestPrecedence:
    def test_a_method_has_its_own_numbers_before_those_of_the_data_set(self) -> None:
        own = replace(FROST, terms=(Pairwise(), Consistency(weight=7.0, ramp=3), SelfTraining(weight=0.3)))
        terms = {term.kind: term for term in RECIPES["cifar100"].config(own, seed=0).method.terms}
        assert (terms["consistency"].weight, terms["consistency"].ramp) == (7.0, 3)
        assert terms["self-training"].weight == 0.3
        assert terms["self-training"].ramp == 150, "what it leaves open the data set decides"

    def test_no_preset_has_numbers_that_are_never_used(self) -> None:
        for method in METHODS.values():
            for recipe in RECIPES.values():
                made = {term.kind: term for term in recipe.config(method, seed=0).method.terms}
                for term in method.terms:
                    default = type(term)()
                    for key in recipe.terms.get(term.kind, {}):
                        if getattr(term, key) != getattr(default, key) and key not in term.counted_in_epochs:
                            assert getattr(made[term.kind], key) == getattr(term, key), (method.name, term.kind, key)


class TestEpochs:
    def test_setting_the_epochs_stretches_drops_and_ramps(self) -> None:
        learner = Learner("frost", settings={"discover.epochs": 20, "fit.epochs": 20})
        usual = RECIPES["folder"]
        assert learner.config.discover == usual.discover.shortened(20)
        assert learner.config.fit == usual.fit.shortened(20)
        assert max(learner.config.discover.drops) < 20
        assert all(term.ramp < 20 for term in learner.config.method.terms)

    def test_what_is_set_beside_the_epochs_stays_as_it_is_set(self) -> None:
        changes = {"discover.epochs": 20, "discover.drops": [19], "method.terms.consistency.ramp": 15}
        for order in (changes, dict(reversed(changes.items()))):
            made = override(digits(), order)
            ramps = {term.kind: term.ramp for term in made.method.terms}
            assert (made.discover.drops, ramps["consistency"]) == ((19,), 15)

    def test_no_number_of_epochs_is_refused_as_before(self) -> None:
        for wrong in (0, -3, "many", 2.5, True):
            with pytest.raises(InputError, match="epochs"):
                override(digits(), {"discover.epochs": wrong})

    def test_ramps_of_stage_one_are_stretched_too(self) -> None:
        method = replace(FROST, stage_one=(CrossEntropy(ramp=10),))
        assert digits(method).with_epochs(fit=40).method.stage_one == (CrossEntropy(ramp=20),)

    def test_a_kind_that_stands_twice_in_stage_one_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"method\.stage_one must have each kind only once"):
            replace(FROST, stage_one=(CrossEntropy(), CrossEntropy(weight=2.0)))


class Interrupting(Observer):
    def epoch_done(self, entry: Entry, network: object) -> None:
        raise KeyboardInterrupt


class TestFittingAgain:
    def test_a_fit_that_is_interrupted_leaves_the_earlier_model_usable(self) -> None:
        learner = Learner(backbone="small", device="cpu", settings=TINY).fit(IMAGES, LABELS)
        expected = learner.predict(IMAGES)
        other = np.zeros((12, 24, 24), dtype=np.uint8)
        other[::2] = 200
        with pytest.raises(KeyboardInterrupt):
            learner.fit(other, np.arange(12) % 2, observer=Interrupting())
        assert (learner.predict(IMAGES) == expected).all()
        assert learner.channels == 3

    def test_a_loaded_learner_fits_images_of_another_kind(self, tmp_path: Path) -> None:
        gray = IMAGES[..., 0]
        Learner(backbone="small", device="cpu", settings=TINY).fit(gray, LABELS).save(tmp_path / "model")
        learner = Learner.load(tmp_path / "model", "cpu").fit(IMAGES, LABELS)
        assert learner.channels == 3
        assert learner.config.backbone == "small", "what a person chose stays"

    def test_what_a_person_set_is_not_decided_anew(self, tmp_path: Path) -> None:
        settings = {**TINY, "image_size": 24, "mean": [0.5] * 3, "std": [0.25] * 3}
        Learner(device="cpu", settings=settings).fit(IMAGES, LABELS).save(tmp_path / "model")
        learner = Learner.load(tmp_path / "model", "cpu").fit(IMAGES, LABELS)
        assert (learner.config.image_size, learner.config.mean) == (24, (0.5, 0.5, 0.5))

    def test_settings_can_be_changed_before_anything_is_learned(self) -> None:
        learner = Learner(device="cpu", settings=TINY)
        learner.reconfigure(override(learner.config, {"discover.learning_rate": 0.05}))
        learner.fit(IMAGES, LABELS)
        assert learner.config.discover.learning_rate == 0.05

    def test_loading_leaves_the_random_numbers_of_others_alone(self, tmp_path: Path) -> None:
        Learner(backbone="small", device="cpu", settings=TINY).fit(IMAGES, LABELS).save(tmp_path / "model")
        before = torch.get_rng_state()
        Learner.load(tmp_path / "model", "cpu")
        assert torch.equal(torch.get_rng_state(), before)


@dataclass(frozen=True, kw_only=True)
class Shrinking(Term):
    """A term from outside."""

    kind: ClassVar[str] = "test-shrinking"

    def loss(self, inputs: LossInputs) -> Tensor:
        """Short features."""
        return inputs.features().square().mean()


class TestFiles:
    def test_a_model_with_a_term_from_outside_loads_where_that_is_there(self, tmp_path: Path) -> None:
        method = replace(FROST, name="frost-shrinking", terms=(*FROST.terms, Shrinking(weight=0.1)))
        config = override(RECIPES["digits"].config(method, 0), {**TINY, "image_size": 16})
        learner = Learner.from_config(config, "cpu").fit(IMAGES[..., 0], LABELS)
        learner.save(tmp_path / "model")
        assert Learner.load(tmp_path / "model", "cpu").config == learner.config

        script = "from hoarfrost import Learner; Learner.load('model', 'cpu')"
        done = forked.run([sys.executable, "-c", script], cwd=tmp_path)
        last = done.stderr.splitlines()[-1]
        assert "test-shrinking" in last
        assert "; install " in last
        assert "damaged" not in last

    def test_a_configuration_has_a_version(self) -> None:
        content = to_json(digits())
        assert content["version"] == configuration.VERSION
        assert from_json(Config, content) == digits()
        assert from_json(Config, {k: v for k, v in content.items() if k != "version"}) == digits(), "an older one"
        for other in (configuration.VERSION + 1, 0, "one"):
            with pytest.raises(InputError, match="update hoarfrost"):
                from_json(Config, {**content, "version": other})

    def test_a_method_may_be_described_in_other_words(self) -> None:
        """Files do not have the summary; those of earlier versions do."""
        content = to_json(digits())
        assert digits().method.summary
        assert "summary" not in content["method"]
        earlier = {**content, "method": {**content["method"], "summary": "in other words"}}
        assert from_json(Config, earlier) == digits()
        assert filled(earlier) == content

    def test_a_renamed_key_is_migrated(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """As a later version would have it: views was once called passes."""
        monkeypatch.setattr(configuration, "VERSION", 2)
        monkeypatch.setattr(
            configuration,
            "MIGRATIONS",
            {1: lambda old: {**{k: v for k, v in old.items() if k != "passes"}, "views": old["passes"]}},
        )
        old = {k: v for k, v in to_json(digits()).items() if k != "views"} | {"passes": "separate", "version": 1}
        assert from_json(Config, json.loads(json.dumps(old))) == replace(digits(), views="separate")

    @pytest.mark.parametrize("method", ["ncl", "ncl-labelled"])
    def test_ncl_of_an_earlier_version(self, method: str) -> None:
        """It could mix negatives with features that a replay term drew for it."""
        config = RECIPES["digits"].config(METHODS[method], 0)
        content = json.loads(json.dumps(to_json(config)))
        terms = content["method"]["terms"]
        terms["contrast"] |= {"hard_negatives": False, "mixed": 50, "kept": 400}
        content["version"], terms["replay"] = 2, {"weight": 0.0, "over": "labelled"}
        assert from_json(Config, content) == config
        terms["contrast"]["hard_negatives"] = True
        with pytest.raises(InputError, match="hard_negatives were removed"):
            from_json(Config, content)
        content["method"] = {**content["method"], "terms": ["contrast"]}
        with pytest.raises(InputError, match=r"method\.terms"):
            from_json(Config, content)


def test_the_hint_after_a_diverged_loss_names_the_schedule_that_trained() -> None:
    learner = Learner("supervised", device="cpu", recipe="digits", settings={**TINY, "fit.learning_rate": 1e6})
    with pytest.raises(InputError, match=re.escape("the loss became NaN or infinite")) as error:
        learner.fit(IMAGES, LABELS)
    assert "fit.learning_rate=100000" in str(error.value)


def test_a_later_step_of_the_upper_bound_is_trained_by_the_schedule_of_stage_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hoarfrost.data.images import ImageSet
    from hoarfrost.scenario import Step

    learner = Learner("supervised", device="cpu", recipe="digits", settings=TINY)
    first = ImageSet(IMAGES, LABELS, ("a", "b", "c"))
    learner.learn(Step(0, first, 0, 3))
    learner.config = override(learner.config, {"fit.learning_rate": 1e6})
    more = ImageSet(IMAGES, np.arange(24) % 5, tuple("abcde"))
    with pytest.raises(InputError) as error:
        learner.learn(Step(1, more, 3, 2))
    assert "--set fit.learning_rate" in str(error.value)


@pytest.mark.parametrize(
    ("kind", "files", "left"),
    [
        ("", {"job/memory.max": "1000", "job/memory.current": "400"}, [600]),
        ("", {"job/memory.max": "max", "job/memory.current": "400"}, []),
        ("", {"memory.max": "900", "memory.current": "100", "job/memory.max": "max", "job/memory.current": "1"}, [800]),
        ("memory", {"job/memory.limit_in_bytes": "500", "job/memory.usage_in_bytes": "700"}, [0]),
        ("", {}, []),
    ],
)
def test_memory_that_a_container_leaves(tmp_path: Path, kind: str, files: dict[str, str], left: list[int]) -> None:
    root = tmp_path / "cgroup"
    for name, content in files.items():
        path = root / kind / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    groups = tmp_path / "self"
    groups.write_text(f"3:cpu:/elsewhere\n0:{kind}:/job\n")
    assert container_memory(groups, root) == left
    assert container_memory(tmp_path / "nothing", root) == []
