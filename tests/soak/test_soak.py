"""Some processes on one model folder for two minutes, and that the checks would notice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hoarfrost.cli import main
from hoarfrost.models.classes import ClassTable
from hoarfrost.models.description import change_classes, read_classes

from ..cli.place import save_digits
from .checks import wrong_in

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="limits and ends of processes as Linux has them")
def test_what_was_said_to_be_done_is_done() -> None:
    """In a process of its own, which forks: the tests' process has threads, and those do not go with it."""
    command = [sys.executable, "-m", "tests.soak", "--minutes", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " 0 wrong" in ended.stdout
    for verb in ("name", "undo", "sort", "page undo", "review"):
        assert f"\n{verb:14}" in f"\n{ended.stdout}", "too little was done"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with two new classes."""
    folder = tmp_path_factory.mktemp("soak")
    save_digits(folder / "known", range(2))
    save_digits(folder / "unsorted", range(2, 4), flat=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", "known", "--out", "model", "--method", "kmeans", "--epochs", "1"]) == 0
        assert main(["discover", "model", "unsorted", "--out", "model2", "--novel", "2", "--epochs", "1"]) == 0
    return folder / "model2"


@pytest.fixture
def decided(model: Path, tmp_path: Path) -> tuple[Path, ClassTable, list[dict[str, Any]]]:
    """A folder in which two decisions were made and one image was sorted; the classes before; what was answered."""
    folder = tmp_path / "soak"
    shutil.copytree(model, folder / "model2")
    before = read_classes(folder / "model2")
    change_classes(folder / "model2", lambda table: table.rename("new-1", "bee"))
    change_classes(folder / "model2", lambda table: table.reject("new-2"))
    save_digits(folder / "unsorted", range(1), count=1, flat=True)
    save_digits(folder / "sorted", range(1), count=1)
    (folder / "sorted" / ".sorted").mkdir()
    for name in ("config.json", "images.jsonl"):
        (folder / "sorted" / ".sorted" / name).touch()
    told = [{"did": "name", "code": 0, "name": "bee"}, {"did": "reject", "code": 0}, {"did": "sort", "code": 0}]
    return folder, before, told


Decided = tuple[Path, ClassTable, list[dict[str, Any]]]


def test_all_is_well(decided: Decided) -> None:
    folder, before, told = decided
    assert list(wrong_in(folder, before, told)) == []


def test_a_lost_decision_is_noticed(decided: Decided) -> None:
    folder, before, told = decided
    page = {"did": "page undo", "code": 200, "version": "0123"}
    found = list(wrong_in(folder, before, [*told, {"did": "name", "code": 0, "name": "wasp"}, page]))
    assert "answered, and not in the record: wasp" in found
    assert "answered on the page, and not in the record: 0123" in found
    assert "4 decisions were answered, and the record has 2" in found


def test_a_decision_that_nobody_made_is_noticed(decided: Decided) -> None:
    folder, before, told = decided
    assert list(wrong_in(folder, before, told[1:])) == ["1 decisions were answered, and the record has 2"]


def test_a_record_that_is_not_the_models_is_noticed(decided: Decided) -> None:
    folder, before, told = decided
    record = folder / "model2" / "decisions.jsonl"
    first, second = record.read_text().splitlines()
    record.write_text(f"{first}\n")
    assert "the model does not have what its record says" in list(wrong_in(folder, before, told))
    record.write_text(f"{first}\n{json.dumps(json.loads(second) | {'state': 'another'})}\n")
    assert "line 2 leads to another state than it says" in list(wrong_in(folder, before, told))


def test_doubled_images_and_litter_are_noticed(decided: Decided) -> None:
    folder, before, told = decided
    (image,) = (folder / "sorted").rglob("*.png")
    shutil.copy(image, image.with_name("again.png"))
    (folder / "model2" / ".model.json.part").touch()
    (folder / "sorted" / ".sorted" / "waiting").mkdir()
    assert list(wrong_in(folder, before, told)) == [
        "sorted images doubled: 1, lost: 0",
        "left behind in the note of sorted images: ['config.json', 'images.jsonl', 'waiting']",
        "left behind: ['model2/.model.json.part']",
    ]
