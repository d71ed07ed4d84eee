"""Images that cannot be used: one clear line, exit code 2, and every file around as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hoarfrost.cli import parse

from .place import DISCOVER, EVALUATE, FIT, PREDICT, RUN, Build, Place, Words, cut, save_digits


def no_images(folder: Path) -> None:
    for name in ("a/notes.txt", "b/table.csv", "b/empty.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("" if "empty" in name else "not an image")


def cut_images(folder: Path) -> None:
    save_digits(folder, range(2), count=2)
    for path in folder.glob("*/*.png"):
        cut(path)


def small_images(folder: Path) -> None:
    (folder / "1").mkdir(parents=True)
    Image.new("L", (5, 9)).save(folder / "1" / "little.png")


def one_class(folder: Path) -> None:
    save_digits(folder, range(1))


def one_readable_class(folder: Path) -> None:
    one_class(folder)
    (folder / "second").mkdir()
    (folder / "second" / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")


WITH_IMAGES = {
    "fit": (*FIT[:1], "bad", *FIT[2:]),
    "discover": (*DISCOVER[:2], "bad", *DISCOVER[3:]),
    "predict": (*PREDICT[:2], "bad"),
    "evaluate": (*EVALUATE[:2], "bad"),
    "evaluate --match": (*EVALUATE, "--match", "bad"),
    "run": (*RUN, "--data", "bad"),
}


@pytest.mark.parametrize("verb", WITH_IMAGES)
@pytest.mark.parametrize(
    ("build", "words"),
    [
        pytest.param(lambda _: None, ("there is no", "bad"), id="missing"),
        pytest.param(Path.mkdir, ("bad",), id="empty"),
        pytest.param(lambda bad: bad.write_text("text"), ("bad",), id="a file"),
        pytest.param(no_images, ("bad", "3 files", "a/notes.txt", "b/empty.png"), id="no images"),
        pytest.param(cut_images, ("bad", "4 files", "0/0.png"), id="cut images"),
        pytest.param(small_images, ("1/little.png", "side below 8"), id="too small"),
    ],
)
def test_images_that_cannot_be_used(place: Place, verb: str, build: Build, words: Words) -> None:
    build(place.folder / "bad")
    place.refused(*WITH_IMAGES[verb], words=words)


@pytest.mark.parametrize("verb", ["fit", "run"])
@pytest.mark.parametrize("build", [one_class, one_readable_class])
def test_one_class_is_not_enough(place: Place, verb: str, build: Build) -> None:
    build(place.folder / "bad")
    place.refused(*WITH_IMAGES[verb], words=("bad", "one class", "'0'", "two"))


def test_images_without_class_folders(place: Place) -> None:
    place.refused("fit", "unsorted", *FIT[2:], words=("unsorted", "sub-folder"))


@pytest.mark.parametrize("verb", ["fit", "predict"])
def test_some_unreadable_files_are_named_counted_and_left_out(place: Place, verb: str) -> None:
    save_digits(place.folder / "bad", range(3))
    cut(place.folder / "bad" / "1" / "3.png")
    (place.folder / "bad" / "2" / "notes.txt").write_text("not an image")
    Image.new("L", (5, 9)).save(place.folder / "bad" / "0" / "little.png")
    answer = place.well(*WITH_IMAGES[verb], "--json")
    (warning,) = (line for line in answer.err.splitlines() if "epoch" not in line)
    assert warning.startswith("hoarfrost: warning: ")
    for word in ("bad", "2 unreadable files", "1/3.png", "2/notes.txt", "1 image with a side below 8", "0/little.png"):
        assert word in warning
    content = json.loads(answer.out)
    assert (content["images"] if verb == "fit" else len(content["predictions"])) == 3 * 8 - 1


@pytest.mark.parametrize("verb", WITH_IMAGES)
@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        pytest.param(None, ("bad.npz", "not a .npz file"), id="garbage"),
        pytest.param({"other": np.zeros(3)}, ("bad.npz", "other", "'images'"), id="no images"),
        pytest.param({"images": np.zeros((4, 9, 9)), "labels": np.arange(4)}, ("bad.npz", "uint8"), id="floats"),
        pytest.param(
            {"images": np.zeros((4, 5, 9), np.uint8), "labels": np.arange(4)}, ("bad.npz", "9x5"), id="too small"
        ),
    ],
)
def test_arrays_that_cannot_be_used(place: Place, verb: str, arrays: Mapping[str, Any] | None, words: Words) -> None:
    if arrays is None:
        Path("bad.npz").write_bytes(b"PK\x03\x04 and then nothing of use")
    else:
        np.savez("bad.npz", **arrays)
    place.refused(*(f"{word}.npz" if word == "bad" else word for word in WITH_IMAGES[verb]), words=words)


def test_a_missing_data_set_names_a_command_that_works(place: Place) -> None:
    line = place.refused("run", "--dataset", "cifar10", "--data", "my data", "--out", "made", words=("cifar10",))
    (command,) = re.findall(r"hoarfrost (run .*--download.*)", line)
    parsed = parse([word.strip("'") for word in re.findall(r"'[^']*'|\S+", command)])
    assert (parsed.dataset, parsed.data, parsed.download) == ("cifar10", "my data", True)


def test_what_was_left_out_stands_on_the_pages(place: Place) -> None:
    for folder in ("known/0", "unsorted"):
        Path(folder, "<b>.jpg").write_text("no image")
    for command in (FIT, (*DISCOVER, "--out", "made2")):
        place.well(*command)
        page = Path(command[command.index("--out") + 1] if command is FIT else "made2", "report.html").read_text()
        assert "1 unreadable file" in page
        assert "&lt;b&gt;.jpg" in page
        assert "<b>.jpg" not in page
