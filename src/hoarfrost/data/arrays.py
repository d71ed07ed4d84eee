"""Arrays of images and labels as people have them, brought to uint8, one size and one number of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hoarfrost.errors import DtypeError, InputError

if TYPE_CHECKING:
    from PIL import Image

Pixels: TypeAlias = NDArray[np.uint8]
Ids: TypeAlias = NDArray[np.int64]
Label: TypeAlias = bool | int | float
"""a class as people called it, where that was no text"""

MIN_SIDE = 8
"""Images with a shorter side hold too little to learn from; the embedded digits are just large enough."""

MAX_SIDE = 4096
"""The largest side that images are resized to."""

DEFAULT_SIZES = (16, 64)
"""The smallest and the largest side that is chosen when none is asked for."""

PHOTOGRAPH = 96
"""Colour images are photographs where the shorter side of most has so many pixels."""

CHUNK = 1024
"""Images handled at once where a whole data set as wider integers, or decoded, would not fit in memory."""

# The weights of ITU-R 601 in 16-bit fixed point, rounded as Pillow rounds them, so that both give the same gray.
LUMINANCE = np.array([19595, 38470, 7471], dtype=np.uint32)


def as_images(array: ArrayLike) -> Pixels:
    """Check an array (N, H, W) or (N, H, W, C) and return it as uint8 (N, H, W, C) with C of 1 or 3.

    An alpha channel is laid on white, as that of files is. Nothing is converted in silence: another dtype is refused
    with the line that converts.

    >>> as_images(np.zeros((2, 8, 8), dtype=np.uint8)).shape
    (2, 8, 8, 1)
    """
    try:
        images = array if isinstance(array, np.ndarray) else np.asarray(array)
    except ValueError as error:  # nested lists of different lengths
        raise InputError("the nested lists differ in length: give a list of arrays (H, W) or (H, W, C)") from error
    if images.ndim not in (3, 4):
        raise InputError(f"images need the shape (N, H, W) or (N, H, W, C), not {images.shape}")
    if len(images) == 0:
        raise InputError("there are no images in the array: give at least one")
    if images.ndim == 3:
        images = images[..., None]
    if images.shape[-1] not in (1, 3, 4):
        hint = ": move the channels last with images.transpose(0, 2, 3, 1)" if images.shape[1] in (1, 3, 4) else ""
        raise InputError(f"images need 1 or 3 channels on the last axis, not the shape {images.shape}{hint}")
    if min(images.shape[1:3]) < MIN_SIDE:
        height, width = images.shape[1:3]
        raise InputError(f"images of {width}x{height} pixels are too small: both sides need at least {MIN_SIDE}")
    if images.dtype != np.uint8:
        name = "images" if isinstance(array, np.ndarray) else "np.asarray(images)"
        raise DtypeError(f"images must be uint8, not {images.dtype}: {_conversion(images, name)}")
    return _on_white(images) if images.shape[-1] == 4 else images


def _on_white(images: Pixels) -> Pixels:
    """(N, H, W, 4) as (N, H, W, 3), as seen on a white page."""
    flat = np.empty((*images.shape[:-1], 3), dtype=np.uint8)
    for start in range(0, len(images), CHUNK):
        part = images[start : start + CHUNK].astype(np.uint32)
        colour, alpha = part[..., :3], part[..., 3:]
        flat[start : start + CHUNK] = (colour * alpha + 255 * (255 - alpha) + 127) // 255
    return flat


def _conversion(images: NDArray[np.generic], name: str) -> str:
    """The line of numpy that turns `images`, known to the caller as `name`, into uint8."""
    if images.dtype.kind == "b":
        return f'convert them with {name}.astype("uint8") * 255'
    if images.dtype.kind not in "iuf":
        return "give the pixels as numbers from 0 to 255"
    if not np.isfinite(images).all():
        return "some pixels are NaN or infinite; first use images = np.nan_to_num(images, posinf=0, neginf=0)"
    low, high = images.min(), images.max()
    if low >= 0 and images.dtype.kind == "f" and high <= 1:
        return f'convert them with ({name} * 255).round().astype("uint8")'
    if low >= 0 and high <= 255:
        rounded = f"{name}.round()" if images.dtype.kind == "f" else name
        return f'convert them with {rounded}.astype("uint8")'
    if images.dtype == np.uint16:
        return f'convert them with ({name} // 257).astype("uint8")'
    bounds = f"{min(low, 0):g}, {high:g}"
    scaled = f'np.interp({name}, ({bounds}), (0, 255)).round().astype("uint8")'
    return f"with the same bounds for all images, convert them with {scaled}"


def encode_labels(labels: ArrayLike, count: int, *, least_classes: int = 2) -> tuple[Ids, tuple[str, ...]]:
    """Class ids (N,) and class names for `count` labels of any kind; ids follow the sorted order of the labels.

    >>> encode_labels(["cat", "ant", "cat"], 3)
    (array([1, 0, 1]), ('ant', 'cat'))
    >>> encode_labels([10, 9, 10], 3)[1]
    ('9', '10')
    """
    ids, names, _ = encode_with_values(labels, count, least_classes=least_classes)
    return ids, names


def encode_with_values(
    labels: ArrayLike, count: int, *, least_classes: int = 2
) -> tuple[Ids, tuple[str, ...], tuple[Label, ...] | None]:
    """As `encode_labels`, and the label of each class as it was given; None where the names are the labels.

    >>> encode_with_values([10, 9, 10], 3)[2], encode_with_values(["cat", "ant", "cat"], 3)[2]
    ((9, 10), None)
    """
    try:
        values = np.asarray(labels)
    except ValueError as error:  # nested lists of different lengths
        raise InputError("labels must be a flat list with one name or number per image") from error
    if values.ndim != 1:
        raise InputError(f"labels must have one axis, not the shape {values.shape}: give one name or number per image")
    if len(values) != count:
        raise InputError(f"there are {len(values)} labels for {count} images: give one label per image")
    if missing := _count_missing(labels, values):
        raise InputError(f"{missing} of {count} labels are missing (NaN or None): leave out those images")
    if values.dtype.kind not in "biufcSUO":
        raise InputError(f"labels must be names or numbers, not {values.dtype}")
    if values.dtype.kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                "byte labels must be UTF-8 text: decode them first, for example with np.char.decode"
            ) from error
    try:
        classes, ids = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise InputError("labels of mixed types cannot be sorted: use only names or only numbers") from error
    if len(classes) < least_classes:
        raise InputError(f"all labels name one class ('{classes[0]}'): at least two classes are needed")
    names = tuple(str(name) for name in classes)
    check_names(names)
    return ids.astype(np.int64), names, _numbers(classes.tolist())


def _numbers(classes: Sequence[object]) -> tuple[Label, ...] | None:
    """Labels that are numbers or truth values, of Python, if a file can hold all of them."""
    values = [label.item() if isinstance(label, np.generic) else label for label in classes]
    kept = [label for label in values if isinstance(label, int) or (isinstance(label, float) and np.isfinite(label))]
    return tuple(kept) if len(kept) == len(values) and all(abs(label) < 2**63 for label in kept) else None


def check_names(names: Sequence[str]) -> None:
    """Refuse class names that are no text: they could not be written, and that would show after all training."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError(f"the class name {name!r} cannot be written as UTF-8: rename it") from None


def array_of(labels: Sequence[Label | str]) -> NDArray[Any]:
    """Labels of one kind as an array of that kind, others as objects.

    >>> array_of([5, 7]).dtype.kind, array_of(["ant", "bee"]).dtype.kind, array_of([5, "new-1"]).tolist()
    ('i', 'U', [5, 'new-1'])
    """
    if len({type(label) for label in labels}) == 1:
        return np.array(labels)
    found = np.empty(len(labels), dtype=object)
    found[:] = labels
    return found


def _count_missing(labels: ArrayLike, values: NDArray[np.generic]) -> int:
    if values.dtype.kind in "fc":
        return int(np.isnan(values).sum())
    if values.dtype.kind in "OU" and not (isinstance(labels, np.ndarray) and values.dtype.kind == "U"):
        # numpy turns a NaN among strings into the string "nan", so the labels are looked at as they were given.
        return sum(map(_is_missing, labels))  # type: ignore[arg-type]
    return 0


def _is_missing(label: object) -> bool:
    """Whether it is None, NaN, NaT or pandas' NA, which has no truth value."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def default_size(sides: Sequence[int], photographs: int | None = None) -> int:
    """The side to which images are resized when none is asked for, from the shorter side of each.

    Their median, rounded up to a multiple of 8, within `DEFAULT_SIZES`; that of `photographs`, where they are such.

    >>> default_size([8]), default_size([28, 28, 500]), default_size([640]), default_size([640], photographs=224)
    (16, 32, 64, 224)
    """
    smallest, largest = DEFAULT_SIZES
    median = float(np.median(sides)) if len(sides) else smallest
    if photographs is not None and median >= PHOTOGRAPH:
        return photographs
    return min(max(int(np.ceil(median / 8)) * 8, smallest), largest)


def fit_to(images: Pixels, size: int, channels: int) -> Pixels:
    """Convert uint8 (N, H, W, C) to (N, size, size, channels); no copy where nothing changes.

    Every reader uses this one function, so that a file and the array it was made from give the same pixels.
    """
    return _resized(with_channels(images, channels), size)


def with_channels(images: Pixels, channels: int) -> Pixels:
    """Convert (N, H, W, C) to (N, H, W, channels): gray is repeated into RGB, RGB becomes its luminance."""
    if channels not in (1, 3):
        raise InputError(f"images must have 1 or 3 channels, not {channels}")
    if images.shape[-1] == channels:
        return images
    if channels == 3:
        return np.repeat(images, 3, axis=-1)
    gray = np.empty((*images.shape[:-1], 1), dtype=np.uint8)
    for start in range(0, len(images), CHUNK):
        part = slice(start, start + CHUNK)
        gray[part, ..., 0] = (images[part] @ LUMINANCE + 0x8000) >> 16
    return gray


def _resized(images: Pixels, size: int) -> Pixels:
    if images.shape[1:3] == (size, size):
        return images
    from PIL import Image

    made = np.empty((len(images), size, size, images.shape[-1]), dtype=np.uint8)
    for row, image in zip(made, images, strict=True):
        # Pillow wants gray images without the channel axis.
        picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
        row[...] = np.asarray(resized(picture, size)).reshape(row.shape)
    return made


def resized(picture: Image.Image, size: int) -> Image.Image:
    """The picture in (size, size); itself where it is that large already."""
    from PIL import Image

    if picture.size == (size, size):
        return picture
    if size < MIN_SIDE:
        raise InputError(f"the image size {size} is too small: choose at least {MIN_SIDE}")
    return picture.resize((size, size), Image.Resampling.BILINEAR)
