"""Backbones of Hugging Face: vision transformers such as DINOv2 and ViT, by their name there or from a local folder.

They come through the package ``transformers``, an extra. The network is that package's; what is here makes it a
``Backbone``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hoarfrost.errors import InputError
from hoarfrost.models.backbone import Backbone, Input
from hoarfrost.reading import read_json

HF = "hf:"
"""begins the name of a backbone of Hugging Face, or the path of a folder that one was saved in"""

NO_CODE = {"trust_remote_code": False}
"""no program that comes with a network is run, and nobody is asked whether it may"""

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""mean and std of a network that does not say its own"""


@cache
def maker(name: str, *, fetch: bool) -> Callable[[int], Backbone]:
    """What makes the backbone of a name, such as ``facebook/dinov2-small``, or of a folder with ``config.json``.

    fetch: whether the network may be asked for a name; otherwise only what was fetched before is taken.
    """
    return partial(_made, name, fetch=fetch)


def _made(name: str, _: int, *, fetch: bool) -> Backbone:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise InputError("Hugging Face backbones need transformers: pip install 'hoarfrost[hf]'") from error
    transformers.logging.set_verbosity_error()
    try:
        place = name if fetch else _fetched(name)
        config = transformers.AutoConfig.from_pretrained(place, **NO_CODE)
        return HuggingFace(name, transformers.AutoModel.from_config(config, **NO_CODE), _input(place, config))
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _cannot_be_had(name, error) from error


def _fetched(name: str) -> str:
    """The folder of a name on this machine."""
    from huggingface_hub import try_to_load_from_cache

    if Path(name).is_dir():
        return name
    found = try_to_load_from_cache(name, "config.json")
    if not isinstance(found, str):
        raise InputError(f"the backbone '{HF}{name}' of a model is not on this machine: fetch it (hf download {name})")
    return str(Path(found).parent)


def _cannot_be_had(name: str, error: Exception) -> InputError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".:")
    return InputError(f"the backbone '{HF}{name}' cannot be loaded ({reason}): check its name, or give a folder")


def _input(place: str, config: Any) -> Input:
    """What its images must be: as its preprocessor says, where it has one."""
    from transformers.utils.hub import cached_file

    path = cached_file(place, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False)
    said = read_json(Path(path), "folder of a backbone") if path else {}
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
            found = transformers.AutoModel.from_pretrained(self.name, use_safetensors=True, **NO_CODE)
        except (OSError, ValueError) as error:
            raise _cannot_be_had(self.name, error) from error
        own = self.model.state_dict()
        self.model.load_state_dict({key: value for key, value in found.state_dict().items() if key in own})
