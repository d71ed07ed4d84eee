"""Features of images that no stage changes: computed once, while the image files are first read, and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from hoarfrost import store
from hoarfrost.data.arrays import Features, Pixels
from hoarfrost.data.cache import key_of
from hoarfrost.data.images import ImageFiles, OnDisk
from hoarfrost.data.paths import Indices
from hoarfrost.errors import InputError
from hoarfrost.models.network import Network


class Computed:
    """Features that were computed before, of images on disk; arrays may have changed.

    They go with the images. Those of image files are kept in ``folders`` too, in each the same, so that others find
    them there; where those are ``read_only``, nothing is added. All that is in a folder may be removed.
    """

    def __init__(self) -> None:
        self.folders: tuple[Path, ...] = ()
        self.read_only = False

    def of(self, images: OnDisk, network: Network, compute: Callable[[OnDisk], Features]) -> Features:
        """``(N, D)`` of the images; computed where they are not there."""
        name = name_of(network, images)
        if name not in images.features:
            images.features[name] = self._kept(images, network, compute)[0]
        return images.features[name]

    def look(self, files: ImageFiles, network: Network, compute: Callable[[OnDisk], Features]) -> list[int]:
        """Computes features of files that nobody has read yet; gives the positions of those that cannot be read."""
        readable = Readable(files)
        features, broken = self._kept(readable, network, compute)
        files.features[name_of(network, files)] = features
        return sorted({*broken, *readable.broken})

    def _kept(
        self, images: OnDisk, network: Network, compute: Callable[[OnDisk], Features]
    ) -> tuple[Features, list[int]]:
        """Those in a folder, or new ones, which are put there if it can be; and which files cannot be read."""
        files = images.files if isinstance(images, Readable) else images
        if not self.folders or not isinstance(files, ImageFiles):
            return compute(images), []
        key = hashlib.sha256(key_of(files.noted()) + name_of(network, files).encode()).hexdigest()[:16]
        paths, shape = [folder / f"{key}.safetensors" for folder in self.folders], (len(files), network.decisive_width)
        for path in paths:
            if (found := _read(path, shape)) is not None:
                self._write([other for other in paths if not other.exists()], *found)
                return found
        computed = compute(images)
        broken = images.broken if isinstance(images, Readable) else []
        self._write(paths, computed, broken)
        return computed, broken

    def _write(self, paths: Sequence[Path], features: Features, broken: list[int]) -> None:
        for path in () if self.read_only else paths:
            with suppress(OSError):
                path.parent.mkdir(exist_ok=True)
                tensors = {"features": torch.from_numpy(features), "broken": torch.tensor(broken, dtype=torch.int64)}
                store.write_tensors(path, tensors)


def _read(path: Path, shape: tuple[int, int]) -> tuple[Features, list[int]] | None:
    """What is kept in a file; None where that is not whole."""
    with suppress(InputError, KeyError):
        found = store.read_tensors(path)[0]
        features, broken = found["features"], found["broken"].tolist()
        usable = features.shape == shape and features.dtype == torch.float32 and bool(features.isfinite().all())
        if usable and all(type(row) is int and 0 <= row < shape[0] for row in broken):
            return features.numpy(), broken
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
