"""What is worth a second look is said in a line each, and nothing where all is well."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from hoarfrost.data.doubts import doubts
from hoarfrost.data.folder import read_folder
from hoarfrost.data.images import ImageSet


def save(folder: Path, classes: dict[str, int]) -> None:
    generator = np.random.default_rng(0)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for index in range(count):
            Image.fromarray(generator.integers(0, 256, (16, 16), dtype=np.uint8)).save(folder / name / f"{index}.png")


def lines(folder: Path) -> list[str]:
    return doubts(read_folder(folder, labelled=True), folder)


def test_nothing_is_said_where_all_is_well(tmp_path: Path) -> None:
    save(tmp_path, {"ant": 5, "bee": 50})
    assert lines(tmp_path) == []


def test_tiny_and_uneven_classes_and_names(tmp_path: Path) -> None:
    save(tmp_path, {"Rose": 2, "rose": 4, "elm": 1, "oak": 3, "ash": 45})
    assert lines(tmp_path) == [
        "4 classes have fewer than 5 images (elm 1, Rose 2, oak 3 and 1 more): their predictions will be unreliable",
        "class sizes are very uneven: ash has 45 images, elm has 1",
        "class names that differ only in upper and lower case: Rose and rose; are they one class?",
    ]


def test_copies_within_and_between_classes(tmp_path: Path) -> None:
    save(tmp_path, {"ant": 6, "bee": 6})
    for name in ("ant/copy.png", "ant/deep/copy.png", "bee/copy.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(tmp_path / "ant/0.png", tmp_path / name)
    other = bytearray((tmp_path / "ant/1.png").read_bytes())  # of the same size
    (tmp_path / "bee/other.png").write_bytes(bytes(other))
    Image.open(tmp_path / "ant/1.png").transpose(Image.Transpose.ROTATE_90).save(tmp_path / "ant/turned.png")
    assert lines(tmp_path) == [
        "the same image is in more than one class: bee/copy.png is ant/0.png, bee/other.png is ant/1.png;"
        " one label must be wrong",
        "duplicate images within a class: ant/copy.png is ant/0.png, ant/deep/copy.png is ant/0.png",
    ]


def test_copies_among_arrays() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 1), dtype=np.uint8)
    pixels[7] = pixels[2]
    images = ImageSet(pixels, np.repeat([0, 1], 6), ("ant", "bee"))
    assert doubts(images, Path("any.npz")) == [
        "the same image is in more than one class: image 7 is image 2; one label must be wrong"
    ]
