"""Readouts: kinds on a preset, to and from JSON; objects on a model, saved and loaded."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from hoarfrost import Learner
from hoarfrost.cli import main
from hoarfrost.computing.runtime import Runtime
from hoarfrost.config import Config
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError
from hoarfrost.evaluation import score_folder
from hoarfrost.experiment import Shelf
from hoarfrost.methods import FROST, METHODS
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.gaussians import ClassGaussians
from hoarfrost.models.network import Design, Network, grow
from hoarfrost.models.readout import (
    Calibration,
    ClassMeans,
    Gaussians,
    HeadLogits,
    HeadProbabilities,
    Known,
    ReadoutKind,
)
from hoarfrost.models.resnet import ResNet
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.recipes import get_recipe
from hoarfrost.scenario import Scenario, build_scenario
from hoarfrost.settings import filled, from_json, override, to_json
from hoarfrost.training.observers import Entry, Observer

from ..conftest import TINY

KINDS = {
    "full": Gaussians(),
    "diagonal": Gaussians(covariance="diagonal"),
    "shared": Gaussians(covariance="shared"),
    "low-rank": Gaussians(covariance="low-rank", rank=4),
    "sqrt": Gaussians(features="sqrt"),
    "unit, low-rank": Gaussians(covariance="low-rank", rank=4, features="unit"),
}
READOUT = "method.design.readout"


def config_of(readout: ReadoutKind) -> Config:
    return get_recipe("digits").config(replace(FROST, design=Design(readout=readout)), 0)


def learner_of(readout: Gaussians, decides: str = "unmoved") -> Learner:
    settings = {**TINY, READOUT: "gaussians", "method.decides": decides}
    return Learner(
        recipe="digits", device="cpu", settings=settings | {f"{READOUT}.{k}": v for k, v in vars(readout).items()}
    )


@pytest.mark.parametrize(
    "kind", [ReadoutKind(), HeadLogits(), HeadProbabilities(), ClassMeans(), Gaussians(shrink=0.2)]
)
def test_a_kind_goes_to_json_and_back(kind: ReadoutKind) -> None:
    content = json.loads(json.dumps(to_json(config_of(kind))))
    assert content["method"]["design"]["readout"]["kind"] == kind.kind
    assert from_json(Config, content) == config_of(kind)


LATER = ("hoarfrost", "vb-cgcd")
"""presets that came when files said more of a readout than its kind"""


@pytest.mark.parametrize("name", [name for name in METHODS if name not in LATER])
def test_a_configuration_of_an_earlier_version_is_the_same(name: str) -> None:
    config = get_recipe("digits").config(METHODS[name], 0)
    content = to_json(config)
    before = json.loads(json.dumps(content))
    before["method"]["design"]["readout"] = config.method.design.readout.kind  # as it was written
    assert from_json(Config, before) == config
    assert filled(before) == content


def test_a_name_means_that_kind_with_its_defaults() -> None:
    config = config_of(ReadoutKind())
    assert override(config, {READOUT: "gaussians"}).method.design.readout == Gaussians()
    for changes in (
        {READOUT: "gaussians", f"{READOUT}.covariance": "shared", "method.decides": "unmoved"},
        {"method.decides": "unmoved", f"{READOUT}.covariance": "shared", f"{READOUT}.kind": "gaussians"},
    ):
        changed = override(config, changes)
        assert changed.method.design.readout == Gaussians(covariance="shared")
        back = override(changed, {READOUT: "joint", "method.decides": "trained"})
        assert back == config, "what both must be changed for is checked when both are"
    assert override(config, {"discover_augment": "none"}).discover_augment.kind == "none"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({READOUT: "gausians"}, "did you mean 'gaussians'"),
        ({f"{READOUT}.shrink": 0.1}, "unknown config key"),
        ({READOUT: "gaussians", f"{READOUT}.shrink": 1.5}, "shrink must be from 0 to 1"),
        ({READOUT: "gaussians", f"{READOUT}.rank": 0}, "rank must be above 0"),
        ({READOUT: "gaussians", f"{READOUT}.ridge": 0.0}, "ridge must be above 0"),
        ({READOUT: "gaussians", f"{READOUT}.covariance": "diag"}, "did you mean 'diagonal'"),
        ({READOUT: "logits", "method.decides": "unmoved"}, "needs a readout from class statistics"),
    ],
)
def test_what_cannot_be_set(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        override(config_of(ReadoutKind()), changes)
    assert words in str(error.value)


def grown(kind: ReadoutKind) -> tuple[Network, ClassStatistics, torch.Tensor]:
    """A network with 3 + 2 classes, statistics of which class 1 has no images, and features."""
    torch.manual_seed(0)
    network = grow(Network(build_backbone("small", 1), 3, Design(readout=kind)), 2).eval()
    features = torch.rand(40, network.width)
    labels = torch.tensor([0, 2, 3, 4]).repeat(10)
    return network, ClassStatistics.of(features, labels, 5, kind.kept), features


def test_heads_say_by_their_energy_how_unlike_an_image_is() -> None:
    network, statistics, features = grown(ReadoutKind())
    readout = network.design.readout.read(network, Known(statistics))
    logits = network.joint(features).tolist()
    for found, row in zip(readout.unlikeness(features).tolist(), logits, strict=True):
        assert found == pytest.approx(-math.log(sum(map(math.exp, row))), abs=1e-5)


def test_means_say_it_by_the_distance_from_the_nearest() -> None:
    network, statistics, features = grown(ClassMeans())
    readout = network.design.readout.read(network, Known(statistics))
    for found, point in zip(readout.unlikeness(features).tolist(), features, strict=True):
        distances = [(point - statistics.mean[c]).square().sum().item() for c in (0, 2, 3, 4)]
        assert found == pytest.approx(min(distances), rel=1e-3)
    assert torch.equal(readout.novel_scores(features, 0), network.novel[0](features))
    by_means = network.design.readout.read(network, Known(statistics, by_heads=False))
    assert torch.equal(by_means.novel_scores(features, 0), network.joint(features)[:, 3:])


@pytest.mark.parametrize("name", KINDS)
def test_gaussians_decide_whatever_the_joint_head_says(name: str) -> None:
    network, statistics, features = grown(KINDS[name])
    readout = KINDS[name].read(network, Known(statistics, Calibration(3.0)))
    scores = readout.scores(features)
    assert scores[:, 1].isneginf().all(), "a class without images never wins"
    assert (scores.argmax(dim=1) == torch.tensor([0, 2, 3, 4]).repeat(10)).float().mean() > 0.5
    torch.testing.assert_close(readout.probabilities(features), (scores / 3).softmax(dim=1))
    assert torch.equal(readout.novel_scores(features, 0), network.novel[0](features))
    apart = KINDS[name].read(network, Known(statistics, by_heads=False))
    torch.testing.assert_close(apart.novel_scores(features, 0), scores[:, 3:])
    far = readout.unlikeness(features + 10 * torch.rand_like(features))
    assert (far > readout.unlikeness(features)).all()
    assert network.weight_norms() is None
    assert torch.equal(KINDS[name].read(network).scores(features), network.joint(features)), (
        "as one in training is read"
    )


@pytest.mark.parametrize("name", KINDS)
def test_what_is_far_from_all_classes_is_like_none(name: str) -> None:
    network, statistics, features = grown(KINDS[name])
    features = torch.cat([features, features[:8] + 4 * torch.rand(8, features.shape[1])])
    present = torch.ones(5, dtype=torch.bool)
    plain = KINDS[name].read(network, Known(statistics))
    assert plain.likeness(plain.scores(features), present) is None, "nobody knows"
    distance = plain.unlikeness(features)
    limit = distance.median().item()
    readout = KINDS[name].read(network, Known(statistics, Calibration(unlike=limit)))
    found = readout.likeness(readout.scores(features), present)
    assert found is not None
    for own, far in zip(found.tolist(), distance.tolist(), strict=True):
        assert own == pytest.approx(1 if far < limit else (limit / far) ** 4, rel=1e-2)
    assert (found == 1).any()
    assert (found < 0.9).any()
    assert KINDS[name].read(network, Known(statistics)).likeness(readout.scores(features), present) is None
    without = readout.likeness(readout.scores(features), present & (torch.arange(5) != 2))
    assert without is not None
    assert (without <= found + 1e-6).all(), "a class that was rejected is not near"
    assert (without < found - 1e-6).any()


class Watched(Observer):
    """Keeps what the network in training says of some images."""

    def __init__(self, learner: Learner, images: ImageSet) -> None:
        self.learner, self.images, self.same = learner, images, True

    def epoch_done(self, entry: Entry, network: Network) -> None:
        outputs = self.learner.outputs(self.images, network, features=True)
        joint = network.joint(torch.from_numpy(outputs.features)).detach().numpy()
        self.same &= np.allclose(outputs.scores, joint, atol=1e-5)


@pytest.fixture(scope="module", params=KINDS)
def learned(request: pytest.FixtureRequest, three_steps: Scenario) -> Learner:
    learner = learner_of(KINDS[request.param])
    for step in three_steps:
        watched = Watched(learner, three_steps.truths[0].test)
        learner.learn(step, observer=watched)
        assert watched.same, "a network in training is read by its joint head"
    return learner


def test_a_saved_model_predicts_the_same(learned: Learner, three_steps: Scenario, tmp_path: Path) -> None:
    test = three_steps.truths[-1].test
    outputs = learned.outputs(test)
    learned.save(tmp_path / "model")
    loaded = Learner.load(tmp_path / "model", "cpu")
    assert loaded.model.calibration == learned.model.calibration
    again = loaded.outputs(test)
    assert (again.scores == outputs.scores).all()
    assert all((a == b).all() for a, b in zip(again.novel_scores, outputs.novel_scores, strict=True))
    assert (loaded.unlikeness(test) == learned.unlikeness(test)).all()
    np.testing.assert_allclose(loaded.predict_proba(test).sum(axis=1), 1)
    kept = load_file(tmp_path / "model" / "prototypes.safetensors")
    kind = learned.network.design.readout
    assert isinstance(kind, Gaussians)
    root = kept.get("transformed_covariance_root")
    width = learned.network.width + learned.network.backbone.width_before_last
    shapes = {"full": (10, width, width), "diagonal": None, "shared": (width, width), "low-rank": (10, width, 4)}
    assert (None if root is None else tuple(root.shape)) == shapes[kind.covariance], "no more is kept than is asked for"


def test_decisions_about_classes_are_followed(learned: Learner, three_steps: Scenario, tmp_path: Path) -> None:
    test, model = three_steps.truths[-1].test, learned.model
    unseen = replace(model, statistics=model.statistics.without(torch.arange(10) == 6))
    unseen.save(tmp_path / "model")
    before = Learner.load(tmp_path / "model", "cpu").predict_proba(test)
    assert not before[:, 6].any(), "a rejected class is as one that had no images"
    try:
        learned.merge("new-2", "new-1").reject("new-3")
        after, ids = learned.predict_proba(test), learned.predictions(test).ids
    finally:
        learned.undo().undo()
    assert after.shape[1] == 8, "columns are those of the classes that can be predicted"
    assert not {5, 6} & set(ids.tolist())
    np.testing.assert_allclose(after[:, 4], before[:, 4] + before[:, 5], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(after[:, [0, 7]], before[:, [0, 9]], rtol=1e-4, atol=1e-6)
    assert learned.model.classes == model.classes


def test_the_network_that_never_moved_decides(three_steps: Scenario) -> None:
    learner = learner_of(Gaussians())
    learner.learn(three_steps.steps[0])
    before = {name: tensor.clone() for name, tensor in learner.network.backbone.state_dict().items()}
    old = learner.model.statistics.for_readout
    learner.learn(three_steps.steps[1])
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.network.backbone.state_dict().items())
    assert old.root is not None
    root = learner.model.statistics.for_readout.root
    assert root is not None
    assert torch.equal(root[:4], old.root), "what is known of old classes stays"
    outputs = learner.outputs(three_steps.truths[1].test)
    temperature = learner.model.calibration.temperature
    np.testing.assert_allclose(outputs.novel_scores[0] / temperature, outputs.scores[:, 4:], rtol=1e-4)


def saved(three_steps: Scenario, folder: Path, readout: Gaussians) -> Path:
    learner = learner_of(readout)
    learner.learn(three_steps.steps[0])
    learner.save(folder)
    return folder


@pytest.mark.parametrize("change", ["missing", "shape", "no number"])
def test_a_model_with_damaged_covariances_is_refused(change: str, three_steps: Scenario, tmp_path: Path) -> None:
    folder = saved(three_steps, tmp_path / "model", Gaussians())
    path = folder / "prototypes.safetensors"
    tensors = load_file(path)
    root = tensors.pop("transformed_covariance_root")
    if change != "missing":
        tensors["transformed_covariance_root"] = root[:, 1:].contiguous() if change == "shape" else root * math.nan
    save_file(tensors, path)
    with pytest.raises(InputError, match="damaged"):
        Learner.load(folder, "cpu")


def test_a_model_of_an_earlier_version_has_a_temperature_of_one(three_steps: Scenario, tmp_path: Path) -> None:
    learner = Learner("frost", recipe="digits", device="cpu", settings=TINY)
    learner.learn(three_steps.steps[0])
    assert learner.model.calibration.temperature == 1
    learner.save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    content = json.loads(path.read_text())
    content["config"]["method"]["design"]["readout"] = content["config"]["method"]["design"]["readout"]["kind"]
    calibration = content.pop("calibration")
    del content["temperature"], content["discovery"]
    path.write_text(json.dumps(content))
    loaded = Learner.load(tmp_path / "model", "cpu")
    test = three_steps.truths[0].test
    assert (loaded.predict_proba(test) == learner.predict_proba(test)).all()
    with pytest.raises(InputError, match="cannot tell known classes from new ones"):
        loaded.discover(three_steps.steps[1].images, 3, only_new=False)
    for wrong in (0.0, -1.0, "warm"):
        path.write_text(json.dumps({**content, "temperature": wrong}))
        with pytest.raises(InputError, match="damaged"):
            Learner.load(tmp_path / "model", "cpu")
    sizes = (0.0, -1.0, 1e-300, 1e300, "some")
    sorter: dict[str, object] = {"roughness": 0.7, "roughness_alone": 1.1, "chance": 10.0}
    sorters: list[dict[str, object]] = [
        sorter | {name: size} for name in ("roughness", "roughness_alone") for size in sizes
    ]
    sorters += [sorter | {"chance": size} for size in (-1.0, 1e300, "some")]
    changes = [*(("unlike", size) for size in sizes), *(("sorter", wrong) for wrong in sorters)]
    for name, damaged in changes:
        path.write_text(json.dumps({**content, "calibration": {**calibration, name: damaged}}))
        with pytest.raises(InputError, match="damaged"):
            Learner.load(tmp_path / "model", "cpu")


def test_a_readout_that_needs_more_than_is_kept_is_refused(three_steps: Scenario) -> None:
    learner = Learner("frost", recipe="digits", device="cpu", settings=TINY)
    learner.learn(three_steps.steps[0])
    with pytest.raises(InputError, match="class statistics that this model lacks"):
        learner.reconfigure(override(learner.config, {READOUT: "gaussians"}))
    assert learner.network.design == Design()
    learner.reconfigure(override(learner.config, {READOUT: "gaussians", f"{READOUT}.covariance": "diagonal"}))
    assert learner.outputs(three_steps.truths[0].test).scores.shape[1] == 4


def test_runs_with_other_gaussians_share_no_stage_one(three_steps: Scenario) -> None:
    def folder(config: Config) -> Path:
        return Shelf(Path("shelf"), config, three_steps, Runtime("cpu")).folder

    plain = folder(config_of(ReadoutKind()))
    assert folder(config_of(HeadLogits())) == plain
    assert len({plain, folder(config_of(Gaussians())), folder(config_of(Gaussians(shrink=0.2)))}) == 3


def test_commands_work_with_gaussians(
    digits: tuple[ImageSet, ImageSet], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "--dataset", "digits", "--fit-epochs", "4", "--epochs", "2", "--device", "cpu", "--json"]
    given = ["--set", f"{READOUT}=gaussians", "--set", "method.decides=unmoved"]
    assert main([*run, *given, "--out", str(tmp_path / "run")]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["stage_one"] > 90
    assert content["steps"][0]["joint"]["old"] > 80
    assert content["steps"][0]["joint_and_novel"] is None, "that is of the joint head alone"
    assert "weight_norms" not in content["steps"][0]
    assert 'id="norms"' not in (tmp_path / "run" / "report.html").read_text()
    folder = tmp_path / "images"
    _, test = digits
    assert test.labels is not None
    for index, label in enumerate(test.labels.tolist()):
        place = folder / str(label)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(test.pixels([index])[0, :, :, 0]).save(place / f"{index}.png")
    model = tmp_path / "run" / "model"
    assert main(["predict", str(model), str(folder), "--device", "cpu"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    learner = Learner.load(model, "cpu")
    probabilities = learner.predict_proba(folder)
    assert [row["class"] for row in rows] == [learner.class_names[c] for c in probabilities.argmax(axis=1)]
    assert [float(row["probability"]) for row in rows] == pytest.approx(probabilities.max(axis=1).tolist(), abs=1e-6)
    assert main(["evaluate", str(model), str(folder), "--device", "cpu", "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert scored["joint"] == score_folder(learner, folder, None)["joint"]
    assert scored["joint"]["old"] > 80


def test_two_of_three_new_classes_are_found(digits: tuple[ImageSet, ImageSet], tmp_path: Path) -> None:
    scenario = build_scenario(*digits, split="4-2-4")
    learner = learner_of(Gaussians())
    learner.learn(scenario.steps[0])
    learner.learn(scenario.steps[1])
    _, test = digits
    assert test.labels is not None
    for label in (0, 1, 4, 5, 6):  # three new classes for two clusters
        place = tmp_path / f"{label}"
        place.mkdir()
        for index in np.flatnonzero(test.labels == label).tolist():
            Image.fromarray(test.pixels([index])[0, :, :, 0]).save(place / f"{index}.png")
    scores = score_folder(learner, tmp_path, None)
    assert scores["novel"] == 2
    assert 0 < scores["joint"]["new"] < 100


def test_features_before_the_last_part_decide_too(three_steps: Scenario) -> None:
    """As by hand: each part's features made to length 1 by themselves, a mean and a covariance of both together."""
    learner = Learner(recipe="digits", device="cpu", settings=TINY)
    step = three_steps.steps[0]
    assert step.images.labels is not None
    learner.learn(step)
    backbone = learner.network.eval().backbone
    assert isinstance(backbone, ResNet)
    assert learner.config.mean is not None
    assert learner.config.std is not None
    pixels = torch.from_numpy(np.asarray(learner.prepare(step.images).images)).permute(0, 3, 1, 2) / 255
    maps = backbone.trunk((pixels - learner.config.mean[0]) / learner.config.std[0])
    roots = [backbone.pooled(part).sqrt() for part in (backbone.last(maps), maps)]
    both = torch.cat([root / root.norm(dim=1, keepdim=True) for root in roots], dim=1).detach().double().numpy()
    statistics = learner.model.statistics.for_readout
    for label, found in enumerate(statistics.covariances().numpy()):
        own = both[step.images.labels == label]
        np.testing.assert_allclose(statistics.mean[label], own.mean(axis=0), rtol=1e-4, atol=1e-6)
        expected = np.cov(own.T, bias=True)
        np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())  # roots are in half precision
    gaussians = ClassGaussians(statistics, shrink=0.75, ridge=0.003, diagonal=False, device=torch.device("cpu"))
    scores = learner.outputs(step.images).scores * learner.model.calibration.temperature
    likelihoods = gaussians.log_likelihoods(torch.from_numpy(both).float())
    np.testing.assert_allclose(scores, likelihoods, rtol=1e-3, atol=0.5)
    assert learner.model.statistics.mean.shape[1] == backbone.width, "what is replayed is of the last part"
