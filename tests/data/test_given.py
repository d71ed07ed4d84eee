"""What people give as images from Python: each kind gives the same pixels, or is refused by name in one line."""

from __future__ import annotations

from collections import UserList
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from hoarfrost import InputError, Learner
from hoarfrost.data.datasets import read_images
from hoarfrost.data.given import Pictures, told

COUNT = 12
LABELS = [k % 2 for k in range(COUNT)]


def pictures(*, gray: bool = False, equal: bool = False) -> list[Image.Image]:
    """Of different sizes; those of label 1 are brighter."""
    generator, made = np.random.default_rng(0), []
    for index, label in enumerate(LABELS):
        shape = (20, 24) if equal else (16 + index, 40 - index)
        pixels = generator.integers(100 * label, 100 * label + 100, shape if gray else (*shape, 3), dtype=np.uint8)
        made.append(Image.fromarray(pixels))
    return made


def saved(folder: Path, images: list[Image.Image]) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"{index:02}.png" for index in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        image.save(path)
    return paths


class Shown(Dataset[Any]):
    """A data set of PyTorch, whose items are an image and a label."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Endless(Shown):
    """It has an item at every position, and counts how many were asked for."""

    asked = 0

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return self.items[index % len(self.items)]


class Short(Shown):
    def __len__(self) -> int:
        return len(self.items) + 1


class NoLength(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return np.zeros((8, 8), dtype=np.uint8)


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(pictures())


def test_arrays_of_one_size_are_as_their_stack() -> None:
    arrays = [np.array(image) for image in pictures(equal=True)]
    found = told(arrays)
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, np.stack(arrays))


class Itemed:
    """It can be asked for items, and nobody knows how many there are."""

    def __getitem__(self, index: int) -> Any:
        return np.zeros((8, 8), dtype=np.uint8)


def read(given: Any, **options: Any) -> np.ndarray[Any, Any]:
    found = told(given)
    assert isinstance(found, Pictures)
    return found.read(**options)[0].pixels(slice(None))


def objects(items: list[Any]) -> np.ndarray[Any, Any]:
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made


def first_last(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


OF_IMAGES: dict[str, Callable[[list[Image.Image]], Any]] = {
    "list": lambda images: images,
    "tuple": tuple,
    "array of objects": objects,
    "arrays": lambda images: [np.array(image) for image in images],
    "tensors": lambda images: [first_last(image) for image in images],
    "another sequence": UserList,
    "pairs": lambda images: list(zip(images, LABELS, strict=True)),
    "data set": lambda images: Shown(list(zip(images, LABELS, strict=True))),
    "data set of images": lambda images: Shown(images),
    "data set of dictionaries": lambda images: Shown([{"image": image, "label": 1} for image in images]),
    "data set of tensors": lambda images: Shown([(first_last(image), torch.tensor(1)) for image in images]),
    "endless data set": lambda images: Endless(images),
    "part of a data set": lambda images: Subset(Shown([*images, *images]), range(len(images))),
}


@pytest.mark.parametrize("kind", OF_IMAGES)
def test_images_of_different_sizes_are_read_as_files_are(kind: str, tmp_path: Path) -> None:
    images = pictures()
    saved(tmp_path / "folder", images)
    for options in ({}, {"size": 16, "channels": 1}, {"size": 24}):
        expected = read_images(tmp_path / "folder", labelled=False, **options)  # type: ignore[arg-type]
        assert np.array_equal(read(OF_IMAGES[kind](images), **options), expected.pixels(slice(None)))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "I;16", "CMYK"])
def test_modes_of_pillow_are_read_as_files_are(mode: str, tmp_path: Path) -> None:
    base = pictures(gray=mode == "I;16", equal=True)
    images = [
        Image.fromarray(np.array(image).astype(np.uint16) * 256) if mode == "I;16" else image.convert(mode)
        for image in base
    ]
    (tmp_path / "folder").mkdir()
    for index, image in enumerate(images):
        image.save(tmp_path / "folder" / f"{index:02}.tif")
    expected = read_images(tmp_path / "folder", labelled=False)
    assert np.array_equal(read(images), expected.pixels(slice(None)))
    assert {image.mode for image in images} == {mode}, "those of people stay as they are"


def test_a_photograph_that_lies_on_its_side_is_put_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "turned.jpg"
    pictures()[0].resize((64, 32)).save(path, exif=exif)
    with Image.open(path) as image:
        assert np.array_equal(
            read([image], size=32, channels=3)[0], read_images(path, labelled=False, size=32).pixels([0])[0]
        )
        assert image.size == (64, 32)


def test_a_data_set_is_read_within_its_length() -> None:
    data = Endless(pictures(equal=True))
    assert len(read(data, size=16, channels=3)) == COUNT
    assert data.asked == COUNT
    with pytest.raises(InputError, match="the data set Short says that it has 13 images, but has no image 12"):
        read(Short(pictures()))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "generator": (lambda: (image for image in pictures()), "a generator can be read only once: give a list"),
    "iterator": (lambda: iter(pictures()), "a list_iterator can be read only once"),
    "loader": (lambda: DataLoader(Shown(pictures())), r"a DataLoader gives batches: give its data set, as in loader\."),
    "stream": (lambda: Streamed(), "a Streamed has no fixed number of images"),
    "no length": (lambda: NoLength(), "a NoLength has no length"),
    "items alone": (lambda: Itemed(), "an Itemed has no length"),
    "dictionary": (lambda: {"a": 1}, "images cannot be a dict"),
    "set": (lambda: {"a.png"}, "images cannot be a set"),
    "bytes": (lambda: b"a.png", "images cannot be a bytes"),
    "one image": (lambda: pictures()[0], r"a single image was given: give a list of images, as in \[image\]"),
    "nothing": (list, "there are no images"),
    "empty data set": (lambda: Shown([]), "there are no images"),
    "None among paths": (lambda: ["a.png", None], "1 of 2 images are missing"),
    "NaN among paths": (lambda: objects(["a.png", float("nan")]), "1 of 2 images are missing"),
    "paths and images": (lambda: ["a.png", pictures()[0]], "both paths and other things"),
    "strangers": (lambda: [object()], "the list holds an object: give paths, images of PIL or arrays"),
    "floats": (lambda: Shown([np.zeros((9, 9), dtype=np.float32)]), "image 0 of the data set Shown is of type float32"),
    "a data set of numbers": (lambda: Shown([3]), "image 0 of the data set Shown is an int"),
    "other dictionaries": (lambda: Shown([{"x": 3}]), "a dictionary without an image: call it 'image', 'img'"),
    "floating point": (lambda: [Image.new("F", (9, 9))], "image 0 of the list cannot be used: floating-point"),
    "little": (lambda: [Image.new("L", (9, 5))], "image 0 of the list has 9x5 pixels: both sides need at least 8"),
    "little array": (lambda: Shown([np.zeros((5, 9), dtype=np.uint8)]), "9x5 pixels are too small"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(kind: str) -> None:
    make, words = REFUSED[kind]
    with pytest.raises(InputError, match=words) as caught:
        read(make(), size=16, channels=3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.rand(3, 12, 12, requires_grad=True), "not float32: where they are from 0 to 1"),
        (torch.rand(3, 12, 12).bfloat16(), "not bfloat16: where they are from 0 to 1"),
        (torch.rand(3, 12, 12) * 255, "not float32: where they are from 0 to 255"),
        (torch.randint(0, 255, (3, 12, 12)), "not int64"),
    ],
)
def test_tensors_of_other_types_are_refused_with_a_line_that_works(tensor: torch.Tensor, words: str) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        told(tensor)
    converted = eval(str(caught.value).split("convert them with ")[1], {"images": tensor})
    found = told(converted)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.uint8
    assert found.shape == (3, 12, 12)
    factor = 255 if "to 1," in words + "," else 1
    assert np.abs(found - tensor.detach().float().numpy() * factor).max() <= 1


def test_tensors_with_channels_first_are_refused_with_a_line_that_works() -> None:
    images = torch.zeros(5, 3, 12, 14, dtype=torch.uint8)
    with pytest.raises(InputError, match=r"images\.permute\(0, 2, 3, 1\)") as caught:
        told(images)
    found = told(eval(str(caught.value).split("with ")[1], {"images": images}))
    assert isinstance(found, np.ndarray)
    assert found.shape == (5, 12, 14, 3)


def tiny() -> Learner:
    return Learner(
        "hoarfrost", "small", device="cpu", settings={"fit.epochs": 4, "fit.drops": [], "discover.epochs": 1}
    )


@pytest.fixture(scope="module")
def fitted() -> Learner:
    return tiny().fit(pictures(), LABELS)


def test_a_learner_takes_each_kind(fitted: Learner, tmp_path: Path) -> None:
    images, paths = pictures(), saved(tmp_path / "folder", pictures())
    expected = fitted.predict_proba(images)
    assert np.array_equal(tiny().fit(paths, LABELS).predict_proba(paths), expected)
    for given in (objects(paths), np.array([str(path) for path in paths]), tmp_path / "folder", Shown(images)):
        assert np.array_equal(fitted.predict_proba(given), expected)
    assert fitted.predictions(objects(paths)).paths == [str(path) for path in paths]
    assert len(fitted.predict(TensorDataset(torch.zeros(4, 3, 9, 9, dtype=torch.uint8)))) == 4
    assert fitted.transform(images).shape == (COUNT, 64)
    found = Learner("frost", "small", device="cpu", settings={"fit.epochs": 1, "discover.epochs": 1, "fit.drops": []})
    assert found.fit(images, LABELS).discover(Shown(images), 2, only_new=True).novel_per_step == (2,)


def test_a_data_set_brings_its_labels(fitted: Learner) -> None:
    data = Shown([(image, ["b", "a"][label]) for image, label in zip(pictures(), LABELS, strict=True)])
    learner = tiny().fit(data)
    assert learner.classes_.tolist() == ["a", "b"]
    numbered = tiny().fit(Shown([(image, torch.tensor(k)) for image, k in zip(pictures(), LABELS, strict=True)]))
    assert numbered.classes_.tolist() == [0, 1]
    assert np.array_equal(numbered.predict_proba(data), fitted.predict_proba(pictures()))
    with pytest.raises(InputError, match="fit needs labels"):
        tiny().fit(Shown(pictures()))


def test_columns_of_pandas(fitted: Learner, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    paths = [str(path) for path in saved(tmp_path / "folder", pictures())]
    table = pandas.DataFrame({"path": paths, "kind": ["ab"[label] for label in LABELS]}, index=range(5, 5 + COUNT))
    learner = tiny().fit(table["path"], table["kind"])
    assert learner.classes_.tolist() == ["a", "b"]
    for column in (table["path"], table[["path"]], table["path"].map(Path), pandas.Index(paths)):
        assert np.array_equal(learner.predict_proba(column), fitted.predict_proba(paths))
    assert learner.score(table["path"], table["kind"]) == (learner.predict(paths) == table["kind"].to_numpy()).mean()
    with pytest.raises(InputError, match=r"give its column of paths, as in table\['path'\]"):
        learner.predict(table)
    with pytest.raises(InputError, match="1 of 12 images are missing"):
        learner.predict(table["path"].where(table.index > 5))
    for missing in (pandas.NA, None, float("nan"), pandas.NaT):
        kinds = table["kind"].astype(object)
        kinds.iloc[3] = missing
        with pytest.raises(InputError, match="1 of 12 labels are missing"):
            tiny().fit(paths, kinds)
        with pytest.raises(InputError, match="1 of 12 labels are missing"):
            tiny().fit(paths, list(kinds))


def test_data_sets_of_hugging_face(fitted: Learner, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    images = pictures()
    columns = datasets.Features({"picture": datasets.Image(), "kind": datasets.ClassLabel(names=["dark", "bright"])})
    data = datasets.Dataset.from_dict({"picture": images, "kind": LABELS}, features=columns)
    expected = fitted.predict_proba(images)
    learner = tiny().fit(data)
    assert learner.classes_.tolist() == [0, 1]
    for given in (data, data["picture"], data.with_format("torch"), data.with_format("numpy")):
        assert np.array_equal(learner.predict_proba(given), expected)
    assert learner.score(data, data["kind"]) == learner.score(images, LABELS)
    paths = [str(path) for path in saved(tmp_path / "folder", images)]
    assert np.array_equal(fitted.predict_proba(datasets.Dataset.from_dict({"file": paths})["file"]), expected)
    for refused, words in (
        (data.to_iterable_dataset(), "an IterableDataset has no fixed number of images"),
        (datasets.DatasetDict({"train": data}), r"a DatasetDict has several parts: give one, as in dataset\['train'\]"),
        (data.select_columns(["kind"]), r"no column of images: make one with dataset\.cast_column"),
        (data.add_column("more", [None] * COUNT, feature=datasets.Image()), "several columns of images"),
    ):
        with pytest.raises(InputError, match=words):
            learner.predict(refused)
