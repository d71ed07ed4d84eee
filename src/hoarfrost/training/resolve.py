"""What a configuration leaves open, decided by the images of stage one and by the device.

A pretrained backbone is used in one of three ways; others learn in every stage:

- **as it is** (``STAYS``): on a CPU, or where images are few; ``config.fixed_in_all_stages``, and so
  ``config.fixed_in_discovery``;
- **half-way** (``TUNED`` and ``HALF_WAY``): stage one trains it and brings it half-way back, and no discovery changes
  it, where class statistics decide; ``config.fixed_in_discovery`` alone;
- **tuned** (``TUNED``): every stage trains it, where heads decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hoarfrost.config import HALF_WAY, STAYS, TUNED, Config, Method
from hoarfrost.data.arrays import PHOTOGRAPH, default_size
from hoarfrost.data.cache import ImageStorage
from hoarfrost.data.images import ImageSet, in_chunks
from hoarfrost.errors import require, unknown
from hoarfrost.methods import when_fixed
from hoarfrost.models.backbone import ALL, BUT_LAST, Backbone, Input
from hoarfrost.models.backbones import traits_of
from hoarfrost.recipes import get_recipe
from hoarfrost.settings import override

FOR_PHOTOGRAPHS = "efficientnet-lite0"
"""the backbone of photographs, where nobody chooses another"""

ENOUGH = 100
"""labelled images a class, on average, from which on a pretrained backbone is tuned on a GPU. What that gains, also
with fewer, is measured by ``benchmarks/tuning.py``"""


def resolve(config: Config, images: ImageSet, device: torch.device, own_backbone: Backbone | None = None) -> Config:
    """The configuration with nothing left open: ``choose``, and what is subtracted from images and divided by."""
    config = choose(config, images, device, own_backbone)
    channels, mean, std = channels_of(config, images, own_backbone), config.mean, config.std
    if mean is None or std is None:
        mean, std = channel_statistics(images.fitted(channels=channels))
    require(
        len(mean) == channels,
        f"mean has {len(mean)} values, but the images have {channels} channels: give one per channel",
    )
    return replace(config, mean=mean, std=std)


def channels_of(config: Config, images: ImageSet, own_backbone: Backbone | None = None) -> int:
    """Those that the images of a learner have."""
    return traits_of(config.backbone, own_backbone).input.channels or images.shape[2]


def choose(config: Config, images: ImageSet, device: torch.device, own_backbone: Backbone | None = None) -> Config:
    """The configuration with all decided but ``mean`` and ``std``; ``own_backbone`` is an object of one's own, if any.

    Without a choice of backbone, photographs get a pretrained one, and of the others little images and CPUs the small
    one. A pretrained one stays as it is, unless there is a GPU, and images enough to tune it, or somebody has set what
    stays (``fit_frozen``) and that is not all of it. Gray images become those of three channels, where the backbone has
    learned from such.
    """
    asked = _with_backbone(config, images, device)
    config, name = suited(asked, own_backbone), asked.backbone
    wanted, parts, pretrained = traits_of(name, own_backbone)
    require(
        images.shape[2] in (1, channels_of(config, images, own_backbone)),
        f"the backbone {name} takes gray images, not colour images: choose another --backbone",
    )
    if pretrained:
        changes = _tuned(config) if _tunes(config, images, device) else _as_it_is(config.method)
        config = override(config, {key: value for key, value in changes.items() if key in config.undecided})
    require(
        not config.fit_keeps or config.method.design.readout.from_statistics,
        f"fit_keeps needs a method that decides by class statistics, such as hoarfrost, not {config.method.name}",
    )
    side = (wanted.still_side if config.fixed_in_discovery else None) or wanted.side
    size = asked.image_size or side or default_size([min(images.shape[:2])])
    check_frozen(config, parts)
    return replace(config, image_size=size, undecided=())


def _as_it_is(method: Method) -> dict[str, Any]:
    """The settings of a pretrained backbone that stays as it is."""
    return {**STAYS, **when_fixed(method)}


def _tunes(config: Config, images: ImageSet, device: torch.device) -> bool:
    """Whether a pretrained backbone is tuned: as somebody has set it, or on a GPU with images enough."""
    if "fit_frozen" not in config.undecided:
        return ALL not in config.fit_frozen
    enough = device.type == "cuda" and len(images) >= ENOUGH * max(len(images.class_names), 1)
    return enough or config.fit_keeps > 0


def _tuned(config: Config) -> dict[str, Any]:
    """Those of one that is tuned: half-way, unless heads decide, which suit the network that they were trained with."""
    method, decided = config.method, "fit_keeps" not in config.undecided
    half_way = config.fit_keeps > 0 if decided else method.design.readout.from_statistics
    return {**TUNED, **({**HALF_WAY, **when_fixed(method)} if half_way else {})}


def by_another_method(config: Config, method: Method, *, pretrained: bool) -> Config:
    """A model's configuration for discoveries by another method; how stage one learned stays as it is.

    The numbers are those of anybody's images.
    pretrained: whether its backbone is.
    """
    own = get_recipe("folder").config(method, config.seed)
    if config.fixed_in_discovery:
        own = override(own, _as_it_is(method))
    elif pretrained:
        own = override(own, TUNED)
    design = replace(own.method.design, mirror=config.method.design.mirror)
    return replace(
        config,
        method=replace(own.method, stage_one=config.method.stage_one, design=design),
        discover=own.discover,
        discover_augment=own.discover_augment,
    )


def _with_backbone(config: Config, images: ImageSet, device: torch.device) -> Config:
    """Decides on the backbone."""
    if config.backbone != "auto":
        return config
    side, size = min(images.shape[:2]), config.image_size
    if images.shape[2] == 3 and side >= PHOTOGRAPH and size in (None, *sides(traits_of(FOR_PHOTOGRAPHS).input)):
        return replace(config, backbone=FOR_PHOTOGRAPHS)
    little = (size or default_size([side])) < 24
    return replace(config, backbone="small" if device.type == "cpu" or little else "resnet18")


def in_words(config: Config) -> str:
    """What was decided of the backbone, in a line."""
    if not traits_of(config.backbone).pretrained:
        how = "trained from scratch on these images"
    elif config.fixed_in_all_stages:
        how = "pretrained and not trained further, so features are computed once"
    elif config.fit_keeps:
        how = "pretrained, fine-tuned on these images, weights averaged with the pretrained ones"
        how += f" ({config.fit_keeps:.0%})"
    else:
        how = "pretrained and fine-tuned on these images"
    return f"backbone {config.backbone}: {how}; images of {config.image_size} x {config.image_size} pixels"


def storage(config: Config, keep: ImageStorage, own_backbone: Backbone | None = None) -> ImageStorage:
    """Where labelled images are kept, which are not read yet: photographs for a pretrained backbone stay on disk."""
    looks = traits_of(FOR_PHOTOGRAPHS if config.backbone == "auto" else config.backbone, own_backbone)
    suits = sides(looks.input)
    if not looks.pretrained or (config.backbone == "auto" and config.image_size not in (None, *suits)):
        return keep
    return replace(keep, photographs=config.image_size or next(iter(suits), None))


def sides(wanted: Input) -> tuple[int, ...]:
    """Those of images that suit a backbone, the usual one first; none where all do."""
    return tuple(side for side in (wanted.still_side, wanted.side) if side is not None)


def suited(config: Config, own_backbone: Backbone | None = None) -> Config:
    """The configuration with what its backbone asks of images, where nobody has set that; before there are images.

    They are read in the usual size; `resolve` may choose another.
    """
    if config.backbone == "auto":
        return config
    wanted, size = traits_of(config.backbone, own_backbone).input, config.image_size
    require(
        wanted.side is None or size in (None, *sides(wanted)),
        f"the backbone {config.backbone} takes images of {' or '.join(f'{s} x {s}' for s in sorted(sides(wanted)))}"
        f" pixels, not of {size}: leave"
        " image_size, mean and std unset (--set image_size=null)",
    )
    return replace(
        config,
        image_size=size or next(iter(sides(wanted)), None),
        mean=config.mean or wanted.mean,
        std=config.std or wanted.std,
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
