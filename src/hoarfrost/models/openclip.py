"""Vision towers of OpenCLIP, such as BioCLIP's: a folder or a repository with ``open_clip_config.json``.

They come through the package ``open_clip``, an extra. Features are the tower's embedding, as that package has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from hoarfrost import store
from hoarfrost.errors import InputError, Unavailable, require
from hoarfrost.models.backbone import Backbone
from hoarfrost.models.hub import FOLDER, file_of, importable, in_one_line, weights_of
from hoarfrost.models.huggingface import TIMM_NAME, check_complete
from hoarfrost.models.processors import CLIP, PROCESSOR, Looks, looks_again, looks_of
from hoarfrost.reading import Form, read_json

OPENCLIP = "openclip:"
"""begins the name of a repository of the hub, or the path of a folder, with a network of OpenCLIP"""
CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"
LIBRARY = "open_clip"
TOWER = "visual."
"""begins the names of its tensors in a checkpoint"""

DESCRIBED: Form = {
    "model_cfg": {"embed_dim": int, "vision_cfg": dict, "quick_gelu?": bool},
    "preprocess_cfg?": {
        "mean?": PROCESSOR["image_mean?"],
        "std?": PROCESSOR["image_std?"],
        "size?": PROCESSOR["size?"],
    },
}


@cache
def maker(name: str, *, fetch: bool) -> Callable[[int], Backbone]:
    """What makes the vision tower of a name, such as ``openclip:imageomics/bioclip``, or of a folder.

    fetch: whether the network may be asked for a name.
    """
    return partial(_made, name, fetch=fetch)


def _made(name: str, _: int, *, fetch: bool) -> Backbone:
    place = name.removeprefix(OPENCLIP)
    with in_one_line(name):
        _check_installed(name)
        path = file_of(place, CONFIG, fetch=fetch)
        require(path is not None, f"the backbone '{name}' has no {CONFIG}: check its name, or give a folder")
        assert path is not None
        content = read_json(path, FOLDER, DESCRIBED)
        prepared, vision = content.get("preprocess_cfg", {}), content["model_cfg"]["vision_cfg"]
        said = {f"image_{key}": prepared[key] for key in ("mean", "std") if prepared.get(key) is not None}
        side = prepared.get("size") or vision.get("image_size", 224)
        usual = dict(zip(("image_mean", "image_std"), CLIP, strict=True))
        return OpenClip(name, content["model_cfg"], looks_of(name, said, side=side, usual=usual))


def rebuilt(description: Mapping[str, Any]) -> Backbone:
    """The backbone of a saved model, from what that holds of it; its weights come later."""
    name = str(description["name"])
    with in_one_line(name):
        return OpenClip(name, description["network"], looks_again(description))


def _check_installed(name: str) -> None:
    if find_spec(LIBRARY) is None:
        raise Unavailable(f"the backbone '{name}' needs open_clip: pip install 'hoarfrost[openclip]'")


def _tower(name: str, content: Mapping[str, Any]) -> nn.Module:
    """The network, without weights of its own and without its text tower."""
    _check_installed(name)
    build = importable("open_clip").model._build_vision_tower
    vision = {**content["vision_cfg"], "timm_model_pretrained": False, "output_tokens": False}
    of_timm = vision.get("timm_model_name")
    if of_timm is not None and not re.fullmatch(TIMM_NAME, str(of_timm)):
        raise InputError(f"the backbone '{name}' asks timm for {of_timm}, which is refused")
    tower: nn.Module = build(content["embed_dim"], vision, bool(content.get("quick_gelu")))
    return tower


class OpenClip(Backbone):
    """The vision tower of a network of OpenCLIP."""

    pretrained = True

    def __init__(self, name: str, content: Mapping[str, Any], looks: Looks) -> None:
        super().__init__()
        self.name, self.input = name, looks.input
        side = self.input.side or 0
        with torch.device("meta"):  # to see what comes out of it, without its weights
            self.width = int(_tower(name, content).eval()(torch.zeros(2, 3, side, side)).shape[1])
        self.model = _tower(name, content)
        network = {key: content[key] for key in ("embed_dim", "vision_cfg", "quick_gelu") if key in content}
        self.description = {
            "library": LIBRARY,
            "name": name,
            "network": network,
            "input": asdict(self.input),
            "blue_first": False,
        }

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """The tower as one."""
        return {"network": self.model}

    def forward(self, images: Tensor) -> Tensor:
        """``(B, 3, H, W)`` to ``(B, width)``."""
        features: Tensor = self.model(images)
        return features.to(torch.float32)

    def load_pretrained(self) -> None:
        """Takes the published weights, or those in the folder."""
        with in_one_line(self.name):
            kept, given = self.model.state_dict(), dict[str, Tensor]()
            for path in weights_of(self.name.removeprefix(OPENCLIP), WEIGHTS):
                tensors, _ = store.read_tensors(path)
                given |= {key.removeprefix(TOWER): tensors[key] for key in tensors if key.startswith(TOWER)}
            misshapen = {key for key in kept.keys() & given.keys() if kept[key].shape != given[key].shape}
            check_complete(self.name, kept, missing=kept.keys() - given.keys(), misshapen=misshapen)
            self.model.load_state_dict({key: given[key] for key in kept})
