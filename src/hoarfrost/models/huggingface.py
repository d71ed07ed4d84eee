"""Backbones of Hugging Face: vision transformers such as DINOv2 and ViT, by their name there or from a local folder.

They come through the package ``transformers``, an extra. The network is that package's; what is here makes it a
``Backbone``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hoarfrost.errors import InputError
from hoarfrost.models.backbone import Backbone, Input

HF = "hf:"
"""begins the name of a backbone of Hugging Face, or the path of a folder that one was saved in"""

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""mean and std of a network that does not say its own"""


@cache
def maker(name: str) -> Callable[[int], Backbone]:
    """What makes the backbone of a name, such as ``facebook/dinov2-small``, or of a folder with ``config.json``."""
    return partial(_made, name)


def _made(name: str, _: int) -> Backbone:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise InputError("backbones of Hugging Face need transformers: pip install 'hoarfrost[hf]'") from error
    transformers.logging.set_verbosity_error()
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        return HuggingFace(name, transformers.AutoModel.from_config(config), _input(name, config))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise _cannot_be_had(name, error) from error


def _cannot_be_had(name: str, error: Exception) -> InputError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".:")
    return InputError(f"the backbone '{HF}{name}' cannot be had ({reason}): check its name, or give a folder")


def _input(name: str, config: Any) -> Input:
    """What its images must be: as its preprocessor says, where it has one."""
    from transformers.utils.hub import cached_file

    path = cached_file(name, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False)
    said: Mapping[str, Any] = json.loads(Path(path).read_text()) if path else {}
    side = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
    size = said.get("crop_size") or said.get("size") or side
    if isinstance(size, Mapping):
        size = size.get("height") or size.get("shortest_edge") or side
    mean, std = (tuple(said.get(f"image_{key}", usual)) for key, usual in zip(("mean", "std"), IMAGENET, strict=True))
    return Input(side=int(size), channels=3, mean=mean, std=std)


class HuggingFace(Backbone):
    """The first token's features of a transformer, or the average over the image of a network that keeps maps."""

    pretrained = True

    def __init__(self, name: str, model: Any, looks: Input) -> None:
        super().__init__()
        self.name, self.input = name, looks
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # a layer behind the features, which few published weights have
        self.model: nn.Module = model
        self.width = model.config.hidden_size
        layers = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
        deepest = max(layers, key=len, default=nn.ModuleList())
        self._parts: dict[str, nn.Module] = {}
        for child, module in model.named_children():
            if any(inner is deepest for inner in module.modules()):
                self._parts |= {f"layer{number}": layer for number, layer in enumerate(deepest, 1)}
            else:
                self._parts[child] = module
        held = {id(weight) for part in self._parts.values() for weight in part.parameters()}
        if held != {id(weight) for weight in model.parameters()}:
            self._parts = {"network": model}

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """Its embedding, its layers, and what comes behind; or the network as one, where they do not hold all."""
        return self._parts

    def forward(self, images: Tensor) -> Tensor:
        """``(B, 3, H, W)`` to ``(B, width)``."""
        last: Tensor = self.model(pixel_values=images).last_hidden_state
        return (last.mean(dim=(2, 3)) if last.ndim == 4 else last[:, 0]).to(torch.float32)

    def load_pretrained(self) -> None:
        """Takes the published weights, or those in the folder."""
        import transformers

        try:
            found = transformers.AutoModel.from_pretrained(self.name)
        except (OSError, ValueError) as error:
            raise _cannot_be_had(self.name, error) from error
        own = self.model.state_dict()
        self.model.load_state_dict({key: value for key, value in found.state_dict().items() if key in own})
