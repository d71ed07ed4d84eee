"""A network run over images without training it: features, what the heads say, and class statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hoarfrost.computing.runtime import Runtime
from hoarfrost.config import Config
from hoarfrost.data.images import ImageFiles, ImageSet, OnDisk
from hoarfrost.data.rows import Features
from hoarfrost.data.sources import FeatureSet, Normaliser, Samples, plain_batches
from hoarfrost.errors import InputError
from hoarfrost.models.classes import ClassTable
from hoarfrost.models.network import Network
from hoarfrost.models.readout import Readout, ReadoutKind
from hoarfrost.models.statistics import ClassStatistics, Tally
from hoarfrost.training.features import Compute, FeatureCache
from hoarfrost.training.observers import Observer

EVALUATION_BATCH = 512
"""images at once, of at most 64 x 64 pixels"""

PIXELS_AT_ONCE = {"cpu": 340_000, "cuda": 1 << 20}
"""of larger images. On a CPU what a network makes of so many is less than 32 MiB at a time, up to which the system's
memory is used again; above it all is asked for anew, which takes a quarter of the time"""


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
    likeness: NDArray[np.float32] | None = None
    """(N,): 1, or less the less an image is like anything known; None where nobody knows"""

    @property
    def predicted(self) -> NDArray[np.int64]:
        """(N,) class ids"""
        return best(self.scores)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """(N, C), each row adding up to 1"""
        logits = self.scores.astype(np.float64)
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        rows: NDArray[np.float64] = exponentials / exponentials.sum(axis=1, keepdims=True)
        return rows

    @property
    def sureness(self) -> NDArray[np.float64]:
        """(N, C): probabilities times likeness, so that no class is probable for an image that is unlike all of them"""
        return self.probabilities if self.likeness is None else self.probabilities * self.likeness[:, None]


def best(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """The class with the highest score, of each image."""
    classes: NDArray[np.int64] = scores.argmax(axis=1)
    return classes


class Gathered:
    """What batches give, one behind the other, in one piece from the start.

    Little pieces between large batches would keep the memory of those.
    """

    def __init__(self, count: int) -> None:
        self.count, self.start, self.rows, self.begun = count, 0, torch.empty(0), False

    def add(self, part: Tensor) -> None:
        """What comes next."""
        if not self.begun:
            self.begun = True
            self.rows = torch.empty(self.count, *part.shape[1:], dtype=part.dtype, device=part.device)
        self.rows[self.start : (start := self.start + len(part))] = part
        self.start = start


class Inference:
    """Runs networks over images of the size and the channels that the configuration says.

    Several processes share the images out, and all get the whole. Where no discovery changes the backbone, features are
    computed once and kept in the ``cache``.
    """

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        cache: FeatureCache | None = None,
        observer: Observer | None = None,
    ) -> None:
        assert config.mean is not None
        assert config.std is not None
        self.config, self.runtime = config, runtime
        self.cache, self.observer = cache or FeatureCache(), observer or Observer()
        self.normaliser = Normaliser(config.mean, config.std, runtime.device)

    @torch.no_grad()
    def batches(self, images: Samples, network: Network) -> Iterator[Tensor]:
        """The ``extended_features`` of this process's images; at least one batch, be it empty."""
        device, mine = self.runtime.device, self.runtime.processes.part_of(len(images))
        if not len(mine):
            width = max(network.width, network.decisive_width)
            yield torch.zeros(0, width, device=device)
            return
        was_training, seen = network.training, 0
        tell = self.observer.images_seen if isinstance(images, ImageSet) else Observer().images_seen
        network.eval()
        tell(0, len(mine))
        try:
            with self.runtime.numerics(search=False):  # the last batch has a size of its own
                for batch in plain_batches(
                    images.rows(mine),
                    batch_size=batch_of(images, device),
                    normaliser=self.normaliser,
                    device=device,
                    in_place=batch_of(images, device) < EVALUATION_BATCH,
                ):
                    with self.runtime.autocast():
                        extracted = network.extended_features(batch)
                        if network.design.mirror and batch.ndim == 4:
                            extracted = (extracted + network.extended_features(batch.flip(3))) / 2
                    yield extracted
                    seen += len(batch)
                    tell(seen, len(mine))
        finally:
            network.train(was_training)

    def features(self, images: Samples, network: Network) -> Features:
        """``(N, D)`` of the backbone; those of the part before the last among them, where they decide too."""
        if isinstance(images, FeatureSet) and images.images.shape[1] == network.decisive_width:
            return images.images
        found = self._space_for(images)
        for batch in self.batches(images, network):
            found.add(network.decisive(batch).float())
        return self._of_all(found, len(images))

    def computed_once(self, images: Samples, network: Network) -> FeatureSet:
        """The images' features in their place, for a stage in which those do not change."""
        if isinstance(images, FeatureSet):
            return images
        stored = images.images
        if self.config.fixed_in_discovery and isinstance(stored, OnDisk):
            return FeatureSet(self.cache.of(stored, network, self._features_of(network)), images.labels)
        return FeatureSet(self.features(images, network), images.labels)

    def read_first(self, files: ImageFiles, network: Network) -> list[int]:
        """Computes the features of files that nobody has read yet; gives the positions of those that cannot be read."""
        return self.cache.read_first(files, network, self._features_of(network))

    def _features_of(self, network: Network) -> Compute:
        def compute(images: OnDisk) -> Iterator[NDArray[np.float32]]:
            if self.runtime.processes.count > 1:
                yield np.asarray(self.features(ImageSet(images), network))
                return
            for batch in self.batches(ImageSet(images), network):
                yield network.decisive(batch).float().cpu().numpy()

        return compute

    @torch.no_grad()
    def novel_logits(self, images: Samples, network: Network) -> Tensor:
        """``(N, n)`` of the newest novel head."""
        found = self._space_for(images)
        for batch in self.batches(images, network):
            found.add(network.novel_logits(batch))
        return self.runtime.processes.gather_rows(found.rows, len(images))

    @torch.no_grad()
    def unlikeness(self, images: Samples, readout: Readout) -> NDArray[np.float32]:
        """``(N,)``: how unlike everything that a readout knows each image is."""
        found = self._space_for(images)
        for batch in self.batches(images, readout.network):
            found.add(readout.unlikeness(batch))
        return self._of_all(found, len(images))

    @torch.no_grad()
    def outputs(
        self, images: Samples, readout: Readout, *, features: bool = False, classes: ClassTable | None = None
    ) -> Outputs:
        """What a readout and the novel heads of its network say; of ``classes`` as people have decided of them."""
        network = readout.network
        scores, kept, beside, like = (self._space_for(images) for _ in range(4))
        rejected = np.zeros(network.classes, dtype=bool) if classes is None else classes.stands_for < 0
        present = torch.from_numpy(~rejected).to(self.runtime.device)
        novel = [self._space_for(images) for _ in range(network.steps)]
        for extracted in self.batches(images, network):
            found_scores = readout.scores(extracted)
            scores.add(readout.tempered(found_scores))
            likeness = readout.likeness(found_scores, present)
            if likeness is not None:
                like.add(likeness)
            for step, found in enumerate(novel):
                found.add(readout.novel_scores(extracted, step))
            if features:
                kept.add(extracted[:, : network.width])
            alone = readout.side_by_side(extracted)
            if alone is not None:
                beside.add(alone)
        count, decided = len(images), (lambda found: found) if classes is None else classes.scores
        return Outputs(
            scores=decided(self._of_all(scores, count)),
            novel_scores=tuple(self._of_all(found, count) for found in novel),
            features=self._of_all(kept, count) if features else None,
            side_by_side=decided(self._of_all(beside, count)) if beside.begun else None,
            by_joint=network.design.readout == ReadoutKind(),
            likeness=self._of_all(like, count) if like.begun else None,
        )

    @torch.no_grad()
    def statistics(self, images: Samples, network: Network, labels: NDArray[np.int64], classes: int) -> ClassStatistics:
        """Of the images that have a class id, 0 to ``classes`` - 1, in ``labels`` (N,); those below 0 are left out."""
        device, part = self.runtime.device, self.runtime.processes.part_of(len(images))
        tally = Tally(classes, network.backbone.width, device, network.kept)
        given, start = torch.from_numpy(labels[part]).to(device), 0
        some_left_out = bool((labels < 0).any())
        for features in self.batches(images, network):
            ids, seen = given[start : (start := start + len(features))], network.decisive(features)
            tally.add(*((seen[ids >= 0], ids[ids >= 0]) if some_left_out else (seen, ids)))
        return self.runtime.processes.gather_tally(tally).statistics()

    def _space_for(self, images: Samples) -> Gathered:
        return Gathered(len(self.runtime.processes.part_of(len(images))))

    def _of_all(self, found: Gathered, count: int) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = self.runtime.processes.gather_rows(found.rows, count).cpu().numpy()
        return rows


def batch_of(images: Samples, device: torch.device) -> int:
    """How many images go through a network at once."""
    pixels = math.prod(images.shape[:2]) if isinstance(images, ImageSet) else 0
    return EVALUATION_BATCH if pixels <= 64 * 64 else max(1, PIXELS_AT_ONCE[device.type] // pixels)


def check_scores(scores: NDArray[np.float32], place: str = "") -> None:
    """Refuses scores of a model with damaged weights."""
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise InputError(f"the model{place} predicts NaN or infinite scores: restore it from a copy, or fit it again")
