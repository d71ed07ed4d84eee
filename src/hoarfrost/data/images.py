"""Images as everything else sees them: uint8, (N, H, W, C), in memory or read from files on demand."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.arrays import CHUNK, Ids, Pixels, as_images, check_names, fit_to, resized, with_channels
from hoarfrost.data.paths import FileList, Indices, PathList
from hoarfrost.data.rows import Features
from hoarfrost.errors import InputError
from hoarfrost.launch import Launched
from hoarfrost.reading import open_regular

if TYPE_CHECKING:
    from PIL import Image

GRAY_MODES = frozenset({"1", "L", "LA", "La"})
SIXTEEN_BIT_MODES = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N"})

DETAILED = 1 << 20
"""Pixels above which a JPEG that is to be made smaller is decoded with a part of its detail, in a part of the time."""

LARGE = 1 << 24
"""Pixels above which an image is large: its memory counts."""

MOST_PIXELS = 200_000_000
"""A file that claims more is refused: no photograph has as many, and decoding it could take all memory."""

_one_large = Lock()


class UnreadableImage(Exception):
    """A file that is no image, is cut short, or cannot be turned into 8-bit gray or RGB."""


class ChangedImage(InputError):
    """A file is not what it was when the images were read first."""


def decode(
    path: str | Path, size: int | None = None, channels: int | None = None, *, state: int | None = None
) -> Pixels:
    """The pixels of an image file, (H, W, C) with C of 1 or 3: upright, first frame, on white.

    With a size and channels, (size, size, channels), as `fit_to` would have it. A large image then takes little more
    than its own memory, large ones come one after the other, and of a JPEG above a megapixel a part of the detail is
    decoded, in at least twice the size.
    state: what `state_of` said of the file before; a file with another one is a `ChangedImage`.
    """
    from PIL import Image

    try:
        with open_regular(path) as file, Image.open(file) as image:
            check_state(file, state, path)
            refuse_strange(image)
            count = image.width * image.height
            with _one_large if count > LARGE else nullcontext():
                if count > DETAILED and size is not None:
                    image.draft(None, (2 * size, 2 * size))
                return _pixels(image, size, channels)
    except (ChangedImage, MemoryError):
        raise
    except Exception as error:  # Pillow's readers raise nearly anything on a broken file
        raise UnreadableImage(f"{path}: {error}") from error


def pixels_of(image: Image.Image, size: int, channels: int) -> Pixels:
    """As `decode` has it, of an image in memory, which stays as it is."""
    try:
        refuse_strange(image)
        return _pixels(image.copy(), size, channels)
    except (UnreadableImage, MemoryError):
        raise
    except Exception as error:  # one that is not loaded yet may be of a broken file
        raise UnreadableImage(str(error)) from error


def _pixels(image: Image.Image, size: int | None, channels: int | None) -> Pixels:
    pixels = np.asarray(_picture(image, size, channels))
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    return pixels if channels is None else with_channels(pixels[None], channels)[0]


def _picture(image: Image.Image, size: int | None, channels: int | None) -> Image.Image:
    """The image upright, in 8-bit gray or RGB, and in the size; one copy at a time, as it may be large."""
    from PIL import ImageOps

    ImageOps.exif_transpose(image, in_place=True)
    if image.mode in SIXTEEN_BIT_MODES:
        image = _high_bytes(image)
    elif image.has_transparency_data:
        image = _on_white(image)
    elif image.mode not in ("L", "RGB"):
        image = image.convert("L" if image.mode in GRAY_MODES else "RGB")
    if channels == 1 and image.mode == "RGB":
        image = image.convert("L")  # rounded as `with_channels` does it
    return image if size is None else resized(image, size)


def _on_white(image: Image.Image) -> Image.Image:
    """An image with transparent parts as it is seen on a white page, some rows at a time."""
    from PIL import Image

    flat = Image.new("L" if image.mode in GRAY_MODES else "RGB", image.size)
    for rows in in_chunks(image.height, 256):
        band = image.crop((0, rows.start, image.width, rows.stop)).convert("RGBA")
        page = Image.new("RGBA", band.size, "white")
        flat.paste(Image.alpha_composite(page, band).convert(flat.mode), (0, rows.start))
    return flat


def _high_bytes(image: Image.Image) -> Image.Image:
    """An image of up to 16 bits in 8, some rows at a time. Pillow's own conversion would clip all above 255 to white.

    How many bits it has is seen by its brightest pixel: cameras of 10, 12 or 14 bits write files of 16.
    """
    from PIL import Image

    def bands() -> Iterator[tuple[int, NDArray[np.integer]]]:
        for rows in in_chunks(image.height, 256):
            yield rows.start, np.asarray(image.crop((0, rows.start, image.width, rows.stop))).clip(0, 65535)

    most = max(int(band.max()) for _, band in bands())
    bits = next(bits for bits in (8, 10, 12, 14, 16) if most < 1 << bits)
    gray = Image.new("L", image.size)
    for start, band in bands():
        gray.paste(Image.fromarray((band >> (bits - 8)).astype(np.uint8)), (0, start))
    return gray


def check_state(file: BinaryIO, state: int | None, path: str | Path) -> None:
    """Refuse a file that is not what it was when its state was noted."""
    if state is not None and state_of(os.fstat(file.fileno())) != state:
        raise ChangedImage(f"the image {path} has changed since it was first read: run the command again")


def state_of(status: os.stat_result) -> int:
    """A number that is another one when a file was changed or replaced, even where its size and time are the same."""
    told = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return int.from_bytes(hashlib.blake2b(repr(told).encode(), digest_size=8).digest(), "little", signed=True)


def load_readers() -> None:
    """Load Pillow's readers of all formats, which must happen before threads use them.

    Pillow would load them on first need, and two threads that do so at once may refuse a good file. The common formats
    come first because they are then tried first: with small images that saves a quarter of the time.
    """
    from PIL import Image

    Image.preinit()
    Image.init()
    with suppress(ImportError):  # photographs of telephones, where it is installed
        import_module("pillow_heif").register_heif_opener()
    Image.MAX_IMAGE_PIXELS = MOST_PIXELS  # Pillow's own limit is below what cameras make
    _quieten_readers()


@cache
def _quieten_readers() -> None:
    """Have Pillow and its TIFF library keep to themselves what they find wrong with a file, since they do not name it.

    A file that cannot be decoded is named by whoever wanted it.
    """
    from PIL import _imaging

    logging.getLogger("PIL").addHandler(logging.NullHandler())  # whoever has set up logging hears of it all the same
    # The library itself writes to standard error, unless it is told not to; Pillow has no word for that.
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(_imaging.__file__)
        library.TIFFSetErrorHandler(None)
        library.TIFFSetWarningHandler(None)


def refuse_strange(image: Image.Image) -> None:
    """Raise for what Pillow opens but is too large, or cannot be turned into 8-bit pixels without guessing."""
    if image.width * image.height > MOST_PIXELS:
        raise UnreadableImage(f"its header claims {image.width} x {image.height} pixels")
    if image.format == "EPS":
        raise UnreadableImage("PostScript files are programs and are never run")
    if image.mode == "F":
        raise UnreadableImage("floating-point pixels have no known range")


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_chunks(count: int, chunk: int = CHUNK) -> Generator[range]:
    """The positions 0 to count - 1 in ranges of at most `chunk`."""
    return (range(start, min(start + chunk, count)) for start in range(0, count, chunk))


def in_threads(work: Callable[[range], object], count: int, *, chunk: int, threads: int | None = None) -> None:
    """Do `work` on the positions 0 to count - 1, range by range, in as many threads as there are cores or `threads`.

    Ranges of some positions each, as handing one out costs as much as a small image. A thread takes the next range when
    it is done with one; tasks made beforehand for all of them would take more memory than what they are about.
    """
    ranges, lock = in_chunks(count, chunk), Lock()

    def take_ranges() -> None:
        try:
            while True:
                with lock:
                    rows = next(ranges, None)
                if rows is None:
                    return
                work(rows)
        finally:  # the others need not go on where one has failed
            with lock:
                ranges.close()

    workers = min(threads or usable_cores(), -(-count // chunk))
    if workers <= 1:
        take_ranges()
        return
    with ThreadPoolExecutor(workers) as pool:
        try:
            for task in [pool.submit(take_ranges) for _ in range(workers)]:
                task.result()
        finally:  # an interrupt reaches this thread alone
            with lock:
                ranges.close()


# ---------------------------------------------------------------------------------------------------------------------
# Images on disk
# ---------------------------------------------------------------------------------------------------------------------


class OnDisk(ABC):
    """Images that stay on disk until they are indexed; indexing gives uint8 (n, size, size, channels)."""

    size: int
    channels: int
    features: dict[str, Features]
    """(N, D) by the name of what computed them: they go with the images, so that nobody computes them twice"""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, size, size, channels), as an array of all the images would have it."""
        return (len(self), self.size, self.size, self.channels)

    @abstractmethod
    def take(self, indices: Indices) -> Self:
        """The images at `indices`; nothing is read."""

    @abstractmethod
    def fitted(self, size: int, channels: int) -> Self:
        """The same images in another size and with that many channels; nothing is read."""

    @abstractmethod
    def read(self, indices: Indices, *, threads: int | None = None) -> Pixels:
        """The images at `indices`, read by as many threads as there are cores, or by `threads`."""

    def __getitem__(self, indices: Indices) -> Pixels:
        return self.read(indices)


@dataclass(frozen=True)
class ImageFiles(OnDisk):
    """Image files, decoded when they are indexed."""

    paths: Sequence[Path]
    size: int
    channels: int
    states: Ids | None = None
    """(N,) `state_of` each file, where it was noted: one that has another state when it is decoded is refused"""
    photographs: bool = False
    """whether decoding takes long: then images are told apart by the bytes of their files, not by their pixels"""
    features: dict[str, Features] = field(default_factory=dict, compare=False, repr=False)
    contents: dict[str, NDArray[np.uint8]] = field(default_factory=dict, compare=False, repr=False)
    """digests of the files, where they were computed: they go with the images too"""

    def __post_init__(self) -> None:
        if not isinstance(self.paths, FileList):
            object.__setattr__(self, "paths", FileList.of(self.paths))

    @property
    def files(self) -> FileList:
        """The paths in the form in which they are kept."""
        assert isinstance(self.paths, FileList)
        return self.paths

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, indices: Indices) -> ImageFiles:
        """The files at `indices`; nothing is decoded."""
        states = None if self.states is None else self.states[indices]
        features = {name: rows[indices] for name, rows in self.features.items()}
        contents = {name: rows[indices] for name, rows in self.contents.items()}
        return replace(self, paths=self.files.take(indices), states=states, features=features, contents=contents)

    def noted(self) -> ImageFiles:
        """The same files, which must not change from now on: an image that does is refused when it is read."""
        if self.states is not None:
            return self
        states = np.zeros(len(self), dtype=np.int64)
        for row in range(len(self)):
            with suppress(OSError):  # what is gone cannot be read either
                states[row] = state_of(os.stat(self.files.text(row)))  # noqa: PTH116 - see FileList.text
        return replace(self, states=states)

    def fitted(self, size: int, channels: int) -> ImageFiles:
        """The same files, to be decoded to another size and number of channels."""
        return replace(self, size=size, channels=channels)

    def digests(self) -> NDArray[np.uint8]:
        """(N, 32): SHA-256 of each file's bytes."""
        if "SHA-256" in self.contents:
            return self.contents["SHA-256"]
        found, files, states = np.empty((len(self), 32), dtype=np.uint8), self.files, self.states

        def read_rows(rows: range) -> None:
            for row in rows:
                try:
                    with open_regular(files.text(row)) as file:
                        check_state(file, None if states is None else int(states[row]), files.text(row))
                        found[row] = np.frombuffer(hashlib.sha256(file.read()).digest(), dtype=np.uint8)
                except OSError:
                    raise unreadable(files.text(row)) from None

        in_threads(read_rows, len(self), chunk=32)
        self.contents["SHA-256"] = found
        return found

    def read(self, indices: Indices, *, threads: int | None = None) -> Pixels:
        """The images at `indices`, decoded by as many threads as there are cores, or by `threads`."""
        chosen = self.take(indices)
        pixels = np.empty(chosen.shape, dtype=np.uint8)
        if broken := chosen.decode_into(pixels, threads=threads):
            raise unreadable(chosen.files.text(broken[0]))
        return pixels

    def decode_into(self, pixels: Pixels | None, *, threads: int | None = None) -> list[int]:
        """Decode every file, into the rows of `pixels` (N, size, size, channels) if given.

        Returns the positions of the files that cannot be read; their rows are left as they were.
        """
        load_readers()
        files, states, broken = self.files, self.states, list[int]()

        def decode_rows(rows: range) -> None:
            for row in rows:
                state = None if states is None else int(states[row])
                try:
                    image = decode(files.text(row), self.size, self.channels, state=state)
                except UnreadableImage:
                    broken.append(row)
                    continue
                if pixels is not None:
                    pixels[row] = image

        in_threads(decode_rows, len(self), chunk=32, threads=threads)  # decoding releases the interpreter lock
        return sorted(broken)


def too_large(images: OnDisk) -> bool:
    """Whether the decoded images would take more than half of the memory that is free, in all processes together."""
    free = free_memory()
    return free is not None and 2 * math.prod(images.shape) * Launched.detect().local > free


def free_memory() -> int | None:
    """Bytes that can be had without swapping, where the system tells; no more than a container leaves."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    return min([free, *container_memory(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def container_memory(groups: Path, root: Path) -> list[int]:
    """What is left of the memory limits of this process's control groups, version 1 and 2, from the inner to the outer.

    ``groups`` lists them, ``root`` is where the system shows them.
    """
    left = []
    try:
        lines = [line.split(":", 2) for line in groups.read_text().splitlines()]
    except OSError:
        return []
    for _, kinds, place in (line for line in lines if len(line) == 3):
        if kinds not in ("", "memory"):
            continue
        top = root / kinds
        names = ("memory.max", "memory.current") if kinds == "" else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        group = Path(place.lstrip("/"))
        for inner in (group, *group.parents):
            try:
                limit, used = ((top / inner / name).read_text().strip() for name in names)
                left.append(max(0, int(limit) - int(used)))
            except (OSError, ValueError):  # not shown here, or "max": no limit
                continue
    return left


def unreadable(path: str) -> InputError:
    """The error for an image file that was there before."""
    return InputError(f"cannot read the image {path}: restore or remove the file")


# ---------------------------------------------------------------------------------------------------------------------
# Images with what is known of them
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with, where they are known, their classes and where they came from.

    images: uint8 (N, H, W, C), an array (in memory or a memory map), or on disk and read on demand.
    labels: class ids (N,) from 0 to len(class_names) - 1, or None.
    class_names: empty without labels.
    paths: one an image, relative to the folder they were read from, or None.
    states: `state_of` each file when it was first opened, or None.
    left_out: what lay beside them and was not read, in words.
    """

    images: Pixels | OnDisk
    labels: Ids | None = None
    class_names: tuple[str, ...] = ()
    paths: Sequence[str] | None = None
    left_out: str = ""
    states: Ids | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.images, OnDisk | np.memmap):
            shape = np.shape(self.images)
            if len(shape) != 4 or shape[3] not in (1, 3) or getattr(self.images, "dtype", None) != np.uint8:
                object.__setattr__(self, "images", as_images(self.images))
        if self.labels is not None and getattr(self.labels, "dtype", None) != np.int64:
            object.__setattr__(self, "labels", np.asarray(self.labels).astype(np.int64))
        for what, given in (("labels", self.labels), ("paths", self.paths), ("states", self.states)):
            if given is not None and len(given) != len(self.images):
                raise InputError(f"there are {len(given)} {what} for {len(self.images)} images: give one per image")
        check_names(self.class_names)
        if self.labels is not None and len(self.labels) > 0:
            low, high = int(self.labels.min()), int(self.labels.max())
            if low < 0 or high >= len(self.class_names):
                raise InputError(f"labels {low} to {high} do not fit {len(self.class_names)} class names")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, W, C) of every image."""
        _, height, width, channels = self.images.shape
        return (height, width, channels)

    def take(self, indices: Indices) -> ImageSet:
        """The images at `indices`; all class names stay, so that ids keep their meaning."""
        positions = np.arange(len(self))[indices]
        return replace(
            self,
            images=self.images.take(positions) if isinstance(self.images, OnDisk) else self.images[positions],
            labels=None if self.labels is None else self.labels[positions],
            paths=self.paths.take(positions) if isinstance(self.paths, PathList) else _chosen(self.paths, positions),
            states=None if self.states is None else self.states[positions],
        )

    def fitted(self, size: int | None = None, channels: int | None = None) -> ImageSet:
        """The images resized to (size, size) and with that many channels, each where asked for; files stay on disk."""
        height, width, own = self.shape
        channels = own if channels is None else channels
        if (height, width) == (size or height, size or width) and channels == own:
            return self
        if isinstance(self.images, OnDisk):
            return replace(self, images=self.images.fitted(height if size is None else size, channels))
        images = with_channels(self.images, channels) if size is None else fit_to(self.images, size, channels)
        return replace(self, images=images)

    def without_labels(self) -> ImageSet:
        """The images alone. Paths go too: in a folder of class folders they name the class."""
        return ImageSet(self.images)

    def rows(self, part: range) -> Pixels | OnDisk:
        """Consecutive images as they are, in memory or on disk."""
        if len(part) == len(self):
            return self.images
        rows = slice(part.start, part.stop)
        return self.images.take(rows) if isinstance(self.images, OnDisk) else self.images[rows]

    def pixels(self, indices: Indices) -> Pixels:
        """The images at `indices` in memory, uint8 (n, H, W, C)."""
        return np.asarray(self.images[indices])

    def digest(self) -> str:
        """SHA-256 of shape, pixels and labels: two sets with the same digest train the same model.

        Of photographs it is that of their files, in the place of their pixels.
        """
        digest = hashlib.sha256(repr((len(self), *self.shape)).encode())
        if isinstance(self.images, ImageFiles) and self.images.photographs:
            digest.update(self.images.digests().data)
        else:
            for rows in in_chunks(len(self)):
                digest.update(np.ascontiguousarray(self.pixels(slice(rows.start, rows.stop))).data)
        if self.labels is not None:
            digest.update(b"labels")
            digest.update(np.ascontiguousarray(self.labels, dtype="<i8").data)
        return digest.hexdigest()

    def digests(self) -> NDArray[np.uint8]:
        """(N, 32): SHA-256 of the pixels of each image; of photographs that of their files."""
        if isinstance(self.images, ImageFiles) and self.images.photographs:
            return self.images.digests()
        found = np.empty((len(self), 32), dtype=np.uint8)
        for rows in in_chunks(len(self)):
            images = np.ascontiguousarray(self.pixels(slice(rows.start, rows.stop)))
            digests = b"".join(hashlib.sha256(image.data).digest() for image in images)
            found[rows.start : rows.stop] = np.frombuffer(digests, dtype=np.uint8).reshape(-1, 32)
        return found

    def canonical_order(self) -> Ids:
        """An order (N,) of the images that depends on nothing but their pixels; equal images keep their order.

        Of photographs it depends on their files. Folders and data sets often come sorted by class, so an order by
        position or path would tell the classes.
        """
        keys = np.ascontiguousarray(self.digests()[:, :8]).view("<u8")[:, 0]
        return np.argsort(keys, kind="stable").astype(np.int64)


def _chosen(paths: Sequence[str] | None, positions: Ids) -> Sequence[str] | None:
    return None if paths is None else tuple(paths[i] for i in positions)
