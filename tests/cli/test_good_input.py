"""What must not be refused."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from PIL import Image

from .place import DEMO, DISCOVER, EVALUATE, FIT, PREDICT, RUN, Place, Words, digit_images, save_digits


def only_json(text: str) -> dict[str, Any]:
    """The text as one JSON object without NaN."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(constant)

    content: dict[str, Any] = json.loads(text, parse_constant=refuse)
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        (FIT, {"model", "images", "classes", "backbone"}),
        (DISCOVER, {"model", "images", "new", "old"}),
        (PREDICT, {"model", "predictions"}),
        (EVALUATE, {"images", "joint", "original_rt"}),
        (RUN, {"method", "dataset", "split", "seed", "hardware", "seconds", "stage_one", "steps"}),
        (DEMO, {"method", "dataset", "split", "seed", "hardware", "seconds", "stage_one", "steps"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_json_is_one_object_and_nothing_else(place: Place, command: Words, keys: set[str]) -> None:
    content = only_json(place.well(*command, "--json").out)
    assert keys <= content.keys()
    if command in (RUN, DEMO):
        assert content == only_json(Path("made/metrics.json").read_text())


@pytest.mark.parametrize("out", [None, "table.csv"])
def test_predictions_are_a_table(place: Place, out: str | None) -> None:
    answer = place.well(*PREDICT, *([] if out is None else ["--out", out]))
    text = answer.out if out is None else Path(out).read_text()
    assert text.splitlines()[0] == "path,class,probability,kind"
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["path"] for row in rows] == sorted(str(path) for path in Path("unsorted").iterdir())
    assert all(1 / 5 <= float(row["probability"]) <= 1 for row in rows)
    assert all(row["kind"] == ("new" if row["class"].startswith("new-") else "old") for row in rows)


NAMES = ("a, b", 'the "best" one', "猫 und Kätzchen", " spaces ", "it's", "50% off; $HOME", "<b>")


def test_names_of_any_kind(place: Place) -> None:
    for digit, name in enumerate(NAMES):
        shutil.copytree("checked/" + str(digit % 5), Path("any where", name))
    place.well("fit", "any where", "--out", "mo del", "--epochs", "1")
    assert json.loads(Path("mo del/model.json").read_text())["class_names"] == sorted(NAMES)
    rows = list(csv.DictReader(io.StringIO(place.well("predict", "mo del", "any where").out)))
    assert {Path(row["path"]).parent.name for row in rows} == set(NAMES)
    assert {row["class"] for row in rows} <= set(NAMES)
    assert place.well("evaluate", "mo del", "any where").out
    place.well("discover", "mo del", *DISCOVER[2:])


@pytest.mark.parametrize("inside", ["a class", "its images"])
def test_names_that_are_no_text(place: Place, inside: str) -> None:
    """Old archives bring names in other encodings."""
    name = os.fsdecode(b"caf\xe9")
    try:
        if inside == "a class":
            Path("known/0").rename(Path("known", name))
        else:
            Path("known/0/0.png").rename(Path("known/0", f"{name}.png"))
    except OSError:
        pytest.skip("this file system takes no such names")
    assert place.call(*FIT).code in (0, 2)
    answer = place.call("predict", "model2", "known", "--out", "table.csv")
    assert answer.code in (0, 2)
    assert Path("table.csv").exists() == (answer.code == 0)
    assert len(answer.err.splitlines()) <= 1


def test_images_of_all_kinds(place: Place) -> None:
    for digit in range(2):
        digits = digit_images(digit, 0, 8)
        folder = Path("mixed", str(digit))
        folder.mkdir(parents=True)
        digits[0].convert("RGBA").save(folder / "alpha.png")
        digits[1].convert("LA").save(folder / "gray-alpha.png")
        digits[2].convert("P").save(folder / "palette.gif")
        digits[3].convert("1").save(folder / "bilevel.png")
        digits[4].resize((31, 17)).convert("CMYK").save(folder / "print.jpg")
        digits[5].resize((9, 40)).save(folder / "tall.bmp")
        digits[6].resize((100, 100)).convert("RGB").save(folder / "large.webp")
        Image.fromarray(np.asarray(digits[7]).astype(np.uint16) * 257).save(folder / "sixteen-bit.png")
    answer = place.well("fit", "mixed", *FIT[2:])
    assert "warning" not in answer.err
    predictions = only_json(place.well("predict", "made", "mixed", "--json").out)["predictions"]
    assert len(predictions) == 16
    assert all(0 <= row["probability"] <= 1 for row in predictions)
    place.well("discover", "made", "mixed", "--novel", "2", "--epochs", "1", "--out", "made2")


def test_arrays_from_start_to_end(place: Place) -> None:
    images = np.stack([np.asarray(image) for digit in range(5) for image in digit_images(digit, 0, 8)])
    labels = np.repeat(np.arange(5), 8)
    np.savez("labelled.npz", images=images[labels < 3], labels=labels[labels < 3])
    np.savez("unlabelled.npz", images=images[labels >= 3])
    np.savez("all.npz", images=images, labels=labels)
    place.well("fit", "labelled.npz", "--out", "made", "--epochs", "1")
    place.well("discover", "made", "unlabelled.npz", "--novel", "2", "--epochs", "1", "--out", "made2")
    rows = only_json(place.well("predict", "made2", "all.npz", "--json").out)["predictions"]
    assert [row["path"] for row in rows] == [str(index) for index in range(40)]
    assert only_json(place.well("evaluate", "made2", "all.npz", "--json").out)["images"] == 40
    place.refused("fit", "unlabelled.npz", "--out", "other", words=("unlabelled.npz", "labels"))


def test_a_model_never_holds_what_is_no_number(place: Place) -> None:
    answer = place.call(*FIT, "--set", "fit.learning_rate=1e6")
    assert answer.code == 2
    assert "learning rate" in answer.err.splitlines()[-1]
    assert not Path("made").exists()


@pytest.mark.parametrize("kept", [("--from-disk",), ("--cache", "decoded")], ids=["from-disk", "cache"])
def test_where_images_are_kept_changes_nothing(place: Place, kept: Words) -> None:
    place.well(*FIT)
    place.well(*FIT, *kept, "--out", "again")
    for name in ("weights", "prototypes"):
        file = f"{name}.safetensors"
        assert Path("made", file).read_bytes() == Path("again", file).read_bytes()
    assert place.well(*PREDICT, *kept).out == place.well(*PREDICT).out
    assert only_json(place.well(*EVALUATE, *kept, "--json").out) == only_json(place.well(*EVALUATE, "--json").out)


def test_a_folder_with_one_class_is_scored(place: Place) -> None:
    """As after ``--novel 1``: what was found is matched with the one class that it is."""
    save_digits(Path("one"), range(3, 4))
    content = only_json(place.well("evaluate", "model2", "one", "--json").out)
    assert (content["images"], content["joint"]["old"]) == (8, None)
    assert content["joint"]["new"] is not None
    place.well("evaluate", "model2", "checked", "--match", "one")
    place.refused("fit", "one", "--out", "made", words=("one", "class", "at least two"))
