"""A network run over images without training it: features, what the heads say, and class statistics."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hoarfrost import store
from hoarfrost.config import Config
from hoarfrost.data.cache import key_of
from hoarfrost.data.images import ImageFiles, ImageSet, OnDisk
from hoarfrost.data.sources import FeatureSet, Normaliser, Samples, plain_batches
from hoarfrost.errors import InputError
from hoarfrost.models.network import Network
from hoarfrost.models.readout import Readout, ReadoutKind
from hoarfrost.models.statistics import ClassStatistics, Tally
from hoarfrost.training.runtime import Runtime

EVALUATION_BATCH = 512
"""images at once, of at most 64 x 64 pixels"""

PIXELS_AT_ONCE = 1 << 20
"""of larger images; a CPU is fastest with few"""


@dataclass(frozen=True)
class Outputs:
    """What a model says of N images."""

    scores: NDArray[np.float32]
    """(N, C) over all classes, of the method's readout, divided by its temperature, so that their softmax is
    calibrated; for most methods they are the joint head's logits"""
    novel_scores: tuple[NDArray[np.float32], ...]
    """(N, n_t) of each discovery step's classes among themselves; for most methods the novel heads' logits"""
    features: NDArray[np.float32] | None = None
    """(N, D), where asked for"""
    side_by_side: NDArray[np.float32] | None = None
    """(N, C), where heads are concatenated: the probabilities of each head by itself"""
    by_joint: bool = True
    """whether the joint head decides, as it was trained"""

    @property
    def predicted(self) -> NDArray[np.int64]:
        """(N,) class ids"""
        return best(self.scores)


def best(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """The class with the highest score, of each image."""
    classes: NDArray[np.int64] = scores.argmax(axis=1)
    return classes


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


class Inference:
    """Runs networks over images of the size and the channels that the configuration says.

    Several processes share the images out, and all get the whole. Where no stage changes the backbone, features are
    ``computed`` once.
    """

    def __init__(self, config: Config, runtime: Runtime, computed: Computed | None = None) -> None:
        assert config.mean is not None
        assert config.std is not None
        self.config, self.runtime, self.computed = config, runtime, computed or Computed()
        self.normaliser = Normaliser(config.mean, config.std, runtime.device)

    @torch.no_grad()
    def batches(self, images: Samples, network: Network) -> Iterator[Tensor]:
        """Features ``(B, width)`` of this process's images; at least one batch, be it empty."""
        device, mine = self.runtime.device, self.runtime.processes.part_of(len(images))
        if not len(mine):
            yield torch.zeros(0, network.width, device=device)
            return
        was_training = network.training
        network.eval()
        try:
            with self.runtime.numerics(search=False):  # the last batch has a size of its own
                for batch in plain_batches(
                    images.rows(mine),
                    batch_size=batch_of(images),
                    normaliser=self.normaliser,
                    device=device,
                    in_place=batch_of(images) < EVALUATION_BATCH,
                ):
                    with self.runtime.autocast():
                        extracted = network(batch)
                        if network.design.mirror and batch.ndim == 4:
                            extracted = (extracted + network(batch.flip(3))) / 2
                    yield extracted
        finally:
            network.train(was_training)

    def features(self, images: Samples, network: Network) -> NDArray[np.float32]:
        """``(N, D)`` of the backbone."""
        if isinstance(images, FeatureSet) and images.images.shape[1] == network.backbone.width:
            return images.images
        mine = len(self.runtime.processes.part_of(len(images)))
        # In one piece from the start: little pieces between large batches would keep the memory of those.
        features, start = torch.empty(mine, network.backbone.width, device=self.runtime.device), 0
        for batch in self.batches(images, network):
            features[start : (start := start + len(batch))] = network.backbone_features(batch)
        rows: NDArray[np.float32] = self.runtime.processes.gather_rows(features, len(images)).cpu().numpy()
        return rows

    def computed_once(self, images: Samples, network: Network) -> FeatureSet:
        """The images' features in their place, for a stage in which those do not change."""
        if isinstance(images, FeatureSet):
            return images
        stored, compute = images.images, partial(self.features, images, network)
        if self.config.fixed and isinstance(stored, OnDisk):
            return FeatureSet(self.computed.of(stored, network, compute), images.labels)
        return FeatureSet(compute(), images.labels)

    @torch.no_grad()
    def novel_logits(self, images: Samples, network: Network) -> Tensor:
        """``(N, n)`` of the newest novel head."""
        logits = [network.novel_logits(batch) for batch in self.batches(images, network)]
        return self.runtime.processes.gather_rows(torch.cat(logits), len(images))

    @torch.no_grad()
    def unlikeness(self, images: Samples, readout: Readout) -> NDArray[np.float32]:
        """``(N,)``: how unlike everything that a readout knows each image is."""
        return self._whole([readout.unlikeness(batch) for batch in self.batches(images, readout.network)], len(images))

    @torch.no_grad()
    def outputs(self, images: Samples, readout: Readout, *, features: bool = False) -> Outputs:
        """What a readout and the novel heads of its network say."""
        network = readout.network
        scores, novel, kept, beside = [], [], [], []
        for extracted in self.batches(images, network):
            scores.append(readout.tempered(readout.scores(extracted)))
            novel.append([readout.novel_scores(extracted, step) for step in range(network.steps)])
            if features:
                kept.append(extracted)
            alone = readout.side_by_side(extracted)
            if alone is not None:
                beside.append(alone)
        count = len(images)
        return Outputs(
            scores=self._whole(scores, count),
            novel_scores=tuple(self._whole(parts, count) for parts in zip(*novel, strict=True)),
            features=self._whole(kept, count) if features else None,
            side_by_side=self._whole(beside, count) if beside else None,
            by_joint=network.design.readout == ReadoutKind(),
        )

    @torch.no_grad()
    def statistics(self, images: Samples, network: Network, labels: NDArray[np.int64], classes: int) -> ClassStatistics:
        """Of the images that have a class id, 0 to ``classes`` - 1, in ``labels`` (N,); those below 0 are left out."""
        device, part = self.runtime.device, self.runtime.processes.part_of(len(images))
        tally = Tally(classes, network.backbone.width, device, network.design.readout.kept)
        given, start = torch.from_numpy(labels[part]).to(device), 0
        some_left_out = bool((labels < 0).any())
        for features in self.batches(images, network):
            ids, seen = given[start : (start := start + len(features))], network.backbone_features(features)
            tally.add(*((seen[ids >= 0], ids[ids >= 0]) if some_left_out else (seen, ids)))
        return self.runtime.processes.gather_tally(tally).statistics()

    def _whole(self, parts: Sequence[Tensor], count: int) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = self.runtime.processes.gather_rows(torch.cat(list(parts)), count).cpu().numpy()
        return rows


def batch_of(images: Samples) -> int:
    """How many images go through a network at once."""
    pixels = math.prod(images.shape[:2]) if isinstance(images, ImageSet) else 0
    return EVALUATION_BATCH if pixels <= 64 * 64 else max(1, PIXELS_AT_ONCE // pixels)


def check_scores(scores: NDArray[np.float32], place: str = "") -> None:
    """Refuses scores of a model with damaged weights."""
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise InputError(
            f"the model{place} gives scores that are no numbers: restore it from a copy, or learn it again"
        )
