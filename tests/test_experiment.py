"""Whole runs: scored, interrupted and gone on with, and blind to the truth."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hoarfrost import store
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError
from hoarfrost.experiment import RunConfig, run
from hoarfrost.methods import FROST, METHODS
from hoarfrost.metrics import from_sparse_rows
from hoarfrost.models.network import Network
from hoarfrost.recipes import RECIPES
from hoarfrost.scenario import build_scenario
from hoarfrost.settings import override
from hoarfrost.training.learner import Learner
from hoarfrost.training.observers import Entry, Observer
from hoarfrost.training.resolve import channel_statistics

from . import forked
from .cli.place import save_digits
from .conftest import TINY
from .drawn import draw_once
from .forked import Forked

CONCATENATING = ("autonovel", "restune", "ncl-labelled")


class Killed(BaseException):
    """Stands for a process that ends without another word."""


class KillAt(Observer):
    """Ends it at the end of an epoch, before its state is saved."""

    def __init__(self, stage: int, epoch: int) -> None:
        self.at = (stage, epoch)

    def epoch_done(self, entry: Entry, network: Network) -> None:
        if (entry["stage"], entry["epoch"]) == self.at:
            raise Killed


def config_for(split: str = "4-3-3", settings: dict[str, Any] | None = None) -> RunConfig:
    config = override(RECIPES["digits"].config(FROST, seed=0), {**TINY, **(settings or {})})
    return RunConfig(dataset="digits", split=split, class_order="natural", learner=config)


def scores(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if key != "seconds"}


@pytest.fixture(scope="module", autouse=True)
def drawn() -> Iterator[None]:
    """Most runs here learn what others have learned before."""
    with pytest.MonkeyPatch.context() as patch:
        draw_once(patch)
        yield


@pytest.fixture(scope="module")
def whole(digits: tuple[ImageSet, ImageSet], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without an interruption."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    run(config_for(), *digits, out=out, device="cpu")
    return out


@pytest.fixture(scope="module")
def sharing(digits: tuple[ImageSet, ImageSet], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``first``, the same run, and ``shelf``, where it has left its stage one for others."""
    folder = tmp_path_factory.mktemp("sharing")
    run(config_for(), *digits, out=folder / "first", device="cpu", share=folder / "shelf")
    return folder


QUICK = {"discover.epochs": 1, "fit.epochs": 1}


@pytest.fixture(scope="module")
def quick_shelf(digits: tuple[ImageSet, ImageSet], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stage one of a shorter run."""
    folder = tmp_path_factory.mktemp("quick")
    run(config_for("5-5", QUICK), *digits, out=folder / "run", device="cpu", share=folder / "shelf")
    return folder / "shelf"


def test_a_run_folder_holds_what_it_should(whole: Path) -> None:
    assert sorted(path.name for path in whole.iterdir()) == [
        "config.json",
        "log.jsonl",
        "metrics.json",
        "model",
        "report.html",
    ]
    lines = [json.loads(line) for line in (whole / "log.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["epoch"]) for line in lines] == [(s, e) for s in range(3) for e in range(2)]
    assert json.loads((whole / "config.json").read_text())["format"] == store.FORMAT


def test_metrics_have_the_fields_that_people_read(whole: Path) -> None:
    metrics = json.loads((whole / "metrics.json").read_text())
    assert {"method", "dataset", "split", "seed", "hardware", "seconds", "stage_one", "steps"} <= metrics.keys()
    first, second = metrics["steps"]
    assert (first["known"], first["novel"], second["known"], second["novel"]) == (4, 3, 7, 3)
    assert (len(first["new_by_step_joint"]), len(second["new_by_step_novel"])) == (1, 2)
    assert set(second["joint"]) == {"old", "new", "all", "hm"}
    assert set(second["original_rt"]) == {"old", "new", "all", "old_matched"}
    assert second["original_rt"]["old_matched"] >= second["original_rt"]["old"], "the best matching is no worse"


def test_the_last_scores_are_those_of_the_saved_model(whole: Path, digits: tuple[ImageSet, ImageSet]) -> None:
    scenario = build_scenario(*digits, split="4-3-3")
    test = scenario.truths[-1].test
    assert test.labels is not None
    predicted = Learner.load(whole / "model", device="cpu").predictions(test).ids
    old = test.labels < 4
    metrics = json.loads((whole / "metrics.json").read_text())
    assert metrics["steps"][-1]["joint"]["old"] == pytest.approx(
        100 * np.mean(predicted[old] == test.labels[old]), abs=1e-5
    )


def assert_kept_arrays(content: dict[str, Any], digits: tuple[ImageSet, ImageSet], model: Path) -> None:
    """Every step's matrix is of its test images and of its scores; the last norms are those of the saved weights."""
    scenario = build_scenario(*digits, split="4-3-3")
    known = scenario.steps[0].novel
    for step, truth in zip(content["steps"], scenario.truths[1:], strict=True):
        labels = truth.test.labels
        assert labels is not None
        matrix = from_sparse_rows(step["confusion"])
        images = np.bincount(labels, minlength=len(matrix))
        outputs, first = list(range(known)), known  # of each true class, the output that stands for it
        for other in content["steps"][: step["index"]]:
            outputs += [first + cluster for cluster in other["assignment"]]
            first += other["novel"]
        assert matrix.sum(axis=1)[outputs].tolist() == images.tolist()
        assert 100 * np.trace(matrix) / matrix.sum() == pytest.approx(step["joint"]["all"], abs=1e-5)
        assert 100 * np.trace(matrix[:known]) / matrix[:known].sum() == pytest.approx(step["joint"]["old"], abs=1e-5)
        assert len(step["weight_norms"]) == len(matrix) == step["known"] + step["novel"]
    norms = Learner.load(model, device="cpu").network.weight_norms()
    assert norms is not None
    assert content["steps"][-1]["weight_norms"] == pytest.approx(norms.tolist(), abs=1e-4)


def test_confusion_and_norms_of_every_step_are_kept(whole: Path, digits: tuple[ImageSet, ImageSet]) -> None:
    assert_kept_arrays(json.loads((whole / "metrics.json").read_text()), digits, whole / "model")


@pytest.mark.parametrize(("stage", "epoch"), [(0, 0), (0, 1), (1, 1), (2, 0)])
def test_an_interrupted_run_ends_like_a_whole_one(
    stage: int, epoch: int, whole: Path, digits: tuple[ImageSet, ImageSet], tmp_path: Path
) -> None:
    config, out = config_for(), tmp_path / "run"
    with pytest.raises(Killed):
        run(config, *digits, out=out, device="cpu", observer=KillAt(stage, epoch))
    assert not (out / "metrics.json").exists()
    metrics = run(config, *digits, out=out, device="cpu", resume=True)
    assert scores(metrics) == scores(json.loads((whole / "metrics.json").read_text()))
    for name in ("weights.safetensors", "prototypes.safetensors"):
        assert (out / "model" / name).read_bytes() == (whole / "model" / name).read_bytes()
    kept = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in (out / "log.jsonl").open()]
    assert kept == [
        {k: v for k, v in json.loads(line).items() if k != "seconds"} for line in (whole / "log.jsonl").open()
    ]
    assert not (out / "unfinished").exists()


def test_stage_one_is_trained_once_for_runs_that_share_it(
    whole: Path, sharing: Path, digits: tuple[ImageSet, ImageSet], tmp_path: Path
) -> None:
    """The second run, of another method, begins with the first one's stage one, and ends as if it had its own."""
    shelf = shutil.copytree(sharing / "shelf", tmp_path / "shelf")
    (model,) = shelf.iterdir()
    kept = {path.name: path.read_bytes() for path in model.iterdir()}
    for name in ("weights", "prototypes"):
        file = f"model/{name}.safetensors"
        assert (sharing / "first" / file).read_bytes() == (whole / file).read_bytes()

    class NoStageOne(Observer):
        def stage_started(self, stage: int, *, epochs: int, batches: int, done: int) -> None:
            assert stage > 0, "stage one was trained again"

    other = {"discover.epochs": 1}
    shared = run(
        config_for(settings=other), *digits, out=tmp_path / "shared", device="cpu", share=shelf, observer=NoStageOne()
    )
    own = run(config_for(settings=other), *digits, out=tmp_path / "own", device="cpu")
    assert scores(shared) == scores(own)
    assert shared["seconds"]["stage_one"] > 0, "what stage one took is known from its log"
    for name in ("weights", "prototypes"):
        file = f"model/{name}.safetensors"
        assert (tmp_path / "shared" / file).read_bytes() == (tmp_path / "own" / file).read_bytes()
    log = [json.loads(line) for line in (tmp_path / "shared" / "log.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["epoch"]) for line in log] == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert {path.name: path.read_bytes() for path in model.iterdir()} == kept, "the shelf is left as it was"


@pytest.mark.parametrize("name", ["autonovel", "restune", "ncl-labelled", "joint", "kmeans", "supervised"])
def test_methods_of_other_designs_share_a_stage_one_and_are_scored_alike(
    name: str, sharing: Path, digits: tuple[ImageSet, ImageSet], tmp_path: Path
) -> None:
    shelf, method = shutil.copytree(sharing / "shelf", tmp_path / "shelf"), METHODS[name]
    config = replace(config_for(), learner=override(RECIPES["digits"].config(method, seed=0), TINY))
    shared = run(config, *digits, out=tmp_path / "shared", device="cpu", share=shelf)
    assert len(list(shelf.iterdir())) == 1
    assert scores(shared) == scores(run(config, *digits, out=tmp_path / "own", device="cpu"))
    for step in shared["steps"]:
        assert (step["calibrated"] is not None) == (name in CONCATENATING)
        assert (step["joint_and_novel"] is not None) == (method.design.readout.kind == "joint")
        assert len(step["new_by_step_novel"]) == step["index"]
    assert_kept_arrays(shared, digits, tmp_path / "shared" / "model")
    assert (tmp_path / "shared" / "report.html").exists()

    learner = Learner.load(tmp_path / "shared" / "model", device="cpu")
    scenario = build_scenario(*digits, split="4-3-3")
    test = scenario.truths[-1].test
    assert test.labels is not None
    assigned = [step["assignment"] for step in shared["steps"]]
    cluster = {4 + c: 4 + k for c, k in enumerate(assigned[0])} | {7 + c: 7 + k for c, k in enumerate(assigned[1])}
    outputs = learner.outputs(test)
    last = shared["steps"][-1]
    for key, logits in (("joint", outputs.scores), ("calibrated", outputs.side_by_side)):
        if logits is not None:
            hits = [cluster.get(t, t) == p for t, p in zip(test.labels.tolist(), logits.argmax(axis=1), strict=True)]
            assert last[key]["all"] == pytest.approx(100 * sum(hits) / len(hits))


@pytest.mark.parametrize(
    "settings",
    [{"seed": 1}, {"fit.epochs": 2}, {"fit_augment.rotate": 0.1}, {"method.design.joint": "cosine"}],
)
def test_another_stage_one_is_not_taken_from_the_shelf(
    quick_shelf: Path, digits: tuple[ImageSet, ImageSet], tmp_path: Path, settings: dict[str, Any]
) -> None:
    shelf = shutil.copytree(quick_shelf, tmp_path / "shelf")
    run(config_for("5-5", {**QUICK, **settings}), *digits, out=tmp_path / "other", device="cpu", share=shelf)
    assert len(list(shelf.iterdir())) == 2


def test_a_stage_one_is_shared_only_where_its_scores_and_names_hold(
    quick_shelf: Path, digits: tuple[ImageSet, ImageSet], tmp_path: Path
) -> None:
    train, test = digits
    quick, shelf = config_for("5-5", QUICK), shutil.copytree(quick_shelf, tmp_path / "shelf")
    names = tuple(f"number {name}" for name in train.class_names)
    sets = {
        "other test": (train, test.take(slice(50, None))),
        "other names": (replace(train, class_names=names), replace(test, class_names=names)),
    }
    for number, (name, images) in enumerate(sets.items(), start=2):
        run(quick, *images, out=tmp_path / name, device="cpu", share=shelf)
        assert len(list(shelf.iterdir())) == number
    told = json.loads((tmp_path / "other names" / "metrics.json").read_text())["class_names"]
    assert told == list(names)
    kept = run(quick, train, test, out=tmp_path / "off", device="cpu", compiled="off", share=shelf)
    assert kept["compiled"] == "off"
    assert len(list(shelf.iterdir())) == 4, "compiled or not, the numbers may differ"


def test_a_damaged_shelf(quick_shelf: Path, digits: tuple[ImageSet, ImageSet], tmp_path: Path) -> None:
    quick, shelf = config_for("5-5", QUICK), shutil.copytree(quick_shelf, tmp_path / "shelf")

    def shared(name: str) -> None:
        run(quick, *digits, out=tmp_path / name, device="cpu", share=shelf)

    (model,) = shelf.iterdir()
    log = (model / "log.jsonl").read_text()
    (model / "log.jsonl").unlink()
    shared("without a log")
    assert json.loads((model / "log.jsonl").read_text()).keys() == json.loads(log).keys(), "it is made again"
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    for name, content in {
        "record.json": b"{}",
        "log.jsonl": b"",
        "weights.safetensors": b"x",
        "model.json": b"",
    }.items():
        (model / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{model.name} is damaged: remove it"):
            shared(f"damaged {name}")
        assert not (tmp_path / f"damaged {name}").exists()
        (model / name).write_bytes(files[name])
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="choose another --share"):
        run(quick, *digits, out=tmp_path / "nowhere", device="cpu", share=tmp_path / "file")
    assert not (tmp_path / "nowhere").exists(), "refused before anything is learned"


def test_resuming_what_is_done_changes_nothing(whole: Path, digits: tuple[ImageSet, ImageSet]) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    run(config_for(), *digits, out=whole, device="cpu", resume=True)
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_a_run_from_before_a_setting_was_there_goes_on(
    whole: Path, digits: tuple[ImageSet, ImageSet], tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "old")
    config = store.read_json(tmp_path / "old" / "config.json", "run folder")
    for key in ("design", "start", "supervised", "labelled_images"):
        del config["learner"]["method"][key]
    config["learner"]["method"]["course"] = {"epochs": 100}  # was kept once, although it was applied already
    del config["learner"]["discover"]["warm_up"]
    store.write_json(tmp_path / "old" / "config.json", config)
    run(config_for(), *digits, out=tmp_path / "old", device="cpu", resume=True)
    other = config_for(settings={"discover.warm_up": 1})
    with pytest.raises(InputError, match=r"learner\.discover\.warm_up changed from 0 to 1"):
        run(other, *digits, out=tmp_path / "old", device="cpu", resume=True)


def test_nobody_else_works_in_a_folder_where_somebody_is(
    whole: Path, digits: tuple[ImageSet, ImageSet], tmp_path: Path
) -> None:
    class Look(Observer):
        """While one run is under way, starts another in its place."""

        looked = False

        def epoch_done(self, _entry: Entry, _network: Network) -> None:
            if not self.looked:
                self.looked = True
                for resume in (True, False):
                    with pytest.raises(InputError, match="another command is at work in"):
                        run(config_for(), *digits, out=tmp_path / "run", device="cpu", resume=resume)

    look = Look()
    metrics = run(config_for(), *digits, out=tmp_path / "run", device="cpu", observer=look)
    assert look.looked
    assert metrics["steps"] == store.read_json(whole / "metrics.json", "run folder")["steps"], "nothing was disturbed"
    run(config_for(), *digits, out=tmp_path / "run", device="cpu", resume=True)  # it is free again


def test_another_configuration_is_refused_by_name(whole: Path, digits: tuple[ImageSet, ImageSet]) -> None:
    other = config_for(settings={"discover.learning_rate": 0.5})
    with pytest.raises(InputError, match=r"learner\.discover\.learning_rate changed from 0\.1 to 0\.5"):
        run(other, *digits, out=whole, device="cpu", resume=True)
    with pytest.raises(InputError, match="the images have changed"):
        run(config_for(), digits[0].take(slice(0, 100)), digits[1], out=whole, device="cpu", resume=True)


def test_the_truth_of_unlabelled_images_has_no_part_in_training(
    digits: tuple[ImageSet, ImageSet], tmp_path: Path
) -> None:
    """Noise in the place of the labels of classes to discover: every weight is the same, bit for bit."""
    train, test = digits
    assert train.labels is not None
    noise = np.random.default_rng(0).integers(5, 10, len(train))
    lied = replace(train, labels=np.where(train.labels < 5, train.labels, noise))
    config = config_for("5-5")
    told = run(config, train, test, out=tmp_path / "told", device="cpu")
    untold = run(config, lied, test, out=tmp_path / "untold", device="cpu")
    for name in ("weights.safetensors", "prototypes.safetensors"):
        first, second = (load_file(tmp_path / which / "model" / name) for which in ("told", "untold"))
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert told["stage_one"] == untold["stage_one"]


def test_stage_one_does_not_see_the_brightness_of_later_classes(
    whole: Path, digits: tuple[ImageSet, ImageSet], tmp_path: Path
) -> None:
    step = build_scenario(*digits, split="4-3-3").steps[0]
    config = json.loads((whole / "config.json").read_text())["learner"]
    assert (tuple(config["mean"]), tuple(config["std"])) == channel_statistics(step.images)


def test_a_failed_start_leaves_nothing_and_takes_nothing(digits: tuple[ImageSet, ImageSet], tmp_path: Path) -> None:
    class Fail(Observer):
        def batch_done(self) -> None:
            raise OSError(28, "No space left on device")

    class Interrupt(Observer):
        def batch_done(self) -> None:
            raise Killed

    out = tmp_path / "run"
    with pytest.raises(OSError, match="No space"):
        run(config_for(), *digits, out=out, device="cpu", observer=Fail())
    assert not out.exists()
    with pytest.raises(Killed):
        run(config_for(), *digits, out=out, device="cpu", observer=Interrupt())
    (out / "notes.txt").write_text("mine")
    with pytest.raises(OSError, match="No space"):
        run(config_for(), *digits, out=out, device="cpu", observer=Fail(), resume=True)
    assert (out / "notes.txt").read_text() == "mine"


def test_the_order_of_the_data_set_tells_nothing(digits: tuple[ImageSet, ImageSet], tmp_path: Path) -> None:
    train, test = digits
    assert train.labels is not None
    by_class = train.take(np.argsort(train.labels, kind="stable"))
    first, second = (build_scenario(images, test, split="5-5") for images in (train, by_class))
    assert np.array_equal(first.steps[1].images.pixels(slice(None)), second.steps[1].images.pixels(slice(None)))


def test_a_seed_decides_everything(whole: Path, digits: tuple[ImageSet, ImageSet], tmp_path: Path) -> None:
    again = run(config_for(), *digits, out=tmp_path / "again", device="cpu")
    assert scores(again) == scores(json.loads((whole / "metrics.json").read_text()))
    other = run(config_for(settings={"seed": 1}), *digits, out=tmp_path / "other", device="cpu")
    assert (tmp_path / "again/model/weights.safetensors").read_bytes() == (
        whole / "model/weights.safetensors"
    ).read_bytes()
    assert (tmp_path / "other/model/weights.safetensors").read_bytes() != (
        whole / "model/weights.safetensors"
    ).read_bytes()
    assert other["seed"] == 1


def test_sigkill_in_the_middle_of_discovery(tmp_path: Path) -> None:
    """A real process, really killed, gone on with by the command line."""
    out = tmp_path / "run"
    save_digits(tmp_path / "few", range(10), count=12)
    command = [sys.executable, "-m", "hoarfrost", "run", "--dataset", "folder", "--data", str(tmp_path / "few")]
    command += ["--split", "5-5", "--out", str(out), "--device", "cpu", "--resume"]
    command += ["--fit-epochs", "1", "--epochs", "6", "--set", "image_size=8"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with Forked(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment) as process:
        deadline = time.monotonic() + 120
        while not (out / "unfinished" / "stage-1.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (out / "metrics.json").exists()
    resumed = forked.run(command, env=environment)
    assert resumed.returncode == 0
    assert "discovering" in resumed.stderr
    assert "learning labelled classes" not in resumed.stderr
    undisturbed = tmp_path / "undisturbed"
    whole = [str(undisturbed) if part == str(out) else part for part in command]
    assert forked.run(whole, env=environment).returncode == 0
    assert (out / "model/weights.safetensors").read_bytes() == (undisturbed / "model/weights.safetensors").read_bytes()
    first, second = (scores(json.loads((folder / "metrics.json").read_text())) for folder in (out, undisturbed))
    assert first == second
