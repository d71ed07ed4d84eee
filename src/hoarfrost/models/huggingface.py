"""Backbones of Hugging Face, by their name there or from a local folder, and timm's through the same package.

They come through the package ``transformers``, an extra. The network is that package's; what is here makes it a
``Backbone``: which of its outputs are the features, and what its images must be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hoarfrost.errors import InputError, Unavailable, require, unknown
from hoarfrost.models.backbone import Backbone
from hoarfrost.models.hub import FOLDER, file_of, importable, in_one_line, weights_of
from hoarfrost.models.processors import CLIP, HALF, IMAGENET, PROCESSOR, Looks, looks_again, looks_of, side_of_patches
from hoarfrost.reading import damaged, misfit, read_json

HF = "hf:"
"""begins the name of a backbone of Hugging Face, or the path of a folder that one was saved in"""
TIMM = "timm:"
"""begins the name of a network of timm, of a repository that holds one, or the path of a folder"""

LIBRARY = "transformers"

# ---------------------------------------------------------------------------------------------------------------------
# Which outputs are the features
# ---------------------------------------------------------------------------------------------------------------------


def first(output: Any) -> Tensor:
    """The class token's."""
    found: Tensor = output.last_hidden_state[:, 0]
    return found


def mean(output: Any) -> Tensor:
    """The average of all patches."""
    last: Tensor = output.last_hidden_state
    return last.mean(dim=(2, 3) if last.ndim == 4 else 1)


def pooled(output: Any) -> Tensor:
    """As the network pools them itself; the average of all patches where it does not."""
    found = output.pooler_output
    return mean(output) if found is None else found.flatten(1)


def as_earlier(output: Any) -> Tensor:
    """What earlier versions took, whatever the network."""
    return mean(output) if output.last_hidden_state.ndim == 4 else first(output)


def plain(images: Tensor, _: Any) -> dict[str, Tensor]:
    """Images as nearly all networks take them."""
    return {"pixel_values": images}


def unmasked(images: Tensor, config: Any) -> dict[str, Tensor]:
    """Images whose patches are neither hidden nor shuffled."""
    patches = (images.shape[2] // config.patch_size) * (images.shape[3] // config.patch_size)
    order = torch.arange(patches, dtype=torch.float32, device=images.device)
    return {"pixel_values": images, "noise": order.expand(len(images), -1)}


def in_patches(images: Tensor, config: Any) -> dict[str, Tensor | None]:
    """Images cut into patches, all of them there."""
    patch = config.patch_size
    rows, columns = images.shape[2] // patch, images.shape[3] // patch
    cut = images.reshape(len(images), -1, rows, patch, columns, patch).permute(0, 2, 4, 3, 5, 1)
    shapes = torch.tensor([[rows, columns]], device="cpu").expand(len(images), -1)
    return {
        "pixel_values": cut.reshape(len(images), rows * columns, -1),
        "pixel_attention_mask": None,
        "spatial_shapes": shapes,
    }


class Kind(NamedTuple):
    """What must be known of an architecture."""

    features: Callable[[Any], Tensor]
    usual: Mapping[str, Any] = {}
    """what its processor says where there is no file of one"""
    given: Callable[[Tensor, Any], Mapping[str, Tensor | None]] = plain
    """what the network is called with"""
    settings: Mapping[str, Any] = {}
    """of its configuration, which are set whatever the file says"""


def normalised(values: tuple[tuple[float, ...], tuple[float, ...]]) -> dict[str, Any]:
    """As a processor says it."""
    return dict(zip(("image_mean", "image_std"), values, strict=True))


BGR = {"do_normalize": False, "do_flip_channel_order": True}

KINDS: dict[str, Kind] = {
    **dict.fromkeys(("vit", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit", "vit_msn"), Kind(first)),
    "vit_mae": Kind(first, given=unmasked, settings={"mask_ratio": 0.0}),
    **dict.fromkeys(("ijepa", "swin", "swinv2"), Kind(mean)),
    **dict.fromkeys(("resnet", "regnet", "mobilenet_v1", "mobilenet_v2", "pvt_v2", "poolformer"), Kind(mean)),
    "efficientnet": Kind(mean, usual={"include_top": True}),
    **dict.fromkeys(("mobilevit", "mobilevitv2"), Kind(mean, usual=BGR)),
    **dict.fromkeys(("beit", "hiera"), Kind(pooled)),
    **dict.fromkeys(("convnext", "convnextv2", "dinov3_convnext"), Kind(pooled)),
    **dict.fromkeys(("clip", "clip_vision_model"), Kind(pooled, usual=normalised(CLIP))),
    **dict.fromkeys(("siglip", "siglip_vision_model"), Kind(pooled, usual=normalised(HALF))),
    **dict.fromkeys(("siglip2", "siglip2_vision_model"), Kind(pooled, usual=normalised(HALF), given=in_patches)),
    "timm_wrapper": Kind(pooled),
}
"""by ``model_type``, as ``config.json`` names it"""

# ---------------------------------------------------------------------------------------------------------------------
# How a network is described
# ---------------------------------------------------------------------------------------------------------------------

LEFT_OUT = frozenset(
    {
        *("attn_implementation", "_attn_implementation", "experts_implementation"),  # may name code on the hub
        *("dtype", "torch_dtype"),  # features are in single precision
        *("id2label", "label2id", "label_names", "problem_type"),  # of classes that are not used
        *("_name_or_path", "architectures", "transformers_version"),
    }
)
"""what a configuration says and is not taken"""

TIMM_NAME = re.compile(r"[\w.]+")
"""a network of timm itself: others name a place to fetch one from"""
TIMM_REFUSED = re.compile(r"pretrained|checkpoint|cache|features_only|out_indices|scriptable|exportable")
"""arguments of timm that read files, or make another network"""


def checked(name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as far as it is taken; refused where it asks for more than a network that is known here."""
    content = {key: value for key, value in content.items() if key not in LEFT_OUT}
    if "model_type" not in content and "architecture" in content:
        content["model_type"] = "timm_wrapper"
    require(
        "auto_map" not in content,
        f"the backbone '{name}' needs code of its own (auto_map), which is never run: choose another checkpoint",
    )
    require(
        "quantization_config" not in content,
        f"the backbone '{name}' has quantised weights: choose the checkpoint in full precision",
    )
    kind = content.get("model_type")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"the backbone '{name}' cannot be used: {unknown('model_type', str(kind), KINDS)}")
    if isinstance(vision := content.get("vision_config"), Mapping):
        content["vision_config"] = {key: value for key, value in vision.items() if key not in LEFT_OUT}
    if kind == "timm_wrapper":
        architecture, given = str(content.get("architecture")), content.get("model_args") or {}
        strange = next(filter(TIMM_REFUSED.search, given), None)
        if strange is not None or not TIMM_NAME.fullmatch(architecture):
            raise InputError(f"the backbone '{name}' asks timm for {strange or architecture}, which is refused")
        content |= {
            "label_names": (),
            "model_args": {key: value for key, value in given.items() if key != "num_classes"},
        }
    return content


def configuration(name: str, content: Mapping[str, Any]) -> tuple[Any, Kind]:
    """A network's configuration, of the vision tower where there are two, and what is known of its kind."""
    from transformers import CONFIG_MAPPING

    content = checked(name, content)
    if content["model_type"] not in CONFIG_MAPPING:
        raise Unavailable(f"the backbone '{name}' needs a newer transformers: pip install --upgrade transformers")
    config = CONFIG_MAPPING[content["model_type"]].from_dict(content)
    config = getattr(config, "vision_config", config)
    kind = KINDS[config.model_type]
    for key, value in kind.settings.items():
        setattr(config, key, value)
    return config, kind


def looks(name: str, content: Mapping[str, Any], config: Any, kind: Kind, *, fetch: bool) -> Looks:
    """What its processor says of images, in whichever file it is."""
    said: Mapping[str, Any] = {}
    if config.model_type == "timm_wrapper":
        own = content.get("pretrained_cfg", content)
        said = {"size": own.get("input_size", [224])[-2:], "image_mean": own.get("mean"), "image_std": own.get("std")}
        said = {key: value for key, value in said.items() if value is not None}
        if problem := misfit(said, PROCESSOR):
            raise InputError(f"the backbone '{name}' has a pretrained_cfg that cannot be used ({problem})")
    else:
        for file in ("processor_config.json", "preprocessor_config.json"):
            if (path := file_of(name, file, fetch=fetch)) is not None:
                said = read_json(path, FOLDER)
                said = said.get("image_processor", said)
                if problem := misfit(said, PROCESSOR):
                    raise damaged(path, problem)
                if "image_mean" in said or "size" in said:
                    break  # otherwise it is of the text alone
    side = getattr(config, "image_size", None)
    if kind.given is in_patches:
        said = {key: value for key, value in said.items() if key not in ("size", "crop_size")}
        side = side_of_patches(config.patch_size, said.get("max_num_patches") or config.num_patches)
    usual = {**normalised(IMAGENET), **kind.usual}
    return looks_of(name, said, side=side, channels=getattr(config, "num_channels", 3), usual=usual)


# ---------------------------------------------------------------------------------------------------------------------
# The backbone
# ---------------------------------------------------------------------------------------------------------------------


@cache
def maker(name: str, *, fetch: bool) -> Callable[[int], Backbone]:
    """What makes the backbone of a name, such as ``hf:facebook/dinov2-small``, or of a folder with ``config.json``.

    fetch: whether the network may be asked for a name. Otherwise only what was fetched before is taken, and its
    features are those of earlier versions, whose models do not describe their network.
    """
    return partial(_made, name, fetch=fetch)


def _made(name: str, _: int, *, fetch: bool) -> Backbone:
    _load_library()
    with in_one_line(name):
        place = _place(name)
        path = file_of(place, "config.json", fetch=fetch)
        if path is None and not fetch:
            raise Unavailable(
                f"the backbone '{name}' of a model is not on this machine: fetch it (hf download {place})"
            )
        if path is None:
            raise InputError(f"the backbone '{name}' has no config.json: check its name, or give a folder")
        content = read_json(path, FOLDER)
        config, kind = configuration(name, content)
        seen = looks(place, content, config, kind, fetch=fetch)
        return HuggingFace(name, config, kind if fetch else Kind(as_earlier), seen)


def rebuilt(description: Mapping[str, Any]) -> Backbone:
    """The backbone of a saved model, from what that holds of it; its weights come later."""
    _load_library()
    name = str(description["name"])
    with in_one_line(name):
        config, kind = configuration(name, description["network"])
        return HuggingFace(name, config, kind, looks_again(description))


def _load_library() -> None:
    try:
        import huggingface_hub
        import transformers
    except ModuleNotFoundError as error:
        raise Unavailable("Hugging Face backbones need transformers: pip install 'hoarfrost[hf]'") from error
    if find_spec("torchvision") is not None:  # transformers uses it where it is, but says nothing of one that is broken
        importable("torchvision")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    huggingface_hub.utils.logging.set_verbosity_error()


def _place(name: str) -> str:
    """The folder or the repository of a name."""
    if not name.startswith(TIMM):
        return name.removeprefix(HF)
    place = name.removeprefix(TIMM)
    if "/" in place or Path(place).is_dir():
        return place
    found = _timm().get_pretrained_cfg(place)
    require(
        found is not None and bool(found.hf_hub_id),
        f"timm has no network '{place}' with weights on the hub: timm.list_pretrained() lists those that have",
    )
    return str(found.hf_hub_id)


def _timm() -> Any:
    if find_spec("timm") is None:
        raise Unavailable("networks of timm need that package: pip install 'hoarfrost[timm]'")
    return importable("timm")


class HuggingFace(Backbone):
    """A vision network of Hugging Face, pooled as its architecture is."""

    pretrained = True

    def __init__(self, name: str, config: Any, kind: Kind, looks: Looks) -> None:
        super().__init__()
        from transformers import AutoModel

        if config.model_type == "timm_wrapper":
            _timm()
        self.name, self.kind, (self.input, self.blue_first) = name, kind, looks
        with torch.device("meta"):  # to see what comes out of it, without its weights
            twin = _without_pooler(AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False), kind)
            size = (2, self.input.channels or 3, self.input.side or 0, self.input.side or 0)
            self.width = int(self._features(twin.eval(), torch.zeros(size)).shape[1])
        model = AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
        self.model: nn.Module = _without_pooler(model, kind)
        self._parts = dict(parts_of(self.model))
        if kind.features is not as_earlier:
            self.description = {
                "library": LIBRARY,
                "name": name,
                "network": _as_json(config),
                "input": asdict(self.input),
                "blue_first": self.blue_first,
            }

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """Its embedding, its layers or stages, and what comes behind; or the network as one, where these lack some."""
        return self._parts

    def forward(self, images: Tensor) -> Tensor:
        """``(B, C, H, W)`` to ``(B, width)``."""
        return self._features(self.model, images)

    def _features(self, model: nn.Module, images: Tensor) -> Tensor:
        if self.blue_first:
            images = images.flip(1)
        return self.kind.features(model(**self.kind.given(images, model.config))).to(torch.float32)

    def load_pretrained(self) -> None:
        """Takes the published weights, or those in the folder."""
        with in_one_line(self.name):
            files = weights_of(_place(self.name))
            kept = self.model.state_dict()
            found, told = type(self.model).from_pretrained(  # type: ignore[attr-defined]
                files[0].parent,
                config=self.model.config,
                dtype=torch.float32,
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
            misshapen = {row[0] if isinstance(row, tuple) else row for row in told["mismatched_keys"]}
            check_complete(self.name, kept, missing=told["missing_keys"], misshapen=misshapen)
            loaded = found.state_dict()
            nn.Module.load_state_dict(self.model, {key: loaded[key] for key in kept})


def check_complete(name: str, kept: Mapping[str, Tensor], *, missing: set[str], misshapen: set[str]) -> None:
    """Refuses a checkpoint that does not have all tensors of a network: the others would be drawn at random."""
    for problem, keys in (("lacks", missing), ("has other shapes for", misshapen)):
        if found := sorted(keys & kept.keys()):
            raise InputError(
                f"the checkpoint of '{name}' {problem} {len(found)} of {len(kept)} tensors, such as {found[0]}:"
                " choose one of this very network"
            )


def _without_pooler(model: Any, kind: Kind) -> nn.Module:
    """Without a layer behind the features, which few published weights have."""
    if kind.features in (first, as_earlier) and getattr(model, "pooler", None) is not None:
        model.pooler = None
    network: nn.Module = model
    return network


def _as_json(config: Any) -> dict[str, Any]:
    """All that a configuration says, so that another version of the package makes the same network of it."""
    import json

    content: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return {key: value for key, value in content.items() if key not in LEFT_OUT}


def parts_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Its parts by name, from the image to the features; the network as one where there is no such order.

    What holds nothing but a series of layers is that series.
    """
    children = [(name, child) for name, child in model.named_children() if _tensors(child)]
    found: dict[str, nn.Module] = {}
    for name, child in children:
        series = child
        while not isinstance(series, nn.ModuleList) and len(inner := [*series.children()]) == 1 and _holds(series):
            series = inner[0]
        if isinstance(series, nn.ModuleList) and len(series) > 1:
            found |= {f"layer{number}": layer for number, layer in enumerate(series, 1)}
        else:
            found[name] = child
    return iter(found.items() if len(found) > 1 and _are_all(model, found) else {"network": model}.items())


def _holds(module: nn.Module) -> bool:
    """Whether it has no weights of its own beside its children's."""
    return not any(True for _ in (*module.parameters(recurse=False), *module.buffers(recurse=False)))


def _are_all(model: nn.Module, parts: Mapping[str, nn.Module]) -> bool:
    held = [tensor for part in parts.values() for tensor in _tensors(part)]
    return {id(tensor) for tensor in held} == {id(tensor) for tensor in _tensors(model)}


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]
