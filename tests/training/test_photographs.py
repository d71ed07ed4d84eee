"""Photographs: what is decided for them, by whom, and that features of a backbone that stays are computed once."""

from __future__ import annotations

import errno
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from hoarfrost import Learner
from hoarfrost.cli import main
from hoarfrost.config import HALF_WAY, STAYS, TUNED, Config
from hoarfrost.data import images as images_module
from hoarfrost.data import rows
from hoarfrost.data.augment import Affine, Augment, Crop, ResizedCrop
from hoarfrost.data.cache import AUTO, ImageStorage
from hoarfrost.data.datasets import read_images
from hoarfrost.data.images import ImageFiles, ImageSet, OnDisk
from hoarfrost.errors import InputError, SkippedFiles
from hoarfrost.experiment import kept_for_epochs
from hoarfrost.methods import HOARFROST
from hoarfrost.models.backbone import ALL
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.efficientnet import EfficientNet
from hoarfrost.models.network import Network
from hoarfrost.models.readout import ClassMeans
from hoarfrost.recipes import RECIPES
from hoarfrost.scenario import Step
from hoarfrost.settings import from_json, to_json
from hoarfrost.training import features, inference
from hoarfrost.training.features import FeatureCache
from hoarfrost.training.images import read_labelled
from hoarfrost.training.inference import EVALUATION_BATCH, batch_of
from hoarfrost.training.resolve import ENOUGH, in_words, resolve, storage

from .. import forked

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SMALL: dict[str, Any] = {"fit.epochs": 2, "image_size": 224}
SHORT: dict[str, Any] = {**SMALL, "fit.drops": [], "discover.epochs": 2, "discover.drops": []}


def images(side: int, channels: int = 3, each: int = 2) -> ImageSet:
    count = 2 * each
    pixels = np.broadcast_to(np.zeros((1, 1, 1, 1), np.uint8), (count, side, side, channels))
    return ImageSet(pixels, np.arange(count) % 2, ("a", "b"))


def decided(given: ImageSet, device: torch.device = CPU, settings: dict[str, Any] | None = None) -> Config:
    return resolve(Learner("frost", settings=settings).config, given, device)


class TestChoice:
    @pytest.mark.parametrize(
        ("given", "device", "backbone", "size"),
        [
            (images(96), CPU, "efficientnet-lite0", 288),
            (images(96), GPU, "efficientnet-lite0", 288),
            (images(96, each=ENOUGH), CPU, "efficientnet-lite0", 288),
            (images(96, each=ENOUGH), GPU, "efficientnet-lite0", 224),
            (images(500), CPU, "efficientnet-lite0", 288),
            (images(95), CPU, "small", 64),
            (images(95), GPU, "resnet18", 64),
            (images(500, channels=1), CPU, "small", 64),
            (images(500, channels=1), GPU, "resnet18", 64),
            (images(32), CPU, "small", 32),
        ],
    )
    def test_by_images_and_device(self, given: ImageSet, device: torch.device, backbone: str, size: int) -> None:
        config = decided(given, device)
        assert (config.backbone, config.image_size) == (backbone, size)
        assert config.undecided == ()
        if backbone == "efficientnet-lite0":
            named = decided(given, device, {"backbone": backbone})
            assert named == replace(config, undecided=named.undecided)
            assert config.mean == (0.498,) * 3
        else:
            usual = Learner("frost").config
            assert not config.fixed_in_all_stages
            assert (config.fit_augment, config.fit, config.method) == (usual.fit_augment, usual.fit, usual.method)

    def test_on_a_cpu_it_stays_and_on_a_gpu_it_is_tuned_where_there_are_images_enough(self) -> None:
        usual = Learner("frost").config
        for device, each in ((CPU, ENOUGH), (GPU, ENOUGH - 1)):
            config = decided(images(96, each=each), device)
            assert config.fixed_in_all_stages
            assert (config.fit_frozen, config.method.frozen) == ((ALL,), (ALL,))
            assert (config.fit_augment, config.discover_augment) == (Augment(), Augment())
            assert config.fit == usual.fit
            assert "not trained further, so features are computed once; images of 288 x 288" in in_words(config)
        tuned = decided(images(96, each=ENOUGH), GPU)
        assert not tuned.fixed_in_all_stages
        assert (tuned.fit_frozen, tuned.method, tuned.fit_augment) == ((), usual.method, usual.fit_augment)
        assert tuned.fit == replace(usual.fit, learning_rate=0.01)
        assert "pretrained and fine-tuned on these images; images of 224 x 224" in in_words(tuned)
        assert "trained from scratch on these images" in in_words(decided(images(32)))

    @pytest.mark.parametrize("method", ["hoarfrost", "kmeans"])
    def test_where_class_statistics_decide_it_is_tuned_half_way_and_stays_then(self, method: str) -> None:
        usual = Learner(method).config
        tuned, fixed = (resolve(usual, images(96, each=ENOUGH), device) for device in (GPU, CPU))
        assert (tuned.fit_keeps, tuned.fit_frozen, tuned.fit_augment) == (0.5, (), ResizedCrop())
        assert (
            tuned.fixed_in_discovery,
            tuned.fixed_in_all_stages,
            fixed.fixed_in_discovery,
            fixed.fixed_in_all_stages,
        ) == (True, False, True, True)
        assert tuned.fit == replace(usual.fit.shortened(20), learning_rate=0.01, batch_size=64)
        assert (tuned.method, tuned.discover_augment) == (fixed.method, fixed.discover_augment)
        assert "weights averaged with the pretrained ones (50%); images of 288 x 288" in in_words(tuned)
        assert tuned.holds_back == (method == "hoarfrost"), "only what can be scored is held back"
        asked_for: list[dict[str, Any]] = [{"fit_keeps": 0.5}, {"fit_frozen": []}]
        for settings in asked_for:
            asked = Learner(method, settings=settings).config
            assert resolve(asked, images(96), CPU) == tuned, "as somebody asked for it"
        whole = resolve(Learner(method, settings={"fit_frozen": [], "fit_keeps": 0}).config, images(96), CPU)
        assert (whole.fixed_in_discovery, whole.method) == (False, usual.method)
        with pytest.raises(InputError, match="fit_keeps needs a method that decides by class statistics"):
            resolve(Learner("frost", settings={"fit_keeps": 0.5}).config, images(96), CPU)

    def test_epochs_that_somebody_sets_are_not_decided(self) -> None:
        settings = Learner(settings={"fit.epochs": 7, "fit_frozen": []}).config
        for asked in (settings, Learner(settings={"fit_frozen": []}).config.with_epochs(fit=7)):
            assert resolve(asked, images(96), CPU).fit.epochs == 7

    def test_another_kind_of_readout_has_none_of_the_settings_of_the_usual_one(self) -> None:
        asked = Learner(settings={"method.design.readout": "means"}).config
        for device in (CPU, GPU):
            assert resolve(asked, images(96, each=ENOUGH), device).method.design.readout == ClassMeans()

    @pytest.mark.parametrize("name", ["efficientnet-lite0", "auto"])
    def test_what_somebody_sets_is_not_decided(self, name: str) -> None:
        settings: dict[str, Any] = {} if name == "auto" else {"backbone": name}
        tuned = decided(images(96), CPU, {**settings, "fit_frozen": [], "fit_augment.kind": "crop"})
        assert (tuned.backbone, tuned.fit_frozen, tuned.fit_augment) == ("efficientnet-lite0", (), Crop())
        assert tuned == replace(decided(images(96, each=ENOUGH), GPU), fit_augment=Crop()), "as on a GPU"
        still = decided(images(96, each=ENOUGH), GPU, {**settings, "fit_frozen": [ALL]})
        assert still == decided(images(96, each=ENOUGH), CPU)
        moving = decided(images(96), CPU, {**settings, "method.frozen": ["stem"], "discover_augment.rotate": 0.5})
        assert moving.method.frozen == ("stem",)
        assert isinstance(moving.discover_augment, Affine)
        assert moving.fit_frozen == (ALL,)
        rate = decided(images(96, each=ENOUGH), GPU, {**settings, "fit.learning_rate": 0.1})
        assert (rate.fit.learning_rate, rate.discover.learning_rate) == (0.1, TUNED["discover.learning_rate"])

    def test_a_method_of_ones_own_says_what_changes_where_the_backbone_stays(self) -> None:
        usual = resolve(Learner().config, images(96), CPU).method
        assert (usual.active, usual.design.mirror) == ((), False)
        own = replace(HOARFROST, name="mine", summary="mine")
        for settings in ({}, {"fit.epochs": 3}):
            config = resolve(Learner(own, settings=settings).config, images(96), CPU)
            assert config.method == replace(usual, name="mine", summary="mine")
        fewer = replace(own, terms=own.terms[:1], stage_one=own.stage_one[:1])
        config = resolve(Learner(fewer).config, images(96), CPU)
        assert (config.method.active, len(config.method.terms)) == ((), 1), (
            "settings of terms that it lacks are left out"
        )
        none = replace(own, when_fixed={})
        assert len(resolve(Learner(none).config, images(96), CPU).method.active) == 3

    def test_what_a_preset_changes_where_the_backbone_stays_is_known_of_one_from_a_file(self) -> None:
        asked = Learner().config
        read = from_json(Config, json.loads(json.dumps(to_json(asked))))
        assert read == asked
        assert resolve(read, images(96), CPU) == resolve(asked, images(96), CPU)

    def test_another_backbone_or_size(self) -> None:
        other = decided(images(500), CPU, {"backbone": "small"})
        assert (other.backbone, other.image_size, other.fixed_in_all_stages) == ("small", 64, False)
        little = decided(images(500), CPU, {"image_size": 64})
        assert (little.backbone, little.image_size) == ("small", 64)
        for size in (224, 288):
            chosen = decided(images(500), CPU, {"image_size": size})
            assert (chosen.backbone, chosen.image_size, chosen.fixed_in_all_stages) == (
                "efficientnet-lite0",
                size,
                True,
            )
        with pytest.raises(InputError, match="takes images of 224 x 224 or 288 x 288 pixels, not of 64"):
            decided(images(500), CPU, {"image_size": 64, "backbone": "efficientnet-lite0"})

    def test_only_where_the_images_choose_the_backbone_is_anything_undecided(self) -> None:
        for name, recipe in RECIPES.items():
            config = recipe.config(Learner("frost").config.method, 0)
            assert config.undecided == (tuple({**STAYS, **TUNED, **HALF_WAY}) if name == "folder" else ())


def photographs(folder: Path, classes: int, each: int, *, side: int = 100, first: int = 0) -> Path:
    """JPEGs of stripes in other directions, one class each."""
    y, x = np.mgrid[:side, : side + 30] / side
    draws = np.random.default_rng(first)
    for label in range(first, first + classes):
        place = folder / f"class-{label}"
        place.mkdir(parents=True)
        for number in range(each):
            waves = np.sin(20 * (np.cos(label) * x + np.sin(label) * y) + draws.uniform(0, 6))
            colour = np.array([label % 2, label % 3 / 2, 1 - label % 2]) * 0.5 + 0.5
            pixels = (waves[..., None] * colour + 1) * 110 + draws.uniform(0, 30, (*waves.shape, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.jpg")
    return folder


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images the real network looks at, in each pass."""
    counts: list[int] = []
    forward = EfficientNet.forward

    def counted(self: EfficientNet, given: Tensor) -> Tensor:
        assert given.shape[1:] in ((3, 224, 224), (3, 288, 288))
        counts.append(len(given))
        return forward(self, given)

    monkeypatch.setattr(EfficientNet, "forward", counted)
    return counts


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of six classes, with its photographs and their features."""
    folder = tmp_path_factory.mktemp("six")
    learner = Learner(device="cpu", settings=SMALL)
    learner.keep_features(folder / "features")
    learner.fit(photographs(folder / "known", 6, 6)).save(folder / "model")
    return folder


def loaded(six: Path) -> Learner:
    learner = Learner.load(six / "model", device="cpu")
    learner.keep_features(six / "features", add=False)
    return learner


class TestReading:
    def test_photographs_stay_on_disk_and_others_do_not(self, tmp_path: Path) -> None:
        folder, asked = photographs(tmp_path / "photos", 2, 2), Learner().config
        keep = storage(asked, AUTO)
        assert keep.photographs == 288
        read = read_images(folder, labelled=True, keep=keep)
        assert isinstance(read.images, ImageFiles)
        assert read.images.shape == (4, 288, 288, 3)
        assert read_images(folder, labelled=True).shape == (64, 64, 3), "as for any other backbone"
        in_memory = read_images(folder, labelled=True, keep=replace(keep, on_disk=False))
        np.testing.assert_array_equal(in_memory.images, read.pixels(slice(None)))
        assert isinstance(in_memory.images, np.ndarray)
        for path in folder.rglob("*.jpg"):
            Image.open(path).convert("L").save(path)
        assert read_images(folder, labelled=True, keep=keep).shape == (64, 64, 1)
        small = photographs(tmp_path / "small", 2, 2, side=90)
        assert read_images(small, labelled=True, keep=keep).shape == (64, 64, 3)

    def test_those_that_every_epoch_reads_are_kept_in_memory(self, tmp_path: Path) -> None:
        folder = photographs(tmp_path / "photos", 2, 2)
        for settings, kind in (({}, ImageFiles), ({"fit_frozen": []}, np.ndarray)):
            learner = Learner(device="cpu", settings=settings)
            read = read_labelled(folder, learner.config, learner.runtime, compute=False)
            assert isinstance(read.images, kind)
            assert read.shape == (288, 288, 3)

    def test_those_of_a_run_too_by_what_each_step_does(self, tmp_path: Path) -> None:
        read = read_images(photographs(tmp_path / "photos", 4, 3), labelled=True, keep=storage(Learner().config, AUTO))
        assert isinstance(read.images, ImageFiles)
        steps = [Step(index, read, 2, 2) for index in range(2)]
        for settings, expected in (({}, "ff"), ({"fit_keeps": 0.5}, "mf"), ({"fit_frozen": [], "fit_keeps": 0}, "mm")):
            config = resolve(Learner(settings=settings).config, read, CPU)
            placed = [kept_for_epochs(step, config, AUTO) for step in steps]
            kinds = ["m" if isinstance(step.images.images, np.ndarray) else "f" for step in placed]
            assert "".join(kinds) == expected, "in files or in memory"
            on_disk = [kept_for_epochs(step, config, ImageStorage(on_disk=True)) for step in steps]
            assert all(isinstance(step.images.images, ImageFiles) for step in on_disk), "as somebody asked for it"

    @pytest.mark.parametrize(
        ("settings", "side"),
        [
            ({"backbone": "efficientnet-lite0"}, 288),
            ({"backbone": "efficientnet-lite0", "image_size": 224}, 224),
            ({"image_size": 224}, 224),
            ({"backbone": "small"}, None),
            ({"image_size": 64}, None),
        ],
    )
    def test_what_is_kept_for_which_backbone(self, settings: dict[str, Any], side: int | None) -> None:
        assert storage(Learner(settings=settings).config, AUTO) == ImageStorage(photographs=side)


class TestOnce:
    def test_each_image_is_seen_once_in_fit_and_once_in_discover(self, tmp_path: Path, seen: list[int]) -> None:
        known, new = photographs(tmp_path / "known", 2, 4), photographs(tmp_path / "new", 2, 3, first=2)
        learner = Learner("frost", device="cpu", settings=SHORT).fit(known)
        assert sum(seen) == 8
        seen.clear()
        unlabelled = learner.prepare(new)
        assert isinstance(unlabelled.images, ImageFiles)
        learner.discover(unlabelled, 2, only_new=True)
        first = learner.outputs(unlabelled)
        learner.unlikeness(unlabelled)
        assert sum(seen) == 6
        learner.save(tmp_path / "model")
        again = Learner.load(tmp_path / "model", device="cpu").outputs(new)
        np.testing.assert_allclose(again.scores, first.scores, atol=1e-5)
        assert sum(seen) == 12, "another learner has them not"
        learner.discover(unlabelled, 1, only_new=True)
        assert sum(seen) == 12, "nothing has changed them"

    def test_by_the_usual_method_nothing_is_trained(self, tmp_path: Path, seen: list[int]) -> None:
        known, new = photographs(tmp_path / "known", 3, 4), photographs(tmp_path / "new", 2, 5, first=3)
        learner = Learner(device="cpu", settings=SMALL).fit(known)
        assert (learner.config.method.active, learner.config.method.design.mirror) == ((), False)
        assert sum(seen) == 12
        seen.clear()
        learner.discover(new, 2, only_new=True)
        assert sum(seen) == 10
        assert learner.assigned is not None
        assert len({tuple(learner.assigned[:5]), tuple(learner.assigned[5:])}) == 2
        assert len(set(learner.assigned[:5])) == len(set(learner.assigned[5:])) == 1, "a cluster is a class"
        assert np.array_equal(learner.predictions(new).ids, learner.assigned)
        assert np.array_equal(learner.predictions(known).ids, np.arange(12) // 4), "the old ones stay"

    def test_with_its_mirror_image_where_that_is_asked_for_as_it_was_before(
        self, tmp_path: Path, seen: list[int]
    ) -> None:
        known = photographs(tmp_path / "known", 2, 3)
        learner = Learner(device="cpu", settings={**SMALL, "method.design.mirror": True}).fit(known)
        assert sum(seen) == 2 * 6
        first = learner.outputs(known).scores
        learner.save(tmp_path / "model")
        loaded = Learner.load(tmp_path / "model", device="cpu")
        assert (loaded.config.image_size, loaded.config.method.design.mirror) == (224, True)
        np.testing.assert_allclose(loaded.outputs(known).scores, first, atol=1e-4)

    @pytest.mark.parametrize("verb", ["fit", "discover", "predict"])
    def test_files_are_decoded_once_and_broken_ones_left_out(
        self, six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
    ) -> None:
        known, new = photographs(tmp_path / "known", 2, 4), photographs(tmp_path / "new", 2, 3, first=6)
        for broken in (known / "class-1" / "2.jpg", new / "class-6" / "0.jpg"):
            broken.write_bytes(broken.read_bytes()[:900])
        learner = Learner(device="cpu", settings=SHORT) if verb == "fit" else loaded(six)
        decoded = list[str]()
        real = images_module.decode

        def counted(path: str, *rest: Any, **named: Any) -> Any:
            decoded.append(path)
            return real(path, *rest, **named)

        monkeypatch.setattr(images_module, "decode", counted)

        def use() -> int:
            if verb == "fit":
                return int(learner.fit(known).model.statistics.count.sum())
            found = learner.predict(new) if verb == "predict" else learner.discover(new, 2, only_new=True).assigned
            assert found is not None
            return len(found)

        words = rf"1 unreadable file \(class-{'1/2' if verb == 'fit' else '6/0'}\.jpg\)"
        with pytest.warns(SkippedFiles, match=words) as caught:
            used = use()
        assert len(caught) == 1
        assert used == (7 if verb == "fit" else 5)
        assert len(decoded) == len(set(decoded)) == used + 1

    def test_what_is_refused_is_refused_before_photographs_are_looked_at(self, tmp_path: Path, seen: list[int]) -> None:
        known = photographs(tmp_path / "known", 1, 2)
        with pytest.raises(InputError, match="one class"):
            Learner(device="cpu", settings=SHORT).fit(known)
        assert seen == []

    def test_mixed_images_too(self, tmp_path: Path, seen: list[int]) -> None:
        known, mixed = photographs(tmp_path / "known", 2, 6), photographs(tmp_path / "mixed", 3, 5, first=1)
        learner = Learner("kmeans", device="cpu", settings=SHORT).fit(known)
        seen.clear()
        unlabelled = learner.prepare(mixed)
        learner.discover(unlabelled, 2, only_new=False)
        assert sum(seen) == 15
        assert learner.assigned is not None
        assert len(learner.assigned) == 15

    def test_a_discovery_says_what_the_model_predicts_then(self, six: Path, tmp_path: Path) -> None:
        mixed, learner = photographs(tmp_path / "mixed", 6, 6, first=3), loaded(six)
        again = learner.prepare(six / "known")
        for images, new in ((learner.prepare(mixed), True), (again, False)):
            learner.discover(images, 3 if new else "auto", only_new=False)
            assert learner.assigned is not None
            predicted = learner.predictions(images, threshold=0.5).ids
            assert learner.novel_per_step == (3,)
            assert (learner.assigned == predicted)[learner.assigned >= 0].all()
            assert (learner.assigned >= 0).mean() > 0.8
            assert (predicted >= 0)[learner.assigned < 0].sum() <= 3, "but for a few that are strange"
        assert (learner.predictions(again).ids == np.arange(36) // 6).mean() > 0.9

    def test_an_image_that_is_unlike_everything_is_unsure(self, six: Path, tmp_path: Path) -> None:
        learner = loaded(six)
        limit = learner.model.calibration.unlike
        assert limit is not None
        (tmp_path / "unlike").mkdir()
        like = photographs(tmp_path / "like", 6, 2)
        y, x = np.mgrid[:120, :120] - 60
        for number in range(4):  # rings on a gray ground
            rings = 128 + 90 * np.sign(np.sin(np.hypot(x - 9 * number, y) / 3))
            Image.fromarray(np.stack([rings] * 3, axis=2).astype(np.uint8)).save(tmp_path / "unlike" / f"{number}.png")
        unlike, alike = learner.prepare(tmp_path / "unlike"), learner.prepare(like)
        far, near = learner.unlikeness(unlike), learner.unlikeness(alike)
        assert near.max() < limit < far.min()
        assert learner.predictions(alike).confidence.min() > 0.5
        np.testing.assert_allclose(learner.predict_proba(alike).sum(axis=1), 1)
        of_far = learner.predictions(unlike, threshold=0.5)
        assert set(of_far.names) == {"unsure"}
        np.testing.assert_array_equal(of_far.probabilities, learner.predict_proba(unlike))
        expected = learner.outputs(unlike).probabilities * (limit / far[:, None]) ** 4
        np.testing.assert_allclose(of_far.probabilities, expected, rtol=1e-3, atol=1e-9)
        learner.save(tmp_path / "model")
        again = Learner.load(tmp_path / "model", device="cpu")
        assert again.model.calibration.unlike == limit
        shutil.copy(tmp_path / "unlike" / "0.png", like / "class-0")
        alike = again.prepare(like)
        again.discover(alike, "auto", only_new=False)
        assert again.novel_per_step == ()
        assert again.assigned is not None
        assert (again.assigned < 0).tolist() == [path.endswith(".png") for path in alike.paths or ()]
        again.merge("class-1", "class-0").merge("class-2", "class-0").merge("class-3", "class-0")
        assert set(again.predictions(tmp_path / "unlike", threshold=0.5).names) == {"unsure"}, "nor of a merged class"
        learner.discover(unlike, 1, only_new=False)
        assert learner.assigned is not None
        assert ((learner.assigned < 0) | (learner.assigned == 6)).all(), "of no known class"
        assert "new-1" in learner.predictions(unlike, threshold=0.5).names
        learner.reject("new-1")
        assert set(learner.predictions(unlike, threshold=0.5).names) == {"unsure"}
        learner.discover(unlike, "auto", only_new=False)
        assert learner.assigned is not None
        assert ((learner.assigned < 0) | (learner.assigned > 6)).all(), (
            "of no known class, and of none that was rejected"
        )

    def test_features_go_with_the_images_and_with_the_backbone(self, tmp_path: Path) -> None:
        folder = photographs(tmp_path / "photos", 1, 2)
        files = [ImageFiles([folder / "class-0" / "0.jpg"], size=224, channels=3) for _ in range(2)]
        computed, made, network = FeatureCache(), list[int](), Network(build_backbone("small", 3), 2)

        def compute(_: OnDisk) -> Iterator[np.ndarray[Any, np.dtype[np.float32]]]:
            made.append(1)
            yield np.full((1, network.decisive_width), len(made), dtype=np.float32)

        def found(images: OnDisk, by: Network) -> float:
            return float(np.asarray(computed.of(images, by, compute))[0, 0])

        assert [found(files[row], network) for row in (0, 1, 0, 1)] == [1, 2, 1, 2]
        assert found(files[1].take([0]), network) == 2
        assert found(files[1].fitted(288, 3), network) == 3, "another size"
        assert found(files[1], network) == 2
        other = Network(build_backbone("small", 3), 2)
        assert found(files[0], other) == 4, "another network"
        assert found(files[0], network) == 1

    def test_they_are_kept_beside_the_model_for_those_very_files(self, tmp_path: Path, seen: list[int]) -> None:
        known, new = photographs(tmp_path / "known", 2, 2), photographs(tmp_path / "new", 2, 2, first=2)
        Learner("kmeans", device="cpu", settings=SHORT).fit(known).save(tmp_path / "model")
        folder = tmp_path / "model.features"

        def scores() -> np.ndarray[Any, Any]:
            seen.clear()
            learner = Learner.load(tmp_path / "model", device="cpu")
            learner.keep_features(folder)
            return learner.discover(learner.prepare(new), 2, only_new=True).outputs(new).scores

        first = scores()
        assert sum(seen) == 4
        np.testing.assert_array_equal(scores(), first)
        assert sum(seen) == 0
        (kept,) = folder.iterdir()
        kept.write_bytes(kept.read_bytes()[:-8])
        np.testing.assert_array_equal(scores(), first)
        assert sum(seen) == 4, "what is damaged is computed again"
        (folder / f".{kept.name}.123456.part").write_bytes(b"left by a command that was killed")
        for header in ("1+" * 5000, "(" * 9000, "-" * 9000 + "1", "{'descr': '<f4'}"):
            kept.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
            np.testing.assert_array_equal(scores(), first)
            assert sum(seen) == 4, f"so is what begins with {header[:9]}"
            assert list(folder.iterdir()) == [kept], "and nothing is left there"
        photograph = new / "class-2" / "0.jpg"
        photograph.write_bytes((new / "class-3" / "0.jpg").read_bytes())
        assert not np.array_equal(scores(), first)
        assert sum(seen) == 4, "and what has changed"
        assert len(list(folder.iterdir())) == 2

    def test_a_command_goes_on_where_another_was_ended(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[int]
    ) -> None:
        known, new = photographs(tmp_path / "known", 2, 2), photographs(tmp_path / "new", 2, 7, first=2)
        for name in ("class-2/1.jpg", "class-3/6.jpg"):  # the second and the last
            (new / name).write_bytes((new / name).read_bytes()[:-900])
        Learner("kmeans", device="cpu", settings=SHORT).fit(known).save(tmp_path / "model")
        monkeypatch.setattr(features, "PART", 3)
        monkeypatch.setitem(inference.PIXELS_AT_ONCE, "cpu", 1)
        folder, forward = tmp_path / "model.features", EfficientNet.forward
        (blocked := tmp_path / "read-only.features").write_text("no folder can be made here")

        def found(*, ended_after: int | None = None) -> tuple[np.ndarray[Any, Any], list[str]]:
            seen.clear()

            def ended(self: EfficientNet, given: Tensor) -> Tensor:
                if sum(seen) == ended_after:
                    raise KeyboardInterrupt
                return forward(self, given)

            monkeypatch.setattr(EfficientNet, "forward", ended)
            learner = Learner.load(tmp_path / "model", device="cpu")
            learner.keep_features(blocked, folder)
            with pytest.warns(UserWarning, match=r"class-2/1\.jpg.*class-3/6\.jpg") as told:
                images = learner.prepare(new)
            assert {warning.filename for warning in told} == {__file__}, "the caller's, and none of this package"
            assert images.paths is not None
            computed = learner.outputs(images, features=True).features
            assert computed is not None
            return computed, list(images.paths)

        whole, paths = found()
        assert (sum(seen), len(paths)) == (14, 12)
        (kept,) = folder.iterdir()
        kept.unlink()
        for ended_after in (10, 2):
            with pytest.raises(KeyboardInterrupt):
                found(ended_after=ended_after)
        assert {path.name.partition(".")[2] for path in folder.iterdir()} == {
            f"{first}.3.part.npy" for first in (0, 3, 6)
        }
        (folder / f"{kept.stem}.9.999.part.npy").write_bytes(b"no part")
        again, same = found()
        np.testing.assert_array_equal(again, whole)
        assert same == paths
        assert sum(seen) == 5, "those of three times three were kept"
        assert list(folder.iterdir()) == [kept]

    def test_where_features_are_and_how_many_come_at_once_changes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known, mixed = photographs(tmp_path / "known", 3, 4), photographs(tmp_path / "mixed", 4, 3, first=1)

        def found() -> tuple[Any, ...]:
            learner = Learner("kmeans", device="cpu", settings=SHORT).fit(known)
            learner.discover(images := learner.prepare(mixed), 2, only_new=False)
            outputs = learner.outputs(images, features=True)
            return learner.assigned, outputs.scores, outputs.features

        first = found()
        monkeypatch.setattr(rows, "CHUNK", 3)
        for one, other in zip(first, found(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        monkeypatch.setattr(rows, "CHUNK", 1024)

        def no_place(**_: object) -> None:
            raise FileNotFoundError

        monkeypatch.setattr(tempfile, "TemporaryFile", no_place)
        for one, other in zip(first, found(), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_no_room_for_features_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Full(io.BytesIO):
            def write(self, _: object) -> int:
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
        with pytest.raises(InputError, match=r"cannot keep features in .*: No space left on device; free space there"):
            Learner("kmeans", device="cpu", settings=SHORT).fit(photographs(tmp_path / "known", 2, 2))

    def test_what_discover_kept_is_found_by_sort_and_predict(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[int]
    ) -> None:
        photographs(tmp_path / "new", 2, 2, first=2)
        known = photographs(tmp_path / "known", 2, 2)
        Learner("kmeans", device="cpu", settings=SHORT).fit(known).save(tmp_path / "model")
        monkeypatch.chdir(tmp_path)
        discover = ["discover", "model", "new", "--novel", "2", "--only-new", "--device", "cpu", "--out"]
        seen.clear()
        assert main([*discover, "model2"]) == 0
        assert sum(seen) == 4
        for command in (
            ["sort", "model2", "new", "--into", "sorted", "--device", "cpu"],
            ["predict", "model2", "new", "--device", "cpu"],
            ["discover", "model2", *discover[2:], "model3"],
            [*discover, "model4"],
        ):
            seen.clear()
            assert main(command) == 0
            assert sum(seen) == 0, command
        seen.clear()
        assert main(["predict", "model2", "known", "--device", "cpu"]) == 0
        assert sum(seen) == 4
        assert [len(list(Path(f"model{k}.features").iterdir())) for k in ("", 2, 3, 4)] == [1] * 4, (
            "predict adds nothing"
        )

    def test_arrays_may_change(self, seen: list[int]) -> None:
        draws = np.random.default_rng(0).integers(0, 256, (4, 224, 224, 3), dtype=np.uint8)
        learner = Learner("kmeans", device="cpu", settings=SHORT).fit(draws, [0, 1, 0, 1])
        before = learner.outputs(draws).scores
        draws[:] = draws[::-1].copy()
        np.testing.assert_allclose(learner.outputs(draws).scores, before[::-1], atol=1e-4)

    def test_a_loaded_model_is_fitted_again_to_any_images(self, tmp_path: Path) -> None:
        """With the backbone that it has: a small one with what was decided for that would never learn."""
        learner = Learner("kmeans", device="cpu", settings=SHORT).fit(photographs(tmp_path / "known", 2, 2))
        learner.save(tmp_path / "model")
        again = Learner.load(tmp_path / "model", device="cpu")
        again.fit(np.random.default_rng(0).integers(0, 256, (4, 16, 16), dtype=np.uint8), [0, 1, 0, 1])
        assert again.config == learner.config


def test_few_large_images_at_once() -> None:
    few, many = ([batch_of(images(side), device) for side in (16, 64, 224, 4096)] for device in (CPU, GPU))
    assert few == [EVALUATION_BATCH, EVALUATION_BATCH, 6, 1]
    assert many == [EVALUATION_BATCH, EVALUATION_BATCH, 20, 1]


def test_the_command_says_what_was_decided(tmp_path: Path) -> None:
    photographs(tmp_path / "known", 2, 2)
    command = [sys.executable, "-m", "hoarfrost", "fit", "known", "--out", "model", "--epochs", "1", "--device", "cpu"]
    done = forked.run(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *_, decided, expected, _, onward = done.stdout.splitlines()
    assert onward == "Next: hoarfrost discover model FOLDER --out model2"
    assert expected.startswith("accuracy: about ")
    assert decided == (
        "backbone efficientnet-lite0: pretrained and not trained further, so features are computed once;"
        " images of 288 x 288 pixels"
    )
    config = json.loads((tmp_path / "model" / "config.json").read_text())["config"]
    assert (config["backbone"], config["image_size"], config["fit_frozen"]) == ("efficientnet-lite0", 288, ["all"])
    assert config["undecided"] == []
