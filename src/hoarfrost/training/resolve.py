"""What a configuration leaves open, decided by the images of stage one and by the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from hoarfrost.config import Config
from hoarfrost.data.arrays import default_size
from hoarfrost.data.images import ImageSet, in_chunks
from hoarfrost.errors import require, unknown
from hoarfrost.models.backbones import get_shape


def resolve(config: Config, images: ImageSet, device: torch.device) -> Config:
    """The configuration with nothing left open.

    Without a choice of backbone, little images and CPUs get the small one.
    """
    size = config.image_size or default_size([min(images.shape[:2])])
    mean, std = config.mean, config.std
    if mean is None or std is None:
        mean, std = channel_statistics(images)
    channels = images.shape[2]
    require(
        len(mean) == channels, f"mean has {len(mean)} values, but the images have {channels} channels: give one each"
    )
    backbone = config.backbone
    if backbone == "auto":
        backbone = "small" if device.type == "cpu" or size < 24 else "resnet18"
    check_frozen(config, backbone)
    return replace(config, image_size=size, mean=mean, std=std, backbone=backbone)


def check_frozen(config: Config, backbone: str) -> None:
    """Refuses parts to freeze that the backbone does not have."""
    parts = get_shape(backbone).parts
    for part in config.method.frozen:
        if part not in parts:
            raise unknown("part of the backbone", part, parts)


def channel_statistics(images: ImageSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, in 0..1, from at most 10,000 images evenly taken."""
    chosen = np.linspace(0, len(images) - 1, min(len(images), 10_000)).astype(np.int64)
    # Counting the 256 values is exact, whatever the order, and needs no copy of all in floating point.
    counts = np.zeros((images.shape[2], 256))
    for rows in in_chunks(len(chosen), 256):
        pixels = images.pixels(chosen[rows.start : rows.stop]).reshape(-1, images.shape[2])
        counts += np.stack([np.bincount(channel, minlength=256) for channel in pixels.T])
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum(axis=1)
    variance = counts @ values**2 / counts.sum(axis=1) - mean**2
    std = np.sqrt(np.maximum(variance, 1e-6))
    return tuple(mean.tolist()), tuple(std.tolist())
