"""A corrected folder of class folders, or an export of Label Studio, in a saved model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hoarfrost import Learner
from hoarfrost.data.label_studio import read_export
from hoarfrost.errors import InputError
from hoarfrost.models.model import Model

from .place import Place
from .test_move import counts, learned, moving  # noqa: F401 - fixtures


def test_a_sorted_folder_in_which_files_were_moved(moving: Place) -> None:  # noqa: F811
    before = counts()
    moving.well("name", "model2", "new-2=3/4")
    moving.well("sort", "model2", "unsorted", "--into", "sorted", "--threshold", "0")
    shutil.rmtree("sorted/unsure", ignore_errors=True)
    Path("sorted/unsure").mkdir()
    (file,) = list(Path("sorted/3_4").iterdir())[:1]
    file.rename(Path("sorted/unsure") / file.name)
    Path("sorted/four").mkdir()
    for path in sorted(Path("sorted").glob("[0-9n]*/4-*.png"))[:3]:
        path.rename(Path("sorted/four") / path.name)
    held = {folder.name: len(list(folder.iterdir())) for folder in Path("sorted").iterdir()}
    answer = moving.well("learn", "model2", "sorted", "--json", "--folder", "unsorted")
    told = json.loads(answer.out)
    assert told["new"] == ["four"]
    assert told["images"] == sum(count for name, count in held.items() if name not in ("unsure", ".sorted"))
    assert told["classes"] == ["0", "1", "2", "new-1", "3/4", "four"], "the folder 3_4 is that of the class 3/4"
    after = counts()
    assert after[5] == 3
    assert sum(after) - sum(before) == told["added"]
    again = json.loads(moving.well("learn", "model2", "sorted", "--json", "--folder", "unsorted").out)
    assert (again["added"], again["moved"], again["same"]) == (0, 0, told["images"])
    assert (counts(), again["changed"]) == (after, 0), "nothing is counted twice"
    moving.well("undo", "model2")
    answer = moving.well("undo", "model2")
    assert all(line.startswith("undone: ") for line in answer.out.splitlines())
    assert counts() == before


def test_a_folder_of_other_images_refreshes_known_classes(moving: Place) -> None:  # noqa: F811
    before = counts()
    told = moving.well("learn", "model2", "known").out.splitlines()
    assert (
        told[0] == "36 images of 3 classes: 0 more are counted, 0 moved from another class, 36 were counted so before"
    )
    assert counts() == before
    for path in Path("known/1").iterdir():
        path.rename(Path("known/0") / f"one-{path.name}")
    moving.well("learn", "model2", "known")
    assert np.subtract(counts(), before).tolist() == [12, -12, 0, 0, 0]


def test_the_same_from_python(moving: Place) -> None:  # noqa: F811
    files = sorted(Path("unsorted").glob("4-*.png"))
    learner = Learner.load("model2", "cpu")
    learner.correct(files, ["four"] * 6 + ["0"] * 6).save("saved")
    assert Model.load(Path("saved")).classes.names[-1] == "four"
    assert counts("saved")[5] == 6
    learner.undo()
    assert learner.class_names == ("0", "1", "2", "new-1", "new-2")
    with pytest.raises(InputError, match="labels are needed"):
        learner.correct(files)


def task(image: str, *choices: str, **more: Any) -> dict[str, Any]:
    result = [{"value": {"choices": list(choices)}, "type": "choices"}] if choices else []
    return {"data": {"image": image}, "annotations": [{"result": result, **more}]}


def test_an_export_of_label_studio(moving: Place) -> None:  # noqa: F811
    tasks = [
        task("/data/upload/3/1a2b3c4d-4-0.png", "four"),
        task("/data/local-files/?d=unsorted/4-1.png", "four"),
        task("https://somewhere.org/unsorted/4%2D2.png", "0"),
        task("gone.png", "four", was_cancelled=True),
        task("gone.png", "unsure"),
        task("gone.png"),
    ]
    Path("export.json").write_text(json.dumps(tasks))
    told = json.loads(moving.well("learn", "model2", "export.json", "--root", "unsorted", "--json").out)
    assert (told["images"], told["new"]) == (3, ["four"])
    Path("min.json").write_text(json.dumps([{"id": 1, "image": "/data/upload/4-0.png", "choice": "0"}]))
    assert read_export(Path("min.json"), Path("unsorted")) == ([Path("unsorted/4-0.png")], ["0"])


BAD: dict[str, tuple[Any, str]] = {
    "no JSON": (None, "is not JSON"),
    "no list": ({"a": 1}, "not a list of tasks"),
    "no choice": ([task("unsorted/4-0.png")], "no image with a class"),
    "no image": ([{"choice": "a"}], "task 1 has no 'image'"),
    "no file": ([task("unsorted/9-9.png", "a")], "9-9.png"),
    "outside": ([task("../../../../etc/passwd", "a")], "--root"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_export_that_cannot_be_used(moving: Place, name: str) -> None:  # noqa: F811
    content, word = BAD[name]
    Path("export.json").write_text("[" if content is None else json.dumps(content))
    moving.refused("learn", "model2", "export.json", words=(word,))
