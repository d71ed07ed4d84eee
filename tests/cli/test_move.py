"""Images that are moved from one class of a saved model to another, and classes that are split."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from hoarfrost import Learner
from hoarfrost.cli import main
from hoarfrost.data.unsure import UNSURE_BELOW
from hoarfrost.models.model import Model

from .. import forked
from .place import Place, Words, contents, named, save_digits


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of class statistics, and its images."""
    folder = tmp_path_factory.mktemp("learned")
    save_digits(folder / "known", range(3), count=12)
    save_digits(folder / "unsorted", range(1, 5), first=12, count=12, flat=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", "known", "--out", "model", "--method", "hoarfrost", "--epochs", "10"]) == 0
        assert main(["discover", "model", "unsorted", "--out", "model2", "--novel", "2", "--epochs", "10"]) == 0
    return folder


@pytest.fixture
def moving(learned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Place:
    shutil.copytree(learned, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return Place(tmp_path / "place", capsys)


def counts(folder: str = "model2") -> list[int]:
    found: list[int] = Model.load(Path(folder)).settled.statistics.count.tolist()
    return found


def predicted(place: Place, *paths: str, threshold: float = UNSURE_BELOW) -> dict[str, str]:
    answer = place.well("predict", "model2", *paths, "--threshold", str(threshold))
    return {Path(row["path"]).name: row["class"] for row in csv.DictReader(io.StringIO(answer.out))}


def counted_for(label: str) -> list[Path]:
    """Images of the folder that are part of the statistics of a class."""
    learner = Learner.load("model2", "cpu")
    paths = sorted(Path("unsorted").iterdir())
    labels = learner.model.counted.labels_of(learner.evidence(paths).digests)
    return [path for path, own in zip(paths, labels, strict=True) if own == [learner.class_names.index(label)]]


def test_an_image_is_taken_from_the_class_that_it_was_counted_for(moving: Place) -> None:
    before, files = counts(), [str(path) for path in counted_for("new-1")[:3]]
    answer = moving.well("move", "model2", *files, "new-2", "--folder", "unsorted")
    first, second, *_ = answer.out.splitlines()
    assert first == "3 images are moved to new-2 (3 counted for new-1 before)"
    assert second.endswith(("other images changed class", "other image changed class"))
    assert np.subtract(counts(), before).tolist() == [0, 0, 0, -3, 3]
    assert set(predicted(moving, *files).values()) == {"new-2"}, "where a person has put them"
    moving.well("move", "model2", files[0], "1")
    assert np.subtract(counts(), before).tolist() == [0, 1, 0, -3, 2], "from where it is now"
    moving.well("move", "model2", files[0], "1")
    assert np.subtract(counts(), before).tolist() == [0, 1, 0, -3, 2], "not twice"


def test_an_image_that_was_never_counted_is_one_more(moving: Place) -> None:
    save_digits(Path("more"), range(1), first=30, count=1, flat=True)
    before = counts()
    assert moving.well("move", "model2", "more", "0").out.startswith("1 image is moved to 0\n")
    assert np.subtract(counts(), before).tolist() == [1, 0, 0, 0, 0]
    known = str(next(Path("known/2").iterdir()))
    moving.well("move", "model2", known, "new-1")
    assert np.subtract(counts(), before).tolist() == [1, 0, -1, 1, 0], "images of fit are known again, too"


def test_a_new_name_makes_a_class_that_is_one_from_then_on(moving: Place) -> None:
    fours = [str(path) for path in sorted(Path("unsorted").glob("4-*.png"))]
    told = json.loads(moving.well("move", "model2", *fours[:6], "four", "--json", "--folder", "unsorted").out)
    assert told["classes"] == ["0", "1", "2", "new-1", "new-2", "four"]
    assert told["moved"] == 6
    assert [line.split() for line in moving.well("classes", "model2").out.splitlines()][-1] == ["four", "your", "moves"]
    assert counts()[5] == 6
    found = predicted(moving, *fours, threshold=0)
    assert sum(name == "four" for name in found.values()) > 6, "images that nobody moved are like those"
    moving.well("name", "model2", "four=vier")
    moving.well("sort", "model2", "unsorted", "--into", "sorted")
    assert {Path(path).name for path in fours[:6]} <= {path.name for path in Path("sorted/vier").iterdir()}
    moving.well("merge", "model2", "new-1", "vier")
    moving.well("discover", "model2", "unsorted", "--out", "model3", "--novel", "1", "--epochs", "1")
    assert json.loads(Path("model3/model.json").read_text())["class_names"][3:5] == ["vier", "new-2"]
    assert counts("model3")[5] == 6
    own = Learner.load("model3", "cpu").predictions([Path(path) for path in fours[:6]])
    assert set(own.names) == {"vier"}, "what people said of single images lasts"


def test_undo_takes_a_move_back_to_the_last_bit(moving: Place) -> None:
    before, probabilities = (
        contents(Path("model2")),
        Learner.load("model2", "cpu").predictions("unsorted").probabilities,
    )
    files = [str(path) for path in counted_for("new-2")[:2]]
    moving.well("move", "model2", *files, "new-1")
    moving.well("move", "model2", *files[:1], "five")
    assert not np.array_equal(Learner.load("model2", "cpu").predictions("unsorted").probabilities, probabilities)
    assert moving.well("undo", "model2").out == "undone: 1 image is now the class five\n"
    assert moving.well("undo", "model2").out == "undone: 2 images are moved to new-1\n"
    after = contents(Path("model2"))
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"decisions.jsonl", "moved.safetensors"}
    assert np.array_equal(Learner.load("model2", "cpu").predictions("unsorted").probabilities, probabilities)


def test_the_same_from_python(moving: Place) -> None:
    files = list(counted_for("new-1")[:2])
    learner = Learner.load("model2", "cpu")
    before = learner.model
    learner.move(files, "new-2").move(files[:1], "six")
    changes = learner.changes(before, learner.evidence("unsorted"))
    assert changes is not None
    assert changes.images == 46
    learner.save("saved")
    moving.well("move", "model2", *map(str, files), "new-2")
    moving.well("move", "model2", str(files[0]), "six")
    for one, other in zip(
        Model.load(Path("saved")).settled.statistics.tensors().values(),
        Model.load(Path("model2")).settled.statistics.tensors().values(),
        strict=True,
    ):
        assert one.equal(other)
    saved = Learner.load("saved", "cpu").undo().undo()
    assert saved.model.classes == before.classes


def test_a_split_makes_classes_of_their_own_statistics(moving: Place) -> None:
    moving.well("merge", "model2", "new-2", "new-1")
    before, names = counts(), predicted(moving, "unsorted")
    told = json.loads(moving.well("split", "model2", "new-1", "--folder", "unsorted", "--json").out)
    groups = told["groups"]
    assert list(groups) == ["new-1", "new-3"]
    assert groups["new-1"] >= groups["new-3"]
    assert sum(groups.values()) == sum(name == "new-1" for name in names.values())
    assert counts()[5] == groups["new-3"]
    first = {file for file, name in predicted(moving, "unsorted").items() if name == "new-3"}
    assert len(first) >= groups["new-3"]
    assert moving.well("undo", "model2").out.startswith("undone:")
    assert counts() == before
    answer = moving.well("split", "model2", "new-1", "--into", "3", "--folder", "unsorted")
    assert "new-4 is a new class of" in answer.out
    moving.well("undo", "model2")
    assert counts() == before
    assert predicted(moving, "unsorted") == names


REFUSED: list[tuple[Words, Words]] = [
    (("move", "model2", "nowhere.png", "new-1"), ("nowhere.png", "check the path")),
    (("move", "model2", "known/0/0.png", "unsure"), ("'unsure'", "reserved")),
    (("move", "model2", "model2/model.json", "new-1"), ("model.json",)),
    (("move", "model2", "known/0/0.png", ""), ("empty", "choose another")),
    (("move", "model2", "known/0/0.png"), ("CLASS",)),
    (("move", "nowhere", "known/0/0.png", "new-1"), ("nowhere",)),
    (("split", "model2", "new-9"), ("new-9", "choose from")),
    (("split", "model2", "new-1"), ("--folder",)),
    (("split", "model2", "new-1", "--into", "4"), ("--into", "choose from")),
    (("split", "model2", "0", "--folder", "few"), ("too few", "--folder")),
]


@pytest.mark.parametrize(("arguments", "words"), named(REFUSED))
def test_what_is_refused_changes_nothing(moving: Place, arguments: Words, words: Words) -> None:
    save_digits(Path("few"), range(1), first=40, count=3, flat=True)
    moving.refused(*arguments, words=words)


def test_a_model_that_decides_by_heads_is_refused(place: Place) -> None:
    place.refused("move", "model2", "known/0/0.png", "new-1", words=("frost", "trained heads", "choose"))


def test_a_model_of_an_earlier_version_counts_what_is_moved_as_new(moving: Place) -> None:
    before, file = counts(), str(counted_for("new-1")[0])
    Path("model2/images.safetensors").unlink()
    moving.well("move", "model2", file, "new-2")
    assert np.subtract(counts(), before).tolist() == [0, 0, 0, 0, 1]


def test_features_that_are_gone_are_said(moving: Place) -> None:
    moving.well("move", "model2", "unsorted/4-0.png", "four")
    Path("model2/moved.safetensors").unlink()
    moving.refused("predict", "model2", "unsorted", words=("model2", "moved.safetensors", "damaged"))
    moving.well("undo", "model2")
    moving.well("predict", "model2", "unsorted")


@pytest.fixture
def kills() -> list[str]:
    """Ways to die at the n-th file that takes its place, just before and just after."""
    kill = f"os.kill(os.getpid(), {int(signal.SIGKILL)})"
    ways = []
    for number in range(2):
        for when in (kill, f"(replace(*a), {kill})"):
            ways.append(f"lambda *a: {when} if count.append(1) or len(count) > {number} else replace(*a)")
    return ways


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be killed")
def test_a_kill_leaves_the_model_before_or_after(moving: Place, kills: list[str]) -> None:
    file = str(counted_for("new-1")[0])
    before = counts()
    for when in kills:
        code = (
            "import os, pathlib\nfrom hoarfrost.cli import main\nreplace, count = pathlib.Path.replace, []\n"
            f"pathlib.Path.replace = {when}\nmain(['move', 'model2', {file!r}, 'new-2', '--device', 'cpu'])"
        )
        assert forked.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
        assert np.subtract(counts(), before).tolist() in ([0] * 5, [0, 0, 0, -1, 1])
    assert np.subtract(counts(), before).tolist() == [0, 0, 0, -1, 1]
    moving.well("undo", "model2")
    assert counts() == before
