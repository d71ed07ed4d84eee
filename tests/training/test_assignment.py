"""Calibration, and which class each unlabelled image is given to, on the digits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

from hoarfrost import Learner, metrics
from hoarfrost.cli import main
from hoarfrost.data.datasets import load_dataset
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError
from hoarfrost.methods import FROST
from hoarfrost.metrics import calibration_error
from hoarfrost.models.network import Design
from hoarfrost.models.readout import Calibration, Gaussians
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.training import expecting
from hoarfrost.training.calibration import fitted_temperature
from hoarfrost.training.inference import Inference
from hoarfrost.training.observers import Observer
from hoarfrost.unsorted.expectations import expectations
from hoarfrost.unsorted.mixed import Expected
from hoarfrost.unsorted.number import LEAST, Levels

from ..computing.test_processes import finished, start
from ..conftest import TINY
from .two_gaussians import images as noise

OLD = 5
METHOD = replace(FROST, design=Design(readout=Gaussians()), decides="unmoved", start="k-means")


def of_classes(images: ImageSet, classes: range) -> ImageSet:
    assert images.labels is not None
    return images.take(np.flatnonzero(np.isin(images.labels, classes)))


@pytest.fixture(scope="module")
def images() -> tuple[ImageSet, ImageSet]:
    return load_dataset("digits", None)


@pytest.fixture(scope="module")
def fitted(images: tuple[ImageSet, ImageSet], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the digits 0 to 4."""
    old = of_classes(images[0], range(OLD))
    old = replace(old, class_names=old.class_names[:OLD])
    learner = Learner(METHOD, recipe="digits", device="cpu", settings={"fit.epochs": 5, "discover.epochs": 3})
    learner.fit(old)
    folder = tmp_path_factory.mktemp("fitted") / "model"
    learner.save(folder)
    return folder


def test_what_a_centre_is_worth_is_carried_on_to_classes_that_were_not_tried(
    digits: tuple[ImageSet, ImageSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[int, object]]()

    def noted(points: Any, labels: Any, *given: Any, **named: Any) -> Expected | None:
        asked.append((len(np.unique(labels)), named["classes"]))
        return expectations(points, labels, *given, **named)

    monkeypatch.setattr(expecting, "expectations", noted)
    monkeypatch.setattr(expecting, "MOST_CLASSES", 4)
    images, _ = digits
    assert images.labels is not None
    few = np.flatnonzero(images.labels == 9)[LEAST - 1 :]  # one class has fewer images than can be tried
    Learner(METHOD, recipe="digits", device="cpu", settings=TINY).fit(
        images.take(np.delete(np.arange(len(images)), few))
    )
    assert asked == [(4, 9)]


def test_the_temperature_is_that_of_a_fine_grid() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4000, 5)) * 2
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    true = np.array([generator.choice(5, p=row) for row in probabilities])
    found = fitted_temperature((7 * logits).astype(np.float32), true)

    def loss(temperature: float) -> float:
        scaled = 7 * logits / temperature
        total = np.log(np.exp(scaled).sum(axis=1))
        own = scaled[np.arange(4000), true]
        others = (scaled.sum(axis=1) - own) / 4
        doubt = 1 / 4002
        return float((total - (1 - doubt) * own - doubt * others).mean())

    grid = np.linspace(5, 9, 401)
    assert found == pytest.approx(grid[np.argmin([loss(temperature) for temperature in grid])], abs=0.02)
    assert found == pytest.approx(7, rel=0.05), "which is the one that the scores were made with"
    assert found == fitted_temperature((7 * logits).astype(np.float32), true)


def test_classes_without_images_have_no_part_in_the_temperature() -> None:
    scores = np.array([[3.0, 0.0, -np.inf], [0.0, 3.0, -np.inf], [1.0, 0.0, -np.inf]], dtype=np.float32)
    true = np.array([0, 1, 1])
    assert fitted_temperature(scores, true) == pytest.approx(fitted_temperature(scores[:, :2], true), rel=1e-3)
    assert fitted_temperature(scores, np.array([2, 2, 2])) == 1


def test_after_a_discovery_it_lies_between_both() -> None:
    after = Calibration(4.0, levels=Levels(7.0)).with_more(9.0, images=100, more=100)
    assert after.temperature == pytest.approx(6.0)
    assert after.levels == Levels(7.0)
    assert Calibration(4.0).with_more(9.0, images=100, more=0).temperature == pytest.approx(4.0)


def test_probabilities_of_held_out_digits_are_calibrated(fitted: Path, images: tuple[ImageSet, ImageSet]) -> None:
    learner, test = Learner.load(fitted, "cpu"), of_classes(images[1], range(OLD))
    assert test.labels is not None
    probabilities = learner.predict_proba(test)
    error = calibration_error(probabilities.max(axis=1), probabilities.argmax(axis=1) == test.labels)
    assert error < 0.03
    assert learner.model.calibration.temperature > 1, "likelihoods of Gaussians are too sure of themselves"


def test_digits_of_unseen_classes_are_more_unlike_than_seen_ones(
    fitted: Path, images: tuple[ImageSet, ImageSet]
) -> None:
    learner = Learner.load(fitted, "cpu")
    seen, unseen = (of_classes(images[1], part) for part in (range(OLD), range(OLD, 10)))
    unlikeness = np.concatenate([learner.unlikeness(seen), learner.unlikeness(unseen)])
    assert roc_auc_score(np.arange(len(unlikeness)) >= len(seen), unlikeness) > 0.9


def test_a_mixed_folder_is_sorted(fitted: Path, images: tuple[ImageSet, ImageSet], tmp_path: Path) -> None:
    learner, (train, test) = Learner.load(fitted, "cpu"), images
    new = of_classes(train, range(OLD, 10))
    assert test.labels is not None
    assert new.labels is not None
    mixed = ImageSet(np.concatenate([test.pixels(slice(None)), new.pixels(slice(None))]))
    true = np.concatenate([test.labels, new.labels])
    before = learner.model.statistics
    learner.discover(mixed, 7, only_new=False)
    assigned = learner.assigned
    assert assigned is not None
    assert assigned.shape == true.shape
    assert assigned.dtype == np.int64
    assert assigned.min() >= -1
    assert assigned.max() < OLD + 7
    is_old = true < OLD
    assert ((assigned >= 0) & (assigned < OLD))[is_old].mean() > 0.9, "most old ones are given to an old class"
    assert (assigned == true)[is_old].mean() > 0.9, "and to their own"
    assert ((assigned >= 0) & (assigned < OLD))[~is_old].mean() < 0.25

    statistics = learner.model.statistics
    assert torch.equal(statistics.mean[:OLD], before.mean)
    assert torch.equal(statistics.count[:OLD], before.count), "what is known of old classes stays"
    assert statistics.count[OLD:].tolist() == np.bincount(assigned[assigned >= OLD] - OLD, minlength=7).tolist()
    features = learner.outputs(mixed, features=True).features
    assert features is not None
    chosen = assigned >= OLD
    expected = ClassStatistics.of(torch.from_numpy(features[chosen]), torch.from_numpy(assigned[chosen] - OLD), 7)
    torch.testing.assert_close(statistics.mean[OLD:], expected.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(statistics.variance[OLD:], expected.variance, rtol=1e-3, atol=1e-5)

    # Scores go by it: 7 clusters, 5 classes.
    found = assigned >= OLD
    matching = metrics.match_unequal(
        assigned[found & ~is_old] - OLD, true[found & ~is_old] - OLD, clusters=7, classes=10 - OLD
    )
    assert len(set(matching.tolist())) == 5
    given = np.where(assigned < 0, OLD + 7, assigned)  # an image of none is never right
    scores = metrics.unequal_scores(given, true, OLD, matching)
    assert scores.old > 90
    assert scores.new > 25
    learner.save(tmp_path / "model")
    assert (Learner.load(tmp_path / "model", "cpu").predict(mixed) == learner.predict(mixed)).all()


def test_every_image_is_new_unless_it_is_said(fitted: Path, images: tuple[ImageSet, ImageSet]) -> None:
    learner = Learner.load(fitted, "cpu")
    learner.discover(of_classes(images[1], range(3)), 2, only_new=True)
    assert learner.assigned is not None
    assert set(learner.assigned.tolist()) <= {OLD, OLD + 1}


def test_a_folder_of_old_images_has_nothing_to_discover(
    fitted: Path, images: tuple[ImageSet, ImageSet], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner, old = Learner.load(fitted, "cpu"), of_classes(images[1], range(OLD))
    before = learner.predict_proba(images[1])
    strange = np.random.default_rng(0).integers(0, 256, (1, *old.shape), dtype=np.uint8)
    for folder in (old, ImageSet(np.concatenate([old.pixels(slice(None)), strange]))):
        learner.discover(folder, "auto", only_new=False)
        assert learner.novel_per_step == (), "not even for one strange image"
        assert learner.count is not None
        assert learner.count.number == 0
        assert learner.assigned is not None
        assert (learner.assigned[: len(old)] == old.labels).mean() > 0.9
        assert (learner.predict_proba(images[1]) == before).all()

    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for index, picture in enumerate(old.pixels(slice(None, None, 2))):
        Image.fromarray(picture[:, :, 0]).save(pictures / f"{index:03}.png")
    command = ["discover", str(fitted), str(pictures), "--device", "cpu", "--out", str(tmp_path / "same")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 4
    assert "a new class with few images can be missed" in said.splitlines()[1]
    assert "nothing new in 113 images: the model does not change" in said
    assert said.splitlines()[-1] == f"Next: hoarfrost predict {tmp_path / 'same'} {pictures}"
    assert "<h1>Nothing new in 113 images" in (tmp_path / "same" / "report.html").read_text()
    assert (Learner.load(tmp_path / "same", "cpu").predict_proba(images[1]) == before).all()
    assert main([*command, "--resume"]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(("method", "epochs", "every"), [("hoarfrost", 16, 2), ("frost", 8, 1)])
def test_a_mixed_folder_whose_number_nobody_knows(
    method: str, epochs: int, every: int, images: tuple[ImageSet, ImageSet], tmp_path: Path
) -> None:
    train, test = images
    old, new = of_classes(train, range(OLD)), of_classes(train, range(OLD, 10))
    assert new.labels is not None
    assert test.labels is not None
    settings = {"fit.epochs": epochs, "discover.epochs": 2}
    learner = Learner(method, recipe="digits", device="cpu", settings=settings)
    learner.fit(replace(old, class_names=old.class_names[:OLD]).take(slice(None, None, every)))
    learner.save(tmp_path / "model")
    with_labels = ImageSet(np.concatenate([test.pixels(slice(None)), new.pixels(slice(None))]))
    true = np.concatenate([test.labels, new.labels])
    learner.discover(with_labels, "auto", only_new=False)
    count, assigned, found = learner.count, learner.assigned, learner.model.discovery
    assert count is not None
    assert assigned is not None
    assert found is not None
    assert learner.novel_per_step == (count.number,)
    assert 2 <= count.number <= 9
    assert count.least <= count.number <= count.most
    assert found.known + found.unsure + sum(found.new) == found.images == len(true)
    assert (assigned == true)[true < OLD].mean() > 0.85
    assert (assigned >= OLD)[true < OLD].mean() < 0.1
    # From 0.13 to 0.27 by seeds and processors: digits are little, and a short stage one has seen five of them.
    assert ((assigned >= 0) & (assigned < OLD))[true >= OLD].mean() < 0.35
    learner.save(tmp_path / "found")
    again = Learner.load(tmp_path / "found", "cpu")
    assert (again.count, again.model.discovery, again.model.calibration) == (count, found, learner.model.calibration)
    assert (again.predict_proba(test) == learner.predict_proba(test)).all()

    # Without old ones, the same model finds a number by itself too.
    learner = Learner.load(tmp_path / "model", "cpu")
    learner.discover(new, only_new=True)
    assert learner.count is not None
    assert 2 <= learner.count.number <= 9
    assert learner.assigned is not None
    assert learner.assigned.min() >= OLD


@pytest.mark.parametrize("only_new", [True, False])
def test_whoever_follows_hears_when_images_are_told_apart(
    fitted: Path, images: tuple[ImageSet, ImageSet], only_new: bool
) -> None:
    told = list[tuple[int, bool]]()

    class Told(Observer):
        def sorting(self, images: int, *, done: bool) -> None:
            told.append((images, done))

    some, learner = images[1].take(slice(None, None, 4)), Learner.load(fitted, "cpu")
    learner.follow(Told())
    learner.look(some, only_new=only_new)
    assert told == [(len(some), False), (len(some), True)]
    learner.discover(some, only_new=only_new, observer=Told())
    assert len(told) == 4


def test_a_model_of_an_earlier_version_says_what_it_lacks(fitted: Path, images: tuple[ImageSet, ImageSet]) -> None:
    learner = Learner.load(fitted, "cpu")
    learner._model = replace(learner.model, calibration=Calibration())
    with pytest.raises(InputError, match=r"fit it again, or say that all images are new \(only_new=True\)$"):
        learner.discover(images[1], 2, only_new=False)
    with pytest.raises(InputError, match="how many new classes there are"):
        learner.discover(images[1], only_new=True)


def test_a_class_that_was_rejected_is_none(fitted: Path, images: tuple[ImageSet, ImageSet]) -> None:
    learner, new = Learner.load(fitted, "cpu"), of_classes(images[0], range(OLD, 10))
    learner.discover(new, 2, only_new=True)
    kept = {name: (learner.predict(new) == name).sum() for name in ("new-1", "new-2")}
    assert min(kept.values()) > 20
    learner.merge("new-1", "0").reject("new-2")
    learner.discover(new, 2, only_new=False)
    assert learner.assigned is not None
    assert (learner.assigned == 0).any(), "what was merged is given to the other"
    assert not np.isin(learner.assigned, (OLD, OLD + 1)).any(), "and what was rejected to none"


@pytest.mark.parametrize("covariance", ["full", "low-rank", "shared", "diagonal"])
def test_a_training_that_diverged_says_so(covariance: str) -> None:
    readout = {"method.design.readout": "gaussians", "method.design.readout.covariance": covariance}
    learner = Learner(METHOD, device="cpu", settings={**readout, "fit.epochs": 1, "fit.learning_rate": 1e25})
    with pytest.raises(InputError, match=r"fit\.learning_rate"):
        learner.fit(noise(46, seed=0), [f"class-{n % 3}" for n in range(46)])


def test_the_command_sorts_a_mixed_folder(
    fitted: Path, images: tuple[ImageSet, ImageSet], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index, picture in enumerate(images[1].pixels(slice(None, None, 3))):
        Image.fromarray(picture[:, :, 0]).save(tmp_path / f"{index:03}.png")
    discover = ["discover", str(fitted), str(tmp_path), "--novel", "5", "--epochs", "1", "--device", "cpu"]
    assert main([*discover, "--out", str(tmp_path / "second"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    learned = Learner.load(tmp_path / "second", "cpu").model.statistics.count
    assert 0 < learned[OLD:].sum() < 0.7 * said["images"], "old ones are not learned from"
    assert sum(said["new"].values()) + said["old"] + said["unsure"] == said["images"]
    assert said["count"] is None, "it was given"
    assert json.loads((tmp_path / "second" / "config.json").read_text())["mixed"] is True


def test_two_processes_do_the_same_as_one(tmp_path: Path) -> None:
    learner = Learner(METHOD, device="cpu", settings={"fit.epochs": 2, "discover.epochs": 1, "fit.batch_size": 16})
    learner.fit(noise(46, seed=0), [f"class-{n % 3}" for n in range(46)])
    learner.save(tmp_path / "model")
    finished(start(str(Path(__file__).with_name("two_gaussians.py")), str(tmp_path)))
    first, second = (load_file(tmp_path / f"rank-{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == second.keys()
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())

    learner = Learner.load(tmp_path / "model", "cpu")
    some = ImageSet(noise(37, seed=1))
    labels = np.arange(37) % 4 - 1
    inference = Inference(learner.config, learner.runtime)
    alone = inference.statistics(some, learner.network, labels, 3)
    together = ClassStatistics.from_tensors({name[6:]: t for name, t in first.items() if name.startswith("tally_")})
    torch.testing.assert_close(together.covariances(), alone.covariances(), rtol=1e-2, atol=1e-6)
    torch.testing.assert_close(together.mean, alone.mean)
    np.testing.assert_allclose(first["probabilities"], learner.predict_proba(some), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(first["unlikeness"], learner.unlikeness(some), rtol=1e-3)
    loaded = Learner.load(tmp_path / "discovered", "cpu")
    np.testing.assert_allclose(first["after"], loaded.predict_proba(some), rtol=1e-3, atol=1e-6)
