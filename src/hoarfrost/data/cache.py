"""Decoded images in one file: image files that are read often need to be decoded only once.

The file holds the pixels of all images, one after the other, and behind them a key and a checksum. It is read, not
mapped: the pages of a mapped file count as memory of every process that has touched them. Which image files could not
be decoded is noted beside it.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path

import numpy as np

from hoarfrost import store
from hoarfrost.data.arrays import Ids, Pixels, fit_to
from hoarfrost.data.images import ImageFiles, ImageSet, OnDisk, in_chunks, too_large, unreadable
from hoarfrost.data.paths import Indices
from hoarfrost.data.rows import Features, fill, runs
from hoarfrost.errors import InputError
from hoarfrost.reading import open_regular

FORMAT = 3

PIECE = 1 << 20
"""Bytes read at once where a whole file is looked through."""


@dataclass(frozen=True)
class ImageStorage:
    """Where decoded images are kept.

    on_disk: whether they stay on disk until they are used; None: where they would take more than half of the memory.
    cache: a folder for one file of decoded pixels, from which they are then read.
    photographs: the side to which photographs are resized where none is asked for. Images of that side stay on disk:
    features are made of them once.
    first_read: what is to be done with photographs when they are first read, given them and the number of their
    classes; it says which cannot be read. None: they are decoded, to find those.
    """

    on_disk: bool | None = None
    cache: Path | None = None
    photographs: int | None = None
    first_read: Callable[[ImageFiles, int], Sequence[int]] | None = None

    def stay_on_disk(self, images: OnDisk) -> bool:
        """Whether these do."""
        if self.cache is not None or (self.on_disk is None and images.size == self.photographs):
            return True
        return too_large(images) if self.on_disk is None else self.on_disk

    def placed(self, images: ImageSet) -> ImageSet:
        """The same images where they are to be kept."""
        if not isinstance(images.images, OnDisk):
            return images
        if not self.stay_on_disk(images.images):
            return replace(images, images=images.images[:])
        if self.cache is not None:
            return cached(images, self.cache)
        return replace(images, images=images.images.noted()) if isinstance(images.images, ImageFiles) else images


AUTO = ImageStorage()
"""in memory, where there is room"""


def cached(images: ImageSet, folder: str | Path) -> ImageSet:
    """The same images, read from one file of decoded pixels below `folder`, which is made where it is missing.

    Whatever is not decoded from image files is given back as it is. Where an image file has changed, or a file of
    pixels is damaged, a new one is made. Nothing is ever removed from `folder`; all that is in it may be.
    """
    files = images.images
    if not isinstance(files, ImageFiles):
        return images
    path, broken = keep_decoded(files, folder)
    if broken:
        raise unreadable(files.files.text(broken[0]))
    rows = np.arange(len(files), dtype=np.int64)
    return replace(images, images=DecodedFile(path, rows, (files.size, files.channels), files.size, files.channels))


def keep_decoded(files: ImageFiles, folder: str | Path) -> tuple[Path, list[int]]:
    """The file of the decoded pixels below `folder`, made where it is missing.

    With it come the positions of the files that it lacks, since they cannot be decoded. They are kept beside it, so
    that nobody has to find them again.
    """
    place, files = Path(folder).absolute(), files.noted()
    key = key_of(files)
    try:
        if found := _found(place, files, key):
            return found
        with store.alone(place) as certain:
            if found := _found(place, files, key):  # another process has made it meanwhile
                return found
            for left in place.glob(".*.pixels.*.part") if certain else ():  # by one that was killed
                left.unlink(missing_ok=True)
            return _write(place, files, key)
    except OSError as error:
        raise InputError(
            f"cannot keep decoded images in {error.filename or place}: {error.strerror or error};"
            " free space there, or choose another --cache"
        ) from error


@dataclass(frozen=True, eq=False)
class DecodedFile(OnDisk):
    """Images in a file of decoded pixels, read when they are indexed.

    rows: where each image is in the file, counted in images.
    stored: size and channels of the images in the file; others are resized after reading, as arrays are.
    """

    path: Path
    rows: Ids
    stored: tuple[int, int]
    size: int
    channels: int
    features: dict[str, Features] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, indices: Indices) -> DecodedFile:
        """The images at `indices`; nothing is read."""
        features = {name: rows[indices] for name, rows in self.features.items()}
        return replace(self, rows=self.rows[indices], features=features)

    def fitted(self, size: int, channels: int) -> DecodedFile:
        """The same images in another size and with that many channels; nothing is read."""
        return replace(self, size=size, channels=channels)

    def read(self, indices: Indices, *, threads: int | None = None) -> Pixels:
        """The images at `indices`. There is nothing to compute, so that one thread reads, whatever `threads` says."""
        rows, (size, channels) = self.rows[indices], self.stored
        pixels = np.empty((len(rows), size, size, channels), dtype=np.uint8)
        # Opened for each batch: an open file can neither be sent to another process nor be shared with it.
        with _reading(self.path), open_regular(self.path) as file:
            for run in runs(rows):
                at = int(rows[run[0]]) * size * size * channels
                fill(pixels[run[0] : run[-1] + 1].data.cast("B"), file.fileno(), at)
        return fit_to(pixels, self.size, self.channels)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say which file could not be read, and what helps."""
    try:
        yield
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot read the decoded images in {path}: {reason}; run the command again to decode them again"
        ) from error


# ---------------------------------------------------------------------------------------------------------------------
# The file
# ---------------------------------------------------------------------------------------------------------------------


def key_of(files: ImageFiles) -> bytes:
    """What the pixels depend on: which files, in which order and state, and what they are decoded to."""
    digest = hashlib.sha256(repr((FORMAT, files.shape)).encode())
    paths, states = replace(files.files, root=files.files.root.absolute()), files.states
    assert states is not None
    for row in range(len(paths)):
        if states[row] == 0:
            raise unreadable(paths.text(row))
        digest.update(os.fsencode(paths.text(row)) + b"\0%d\0" % states[row])
    return digest.digest()


def _pixels_of(place: Path, key: bytes) -> Path:
    return place / f"{key.hex()}.pixels"


def _broken_of(place: Path, key: bytes) -> Path:
    return place / f"{key.hex()}.broken"


def _found(place: Path, files: ImageFiles, key: bytes) -> tuple[Path, list[int]] | None:
    """What `_write` made of these files."""
    note, broken = _broken_of(place, key), list[int]()
    if note.exists():
        with suppress(InputError, LookupError, TypeError, ValueError):  # what is no such note is as good as none
            broken = sorted({range(len(files))[int(row)] for row in store.read_json(note, "note")["rows"]})
            files = files.take(np.delete(np.arange(len(files)), broken))
            key = key_of(files)
    path = _pixels_of(place, key)
    return (path, broken) if _is_whole(path, files, key) else None


def _write(place: Path, files: ImageFiles, key: bytes) -> tuple[Path, list[int]]:
    """Decode all files into one, which appears when it is whole, under the key of those that could be decoded."""
    checksum, broken, path = 0, list[int](), _pixels_of(place, key)
    with store.replaced_file(path, f".{secrets.token_hex(4)}") as part, part.open("wb", buffering=0) as file:
        for rows in in_chunks(len(files)):
            some = files.take(slice(rows.start, rows.stop))
            pixels = np.empty(some.shape, dtype=np.uint8)
            if bad := sorted(some.decode_into(pixels)):
                broken += [rows.start + row for row in bad]
                pixels = np.delete(pixels, bad, axis=0)
            checksum = zlib.crc32(pixels.data, checksum)
            _pour(pixels.reshape(-1).data, file)
        whole = key_of(files.take(np.delete(np.arange(len(files)), broken))) if broken else key
        _pour(memoryview(_footer(whole, checksum)), file)
    if broken:
        path = path.replace(_pixels_of(place, whole))
        store.write_json(_broken_of(place, key), {"rows": broken})
    return path, broken


def _pour(view: memoryview, file: FileIO) -> None:
    """Write until nothing is left."""
    while len(view):
        view = view[file.write(view) :]


def _footer(key: bytes, checksum: int) -> bytes:
    return key + checksum.to_bytes(4, "little")


def _is_whole(path: Path, files: ImageFiles, key: bytes) -> bool:
    """Whether the file is there and holds what was written; reads all of it, at a fraction of the cost of decoding."""
    whole, checksum, footer = math.prod(files.shape), 0, len(_footer(key, 0))
    try:
        if path.stat().st_size != whole + footer:
            return False
        with open_regular(path) as file:
            piece = memoryview(bytearray(PIECE))
            for at in range(0, whole, PIECE):
                part = piece[: min(whole - at, PIECE)]
                fill(part, file.fileno(), at)
                checksum = zlib.crc32(part, checksum)
            file.seek(whole)
            return file.read(footer) == _footer(key, checksum)
    except (OSError, EOFError):  # what cannot be read is made again, or its place refuses that with a reason
        return False
