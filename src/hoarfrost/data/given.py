"""What people give as images in Python, told apart before anything is read; without torch, pandas or datasets.

Objects of these libraries are known by the module of their class, so that nothing is imported for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hoarfrost.data.arrays import MIN_SIDE, Pixels, as_images, default_size, fit_to
from hoarfrost.data.images import GRAY_MODES, SIXTEEN_BIT_MODES, ImageSet, UnreadableImage, pixels_of
from hoarfrost.errors import DtypeError, InputError


class Items(Protocol):
    """Images by position, such as a data set of PyTorch or of Hugging Face, or a column of a table."""

    def __getitem__(self, index: Any, /) -> Any: ...


Images: TypeAlias = ArrayLike | ImageSet | str | Path | Sequence[Any] | Items
"""Arrays of type uint8, (N, H, W) or (N, H, W, C); a folder or an .npz file; a list or a column of paths; a list of
images of any sizes, of PIL or as arrays; a data set of PyTorch or Hugging Face; an ImageSet"""

KEYS = ("image", "img", "picture")
"""what images are called in the items of a data set that are dictionaries"""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images that come one by one, each of its own size.

    count: how many are read, whatever else there is.
    at: the image at a position, by itself or with a label behind it.
    what: what they are in, for messages.
    """

    count: int
    at: Callable[[int], Any]
    what: str

    def __len__(self) -> int:
        return self.count

    def read(
        self, size: int | None = None, channels: int | None = None, photographs: int | None = None
    ) -> tuple[ImageSet, list[Any] | None]:
        """The images as those of files are read, and the labels beside them, if each has one.

        Size and channels are chosen as for a folder, where they are not given; each image is then read twice.
        """
        if size is None or channels is None:
            looks = [self._look(index) for index in range(self.count)]
            gray = all(is_gray for _, is_gray in looks)
            channels = channels or (1 if gray else 3)
            size = size or default_size([side for side, _ in looks], None if gray else photographs)
        pixels, labels = np.empty((self.count, size, size, channels), dtype=np.uint8), list[Any]()
        for index in range(self.count):
            image, beside = self._item(index)
            pixels[index] = self._pixels(index, image, size, channels)
            labels += beside
        return ImageSet(pixels), labels if len(labels) == self.count else None

    def _item(self, index: int) -> tuple[Any, list[Any]]:
        """The image at a position, and its label, if there is one."""
        try:
            item = self.at(index)
        except IndexError:
            raise InputError(f"{self.what} says that it has {self.count} images, but has no image {index}") from None
        beside: list[Any] = []
        if isinstance(item, tuple | list) and item:
            item, beside = item[0], list(item[1:2])
        elif isinstance(item, Mapping):
            key = next((key for key in KEYS if key in item), None)
            if key is None:
                names = ", ".join(f"'{name}'" for name in KEYS)
                raise InputError(f"image {index} of {self.what} is a dictionary without an image: call it {names}")
            item, beside = item[key], [item["label"]] if "label" in item else []
        return item, [label.item() if getattr(label, "shape", None) == () else label for label in beside]

    def _look(self, index: int) -> tuple[int, bool]:
        """The shorter side of an image, and whether it is gray."""
        image, _ = self._item(index)
        if _is_picture(image):
            return min(image.size), image.mode in GRAY_MODES | SIXTEEN_BIT_MODES
        pixels = self._array(index, image)
        return min(pixels.shape[:2]), pixels.shape[2] == 1

    def _pixels(self, index: int, image: Any, size: int, channels: int) -> Pixels:
        if not _is_picture(image):
            pixels: Pixels = fit_to(self._array(index, image)[None], size, channels)[0]
            return pixels
        if min(image.size) < MIN_SIDE:
            wide, high = image.size
            raise InputError(
                f"image {index} of {self.what} has {wide}x{high} pixels: both sides need at least {MIN_SIDE}"
            )
        try:
            return pixels_of(image, size, channels)
        except UnreadableImage as error:
            raise InputError(f"image {index} of {self.what} cannot be used: {error}") from None

    def _array(self, index: int, image: Any) -> Pixels:
        """One image that is an array or a tensor."""
        if _is_tensor(image):
            image = _array_of(image)
            # A tensor has its channels first; the sides are never that short.
            if image.ndim == 3 and image.shape[0] in (1, 3, 4) and image.shape[2] not in (1, 3, 4):
                image = image.transpose(1, 2, 0)
        if not isinstance(image, np.ndarray) or image.ndim not in (2, 3):
            what = f"an array of shape {image.shape}" if isinstance(image, np.ndarray) else _named(image)
            raise InputError(
                f"image {index} of {self.what} is {what}: give images of PIL, or arrays (H, W) or (H, W, C)"
            )
        try:
            pixels: Pixels = as_images(image[None])[0]
            return pixels
        except DtypeError:
            advice = "give uint8 from 0 to 255, or images of PIL (of torchvision's transforms leave ToTensor out)"
            raise DtypeError(f"image {index} of {self.what} is of type {image.dtype}: {advice}") from None


Given: TypeAlias = ImageSet | Pictures | str | Path | list[str | Path] | NDArray[Any] | Sequence[Any]
"""what `told` makes of images; the last one holds numbers"""


def told(images: Images | Pictures) -> Given:
    """What people give, as one of few kinds; what cannot be read is refused by name, and nothing is read.

    >>> told(np.array(["a.png", "b.png"]))
    ['a.png', 'b.png']
    """
    if isinstance(images, ImageSet | Pictures | str):
        return images
    if isinstance(images, os.PathLike):
        return Path(images)
    if isinstance(images, np.ndarray):
        return images if images.dtype.kind not in "OUT" or not images.ndim else _of_items(images.tolist(), "the array")
    return _of_library(images)


def _of_library(images: Any) -> Given:
    """The same of lists and of what other packages have made."""
    if _is_tensor(images):
        return _of_tensor(images)
    _check_kind(images)
    if _is_of(images, "datasets") and hasattr(images, "column_names"):
        return _of_hub_data_set(images)
    if _is_of(images, "torch", "utils", "data"):
        return Pictures(_length(images), images.__getitem__, f"the data set {type(images).__name__}")
    if hasattr(images, "to_numpy"):
        return _of_column(images)
    if hasattr(images, "__array__") or not hasattr(images, "__len__"):
        return np.asarray(images)
    return _of_items(images, "the list" if isinstance(images, list | tuple) else f"the {type(images).__name__}")


def _of_column(table: Any) -> Given:
    """A column of a table of pandas or polars, or a table of one column."""
    if len(table.shape) < 2:
        return _of_items(list(table), "the column")
    if table.shape[1] != 1:
        raise InputError("a table was given as images: give its column of paths, as in table['path']")
    return _of_column(table[next(iter(table.columns))])


def _of_items(given: Any, what: str) -> Given:
    """Images, paths or nested lists of numbers, in a sequence."""
    listed = isinstance(given, list | tuple)
    if not listed and len(given) and not isinstance(given[0], str | os.PathLike):  # each item may take long
        return Pictures(len(given), given.__getitem__, what)
    items: Sequence[Any] = given if listed else list(given)
    paths = [item for item in items if isinstance(item, str | os.PathLike)]
    if not len(items):
        raise InputError("there are no images: give at least one")
    if paths and len(paths) == len(items):
        return [path if isinstance(path, str) else Path(path) for path in paths]
    missing = sum(map(_is_missing, items))
    if missing:
        raise InputError(f"{missing} of {len(items)} images are missing (None or NaN): leave them out")
    if paths:
        raise InputError(f"{what} holds both paths and other things: give only paths, or only images")
    if isinstance(items[0], np.ndarray) and len({getattr(item, "shape", None) for item in items}) == 1:
        return np.asarray(items)
    if all(map(_is_image, items)):
        return Pictures(len(items), items.__getitem__, what)
    if all(isinstance(item, list | tuple | int | float | np.generic) for item in items):
        return items
    strange = next(item for item in items if not _is_image(item))
    raise InputError(f"{what} holds {_named(strange)}: give paths, images of PIL or arrays")


def _is_missing(item: object) -> bool:
    """Whether a table has nothing there: None, NaN, NaT or NA."""
    return item is None or (isinstance(item, float) and item != item) or type(item).__name__ in ("NAType", "NaTType")


def _of_tensor(images: Any) -> NDArray[Any]:
    """A tensor of PyTorch as an array; what is no uint8 is refused, as PyTorch itself must convert it."""
    kind, shape = str(images.dtype).removeprefix("torch."), tuple(images.shape)
    if len(shape) == 4 and shape[1] in (1, 3, 4) and shape[3] not in (1, 3, 4):
        raise InputError(f"the shape {shape} has channels first: move them last with images.permute(0, 2, 3, 1)")
    if kind != "uint8":
        floats = images.dtype.is_floating_point
        small = floats and images.numel() > 0 and float(images.detach().max()) <= 1
        values = "(images.detach() * 255)" if small else "images.detach()"
        how = f"{values}.round().byte()" if floats else f"{values}.byte()"
        limit = "1" if small else "255"
        raise DtypeError(f"images must be uint8, not {kind}: where they are from 0 to {limit}, convert them with {how}")
    return _array_of(images)


def _array_of(tensor: Any) -> NDArray[Any]:
    tensor = tensor.detach().cpu()
    array: NDArray[Any] = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    return array


def _of_hub_data_set(images: Any) -> Pictures:
    """The column of images of a data set of Hugging Face."""
    features = images.features or {}
    columns = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    if not columns:
        raise InputError(
            "the data set has no column of images: make one with dataset.cast_column(NAME, datasets.Image())"
        )
    if len(columns) > 1:
        raise InputError(f"the data set has several columns of images: give one, as in dataset['{columns[0]}']")
    labels = [name for name, feature in features.items() if type(feature).__name__ == "ClassLabel"]
    chosen = columns + (labels if len(labels) == 1 else [])
    part = images.select_columns(chosen)

    def at(index: int) -> tuple[Any, ...]:
        row = part[index]
        return tuple(row[name] for name in chosen)

    return Pictures(len(images), at, "the data set")


def _check_kind(images: Any) -> None:
    """Refuses what numpy would read for ever, in another order, or as something else."""
    kind = _named(images)
    if _is_picture(images):
        raise InputError("a single image was given: give a list of images, as in [image]")
    if _is_of(images, "torch", "utils", "data") and "DataLoader" in _names(images):
        raise InputError(f"{kind} gives batches: give its data set, as in loader.dataset")
    if "IterableDataset" in _names(images):
        raise InputError(f"{kind} has no fixed number of images: give a data set that has a length")
    if _is_of(images, "datasets") and isinstance(images, Mapping):
        raise InputError(f"{kind} has several parts: give one, as in dataset['{next(iter(images), 'train')}']")
    if isinstance(images, Iterator):
        raise InputError(f"{kind} can be read only once: give a list of its images")
    if isinstance(images, Mapping | Set | bytes | bytearray):
        raise InputError(f"images cannot be {kind}: give a list of paths or of images")
    sized = hasattr(images, "__len__") and hasattr(images, "__getitem__")
    if (
        not sized
        and (isinstance(images, Iterable) or hasattr(images, "__getitem__"))
        and not hasattr(images, "__array__")
    ):
        raise InputError(f"{kind} has no length: give a list of its images, or give it __len__ and __getitem__")


def _length(images: Any) -> int:
    count = len(images)
    if not count:
        raise InputError("there are no images: give at least one")
    return count


def _names(value: object) -> set[str]:
    return {kind.__name__ for kind in type(value).__mro__}


def _is_of(value: object, *module: str) -> bool:
    """Whether one of the classes of a value is of a package."""
    return any(tuple(kind.__module__.split(".")[: len(module)]) == module for kind in type(value).__mro__)


def _is_tensor(value: object) -> bool:
    return _is_of(value, "torch") and "Tensor" in _names(value)


def _is_image(value: object) -> bool:
    value = value[0] if isinstance(value, tuple) and value else value  # a label may come behind it
    return _is_picture(value) or _is_tensor(value) or isinstance(value, np.ndarray)


def _is_picture(value: object) -> bool:
    return _is_of(value, "PIL") and "Image" in _names(value)


def _named(value: object) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeio' else 'a'} {kind}"
