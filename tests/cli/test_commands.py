"""The commands as a newcomer meets them, on real files."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from hoarfrost import Learner
from hoarfrost.cli import VERBS, main
from hoarfrost.cli.discover import summary_of
from hoarfrost.computing.runtime import Runtime
from hoarfrost.models.model import Discovery
from hoarfrost.models.readout import Calibration
from hoarfrost.settings import override
from hoarfrost.unsorted.mixed import Expected
from hoarfrost.unsorted.number import Count

SHORT = ["--epochs", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as PNG files: ``known`` by class, ``unsorted`` without, ``checked`` by class."""
    root = tmp_path_factory.mktemp("digits")
    digits = load_digits()
    images = (digits.images * 255 / 16).round().astype(np.uint8)
    for index in range(0, len(images), 9):
        label = int(digits.target[index])
        folders = ["checked"] if index % 2 else (["known"] if label < 5 else ["unsorted", "truth"])
        for name in folders:
            folder = root / name / ("" if name == "unsorted" else f"digit {label}")
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[index]).save(folder / f"{index}.png")
    return root


@pytest.fixture(scope="module")
def models(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted and a discovered model; the labelled images are deleted in between."""
    root = tmp_path_factory.mktemp("models")
    known = shutil.copytree(folders / "known", root / "known")
    assert main(["fit", str(known), "--out", str(root / "fitted"), *SHORT]) == 0
    shutil.rmtree(known)
    discover = ["discover", str(root / "fitted"), str(folders / "unsorted"), "--novel", "5"]
    assert main([*discover, "--out", str(root / "discovered"), *SHORT]) == 0
    return root


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Standard output of a command with --json, which must be one object and nothing else."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert isinstance(content, dict)
    return content


def test_fit_then_discover_without_the_labelled_images(models: Path) -> None:
    model = json.loads((models / "discovered" / "model.json").read_text())
    assert model["heads"] == {"known": 5, "novel": [5]}
    assert model["class_names"] == [f"digit {n}" for n in range(5)] + [f"new-{n}" for n in range(1, 6)]
    report = (models / "discovered" / "report.html").read_text()
    assert all(f"<h3>new-{number}</h3>" in report for number in range(1, 6))
    assert report.count("Most typical") + report.count("No image belongs to this class") == 5
    assert sorted(path.name for path in models.iterdir()) == ["discovered", "fitted"]


def test_another_method_discovers_after_the_same_fit(
    models: Path, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in (models / "fitted").iterdir()}
    discover = ["discover", str(models / "fitted"), str(folders / "unsorted"), "--novel", "5", *SHORT]
    for method, only_new in (("frost", True), ("frost", False), ("kmeans", True)):
        out = str(tmp_path / f"{method} {only_new}")
        content = answer(capsys, *discover, *["--only-new"] * only_new, "--method", method, "--out", out)
        assert len(content["new"]) == 5
        assert sum(content["new"].values()) + content["old"] + content["unsure"] == content["images"]
        if not only_new:  # sorted by what fit has learned, whatever method discovers
            own = answer(capsys, *discover, "--out", str(tmp_path / "own"))
            assert (content["old"], content["unsure"]) == (own["old"], own["unsure"])
        described = json.loads((tmp_path / f"{method} {only_new}" / "model.json").read_text())
        assert described["config"]["method"]["name"] == method
        assert main(["predict", out, str(folders / "checked"), "--device", "cpu"]) == 0
    assert {path.name: path.read_bytes() for path in (models / "fitted").iterdir()} == before

    capsys.readouterr()
    again = ["discover", str(tmp_path / "own"), str(folders / "unsorted"), "--method", "frost", *SHORT]
    assert main([*again, "--out", str(tmp_path / "more")]) == 2
    assert capsys.readouterr().err.strip().endswith("has classes discovered by hoarfrost: leave --method out")
    assert main([*discover, "--method", "frozt", "--out", str(tmp_path / "more")]) == 2
    assert "frost" in capsys.readouterr().err
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize("given", [["--novel", "5"], [], ["--novel", "5", "--only-new"]], ids=" ".join)
def test_a_discovery_in_python_is_that_of_the_command(
    models: Path, folders: Path, tmp_path: Path, given: list[str]
) -> None:
    out, names = tmp_path / "command", ("weights.safetensors", "prototypes.safetensors")
    assert main(["discover", str(models / "fitted"), str(folders / "unsorted"), *given, "--out", str(out), *SHORT]) == 0
    learner = Learner.load(models / "fitted", "cpu")
    learner.reconfigure(override(learner.config, {"discover.epochs": 1}))
    options: dict[str, Any] = {"novel": 5} if "--novel" in given else {}
    options |= {"only_new": True} if "--only-new" in given else {}
    learner.discover(folders / "unsorted", **options)
    learner.save(tmp_path / "python")
    for name in names:
        assert (tmp_path / "python" / name).read_bytes() == (out / name).read_bytes()
    models_of = [json.loads((tmp_path / place / "model.json").read_text()) for place in ("command", "python")]
    assert models_of[0]["discovery"] == models_of[1]["discovery"]


def test_predict_prints_a_row_an_image(models: Path, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["predict", str(models / "discovered"), str(folders / "checked"), "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "path,class,probability,kind"
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["path"] for row in rows} == {str(path) for path in (folders / "checked").rglob("*.png")}
    for row in rows:
        assert row["kind"] == ("new" if row["class"].startswith("new-") else "old")
        assert 0.1 <= float(row["probability"]) <= 1


def test_predict_into_a_file(models: Path, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.csv"
    command = ["predict", str(models / "fitted"), str(folders / "checked"), "--device", "cpu", "--out", str(target)]
    assert main(command) == 0
    assert target.read_text().startswith("path,class,probability,kind\n")
    assert "old" in target.read_text()
    assert main(command) == 2  # what is there is not overwritten


def test_evaluate_scores_both_protocols(models: Path, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked, truth = str(folders / "checked"), str(folders / "truth")
    content = answer(capsys, "evaluate", str(models / "discovered"), checked, "--match", truth, "--device", "cpu")
    assert (content["known"], content["novel"], content["matched_on"]) == (5, 5, truth)
    assert set(content["joint"]) == {"old", "new", "all", "hm"}
    assert set(content["original_rt"]) == {"old", "new", "all"}
    assert content["original_rt"]["all"] >= content["joint"]["all"]
    alone = answer(capsys, "evaluate", str(models / "discovered"), checked, "--device", "cpu")
    assert alone["matched_on"] == checked


def test_evaluate_on_fewer_classes_than_are_matched(
    models: Path, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (0, 1, 6):
        shutil.copytree(folders / "checked" / f"digit {number}", tmp_path / f"digit {number}")
    match = ["--match", str(folders / "truth"), "--device", "cpu"]
    few = answer(capsys, "evaluate", str(models / "discovered"), str(tmp_path), *match)
    everything = answer(capsys, "evaluate", str(models / "discovered"), str(folders / "checked"), *match)
    assert few["images"] < everything["images"]
    assert few["joint"]["new"] is not None


def test_evaluate_a_model_that_discovered_nothing(
    models: Path, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(5):
        shutil.copytree(folders / "checked" / f"digit {number}", tmp_path / f"digit {number}")
    content = answer(capsys, "evaluate", str(models / "fitted"), str(tmp_path), "--device", "cpu")
    assert content["original_rt"] is None
    assert content["joint"]["new"] is None
    assert content["joint"]["old"] == content["joint"]["all"]


def test_resume_of_finished_models_ends_well(models: Path, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in models.rglob("*") if path.is_file()}
    discover = ["discover", str(models / "fitted"), str(folders / "unsorted"), "--novel", "5"]
    assert main([*discover, "--out", str(models / "discovered"), *SHORT, "--resume"]) == 0
    assert {path: path.read_bytes() for path in models.rglob("*") if path.is_file()} == before


def test_a_second_discovery(models: Path, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "third"
    content = answer(
        capsys,
        "discover",
        str(models / "discovered"),
        str(folders / "unsorted"),
        "--novel",
        "2",
        "--out",
        str(out),
        "--seed",
        "31",
        *SHORT,
    )
    assert list(content["new"]) == ["new-6", "new-7"]
    # What was asked for this time is in the report and in config.json, and does not bind the next discovery.
    assert "<dt>seed</dt><dd>31</dd>" in (out / "report.html").read_text()
    assert json.loads((out / "config.json").read_text())["config"]["seed"] == 31
    assert json.loads((out / "model.json").read_text())["config"]["seed"] == 0
    assert json.loads((out / "model.json").read_text())["heads"] == {"known": 5, "novel": [5, 2]}


def test_run_on_a_folder(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--dataset", "folder", "--data", str(folders / "checked"), "--split", "4-3-3", "--class-order", "seeded"]
    content = answer(capsys, "run", *data, "--out", str(tmp_path / "run"), "--fit-epochs", "1", "--tensorboard", *SHORT)
    assert content == json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert [step["known"] for step in content["steps"]] == [4, 7]
    assert any((tmp_path / "run" / "tensorboard").iterdir())


def test_demo_replaces_its_own_earlier_run_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    short = ["--out", str(out), "--device", "cpu", "--set", "fit.epochs=1", "--set", "discover.epochs=1"]
    assert main(["demo", *short]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {out / 'report.html'}"
    (out / ".report.html.part").write_text("what a kill left")
    content = answer(capsys, "demo", *short, "--seed", "1")
    assert content["seed"] == 1
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text('{"mine": true}')
    assert main(["demo", "--out", str(foreign)]) == 2
    assert (foreign / "config.json").read_text() == '{"mine": true}'


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_screen(verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) <= 40


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_of_a_verb_is_one_line_of_a_terminal(verb: str) -> None:
    assert len(VERBS[verb].EXAMPLE) <= 78


def test_whether_steps_are_compiled_can_be_said(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def compiles(runtime: Runtime, _steps: int) -> bool:
        asked.append(runtime.compiled)
        return False

    monkeypatch.setattr(Runtime, "compiles", compiles)
    model, found, again = (str(tmp_path / name) for name in ("model", "found", "again"))
    assert main(["fit", str(folders / "known"), "--out", model, *SHORT, "--compile", "on"]) == 0
    assert main(["discover", model, str(folders / "unsorted"), "--novel", "5", "--out", found, *SHORT]) == 0
    assert (
        main(["discover", model, str(folders / "unsorted"), "--novel", "5", "--out", again, *SHORT, "--compile", "on"])
        == 0
    )
    scenario = ["run", "--dataset", "digits", "--split", "5-3-2", "--fit-epochs", "1", "--out", str(tmp_path / "whole")]
    assert main([*scenario, *SHORT, "--compile", "off"]) == 0
    assert asked == ["on", "auto", "on", "off", "off", "off"]


def test_importing_and_asking_for_help_does_not_import_torch() -> None:
    code = "import sys, hoarfrost.cli; hoarfrost.cli.build_parser(); print({'torch', 'numpy'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "set()"


def test_the_public_names_arrive_when_they_are_used() -> None:
    code = (
        "from hoarfrost import Learner, ImageSet, InputError, build_scenario; import sys; print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["True"]


@pytest.mark.parametrize(("dataset", "split"), [("cifar10", "5-5"), ("cifar100", "80-20")])
def test_a_short_run_on_real_files(
    dataset: str, split: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The official layouts through the real readers; a few hundred images on the CPU."""
    data = os.environ.get("HOARFROST_DATA")
    if data is None:
        pytest.skip("HOARFROST_DATA does not name a folder with cifar-10-batches-py and cifar-100-python")
    from hoarfrost.data.datasets import load_dataset
    from hoarfrost.experiment import RunConfig, run
    from hoarfrost.methods import FROST
    from hoarfrost.recipes import RECIPES
    from hoarfrost.settings import override

    train, test = load_dataset(dataset, Path(data))
    assert (len(train), len(test), train.shape) == (50_000, 10_000, (32, 32, 3))
    rng = np.random.default_rng(0)
    few, tested = train.take(rng.choice(50_000, 300)), test.take(rng.choice(10_000, 100))
    settings = {"backbone": "small", "fit.epochs": 1, "fit.drops": [], "discover.epochs": 1, "discover.drops": []}
    config = override(RECIPES[dataset].config(FROST, seed=0), settings)
    run_config = RunConfig(dataset=dataset, split=split, class_order="natural", learner=config)
    metrics = run(run_config, few, tested, out=tmp_path / "run", device="cpu")
    assert metrics["steps"][0]["novel"] == int(split.split("-")[1])


def test_the_design_of_a_model_is_refused_before_anything_is_learned(
    models: Path, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "other"
    command = ["discover", str(models / "fitted"), str(folders / "unsorted"), "--novel", "2", "--out", str(out)]
    assert main([*command, "--set", "method.design.readout=means"]) == 2
    assert "method.design cannot change after fit" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "given", "waits"),
    [
        ("OMP_WAIT_POLICY", None, "PASSIVE"),
        ("OMP_WAIT_POLICY", "ACTIVE", "ACTIVE"),
        ("OPENBLAS_THREAD_TIMEOUT", None, "4"),
        ("OPENBLAS_THREAD_TIMEOUT", "20", "20"),
    ],
)
def test_threads_sleep_while_they_wait(
    name: str, given: str | None, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, given or "to be put back")
    if given is None:
        monkeypatch.delenv(name)
    assert main(["methods"]) == 0
    assert os.environ[name] == waits


def test_a_discovery_is_told_as_the_pages_show_it() -> None:
    found = Discovery(400, 260, 20, (70, 30, 20), Count(3, 2, 4, 5.0, (9.0, 6.0, 5.5), images_a_class=36.0))
    expected = Expected(gain=1, distance=1, deviation=1, error=0.042)
    model: Any = SimpleNamespace(
        discovery=found, calibration=Calibration(expected=expected), class_names=("rose", "new-1", "new-2", "new-3")
    )
    _, text = summary_of(model, (), mixed=True)
    first, *classes, number, error = text.splitlines()
    assert classes == ["  new-1  70 images", "  new-2  30 images", "  new-3  20 images"]
    page = (Path(__file__).parents[2] / "docs" / "unsorted.md").read_text()
    assert f"model2: {first}\n  …\n{number}\n{error}\n" in page
