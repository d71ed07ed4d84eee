"""Features that were computed before, so that nobody computes them again."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hoarfrost import store
from hoarfrost.data.cache import key_of
from hoarfrost.data.images import ImageFiles, OnDisk
from hoarfrost.errors import InputError
from hoarfrost.models.network import Network


class Computed:
    """Features that were computed before, of images on disk that somebody still has; arrays may have changed.

    In a ``folder``, where there is one, those of image files are kept for others too. All that is in it may be removed.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._features: dict[int, NDArray[np.float32]] = {}

    def of(self, images: OnDisk, network: Network, compute: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
        """``(N, D)`` of the images; computed where they are not there."""
        key = id(images)
        if key not in self._features:
            self._features[key] = self._kept(images, network, compute)
            weakref.finalize(images, self._features.pop, key, None).atexit = False  # its number may come again
        return self._features[key]

    def _kept(
        self, images: OnDisk, network: Network, compute: Callable[[], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Those in the folder, or new ones, which are put there if it can be."""
        if self.folder is None or not isinstance(images, ImageFiles):
            return compute()
        backbone, digest = network.backbone, hashlib.sha256(key_of(images.noted()))
        digest.update(bytes([network.design.mirror]))
        for weights in backbone.state_dict().values():
            digest.update(weights.cpu().contiguous().numpy().tobytes())
        path, shape = self.folder / f"{digest.hexdigest()[:16]}.safetensors", (len(images), backbone.width)
        with suppress(InputError, KeyError):
            found = store.read_tensors(path)[0]["features"]
            if found.shape == shape and found.dtype == torch.float32 and bool(found.isfinite().all()):
                return found.numpy()
        features = compute()
        with suppress(OSError):
            self.folder.mkdir(exist_ok=True)
            store.write_tensors(path, {"features": torch.from_numpy(features)})
        return features

    def forget(self) -> None:
        """Where another backbone comes."""
        self._features.clear()
