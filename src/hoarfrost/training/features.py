"""Features of images that no discovery changes: computed once, while the image files are first read, and kept."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from hoarfrost import store
from hoarfrost.data.arrays import Pixels
from hoarfrost.data.cache import key_of
from hoarfrost.data.images import ImageFiles, OnDisk
from hoarfrost.data.paths import Indices
from hoarfrost.data.rows import FeatureFile, Features, Handle, chunks
from hoarfrost.errors import InputError
from hoarfrost.models.network import Network
from hoarfrost.reading import open_regular

PART = 256
"""images at least whose features are kept together, until those of all images are"""

Compute = Callable[[OnDisk], Iterator[NDArray[np.float32]]]
"""the features of images, batch by batch"""


class FeatureCache:
    """Features that were computed before, of images on disk; arrays may have changed.

    They are in a file without a name, and go with the images. Those of image files are kept in ``folders`` too, in each
    the same, so that others find them there; where those are ``read_only``, nothing is added. All that is in a folder
    may be removed. What a command had computed when it was ended is there in parts, and the next one goes on with it.
    """

    def __init__(self) -> None:
        self.folders: tuple[Path, ...] = ()
        self.read_only = False

    def of(self, images: OnDisk, network: Network, compute: Compute) -> Features:
        """``(N, D)`` of the images; computed where they are not there."""
        name = name_of(network, images)
        if name not in images.features:
            images.features[name] = self._kept(images, network, compute)[0]
        return images.features[name]

    def read_first(self, files: ImageFiles, network: Network, compute: Compute) -> list[int]:
        """Computes features of files that nobody has read yet; gives the positions of those that cannot be read."""
        readable = Readable(files)
        features, broken = self._kept(readable, network, compute)
        files.features[name_of(network, files)] = features
        return sorted({*broken, *readable.broken})

    def _kept(self, images: OnDisk, network: Network, compute: Compute) -> tuple[Features, list[int]]:
        """Those in a folder, or new ones, which are put there if it can be; and which files cannot be read."""
        files = images.files if isinstance(images, Readable) else images
        shape = len(files), network.decisive_width
        if not self.folders or not isinstance(files, ImageFiles):
            return _in_a_file(compute(images), shape), []
        key = hashlib.sha256(key_of(files.noted()) + name_of(network, files).encode()).hexdigest()[:16]
        paths = [folder / f"{key}.npy" for folder in self.folders]
        for path in paths:
            if (found := _read(path, shape)) is not None:
                self._remove_parts(key)
                self._write([other for other in paths if not other.exists()], *found)
                return found
        broken: list[int] = []
        computed = _in_a_file(self._in_parts(images, shape, compute, key, broken), shape)
        self._write(paths, computed, broken)
        if any(path.exists() for path in paths):
            self._remove_parts(key)
            computed = replace(computed, kept_as=key) if isinstance(computed, FeatureFile) else computed
        return computed, broken

    def kept(self, key: str, rows: NDArray[np.int64], width: int) -> NDArray[np.float32] | None:
        """``(n, D)``: some rows of features that are kept under a name; None where they are not there any more."""
        for path in (folder / f"{key}.npy" for folder in self.folders if re.fullmatch("[0-9a-f]{16}", key)):
            with suppress(OSError):
                count = (path.stat().st_size - len(_header((1, width)))) // (4 * width + 1)
                if (found := _read(path, (count, width))) is not None and len(rows) and rows.max() < count:
                    return np.asarray(found[0][rows])
        return None

    def _in_parts(
        self, images: OnDisk, shape: tuple[int, int], compute: Compute, key: str, broken: list[int]
    ) -> Iterator[NDArray[np.float32]]:
        """Batches, those first that an ended command had computed; broken files' positions are added to ``broken``."""
        (count, width), start = shape, 0
        ended = {first: (path, size) for path, first, size in self._parts(key)}
        while start in ended:
            path, size = ended[start]
            if start + size > count or (part := _read(path, (size, width))) is None:
                break
            yield from chunks(part[0])
            broken += [start + position for position in part[1]]
            start += size
        if start and start == count:
            return
        left = images.take(slice(start, None)) if start else images
        first, stop, held = start, start, list[NDArray[np.float32]]()
        found = left.broken if isinstance(left, Readable) else []  # it grows
        for rows in compute(left):
            yield rows
            held.append(rows)
            stop += len(rows)
            if stop - first >= PART and stop < count:
                own = [start + position - first for position in found if first <= start + position < stop]
                self._write_part(f"{key}.{first}.{stop - first}.part.npy", np.concatenate(held), own)
                first, held = stop, []
        broken += [start + position for position in found]

    def _write_part(self, name: str, features: Features, broken: list[int]) -> None:
        """Into the first folder that takes it."""
        for folder in self.folders:
            self._write([folder / name], features, broken)
            if (folder / name).exists():
                return

    def _parts(self, key: str) -> list[tuple[Path, int, int]]:
        """Files with parts, the position of the first image in each, and how many there are."""
        parts = []
        for path in chain.from_iterable(map(_files_in, self.folders)):
            if named := re.fullmatch(rf"{key}\.(\d{{1,12}})\.([1-9]\d{{0,11}})\.part\.npy", path.name):
                parts.append((path, int(named[1]), int(named[2])))
        return parts

    def _remove_parts(self, key: str) -> None:
        for path, *_ in () if self.read_only else self._parts(key):
            with suppress(OSError):
                path.unlink()

    def _write(self, paths: Sequence[Path], features: Features, broken: list[int]) -> None:
        """As NumPy does, and behind that, a byte each, whether a file is one that cannot be read."""
        is_broken = np.isin(np.arange(len(features)), broken)
        for path in () if self.read_only else paths:
            with suppress(OSError):
                path.parent.mkdir(exist_ok=True)
                with (
                    _without_leftovers(path.parent),
                    store.replaced_file(path, mark=f".{os.getpid()}") as part,
                    part.open("wb") as file,
                ):
                    file.write(_header(features.shape))
                    for rows in chunks(features):
                        file.write(rows.astype("<f4", copy=False).data)
                    file.write(is_broken.data)


def _header(shape: tuple[int, int]) -> bytes:
    """What NumPy writes before features."""
    header = BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue()


@contextmanager
def _without_leftovers(folder: Path) -> Iterator[None]:
    """Within the block nobody else writes features there; what a killed command left of a file is removed."""
    with store.alone(folder) as certain:
        for left in folder.glob(".*.npy.*.part") if certain else ():
            left.unlink(missing_ok=True)
        yield


def _files_in(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _in_a_file(batches: Iterator[NDArray[np.float32]], shape: tuple[int, int]) -> Features:
    """Features in a file without a name; in memory where there is no place for files."""
    try:
        opened = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - see below
    except OSError:
        return np.concatenate(list(batches))
    with opened as file:
        try:
            for rows in batches:
                view = np.ascontiguousarray(rows).data.cast("B")
                while len(view):
                    view = view[file.write(view) :]
        except OSError as error:
            raise InputError(
                f"cannot keep features in {tempfile.gettempdir()}: {error.strerror or error}; free space there, or set"
                " TMPDIR"
            ) from None
        return FeatureFile(Handle(cast(BinaryIO, file)), 0, shape[1], np.arange(shape[0]))


def _read(path: Path, shape: tuple[int, int]) -> tuple[Features, list[int]] | None:
    """What is kept in a file; None where that is not whole."""
    header = _header(shape)  # compared and not parsed: NumPy takes a damaged one for any expression
    with suppress(OSError, ValueError, EOFError, InputError), open_regular(path) as file:
        if file.read(len(header)) != header:
            return None
        features = FeatureFile(Handle(file), len(header), shape[1], np.arange(shape[0]), Path(path).stem)
        if not all(np.isfinite(rows).all() for rows in chunks(features)):
            return None
        file.seek(features.start + 4 * shape[0] * shape[1])
        is_broken = np.frombuffer(file.read(shape[0] + 1), dtype=np.uint8)
        if len(is_broken) == shape[0]:
            return features, np.flatnonzero(is_broken).tolist()
    return None


def name_of(network: Network, images: OnDisk) -> str:
    """What decides the features of images, beside those: the weights, and what the images are made to."""
    digest = hashlib.sha256(repr((images.shape[1:], network.design.mirror, network.decisive_width)).encode())
    for weights in network.backbone.state_dict().values():
        digest.update(weights.cpu().contiguous().numpy().data)
    return digest.hexdigest()


class Readable(OnDisk):
    """Image files of which some may be broken: those are black, and noted."""

    def __init__(self, files: ImageFiles) -> None:
        self.files, self.size, self.channels, self.features = files, files.size, files.channels, {}
        self.broken: list[int] = []
        """their positions"""

    def __len__(self) -> int:
        return len(self.files)

    def take(self, indices: Indices) -> Readable:
        """The files at `indices`."""
        return Readable(self.files.take(indices))

    def fitted(self, size: int, channels: int) -> Readable:
        """The same files in another size."""
        return Readable(self.files.fitted(size, channels))

    def read(self, indices: Indices, *, threads: int | None = None) -> Pixels:
        """The images at `indices`."""
        rows = np.arange(len(self))[indices]
        chosen = self.files.take(rows)
        pixels = np.zeros(chosen.shape, dtype=np.uint8)
        self.broken += rows[chosen.decode_into(pixels, threads=threads)].tolist()
        return pixels
