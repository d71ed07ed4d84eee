"""Sources of batches: the loop asks for an epoch and gets augmented, normalised batches on its device.

A batch is made in three parts, so that a compiled and replayed step can hold all but the first: ``picks`` says which
images come next (and fetches them, where they are on disk), ``draw`` gets the random numbers, and ``batch`` is a pure
function of both.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from hoarfrost.data.augment import Augment, to_float
from hoarfrost.data.images import ImageSet, OnDisk, usable_cores
from hoarfrost.data.rows import FeatureFile, Features
from hoarfrost.errors import InputError

MOST_WORKERS = 8
"""processes that decode; beyond these the disk is what is waited for"""


@dataclass(frozen=True)
class Batch:
    """B images in one view or more, all first views before all second ones."""

    images: Tensor
    """(views x B, C, H, W), normalised, or features (views x B, D); where several processes share a batch, this one's
    part of it"""
    labels: Tensor | None
    """class ids, of the whole batch: (B,) in stage one; of mixed batches (M,), of the labelled images alone"""


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Features ``(N, D)`` in the place of the images that they are of: nothing is changed or normalised in those."""

    images: Features
    labels: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.images)

    def rows(self, part: range) -> Features:
        """Consecutive ones."""
        return self.images[part.start : part.stop]

    def take(self, indices: NDArray[np.int64]) -> FeatureSet:
        """Those at ``indices``."""
        return FeatureSet(self.images[indices], None if self.labels is None else self.labels[indices])


Samples: TypeAlias = ImageSet | FeatureSet
"""what a stage learns from"""


class Normaliser:
    """(pixels - mean) / std for each channel."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> None:
        self.mean = torch.tensor(mean, device=device)[:, None, None]
        self.scale = 1 / torch.tensor(std, device=device)[:, None, None]

    def __call__(self, images: Tensor) -> Tensor:
        """``(B, C, H, W)`` in 0..1 to the same shape, in place."""
        return images.sub_(self.mean).mul_(self.scale)


@dataclass(frozen=True)
class Share:
    """Which part of every batch is this process's."""

    rank: int = 0
    processes: int = 1

    def of(self, rows: Tensor) -> Tensor:
        """The rows of this process: the first come to the first process, and so on."""
        if self.processes == 1:
            return rows
        part = len(rows) // self.processes
        return rows[self.rank * part : (self.rank + 1) * part]


WHOLE = Share()
"""every batch, in one process"""


def check_enough(images: int, processes: int) -> None:
    """Refuses fewer images than several processes can share: each needs two for its batch statistics."""
    if processes > 1 and images < 2 * processes:
        raise InputError(f"{images} images are too few for {processes} processes: start fewer")


class Pixels(Protocol):
    """uint8 images ``(N, H, W, C)``, or features ``(N, D)``, that come to the device batch by batch."""

    def __len__(self) -> int: ...

    def picks(self, order: list[Tensor]) -> Iterator[Tensor]:
        """For the indices of each batch, on the device, what ``pixels`` needs."""

    def pixels(self, pick: Tensor) -> Tensor:
        """The images of a pick, ``(B, H, W, C)``, or the features ``(B, D)``, on the device."""


class ResidentPixels:
    """Images that stay on the device: a pick is the indices themselves."""

    def __init__(self, images: NDArray[Any], device: torch.device) -> None:
        self.images = torch.from_numpy(writable(images)).to(device)

    def __len__(self) -> int:
        return len(self.images)

    def picks(self, order: list[Tensor]) -> Iterator[Tensor]:
        """The indices."""
        return iter(order)

    def pixels(self, pick: Tensor) -> Tensor:
        """One gather."""
        return self.images[pick]


class StreamedPixels:
    """Images elsewhere: worker processes read ahead, and a pick is the images themselves."""

    def __init__(self, images: OnDisk | NDArray[Any], device: torch.device, workers: int | None = None) -> None:
        self.count, self.device = len(images), device
        self.rows = Rows()
        workers = min(MOST_WORKERS, usable_cores()) if workers is None else workers
        self.loader = DataLoader(
            Fetched(images),
            batch_size=None,
            sampler=self.rows,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=device.type == "cuda",
        )

    def __len__(self) -> int:
        return self.count

    def picks(self, order: list[Tensor]) -> Iterator[Tensor]:
        """The images of each batch, read while earlier batches are computed with."""
        self.rows.batches = [rows.cpu().numpy() for rows in order]
        try:
            for images in self.loader:
                yield images.to(self.device, non_blocking=True)
        except InputError as error:  # a worker's comes with its traceback as text, and its own words at the end
            words = str(error).strip().splitlines()[-1]
            raise InputError(words.removeprefix(f"{InputError.__module__}.{InputError.__name__}: ")) from None

    def pixels(self, pick: Tensor) -> Tensor:
        """They are there already."""
        return pick


class ReadAhead:
    """Images on disk for a single pass: threads read them, and a pick is the images themselves."""

    def __init__(self, images: OnDisk, device: torch.device) -> None:
        self.images, self.device = images, device

    def __len__(self) -> int:
        return len(self.images)

    def picks(self, order: list[Tensor]) -> Iterator[Tensor]:
        """The images of each batch, read while earlier batches are computed with."""
        threads = min(MOST_WORKERS, usable_cores())
        pool, ahead = ThreadPoolExecutor(threads), deque[Future[NDArray[np.uint8]]]()
        try:
            for rows in order:
                ahead.append(pool.submit(self.images.read, rows.cpu().numpy(), threads=1))
                if len(ahead) > threads:
                    yield torch.from_numpy(ahead.popleft().result()).to(self.device)
            while ahead:
                yield torch.from_numpy(ahead.popleft().result()).to(self.device)
        finally:
            pool.shutdown(cancel_futures=True)

    def pixels(self, pick: Tensor) -> Tensor:
        """They are there already."""
        return pick


class FiledFeatures:
    """Features in a file, in the place of images: a pick is the features themselves."""

    def __init__(self, features: FeatureFile) -> None:
        self.features = features

    def __len__(self) -> int:
        return len(self.features)

    def picks(self, order: list[Tensor]) -> Iterator[Tensor]:
        """The features of each batch; reading them takes less than asking another process would."""
        return (torch.from_numpy(np.asarray(self.features[rows.numpy()])) for rows in order)

    def pixels(self, pick: Tensor) -> Tensor:
        """They are there already."""
        return pick


class Rows(Sampler[NDArray[np.int64]]):
    """The indices of each batch of an epoch."""

    def __init__(self) -> None:
        self.batches: list[NDArray[np.int64]] = []

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class Fetched(Dataset[Tensor]):
    """Whole batches by their indices, as worker processes read them."""

    def __init__(self, images: OnDisk | NDArray[Any]) -> None:
        self.images = images

    def __getitem__(self, rows: NDArray[np.int64]) -> Tensor:
        if isinstance(self.images, OnDisk):
            # A worker decodes alone: the others are the parallelism.
            threads = None if torch.utils.data.get_worker_info() is None else 1
            return torch.from_numpy(self.images.read(rows, threads=threads))
        return torch.from_numpy(writable(np.asarray(self.images[rows])))


def place_pixels(images: NDArray[Any] | OnDisk | FeatureFile, device: torch.device) -> Pixels:
    """Images in memory move to the device, where there is room for them; the others are brought batch by batch."""
    if isinstance(images, FeatureFile):
        if device.type == "cpu":
            return FiledFeatures(images)
        images = np.asarray(images)
    if isinstance(images, OnDisk | np.memmap) or not fits(images.nbytes, device):
        return StreamedPixels(images, device)
    return ResidentPixels(images, device)


def fits(size: int, device: torch.device) -> bool:
    """Whether so many bytes take no more than half of what is free on the device; memory has them already."""
    return device.type != "cuda" or 2 * size <= torch.cuda.mem_get_info(device)[0]


def writable(images: NDArray[Any]) -> NDArray[Any]:
    """An array that torch can share: contiguous, and not read-only; copied only where it is not."""
    return np.require(images, requirements=["C", "W"])


Picked = tuple[Tensor, ...]
"""the indices of the whole batch, and the pick of this process's part; where labelled images are mixed in, then the
same two of those"""


class ImageSource:
    """Shuffled batches of one size.

    Every image comes at least once an epoch: the last batch is filled up from the first. Images that are ``mixed_in``,
    with labels, come in an order of their own, in every batch as many as keep the proportion of the two. ``views`` says
    how each view of an image is changed.
    """

    def __init__(
        self,
        images: Samples,
        *,
        views: Sequence[Augment],
        batch_size: int,
        normaliser: Normaliser,
        device: torch.device,
        share: Share = WHOLE,
        mixed_in: Samples | None = None,
    ) -> None:
        self.store = place_pixels(images.images, device)
        labels = images.labels
        self.labels = None if labels is None else torch.from_numpy(labels.astype(np.int64)).to(device)
        self.views, self.normaliser, self.device = tuple(views), normaliser, device
        self.groups = [(augment, len(list(alike))) for augment, alike in itertools.groupby(self.views)]
        self.batch_size = min(batch_size, len(images))
        check_enough(len(images), share.processes)
        self.batch_size -= self.batch_size % share.processes
        self.share = share
        self.mixed_in: ImageSource | None = None
        if mixed_in is not None:
            # Deviation: a fixed number of both, where the sources draw from all images alike; one size suits compilers.
            each = self.batch_size * len(mixed_in) / len(images) / share.processes
            self.mixed_in = ImageSource(
                mixed_in,
                views=views,
                batch_size=max(1, round(each)) * share.processes,
                normaliser=normaliser,
                device=device,
                share=share,
            )

    def __len__(self) -> int:
        return -(-len(self.store) // self.batch_size)

    def picks(self, generator: torch.Generator, batches: int | None = None) -> Iterator[Picked]:
        """What comes in an epoch, batch by batch, in an order drawn from ``generator``; of another length if asked."""
        order = torch.randperm(len(self.store), generator=generator, device=self.device)
        # Deviation: the sources have a smaller last batch; one size suits batch statistics, pairs and compilers.
        count = (len(self) if batches is None else batches) * self.batch_size
        order = order.repeat(-(-count // len(order)))[:count]
        rows = list(torch.split(order, self.batch_size))
        own = zip(rows, self.store.picks([self.share.of(part) for part in rows]), strict=True)
        if self.mixed_in is None:
            return own
        others = self.mixed_in.picks(generator, len(rows))
        return ((*picked, *other) for picked, other in zip(own, others, strict=True))

    def draw(self, generator: torch.Generator) -> tuple[Tensor, ...]:
        """The random numbers of a batch, for every view of this process's images.

        Every process draws those of the whole batch, so that the images do not depend on how many processes there are.
        """
        drawn: tuple[Tensor, ...] = ()
        for augment, views in self.groups:
            numbers = augment.draw(views * self.batch_size, generator)
            if self.share.processes > 1:
                numbers = tuple(torch.cat([self.share.of(view) for view in part.chunk(views)]) for part in numbers)
            drawn += numbers
        return drawn if self.mixed_in is None else (*drawn, *self.mixed_in.draw(generator))

    def batch(self, picked: Picked, drawn: tuple[Tensor, ...]) -> Batch:
        """A pure function of the picked images and the numbers; those that are mixed in come last in each view."""
        if self.mixed_in is not None:
            half = len(drawn) // 2
            own, other = self._batch(picked[:2], drawn[:half]), self.mixed_in.batch(picked[2:], drawn[half:])
            count = len(self.views)
            views = zip(own.images.chunk(count), other.images.chunk(count), strict=True)
            return Batch(torch.cat([part for view in views for part in view]), other.labels)
        return self._batch(picked, drawn)

    def _batch(self, picked: Picked, drawn: tuple[Tensor, ...]) -> Batch:
        rows, pick = picked
        pixels = self.store.pixels(pick)
        labels = None if self.labels is None else self.labels[rows]
        if pixels.ndim == 2:  # features, alike in every view
            return Batch(pixels.repeat(len(self.views), 1), labels)
        changed, first = [], 0
        for augment, views in self.groups:
            last = first + augment.drawn
            changed.append(augment.apply(pixels.repeat(views, 1, 1, 1) if views > 1 else pixels, *drawn[first:last]))
            first = last
        images = changed[0] if len(changed) == 1 else torch.cat(changed)
        return Batch(self.normaliser(images), labels)

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass over the images, in an order and with changes drawn from ``generator``."""
        for picked in self.picks(generator):
            yield self.batch(picked, self.draw(generator))


def plain_batches(
    images: NDArray[Any] | OnDisk | FeatureFile,
    *,
    batch_size: int,
    normaliser: Normaliser,
    device: torch.device,
    in_place: bool = False,
) -> Iterator[Tensor]:
    """The images in their order, unchanged and normalised, for evaluation; features as they are.

    ``in_place``: every batch takes the memory of the one before. Of new memory for each, a process may keep a lot.
    """
    if isinstance(images, FeatureFile):
        for start in range(0, len(images), batch_size):  # this once, on any device
            yield torch.from_numpy(np.asarray(images[start : start + batch_size])).to(device)
        return
    store = ReadAhead(images, device) if isinstance(images, OnDisk) else place_pixels(images, device)
    order = list(torch.split(torch.arange(len(store), device=device), batch_size))
    memory: Tensor | None = None
    for pick in store.picks(order):
        pixels = store.pixels(pick)
        if pixels.ndim == 2:
            yield pixels
        elif memory is None or not in_place:
            memory = normaliser(to_float(pixels))
            yield memory
        else:
            yield normaliser(memory[: len(pixels)].copy_(pixels.permute(0, 3, 1, 2)).div_(255))
