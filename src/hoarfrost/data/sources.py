"""Sources of batches: the loop asks for an epoch and gets augmented, normalised batches on its device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hoarfrost.data.augment import Augment, to_float
from hoarfrost.data.images import ImageFiles, ImageSet


@dataclass(frozen=True)
class Batch:
    """B images in one or two views, all first views before all second ones."""

    images: Tensor
    """(views x B, C, H, W), normalised"""
    labels: Tensor | None
    """(B,) class ids; only in stage one"""


class Normaliser:
    """(pixels - mean) / std for each channel."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> None:
        self.mean = torch.tensor(mean, device=device)[:, None, None]
        self.scale = 1 / torch.tensor(std, device=device)[:, None, None]

    def __call__(self, images: Tensor) -> Tensor:
        """``(B, C, H, W)`` in 0..1 to the same shape, in place."""
        return images.sub_(self.mean).mul_(self.scale)


class DevicePixels:
    """uint8 images ``(N, H, W, C)``: resident on the device when they are in memory, fetched by batches when not."""

    def __init__(self, images: NDArray[np.uint8] | ImageFiles, device: torch.device) -> None:
        self.device = device
        self.files: NDArray[np.uint8] | ImageFiles | None = None
        self.resident: Tensor | None = None
        if isinstance(images, ImageFiles | np.memmap):
            self.files = images
        else:
            self.resident = torch.from_numpy(writable(images)).to(device)
        self.count = len(images)

    def __len__(self) -> int:
        return self.count

    def take(self, indices: Tensor) -> Tensor:
        """The images at ``indices``, on the device."""
        if self.resident is not None:
            return self.resident[indices]
        assert self.files is not None
        return torch.from_numpy(writable(self.files[indices.cpu().numpy()])).to(self.device)


def writable(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An array that torch can share: contiguous, and not read-only; copied only where it is not."""
    return np.require(images, requirements=["C", "W"])


class ImageSource:
    """Shuffled batches of one size.

    Every image comes at least once an epoch: the last batch is filled up from the first.
    """

    def __init__(
        self,
        images: ImageSet,
        *,
        augment: Augment,
        views: int,
        batch_size: int,
        normaliser: Normaliser,
        device: torch.device,
    ) -> None:
        self.pixels = DevicePixels(images.images, device)
        labels = images.labels
        self.labels = None if labels is None else torch.from_numpy(labels.astype(np.int64)).to(device)
        self.augment, self.views, self.normaliser, self.device = augment, views, normaliser, device
        self.batch_size = min(batch_size, len(images))

    def __len__(self) -> int:
        return -(-len(self.pixels) // self.batch_size)

    def epoch(self, generator: torch.Generator) -> Iterator[Batch]:
        """One pass over the images, in an order and with changes drawn from ``generator``."""
        order = torch.randperm(len(self.pixels), generator=generator, device=self.device)
        # Deviation: the sources have a smaller last batch; one size suits batch statistics, pairs and compilers.
        order = torch.cat([order, order[: len(self) * self.batch_size - len(order)]])
        for chosen in torch.split(order, self.batch_size):
            pixels = self.pixels.take(chosen)
            images = self.augment(pixels.repeat(self.views, 1, 1, 1) if self.views > 1 else pixels, generator)
            yield Batch(self.normaliser(images), None if self.labels is None else self.labels[chosen])


def plain_batches(
    images: NDArray[np.uint8] | ImageFiles, *, batch_size: int, normaliser: Normaliser, device: torch.device
) -> Iterator[Tensor]:
    """The images in their order, unchanged and normalised, for evaluation."""
    pixels = DevicePixels(images, device)
    for indices in torch.split(torch.arange(len(pixels), device=device), batch_size):
        yield normaliser(to_float(pixels.take(indices)))
