"""Folders that commit 2142e1f wrote, on the digits: they load, predict the same and are gone on with.

``format-1.tar.xz`` holds a model after one discovery, a run that was killed in its discovery, and what that commit
predicted and scored (CPU, one thread; two epochs a stage).
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hoarfrost import Learner
from hoarfrost.cli import main
from hoarfrost.data.datasets import load_dataset


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).with_name("format-1.tar.xz")) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def expected(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return content


def test_a_model_predicts_the_same_ids(earlier: Path) -> None:
    _, test = load_dataset("digits", None, size=16)
    learner = Learner.load(earlier / "model", "cpu")
    ids = expected(earlier)["predicted"]
    assert learner.predictions(test).ids.tolist() == ids
    assert learner.predict(test).tolist() == [learner.class_names[k] for k in ids], "its labels were not kept"


def test_a_model_goes_on_discovering(earlier: Path) -> None:
    learner = Learner.load(earlier / "model", "cpu")
    images = np.random.default_rng(0).integers(0, 256, (24, 16, 16), dtype=np.uint8)
    assert learner.discover(images, novel=2, only_new=True).novel_per_step == (5, 2)


def test_a_killed_run_is_gone_on_with(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--dataset", "digits", "--split", "5-5", "--method", "frost", "--fit-epochs", "2", "--epochs", "2"]
    assert main(["run", *options, "--device", "cpu", "--out", str(earlier / "run"), "--resume", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    epochs = [json.loads(line)["epoch"] for line in (earlier / "run" / "log.jsonl").read_text().splitlines()]
    assert epochs == [0, 1, 0, 1], "the killed epochs are not repeated"
    # On the processor that it was made on the weights are the same byte for byte; others round otherwise.
    for key, value in expected(earlier)["metrics"].items():
        assert metrics["steps"][0]["joint"][key] == pytest.approx(value, abs=3), key
