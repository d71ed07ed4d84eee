"""The data sets by name, each as a labelled training set and a labelled test set, and the files people have."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, cast

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from hoarfrost import plugins
from hoarfrost.data.arrays import Ids, Pixels, as_images, encode_labels
from hoarfrost.data.cache import AUTO, ImageStorage
from hoarfrost.data.download import fetch
from hoarfrost.data.folder import looking_into, read_folder
from hoarfrost.data.images import ImageFiles, ImageSet, free_memory
from hoarfrost.data.unpickle import load_pickle
from hoarfrost.errors import InputError
from hoarfrost.reading import open_regular, read_bytes

if TYPE_CHECKING:
    from hoarfrost.recipes import Recipe

Split: TypeAlias = tuple[ImageSet, ImageSet]
"""Training and test set, both labelled, with the same class names."""

Arrays: TypeAlias = dict[str, NDArray[np.generic]]

MOST_TEXT = 64 << 20
"""Bytes of a list of names; Tiny-ImageNet's longest has half a million."""


LONGEST_NAME = 255
"""Bytes of a file's name, on nearly any system."""

SHOWN = 80
"""Characters of a wrong name that a message repeats."""


@dataclass(frozen=True)
class Dataset:
    """How a data set is read, and where it is fetched from.

    reader: takes the folder (or file), the wanted side, None for the data set's own, and where images are kept.
    marker: the folder that the archive unpacks to; empty for what is not an archive.
    embedded: comes with a library, so that there is no folder to read.
    recipe: the settings that suit it, for a data set of another package; None for those of anybody's images.
    """

    reader: Callable[[Path, int | None, ImageStorage], Split]
    marker: str = ""
    url: str = ""
    md5: str = ""
    archive: str = ""
    embedded: bool = False
    recipe: Recipe | None = None


def get_dataset(name: str) -> Dataset:
    """The data set of a name, of this package or of another that is installed."""
    dataset = plugins.find("data set", name, DATASETS, plugins.DATASETS)
    if not isinstance(dataset, Dataset):
        raise InputError(f"the package of the data set '{name}' provides no Dataset: ask its authors")
    return dataset


def load_dataset(
    name: str, data: str | Path | None, *, download: bool = False, size: int | None = None, keep: ImageStorage = AUTO
) -> Split:
    """Training and test set of the data set `name`, both labelled.

    data: the folder that holds the data set's own folder, or that folder itself; for `folder` the images or a `.npz`
    file; not looked at for `digits`.
    download: fetch the official archive where the data set is missing.
    size: resize to (size, size).
    keep: where the images of files are kept.
    """
    dataset = get_dataset(name)
    if dataset.embedded:
        return dataset.reader(Path(), size, keep)
    if data is None:
        raise InputError(f"the data set {name} needs a folder: give it with --data DIR")
    with looking_into(Path(data)):
        return dataset.reader(_locate(name, dataset, Path(data), download=download), size, keep)


def _locate(name: str, dataset: Dataset, data: Path, *, download: bool) -> Path:
    """The folder of the data set in or at `data`, fetched if need be."""
    if not dataset.marker:
        return data
    folder = data / dataset.marker
    if folder.is_dir():
        return folder
    if data.is_dir() and dataset.marker in (data.name, data.resolve().name):
        return data
    if not download:
        command = f"hoarfrost run --dataset {name} --data {shlex.quote(str(data))} --out runs/{name} --download"
        raise InputError(f"{name} is not in {data}: download it with: {command}")
    fetch(name, folder, url=dataset.url, md5=dataset.md5, archive=dataset.archive)
    return folder


def are_paths(images: object) -> TypeGuard[Sequence[str | Path]]:
    """Whether it is a list of paths."""
    return isinstance(images, list | tuple) and bool(images) and all(isinstance(path, str | Path) for path in images)


def read_images(
    source: str | Path | Sequence[str | Path],
    *,
    labelled: bool,
    size: int | None = None,
    channels: int | None = None,
    keep: ImageStorage = AUTO,
    least_classes: int = 2,
) -> ImageSet:
    """The images in a folder or a `.npz` file, with labels if `labelled`, which name so many classes at least.

    Without labels also an image file, or a list of folders and image files.
    size, channels: see `read_folder`. Arrays keep their own size and channels where none is asked for, and are always
    read into memory.
    """
    path = Path(source) if isinstance(source, str | Path) else Path()
    with looking_into(path):
        is_folder, exists = path.is_dir(), path.exists()
    if not exists:
        raise InputError(f"there is no file or folder {path}: check the path")
    if is_folder or (path.suffix != ".npz" and not labelled):
        given = read_folder(
            source if is_folder else [path],
            labelled=labelled,
            size=size,
            channels=channels,
            on_disk=True if keep.cache is not None else keep.on_disk,
            cache=keep.cache,
            photographs=keep.photographs,
            first_read=keep.first_read,
            least_classes=least_classes,
        )
        return keep.placed(given)
    if path.suffix != ".npz":
        raise InputError(f"{path} is neither a folder of images nor a .npz file: give one of those")
    images = read_npz(path, least_classes=least_classes if labelled else 1)
    if labelled and images.labels is None:
        raise InputError(f"{path} has no labels: add them to the file as the array 'labels'")
    return (images if labelled else images.without_labels()).fitted(size, channels)


def _quarter_split(images: ImageSet) -> Split:
    """A fixed, stratified quarter as the test set."""
    from sklearn.model_selection import train_test_split

    positions = np.arange(len(images))
    train, test = train_test_split(positions, test_size=0.25, stratify=images.labels, random_state=0)
    return images.take(train), images.take(test)


# ---------------------------------------------------------------------------------------------------------------------
# The data sets of the paper, and the embedded digits
# ---------------------------------------------------------------------------------------------------------------------


def _read_digits(_: Path, size: int | None, _keep: ImageStorage) -> Split:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]  # the values are 0 to 16
    names = tuple(str(name) for name in digits.target_names)
    return _quarter_split(ImageSet(images, digits.target.astype(np.int64), names).fitted(size))


def _read_cifar10(folder: Path, size: int | None, _keep: ImageStorage) -> Split:
    names = _class_names(folder / "batches.meta", "label_names")
    batches = [_read_cifar(folder / f"data_batch_{i}", "labels", names) for i in range(1, 6)]
    images = np.concatenate([cast(Pixels, batch.images) for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches if batch.labels is not None])
    test = _read_cifar(folder / "test_batch", "labels", names)
    return ImageSet(images, labels, names).fitted(size), test.fitted(size)


def _read_cifar100(folder: Path, size: int | None, _keep: ImageStorage) -> Split:
    names = _class_names(folder / "meta", "fine_label_names")
    train, test = (_read_cifar(folder / part, "fine_labels", names) for part in ("train", "test"))
    return train.fitted(size), test.fitted(size)


def _read_cifar(path: Path, labels_key: str, names: tuple[str, ...]) -> ImageSet:
    """One file of CIFAR: rows (N, 3072) that hold the red, the green and the blue plane, and a list of labels."""
    rows, given_labels = _entries(path, "data", labels_key)
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072:
        raise InputError(f"'data' in {path} is not uint8 of shape (N, 3072): download it again")
    flat = isinstance(given_labels, list) and all(type(label) is int for label in given_labels)
    labels = np.array(given_labels if flat or isinstance(given_labels, np.ndarray) else [])
    if labels.dtype.kind not in "iu" or labels.shape != rows.shape[:1]:
        raise InputError(
            f"'{labels_key}' in {path} does not hold one integer for each of the {len(rows)} images: download it again"
        )
    if not ((labels >= 0) & (labels < len(names))).all():
        raise InputError(f"'{labels_key}' in {path} holds numbers outside its {len(names)} classes: download it again")
    images = np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return ImageSet(images, labels.astype(np.int64), names)


def _class_names(path: Path, key: str) -> tuple[str, ...]:
    (names,) = _entries(path, key)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"'{key}' in {path} is not a list of class names: download it again")
    return tuple(names)


def _entries(path: Path, *keys: str) -> list[object]:
    """The values of `keys` in a pickled dictionary."""
    content = load_pickle(path)
    for key in keys:
        if not isinstance(content, dict) or key not in content:
            raise InputError(f"{path} lacks '{key}': download it again")
    return [cast(dict[str, object], content)[key] for key in keys]


def _read_tiny_imagenet(folder: Path, size: int | None, keep: ImageStorage) -> Split:
    """Classes are the sorted WordNet ids. The official test set has no labels, so `val/` is the test set."""
    names = _wordnet_ids(folder)
    ids = {name: i for i, name in enumerate(names)}
    train = [(path, ids[name]) for name in names for path in _list_jpegs(folder / "train" / name / "images")]
    annotations = folder / "val" / "val_annotations.txt"
    test = []
    for line in _read_lines(annotations):
        file_name, name, *_ = [*line.split("\t"), ""]
        if name not in ids:
            raise InputError(f"{annotations} names the class '{name[:SHOWN]}', which is not in {folder / 'train'}")
        test.append((folder / "val" / "images" / _bare(file_name, annotations), ids[name]))
    if not test:
        raise InputError(f"{annotations} lists no images, and there is no other test set: download the data set again")
    return _decoded(train, names, size, keep), _decoded(test, names, size, keep)


def _wordnet_ids(folder: Path) -> tuple[str, ...]:
    if (folder / "wnids.txt").exists():
        return tuple(sorted({_bare(name, folder / "wnids.txt") for name in _read_lines(folder / "wnids.txt")}))
    return tuple(sorted(path.name for path in (folder / "train").glob("*/")))


def _read_lines(path: Path) -> list[str]:
    try:
        return read_bytes(path, MOST_TEXT).decode().splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}, which is not text: download the data set again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; download the data set again") from error


def _bare(name: str, listed: Path) -> str:
    """The name of a file or a folder that a list gives, if it leads nowhere else."""
    if not name or name in (".", "..") or {"/", "\\", "\0"} & set(name) or len(name.encode()) > LONGEST_NAME:
        begin = name if len(name) <= SHOWN else f"{name[:SHOWN]}…"
        raise InputError(f"{listed} has {begin!r} instead of a file name: download the data set again")
    return name


def _list_jpegs(folder: Path) -> list[Path]:
    paths = sorted(folder.glob("*.JPEG"))
    if not paths:
        raise InputError(f"there are no JPEG files in {folder}: download the data set again")
    return paths


def _decoded(files: list[tuple[Path, int]], names: tuple[str, ...], size: int | None, keep: ImageStorage) -> ImageSet:
    images = ImageFiles(tuple(path for path, _ in files), size=64 if size is None else size, channels=3)
    return keep.placed(ImageSet(images, np.array([label for _, label in files], dtype=np.int64), names))


# ---------------------------------------------------------------------------------------------------------------------
# People's own images
# ---------------------------------------------------------------------------------------------------------------------


def _read_own(source: Path, size: int | None, keep: ImageStorage) -> Split:
    """`train/` with `test/` or `val/`, a folder of class folders, or a `.npz` file."""
    test_folder = next((source / name for name in ("test", "val") if (source / name).is_dir()), None)
    if test_folder is not None and (source / "train").is_dir():
        return _read_train_and_test(source / "train", test_folder, size, keep)
    if source.is_file() and source.suffix == ".npz" and "x_test" in _names_in(source):
        return _split_arrays(source, size)
    images = read_images(source, labelled=True, size=size, keep=keep)
    counts = np.bincount(cast(Ids, images.labels), minlength=len(images.class_names))
    if counts.min() < 4:
        name = images.class_names[int(counts.argmin())]
        raise InputError(
            f"class '{name}' in {source} has {counts.min()} images: give at least 4, as a quarter is held out"
        )
    return _quarter_split(images)


def _read_train_and_test(train_folder: Path, test_folder: Path, size: int | None, keep: ImageStorage) -> Split:
    train = read_images(train_folder, labelled=True, size=size, keep=keep)
    side, _, channels = train.shape
    test = read_images(test_folder, labelled=True, size=side, channels=channels, keep=keep)
    if extra := sorted(set(test.class_names) - set(train.class_names)):
        raise InputError(f"{test_folder} has the class '{extra[0]}', which {train_folder} lacks")
    to_train_id = np.array([train.class_names.index(name) for name in test.class_names])
    return train, replace(test, labels=to_train_id[test.labels], class_names=train.class_names)


def _split_arrays(path: Path, size: int | None) -> Split:
    """The arrays x_train, y_train, x_test and y_test; the classes are those of y_train."""
    names = {"x_train", "y_train", "x_test", "y_test"}
    if missing := sorted(names - _names_in(path)):
        raise InputError(f"{path} has the array 'x_test' but not '{missing[0]}': add it")
    arrays = _load_arrays(path, names)
    train, test = _checked_images(path, arrays["x_train"]), _checked_images(path, arrays["x_test"])
    if size is None and train.shape[1:] != test.shape[1:]:
        raise InputError(f"x_train {train.shape} and x_test {test.shape} in {path} differ in image size: resize one")
    for name, images in (("y_train", train), ("y_test", test)):
        if arrays[name].shape != (len(images),):
            raise InputError(f"'{name}' in {path} has the shape {arrays[name].shape} for {len(images)} images")
    labels, classes = _encoded(path, np.concatenate([arrays["y_train"], arrays["y_test"]]))
    train_labels, test_labels = labels[: len(train)], labels[len(train) :]
    if extra := set(test_labels) - set(train_labels):
        raise InputError(f"y_test in {path} has the class '{classes[min(extra)]}', which y_train lacks")
    return (
        ImageSet(train, train_labels, classes).fitted(size),
        ImageSet(test, test_labels, classes).fitted(size, train.shape[-1]),
    )


def read_npz(path: str | Path, *, least_classes: int = 2) -> ImageSet:
    """Images, and labels if there are any, of a `.npz` file.

    Its arrays are `images` and `labels`, or `x` and `y`, or `x_train` and `y_train`; see `as_images` for the shapes.
    """
    held = _names_in(Path(path))
    for images_key, labels_key in (("images", "labels"), ("x", "y"), ("x_train", "y_train")):
        if images_key in held:
            arrays = _load_arrays(Path(path), held & {images_key, labels_key})
            images = _checked_images(Path(path), arrays[images_key])
            if labels_key not in arrays:
                return ImageSet(images)
            return ImageSet(images, *_encoded(Path(path), arrays[labels_key], len(images), least_classes))
    found = ", ".join(sorted(held)) or "nothing"
    raise InputError(f"{path} holds {found}: name the array of images 'images' and the array of labels 'labels'")


def _names_in(path: Path) -> set[str]:
    """The names of the arrays in a `.npz` file, of which none is read."""
    with _opened(path) as archive:
        return set(archive.files)


def _load_arrays(path: Path, names: Collection[str]) -> Arrays:
    """Some arrays of a `.npz` file; what else is in it is not read."""
    with _opened(path) as archive:
        assert archive.zip is not None
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.zip.infolist()}
        size, free = sum(sizes[name] for name in names), free_memory()
        if free is not None and size > free:
            what = " and ".join(f"'{name}'" for name in sorted(names))
            raise InputError(
                f"{what} in {path} need {size >> 20} MiB, but only {free >> 20} MiB are free: give fewer images"
            )
        return {name: archive[name] for name in names}


@contextmanager
def _opened(path: Path) -> Iterator[NpzFile]:
    """A `.npz` file to read arrays from."""
    try:
        with open_regular(path) as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise InputError(f"{path} is a single array: save it with np.savez(path, images=images, labels=labels)")
            with archive:
                yield archive
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}; check the path and its permissions"
        ) from error
    except MemoryError as error:
        raise InputError(f"the arrays in {path} do not fit into memory: give fewer images") from error
    except Exception as error:  # a damaged archive fails in zipfile, zlib or numpy, in nearly any way
        raise InputError(f"cannot read {path}: it is not a .npz file of plain arrays") from error


def _checked_images(path: Path, array: NDArray[np.generic]) -> Pixels:
    with _naming(path):
        return as_images(array)


def _encoded(
    path: Path, labels: NDArray[np.generic], count: int | None = None, least_classes: int = 2
) -> tuple[Ids, tuple[str, ...]]:
    with _naming(path):
        return encode_labels(labels, len(labels) if count is None else count, least_classes=least_classes)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file before a complaint about what is in it."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{path}: {error}") from error


DATASETS: dict[str, Dataset] = {
    "digits": Dataset(_read_digits, embedded=True),
    "cifar10": Dataset(
        _read_cifar10,
        marker="cifar-10-batches-py",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        archive="cifar-10-python.tar.gz",
    ),
    "cifar100": Dataset(
        _read_cifar100,
        marker="cifar-100-python",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        archive="cifar-100-python.tar.gz",
    ),
    "tiny-imagenet": Dataset(
        _read_tiny_imagenet,
        marker="tiny-imagenet-200",
        url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        md5="90528d7ca1a48142e341f4ef8d21d0de",
        archive="tiny-imagenet-200.zip",
    ),
    "folder": Dataset(_read_own),
}
"""Every data set by its name on the command line."""
