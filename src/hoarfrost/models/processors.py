"""What images a published network takes, from the file that says how to prepare them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any, NamedTuple

from hoarfrost.errors import InputError, require
from hoarfrost.models.backbone import Input
from hoarfrost.reading import Form

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""mean and std of a network that does not say its own"""
CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)

NONE = type(None)
SIZE: Form = (NONE, int, {str: (NONE, int)}, [int])
NUMBERS: Form = (NONE, float, [float])
PROCESSOR: Form = {
    "size?": SIZE,
    "crop_size?": SIZE,
    "image_mean?": NUMBERS,
    "image_std?": NUMBERS,
    "rescale_factor?": (NONE, float),
    **{
        f"{key}?": (NONE, bool)
        for key in (
            *("do_resize", "do_center_crop", "do_rescale", "do_normalize"),
            *("do_flip_channel_order", "rescale_offset", "include_top"),
        )
    },
}
"""``preprocessor_config.json``; in ``processor_config.json`` it may stand as ``image_processor``"""


class Looks(NamedTuple):
    """What images must be."""

    input: Input
    blue_first: bool
    """whether the channels are blue, green, red"""


def looks_of(
    name: str, said: Mapping[str, Any], *, side: object = None, channels: int = 3, usual: Mapping[str, Any]
) -> Looks:
    """What a processor says; ``usual`` where it does not, and the network's own ``side`` where it names no size.

    Images are square here, and filled by the whole picture. What cannot be made so is refused.
    """
    require(channels in (1, 3), f"the backbone '{name}' takes images of {channels} channels: choose another one")
    said = {**usual, **said}
    mean, std = ((0.0,) * channels, (1.0,) * channels)
    if said.get("do_normalize", True):
        mean, std = (_values(name, said, key, channels) for key in ("image_mean", "image_std"))
    # Pixels reach the network as (pixels / 255 - mean) / std. Processors may multiply by another factor before.
    factor = 255 * (said.get("rescale_factor") or 1 / 255) if said.get("do_rescale", True) else 255.0
    offset = 1 if said.get("rescale_offset") else 0
    mean = tuple((value + offset) / factor for value in mean)
    # EfficientNet's processor divides by its deviation once more, unless it is for a network without its classes.
    std = tuple((value**2 if said.get("include_top") else value) / factor for value in std)
    found = Input(side=_side(name, said, side), channels=channels, mean=mean, std=std)
    return Looks(found, bool(said.get("do_flip_channel_order")))


def looks_again(description: Mapping[str, Any]) -> Looks:
    """What a saved model says of its backbone's images."""
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in description["input"].items()
    }
    return Looks(Input(**given), bool(description["blue_first"]))


def _values(name: str, said: Mapping[str, Any], key: str, channels: int) -> tuple[float, ...]:
    """One number a channel."""
    found = said.get(key)
    values = [found] * channels if isinstance(found, int | float) else found
    above = key == "image_std" and values is not None and min(values, default=1) <= 0
    if values is None or len(values) != channels or above:
        raise InputError(
            f"the processor of the backbone '{name}' has no {key} that can be used ({found}): correct its file"
        )
    return tuple(map(float, values))


def _side(name: str, said: Mapping[str, Any], own: object) -> int:
    """Of the square that the network sees."""
    crop, size = said.get("crop_size"), said.get("size")
    if crop is not None and said.get("do_center_crop", True):
        found: Any = crop
    else:
        found = size if size is not None and said.get("do_resize", True) else own
    if isinstance(found, Mapping):
        keys = ("height", "width"), ("shortest_edge",), ("longest_edge",)
        known = [[found[key] for key in names] for names in keys if all(found.get(key) for key in names)]
        found = known[0] if known else own
    sides = {224} if found is None else {found} if isinstance(found, int) else set(found)
    if len(sides) > 1:
        height, width = list(found)[:2]
        raise InputError(f"the backbone '{name}' takes images of {height} x {width} pixels, not square ones")
    side = sides.pop() if sides else 0
    require(isinstance(side, int) and side > 0, f"the backbone '{name}' names an image size that is none")
    return int(side)


def side_of_patches(patch: int, most: int) -> int:
    """Of the largest square of at most so many patches.

    >>> side_of_patches(16, 256)
    256
    """
    return patch * isqrt(most)
