"""What a configuration leaves open, decided by the images of stage one and by the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from hoarfrost.config import Config
from hoarfrost.data.arrays import default_size
from hoarfrost.data.images import ImageSet, in_chunks
from hoarfrost.errors import require, unknown
from hoarfrost.models.backbones import ALL, BUT_LAST, Backbone, look_at


def resolve(config: Config, images: ImageSet, device: torch.device, given: Backbone | None = None) -> Config:
    """The configuration with nothing left open; ``given`` is the backbone, where it is an object.

    Without a choice of backbone, little images and CPUs get the small one.
    """
    config, channels = suited(config, given), images.shape[2]
    size = config.image_size or default_size([min(images.shape[:2])])
    name = config.backbone
    if name == "auto":
        name = "small" if device.type == "cpu" or size < 24 else "resnet18"
    wanted, parts = look_at(name, given)
    require(
        wanted.channels in (None, channels),
        f"the backbone {name} takes images with {wanted.channels} channels, not {channels}: choose another --backbone",
    )
    mean, std = config.mean, config.std
    if mean is None or std is None:
        mean, std = channel_statistics(images)
    require(
        len(mean) == channels, f"mean has {len(mean)} values, but the images have {channels} channels: give one each"
    )
    check_frozen(config, parts)
    return replace(config, image_size=size, mean=mean, std=std, backbone=name)


def suited(config: Config, given: Backbone | None = None) -> Config:
    """The configuration with what its backbone asks of images, where nobody has set that; before there are images."""
    if config.backbone == "auto":
        return config
    wanted, size = look_at(config.backbone, given)[0], config.image_size
    require(
        wanted.side is None or size in (None, wanted.side),
        f"the backbone {config.backbone} takes images of {wanted.side} x {wanted.side} pixels, not of {size}: leave"
        " image_size, mean and std to it, as with --set image_size=null",
    )
    return replace(
        config, image_size=size or wanted.side, mean=config.mean or wanted.mean, std=config.std or wanted.std
    )


def check_frozen(config: Config, parts: Sequence[str]) -> None:
    """Refuses parts to freeze that the backbone, which has these, does not have."""
    for key, names in (("method.frozen", config.method.frozen), ("fit_frozen", config.fit_frozen)):
        for part in names:
            if part not in (*parts, ALL, BUT_LAST):
                raise unknown(f"part of the backbone ({key})", part, [*parts, ALL, BUT_LAST])


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
