"""Backbones: one contract for what makes features of images, and a table of those that have a name."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hoarfrost import plugins
from hoarfrost.errors import InputError, require, unknown

ALL = "all"
"""in the place of the names of all parts"""

BUT_LAST = "all but the last"
"""in the place of the names of all parts but the last"""

HF = "hf:"
"""begins the name of a backbone of Hugging Face, or the path of a folder that one was saved in"""

OBJECT = "object:"
"""begins the name of a backbone that has none, since somebody made it in Python"""


@dataclass(frozen=True, kw_only=True)
class Input:
    """What images must be for a backbone. None: whatever they are."""

    side: int | None = None
    """in pixels"""
    still_side: int | None = None
    """another one that suits it, which is chosen where it stays as it is"""
    channels: int | None = None
    mean: tuple[float, ...] | None = None
    """of each channel, in 0..1, and so for ``std``: what is subtracted, and what is divided by"""
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        sizes = {len(values) for values in (self.mean, self.std) if values is not None}
        require((self.mean is None) == (self.std is None), "a backbone has a mean and a std for its input, or neither")
        require(self.channels is None or sizes <= {self.channels}, "mean and std of a backbone have a value a channel")


class Backbone(nn.Module, ABC):
    """Makes features of images.

    Two copies of one, both in evaluation mode, give the same features of an image, whatever else is in its batch.
    """

    width: int
    """the number of features"""
    input = Input()
    """what its images must be"""
    width_before_last = 0
    """the number of features that the part before the last has; 0 where it does not give them"""
    pretrained = False
    """whether it has learned before: then it may stay as it is"""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, nn.Module]:
        """Its parts by name, from the image to the features; together they have all of its weights and statistics."""

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Normalised images ``(B, C, H, W)`` to features ``(B, width)``, in single precision."""

    def with_before_last(self, images: Tensor) -> Tensor:
        """``(B, width + width_before_last)``: behind the features those of the part before the last."""
        features: Tensor = self(images)
        return features

    def load_pretrained(self) -> None:
        """Takes the weights that it begins stage one with, where they lie in a file; a saved model has its own."""

    def chosen(self, names: Iterable[str]) -> dict[str, nn.Module]:
        """The parts of these names; one of them may be "all", or "all but the last"."""
        several = {ALL: tuple(self.parts), BUT_LAST: tuple(self.parts)[:-1]}
        return {part: self.part(part) for name in names for part in several.get(name, (name,))}

    def part(self, name: str) -> nn.Module:
        """A part by its name."""
        if name not in self.parts:
            raise unknown("part of the backbone", name, self.parts)
        return self.parts[name]


def resnet18(channels: int) -> Backbone:
    """The network of the papers of this field."""
    from hoarfrost.models.resnet import ResNet, Shape  # which is made by the contract above

    return ResNet(Shape(widths=(64, 128, 256, 512), blocks=2), channels)


def small(channels: int) -> Backbone:
    """One for CPUs and the smallest images."""
    from hoarfrost.models.resnet import ResNet, Shape

    return ResNet(Shape(widths=(16, 32, 64), blocks=1, stem_stride=2), channels)


def efficientnet_lite0(_: int) -> Backbone:
    """One for photographs, which has learned from those of ImageNet; for 3 channels."""
    from hoarfrost.models.efficientnet import EfficientNet

    return EfficientNet()


BACKBONES: dict[str, Callable[[int], Backbone]] = {
    "resnet18": resnet18,
    "small": small,
    "efficientnet-lite0": efficientnet_lite0,
}
"""what makes each by its name, for 1 or 3 channels; weights aside, it is the same for both"""


def find_backbone(name: str) -> Callable[[int], Backbone]:
    """What makes the backbone of a name: of this package, of another that is installed, or of Hugging Face."""
    if name.startswith(OBJECT):
        raise InputError(f"the backbone '{name}' is no name but a Python object: give it, as in Learner(backbone=...)")
    if name.startswith(HF) or Path(name, "config.json").is_file():
        from hoarfrost.models.huggingface import maker  # which is made by the contract above

        return maker(name.removeprefix(HF))
    build: Callable[[int], Backbone] = plugins.find("backbone", name, BACKBONES, plugins.BACKBONES)
    return build


def build_backbone(name: str, channels: int, given: Backbone | None = None, *, begins: bool = True) -> Backbone:
    """A new backbone by its name; where that is the name of a ``given`` object, a copy of it.

    One that ``begins`` has the weights that it comes with, if any; otherwise others are put into it.
    """
    if given is not None and name == name_of(given):
        return copy.deepcopy(given)
    backbone = _made(name, find_backbone(name), channels)
    if begins:
        backbone.load_pretrained()
    return backbone


def _made(name: str, build: Callable[[int], Backbone], channels: int) -> Backbone:
    backbone = build(channels)
    if not isinstance(backbone, Backbone):
        raise InputError(f"the package that names the backbone '{name}' brings no Backbone: ask its authors")
    return backbone


def name_of(backbone: Backbone) -> str:
    """What a configuration calls a backbone that somebody made in Python."""
    kind = type(backbone)
    return f"{OBJECT}{kind.__module__}.{kind.__qualname__}"


class Traits(NamedTuple):
    """What can be said of a backbone before there are images."""

    input: Input
    parts: tuple[str, ...]
    """their names"""
    pretrained: bool

    @classmethod
    def of(cls, backbone: Backbone) -> Traits:
        """Of one that is there."""
        return cls(backbone.input, tuple(backbone.parts), backbone.pretrained)


def traits_of(name: str, given: Backbone | None = None) -> Traits:
    """What can be said of a backbone by its name; where that is the name of a ``given`` object, of that one."""
    if given is not None and name == name_of(given):
        return Traits.of(given)
    return _traits_of(name, find_backbone(name))


@cache
def _traits_of(name: str, build: Callable[[int], Backbone]) -> Traits:
    """Makes one to see; it reads no weights."""
    with torch.random.fork_rng(devices=[]):  # those that were drawn are thrown away
        return Traits.of(_made(name, build, 3))
