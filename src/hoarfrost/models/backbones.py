"""Backbones by name: those of this package, of others that are installed, of Hugging Face, and objects of one's own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from hoarfrost import plugins
from hoarfrost.errors import InputError, unknown
from hoarfrost.models import huggingface, openclip
from hoarfrost.models.backbone import Backbone, Input
from hoarfrost.models.efficientnet import LITE0, LITE1, LITE2, EfficientNet, Size
from hoarfrost.models.huggingface import HF, TIMM
from hoarfrost.models.resnet import ResNet, Shape

OBJECT = "object:"
"""begins the name of a backbone that has none, since somebody made it in Python"""


def resnet18(channels: int) -> Backbone:
    """The network of the papers of this field."""
    return ResNet(Shape(widths=(64, 128, 256, 512), blocks=2), channels)


def small(channels: int) -> Backbone:
    """One for CPUs and the smallest images."""
    return ResNet(Shape(widths=(16, 32, 64), blocks=1, stem_stride=2), channels)


def efficientnet(_: int, size: Size) -> Backbone:
    """One for photographs, which has learned from those of ImageNet; for 3 channels."""
    return EfficientNet(size)


BACKBONES: dict[str, Callable[[int], Backbone]] = {
    "resnet18": resnet18,
    "small": small,
    **{size.name: partial(efficientnet, size=size) for size in (LITE0, LITE1, LITE2)},
}
"""what makes each by its name, for 1 or 3 channels; weights aside, it is the same for both"""


def find_backbone(name: str, *, fetch: bool = True) -> Callable[[int], Backbone]:
    """What makes the backbone of a name: of this package, of another that is installed, or of Hugging Face.

    fetch: whether the network may be asked. A name that came with a file is no reason to.
    """
    if name.startswith(OBJECT):
        raise InputError(
            f"the backbone '{name}' is a Python object: give the object itself, as in Learner(backbone=...)"
        )
    if name.startswith(openclip.OPENCLIP) or Path(name, openclip.CONFIG).is_file():
        return openclip.maker(name, fetch=fetch)
    if name.startswith((HF, TIMM)) or Path(name, "config.json").is_file():
        return huggingface.maker(name, fetch=fetch)
    build: Callable[[int], Backbone] = plugins.find("backbone", name, BACKBONES, plugins.BACKBONES)
    return build


def build_backbone(name: str, channels: int, own_backbone: Backbone | None = None, *, begins: bool = True) -> Backbone:
    """A new backbone by its name; where that is the name of an ``own_backbone`` object, a copy of it.

    One that ``begins`` has the weights that it comes with, if any; otherwise others are put into it.
    """
    if own_backbone is not None and name == name_of(own_backbone):
        return copy.deepcopy(own_backbone)
    backbone = _made(name, find_backbone(name, fetch=begins), channels)
    if begins:
        backbone.load_pretrained()
    return backbone


def rebuild_backbone(description: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Backbone:
    """The backbone that a saved model describes, for its ``weights``; nothing is fetched.

    It is made without memory first, to compare it with those: a number in a damaged file may ask for any amount.
    """
    libraries = {huggingface.LIBRARY: huggingface.rebuilt, openclip.LIBRARY: openclip.rebuilt}
    library = description["library"]
    if library not in libraries:
        raise unknown("library of a backbone", library, libraries)
    with at_most(modules=16 * len(weights) + 64), torch.device("meta"):
        expected = libraries[library](description).state_dict()
    for name in sorted(expected.keys() | weights.keys()):
        if name not in expected or name not in weights or expected[name].shape != weights[name].shape:
            raise InputError(f"its weights do not fit the description of its backbone at {name}")
    return libraries[library](description)


@contextmanager
def at_most(*, modules: int) -> Iterator[None]:
    """Within the block a network of more modules than these is an ``InputError``, however many it asks for."""
    made = 0

    def count(*_: object) -> None:
        nonlocal made
        made += 1
        if made > modules:
            raise InputError("its weights do not fit the description of its backbone, which asks for more layers")

    hook = register_module_module_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def _made(name: str, build: Callable[[int], Backbone], channels: int) -> Backbone:
    backbone = build(channels) if callable(build) else build
    if not isinstance(backbone, Backbone):
        raise InputError(f"the package of the backbone '{name}' provides no Backbone: ask its authors")
    return backbone


def name_of(backbone: Backbone) -> str:
    """What a configuration calls a backbone that somebody made in Python."""
    kind = type(backbone)
    return f"{OBJECT}{kind.__module__}.{kind.__qualname__}"


MOST_WIDE = 1 << 20
"""features of an image; class means of as many take megabytes each"""


class Traits(NamedTuple):
    """What can be said of a backbone before there are images."""

    input: Input
    parts: tuple[str, ...]
    """their names"""
    pretrained: bool

    @classmethod
    def of(cls, backbone: Backbone) -> Traits:
        """Of one that is there; one that says what cannot be is refused."""
        if problem := _misfit(backbone):
            raise InputError(f"the backbone {type(backbone).__qualname__} {problem}: ask its authors")
        return cls(backbone.input, tuple(backbone.parts), backbone.pretrained)


def _misfit(backbone: Backbone) -> str:
    """What cannot be in what a backbone says of itself, in words; empty where all can."""
    width, parts, given = getattr(backbone, "width", None), backbone.parts, backbone.input
    if not (isinstance(width, int) and 0 < width <= MOST_WIDE):
        return f"has no width from 1 to {MOST_WIDE}"
    if not (isinstance(parts, Mapping) and all(isinstance(part, nn.Module) for part in parts.values())):
        return "has no parts by name"
    if not isinstance(given, Input):
        return "has no Input"
    if not all(isinstance(size, int | None) for size in (given.side, given.still_side, given.channels)):
        return "needs images of a size that is no whole number"
    return ""


def traits_of(name: str, own_backbone: Backbone | None = None, *, fetch: bool = True) -> Traits:
    """What can be said of a backbone by its name; where that is the name of an ``own_backbone`` object, of that one.

    fetch: see `find_backbone`.
    """
    if own_backbone is not None and name == name_of(own_backbone):
        return Traits.of(own_backbone)
    return _traits_of(name, find_backbone(name, fetch=fetch))


@cache
def _traits_of(name: str, build: Callable[[int], Backbone]) -> Traits:
    """Makes one to see; it reads no weights."""
    with torch.random.fork_rng(devices=[]):  # those that were drawn are thrown away
        return Traits.of(_made(name, build, 3))
