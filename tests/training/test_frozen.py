"""A backbone of another kind, frozen or trained, from the first image to the last prediction.

Where all of it is frozen, and no image is changed, its features are computed once, and learned from as if they were
computed in every step.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor

from hoarfrost import InputError, Learner, build_scenario
from hoarfrost.computing.runtime import Runtime
from hoarfrost.config import Config
from hoarfrost.data.augment import Augment
from hoarfrost.data.images import ImageSet
from hoarfrost.methods import METHODS
from hoarfrost.models.backbone import ALL, Backbone, Input
from hoarfrost.settings import VERSION, filled, from_json, to_json
from hoarfrost.training.images import with_labels
from hoarfrost.training.observers import Observer
from tests.models.patches import INPUT, Patches

from .. import forked
from ..computing.test_processes import finished, start

NAME = "object:tests.models.patches.Patches"
SHORT: dict[str, Any] = {
    **{"fit.epochs": 2, "fit.batch_size": 16, "fit.drops": []},
    **{"discover.epochs": 2, "discover.batch_size": 8, "discover.drops": []},
}
PLAIN: dict[str, Any] = {"fit_augment.kind": "none", "discover_augment.kind": "none"}
TRAINED: dict[str, Any] = {"method.frozen": []}
FROZEN: dict[str, Any] = {"method.frozen": [ALL], "method.moving_statistics": False, "fit_frozen": [ALL]}


def pictures(count: int, classes: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Colour images, whose classes are bright stripes in other places."""
    images = np.random.default_rng(seed).integers(0, 128, (count, 20, 20, 3), dtype=np.uint8)
    labels = np.arange(count) % classes
    for image, label in zip(images, labels, strict=True):
        image[:, 4 * label : 4 * label + 4, label % 3] = 255
    return images, labels


IMAGES, LABELS = pictures(45, 3)
UNLABELLED, _ = pictures(30, 5, seed=1)


def learner(method: str = "frost", **settings: Any) -> Learner:
    return Learner(method, Patches(), device="cpu", settings={**SHORT, **settings})


def state(learned: Learner) -> dict[str, Tensor]:
    return {
        name: tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in learned.network.state_dict().items()
    }


@pytest.mark.parametrize("frozen", [True, False])
def test_from_images_to_predictions(frozen: bool, tmp_path: Path) -> None:
    pretrained = Patches().state_dict()
    ours = learner(**(FROZEN if frozen else TRAINED)).fit(IMAGES, LABELS)
    config = ours.config
    assert (config.backbone, config.image_size, config.mean, config.std) == (NAME, 64, INPUT.mean, INPUT.std)
    ours.discover(UNLABELLED, 2, only_new=True)
    learned = ours.network.backbone.state_dict()
    for name, tensor in pretrained.items():
        if tensor.is_floating_point():
            assert torch.equal(tensor, learned[name]) == frozen, name
    ours.save(tmp_path / "model")
    again = Learner.load(tmp_path / "model", device="cpu", backbone=Patches())
    np.testing.assert_array_equal(again.outputs(UNLABELLED).scores, ours.outputs(UNLABELLED).scores)
    assert ours.predict_proba(UNLABELLED).shape == (30, 5)
    again.discover(UNLABELLED, 1, only_new=True)
    assert len(again.class_names) == 6
    again.fit(IMAGES, LABELS)
    assert again.config == config, "decided anew, and alike"


def test_a_loaded_model_needs_an_object_like_its_own(tmp_path: Path) -> None:
    learner(**TRAINED).fit(IMAGES, LABELS).save(tmp_path / "model")
    with pytest.raises(
        InputError,
        match=r"is a Python object of the class tests\.models\.patches\.Patches: give it, as in Learner\.load",
    ):
        Learner.load(tmp_path / "model")

    class Others(Patches):
        pass

    with pytest.raises(
        InputError, match=r"is object:tests\.models\.patches\.Patches, not object:.*Others: give that one"
    ):
        Learner.load(tmp_path / "model", backbone=Others())
    Learner(device="cpu", settings=SHORT).fit(IMAGES, LABELS).save(tmp_path / "small")
    with pytest.raises(InputError, match="is small, not object:"):
        Learner.load(tmp_path / "small", backbone=Patches())
    command = [sys.executable, "-m", "hoarfrost", "predict", "model", str(tmp_path), "--device", "cpu"]
    done = forked.run(command, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "the backbone of model is a Python object of the class tests.models.patches.Patches" in line


def test_each_fit_begins_with_the_weights_that_were_given() -> None:
    given = Patches()
    before = {name: tensor.clone() for name, tensor in given.state_dict().items()}
    ours = Learner(backbone=given, device="cpu", settings={**SHORT, **TRAINED})
    first = state(ours.fit(IMAGES, LABELS))
    assert all(torch.equal(tensor, given.state_dict()[name]) for name, tensor in before.items())
    assert given.training
    second, cloned = state(ours.fit(IMAGES, LABELS)), state(clone(ours).fit(IMAGES, LABELS))
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
        assert torch.equal(tensor, cloned[name]), name


class Wide(Backbone):
    """Says what its images must be, and is not used."""

    width = 4

    def __init__(self, wanted: Input) -> None:
        super().__init__()
        self.input = wanted
        self.only = torch.nn.Linear(3, 4)

    @property
    def parts(self) -> dict[str, torch.nn.Module]:
        return {"only": self.only}

    def forward(self, images: Tensor) -> Tensor:
        return self.only(images.mean(dim=(2, 3)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("images", "settings", "words"),
    [
        (IMAGES, {"image_size": 32}, r"takes images of 64 x 64 pixels, not of 32: leave image_size, mean and std"),
        (IMAGES, {"method.frozen": ["stem"]}, r"backbone \(method\.frozen\) 'stem': choose from patches, mixing, all"),
        (IMAGES, {"fit_frozen": ["patchs"]}, r"backbone \(fit_frozen\) 'patchs': did you mean 'patches'"),
        (IMAGES, {"method.design.residual": True}, "residual needs a ResNet backbone"),
    ],
)
def test_what_a_backbone_cannot_take_is_refused(images: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        learner(**{**TRAINED, **settings}).fit(images, LABELS)


def test_gray_images_are_repeated_for_a_backbone_of_three_channels() -> None:
    gray, novel = IMAGES[..., 0], UNLABELLED[..., 0]
    ours = learner(**TRAINED).fit(gray, LABELS).discover(novel, 2, only_new=True)
    assert ours.channels == 3
    colour = learner(**TRAINED).fit(np.repeat(gray[..., None], 3, axis=3), LABELS)
    colour.discover(np.repeat(novel[..., None], 3, axis=3), 2, only_new=True)
    theirs = state(colour)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in state(ours).items())
    np.testing.assert_array_equal(ours.predict(gray), colour.predict(gray))


def test_three_channels_without_a_normalisation_of_their_own() -> None:
    own = Learner(backbone=Wide(Input(channels=3)), device="cpu", settings={**SHORT, **TRAINED})
    own.fit(IMAGES[..., 0], LABELS)
    assert own.config.mean == pytest.approx((IMAGES[..., 0].mean() / 255,) * 3)


def test_colour_is_not_thrown_away() -> None:
    with pytest.raises(InputError, match="takes gray images, not colour images: choose another"):
        Learner(backbone=Wide(Input(channels=1)), device="cpu", settings=TRAINED).fit(IMAGES, LABELS)


def test_what_is_set_comes_before_what_the_backbone_says_and_the_images_decide_the_rest() -> None:
    own = Learner(
        backbone=Wide(Input(side=24)), device="cpu", settings={**SHORT, **TRAINED, "mean": [0.1] * 3, "std": [1.0] * 3}
    ).fit(IMAGES, LABELS)
    assert (own.config.image_size, own.config.mean) == (24, (0.1, 0.1, 0.1))
    free = Learner(backbone=Wide(Input()), device="cpu", settings={**SHORT, **TRAINED}).fit(IMAGES, LABELS)
    assert free.config.image_size == 24, "as with any backbone: 20 pixels, rounded up"
    assert free.config.mean == pytest.approx(tuple(IMAGES.mean(axis=(0, 1, 2)) / 255))


def test_a_folder_is_read_in_the_size_that_the_backbone_wants(tmp_path: Path) -> None:
    from PIL import Image

    large = np.kron(IMAGES[:12], np.ones((1, 5, 5, 1), dtype=np.uint8))
    for position, image in enumerate(large):
        folder = tmp_path / "photos" / str(LABELS[position])
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{position}.png")
    backbone = Wide(Input(side=96))
    own = Learner(backbone=backbone, device="cpu", settings={**SHORT, **TRAINED})
    seen, _ = with_labels(tmp_path / "photos", None, own.config, own.runtime, backbone)
    assert seen.shape == (96, 96, 3), "and not in one in between"


# ---------------------------------------------------------------------------------------------------------------------
# Features once
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unchanged(Augment):
    """The same as no augmentation at all, but nobody knows it: features are computed in every step."""


METHODS_TRIED = ("frost", "dtc-te", "ncl", "ncl-labelled", "joint")
"""replay and a teacher; k-means and a memory of every image; a queue; labelled images mixed in; no novel head"""


def learned(method: str, augment: Augment, **settings: Any) -> tuple[Learner, list[int], list[int], list[Any]]:
    """A learner after both stages, how many images the backbone saw in each, and the losses of every epoch."""
    preset = METHODS[method]
    ours = learner(method, **{**FROZEN, **PLAIN, **settings})
    config = replace(ours.config, fit_augment=augment, discover_augment=augment)
    ours.reconfigure(config)
    images = ImageSet(np.concatenate([IMAGES, UNLABELLED]), np.r_[LABELS, np.arange(30) % 2 + 3], tuple("abcde"))
    steps = list(build_scenario(images, images, split="3-2", labelled_images=preset.labelled_images))

    class Losses(Observer):
        entries: list[Any]

        def __init__(self) -> None:
            self.entries = []

        def epoch_done(self, entry: Any, network: Any) -> None:
            self.entries.append([entry["loss"], *entry["terms"].values()])

    seen, losses = [], Losses()
    for step in steps:
        Patches.seen.clear()
        ours.learn(step, observer=losses)
        seen.append(list(Patches.seen))
    return ours, seen[0], seen[1], losses.entries


@pytest.mark.parametrize("method", METHODS_TRIED)
def test_features_in_memory_train_as_features_computed_in_every_step(method: str) -> None:
    ours, first, then, losses = learned(method, Augment())
    assert sum(first) == 45, "every labelled image once"
    again = 45 if METHODS[method].labelled_images else 0
    assert sum(then) == 30 + again, "every new image once, and every labelled one that is mixed in"
    other, first, then, expected = learned(method, Unchanged())
    assert sum(first) > 2 * 45
    assert sum(then) > 2 * 30
    assert len(losses) == 4
    for entry, other_entry in zip(losses, expected, strict=True):
        assert entry == pytest.approx(other_entry, rel=1e-4, abs=1e-5)
    theirs = state(other)
    for name, tensor in state(ours).items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4, msg=name)
    for part in ("mean", "variance"):
        torch.testing.assert_close(getattr(ours.model.statistics, part), getattr(other.model.statistics, part))


@pytest.mark.parametrize(
    "settings",
    [
        {"method.frozen": ["patches"]},
        {"method.moving_statistics": True},
        {"discover_augment.kind": "crop"},
    ],
)
def test_features_that_may_change_are_computed_in_every_step(settings: dict[str, Any]) -> None:
    ours = learner(**{**FROZEN, **PLAIN, **settings}).fit(IMAGES, LABELS)
    Patches.seen.clear()
    ours.discover(UNLABELLED, 2, only_new=True)
    assert sum(Patches.seen) > 2 * 2 * 30, "two views in two epochs"


def test_a_training_from_memory_goes_on_after_an_interruption() -> None:
    class Kept:
        """A checkpoint in memory, that fails once."""

        saved: tuple[int, dict[str, Tensor]] | None = None
        fails = True

        def load(self) -> tuple[int, dict[str, Tensor]] | None:
            return self.saved

        def save(self, epochs: int, tensors: dict[str, Tensor]) -> None:
            self.saved = (epochs, {name: tensor.clone() for name, tensor in tensors.items()})
            if self.fails:
                self.fails = False
                raise KeyboardInterrupt

        def damaged(self) -> InputError:
            return InputError("damaged")

    whole = learner(**FROZEN, **PLAIN).fit(IMAGES, LABELS).discover(UNLABELLED, 2, only_new=True)
    parts, kept = learner(**FROZEN, **PLAIN).fit(IMAGES, LABELS), Kept()
    with pytest.raises(KeyboardInterrupt):
        parts.discover(UNLABELLED, 2, checkpoint=kept, only_new=True)
    parts.discover(UNLABELLED, 2, checkpoint=kept, only_new=True)
    theirs = state(parts)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in state(whole).items())


TOGETHER = """
import sys
import numpy as np
from safetensors.torch import save_file
from tests.training import test_frozen as tests

ours = tests.learner(**tests.FROZEN, **tests.PLAIN).fit(tests.IMAGES, tests.LABELS)
ours.discover(tests.UNLABELLED, 2, only_new=True)
save_file(tests.state(ours), f"{sys.argv[1]}/{ours.runtime.processes.rank}.safetensors")
assert sum(tests.Patches.seen) < 45 + 30, "each process computes its part"
"""


def test_two_processes_train_from_memory_what_one_does(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    script = tmp_path / "together.py"
    script.write_text(TOGETHER)
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    finished(start(str(script), str(tmp_path), more={"PYTHONPATH": os.pathsep.join(filter(None, paths))}))
    alone = state(learner(**FROZEN, **PLAIN).fit(IMAGES, LABELS).discover(UNLABELLED, 2, only_new=True))
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in (0, 1))
    for name, tensor in alone.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], tensor, rtol=1e-3, atol=1e-4, msg=name)
        if name.startswith("backbone."):
            assert torch.equal(first[name], tensor), name


# ---------------------------------------------------------------------------------------------------------------------
# What was written before
# ---------------------------------------------------------------------------------------------------------------------


def as_before(content: dict[str, Any]) -> dict[str, Any]:
    """A configuration as version 1 wrote it."""
    method = {key: value for key, value in content["method"].items() if key != "moving_statistics"}
    return {**{key: value for key, value in content.items() if key != "fit_frozen"}, "version": 1, "method": method}


LATER = ("freeze-and-cluster", "happy")
"""presets that came after that, whose frozen batch statistics stay"""


@pytest.mark.parametrize("method", [name for name in METHODS if name not in LATER])
def test_a_configuration_of_version_1_is_that_of_its_preset(method: str) -> None:
    config = Learner(method).config
    assert config.method.moving_statistics
    content = to_json(config)
    assert content["version"] == VERSION > 1
    old = json.loads(json.dumps(as_before(content)))
    assert from_json(Config, old) == config
    assert from_json(Config, {key: value for key, value in old.items() if key != "version"}) == config
    assert filled(old) == content
    whole = replace(config, method=replace(config.method, moving_statistics=False))
    assert from_json(Config, to_json(whole)) == whole, "what is said now stays"


def test_a_model_folder_of_version_1_loads_and_goes_on_as_before(tmp_path: Path) -> None:
    ours = Learner("frost", device="cpu", settings=SHORT).fit(IMAGES, LABELS)
    ours.save(tmp_path / "model")
    content = json.loads((tmp_path / "model" / "model.json").read_text())
    (tmp_path / "model" / "model.json").write_text(json.dumps({**content, "config": as_before(content["config"])}))
    old = Learner.load(tmp_path / "model", device="cpu")
    assert old.config == ours.config
    theirs = state(old.discover(UNLABELLED, 2, only_new=True))
    before = state(ours)
    after = state(ours.discover(UNLABELLED, 2, only_new=True))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in after.items())
    moved = "backbone.stem.1.running_mean"
    assert not torch.equal(before[moved], after[moved]), "as in the public code"
    assert torch.equal(before["backbone.stem.0.weight"], after["backbone.stem.0.weight"])


@pytest.mark.parametrize("pretrained", [True, False])
def test_ways_to_convolve_are_tried_for_networks_from_nothing_alone(
    pretrained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pretrained one of many kinds of layers is trained for a shorter time than a GPU would need to try them all."""
    searched: list[bool] = []
    usual = Runtime.numerics

    def noted(self: Runtime, *, search: bool = True) -> AbstractContextManager[None]:
        searched.append(search)
        return usual(self, search=search)

    monkeypatch.setattr(Runtime, "numerics", noted)
    backbone = Patches()
    backbone.pretrained = pretrained
    Learner("frost", backbone, device="cpu", settings={**SHORT, **TRAINED, "fit_frozen": []}).fit(IMAGES, LABELS)
    assert searched[0] == (not pretrained)
