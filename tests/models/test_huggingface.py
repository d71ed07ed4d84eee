"""Backbones of Hugging Face: little networks of each kind that are made and saved here."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hoarfrost import Learner
from hoarfrost.errors import InputError
from hoarfrost.models.backbone import Backbone
from hoarfrost.models.backbones import build_backbone, rebuild_backbone, traits_of
from hoarfrost.models.huggingface import KINDS
from tests.models.patches import works

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
PLAIN = {**SMALL, "intermediate_size": 32, "image_size": 32, "patch_size": 8}
STAGES = {"hidden_sizes": [8, 8, 16, 24], "depths": [1, 1, 2, 1]}
WORDS = {**SMALL, "intermediate_size": 32, "vocab_size": 50}
PATCHES = {**SMALL, "intermediate_size": 32, "num_patches": 16, "patch_size": 8}
OF_TIMM = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}


def first(network: Any, images: Tensor) -> Any:
    return network(pixel_values=images).last_hidden_state[:, 0]


def of_tokens(network: Any, images: Tensor) -> Any:
    return network(pixel_values=images).last_hidden_state.mean(dim=1)


def of_map(network: Any, images: Tensor) -> Any:
    return network(pixel_values=images).last_hidden_state.flatten(2).mean(dim=2)


def by_itself(network: Any, images: Tensor) -> Any:
    return network(pixel_values=images).pooler_output


def of_tower(network: Any, images: Tensor) -> Any:
    return network.vision_model(pixel_values=images).pooler_output


def unmasked(network: Any, images: Tensor) -> Any:
    """As a network of the same weights that never masks."""
    plain = transformers.ViTModel(transformers.ViTConfig(**PLAIN), add_pooling_layer=False).eval()
    plain.load_state_dict(network.state_dict())
    return plain(pixel_values=images).last_hidden_state[:, 0]


def in_patches(network: Any, images: Tensor) -> Any:
    """Patch by patch, as its processor cuts them."""
    cut = torch.stack(
        [
            torch.stack(
                [
                    image[:, y : y + 8, x : x + 8].permute(1, 2, 0).flatten()
                    for y in range(0, image.shape[1], 8)
                    for x in range(0, image.shape[2], 8)
                ]
            )
            for image in images
        ]
    )
    mask = torch.ones(cut.shape[:2], dtype=torch.long)
    shapes = torch.full((len(images), 2), images.shape[2] // 8)
    tower = getattr(network, "vision_model", network)
    return tower(pixel_values=cut, pixel_attention_mask=mask, spatial_shapes=shapes).pooler_output


class Made(NamedTuple):
    configuration: Callable[[], Any]
    features: Callable[[Any, Tensor], Any]
    """what they should be, of the library's own network"""
    width: int
    side: int = 32


EXAMPLES: dict[str, Made] = {
    "vit": Made(lambda: transformers.ViTConfig(**PLAIN), first, 16),
    "deit": Made(lambda: transformers.DeiTConfig(**PLAIN), first, 16),
    "vit_msn": Made(lambda: transformers.ViTMSNConfig(**PLAIN), first, 16),
    "vit_mae": Made(lambda: transformers.ViTMAEConfig(**PLAIN), unmasked, 16),
    "dinov2": Made(lambda: transformers.Dinov2Config(**{**PLAIN, "mlp_ratio": 2}), first, 16),
    "dinov2_with_registers": Made(
        lambda: transformers.Dinov2WithRegistersConfig(**PLAIN, mlp_ratio=2, num_register_tokens=3), first, 16
    ),
    "dinov3_vit": Made(lambda: transformers.DINOv3ViTConfig(**PLAIN, num_register_tokens=2), first, 16),
    "dinov3_convnext": Made(lambda: transformers.DINOv3ConvNextConfig(**STAGES, image_size=32), by_itself, 24),
    "convnext": Made(lambda: transformers.ConvNextConfig(**STAGES, image_size=32), by_itself, 24),
    "convnextv2": Made(lambda: transformers.ConvNextV2Config(**STAGES, image_size=32), by_itself, 24),
    "beit": Made(lambda: transformers.BeitConfig(**PLAIN), by_itself, 16),
    "swin": Made(
        lambda: transformers.SwinConfig(embed_dim=8, depths=[1, 1], num_heads=[2, 2], image_size=32, window_size=4),
        of_tokens,
        16,
    ),
    "swinv2": Made(
        lambda: transformers.Swinv2Config(embed_dim=8, depths=[1, 1], num_heads=[2, 2], image_size=32, window_size=4),
        of_tokens,
        16,
    ),
    "hiera": Made(
        lambda: transformers.HieraConfig(embed_dim=8, image_size=[64, 64], depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2]),
        by_itself,
        64,
        side=64,
    ),
    "ijepa": Made(lambda: transformers.IJepaConfig(**PLAIN), of_tokens, 16),
    "clip": Made(lambda: transformers.CLIPConfig(text_config=WORDS, vision_config=PLAIN), of_tower, 16),
    "clip_vision_model": Made(lambda: transformers.CLIPVisionConfig(**PLAIN), by_itself, 16),
    "siglip": Made(lambda: transformers.SiglipConfig(text_config=WORDS, vision_config=PLAIN), of_tower, 16),
    "siglip_vision_model": Made(lambda: transformers.SiglipVisionConfig(**PLAIN), by_itself, 16),
    "siglip2": Made(lambda: transformers.Siglip2Config(text_config=WORDS, vision_config=PATCHES), in_patches, 16),
    "siglip2_vision_model": Made(lambda: transformers.Siglip2VisionConfig(**PATCHES), in_patches, 16),
    "resnet": Made(lambda: transformers.ResNetConfig(**STAGES, embedding_size=8), of_map, 24, side=224),
    "regnet": Made(lambda: transformers.RegNetConfig(**STAGES, embedding_size=8, groups_width=4), of_map, 24, side=224),
    "mobilenet_v1": Made(
        lambda: transformers.MobileNetV1Config(depth_multiplier=0.25, min_depth=4, image_size=64), of_map, 256, side=64
    ),
    "mobilenet_v2": Made(
        lambda: transformers.MobileNetV2Config(depth_multiplier=0.25, image_size=64), of_map, 1280, side=64
    ),
    "efficientnet": Made(
        lambda: transformers.EfficientNetConfig(
            width_coefficient=0.2, depth_coefficient=0.1, image_size=64, hidden_dim=256
        ),
        of_map,
        256,
        side=64,
    ),
    "mobilevit": Made(
        lambda: transformers.MobileViTConfig(
            image_size=64, hidden_sizes=[16, 16, 16], neck_hidden_sizes=[8, 8, 8, 8, 16, 16, 32]
        ),
        lambda network, images: of_map(network, images[:, [2, 1, 0]]),
        32,
        side=64,
    ),
    "mobilevitv2": Made(
        lambda: transformers.MobileViTV2Config(image_size=64, width_multiplier=0.25),
        lambda network, images: of_map(network, images[:, [2, 1, 0]]),
        128,
        side=64,
    ),
    "pvt_v2": Made(
        lambda: transformers.PvtV2Config(
            image_size=32, hidden_sizes=[8, 8, 16, 24], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2]
        ),
        of_map,
        24,
    ),
    "poolformer": Made(
        lambda: transformers.PoolFormerConfig(hidden_sizes=[8, 8, 16, 24], depths=[1, 1, 1, 1]), of_map, 24, side=224
    ),
    "timm_wrapper": Made(
        lambda: transformers.TimmWrapperConfig(
            architecture="vit_tiny_patch16_224",
            model_args=OF_TIMM,
            pretrained_cfg={"input_size": [3, 32, 32], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]},
        ),
        by_itself,
        16,
    ),
}

IMAGES = np.random.default_rng(0).integers(0, 256, (24, 40, 40, 3), dtype=np.uint8)
IMAGES[::2] //= 3
LABELS = np.where(np.arange(24) % 2, "light", "dark")


def saved(kind: str, path: Path, **more: Any) -> Path:
    """A network with weights at random, none of which is 0, and with batch statistics that suit them."""
    if kind == "timm_wrapper" and not works("timm"):
        pytest.skip("timm is not installed, or cannot be imported")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = transformers.AutoModel.from_config(EXAMPLES[kind].configuration())
        for tensor in network.parameters():
            tensor.data.add_(torch.randn(tensor.shape) * 0.05)
        normalisations = [part for part in network.modules() if isinstance(part, nn.BatchNorm2d)]
        for part in normalisations:
            part.momentum = 1.0
        if normalisations:
            for part in network.modules():
                if isinstance(part, nn.Conv2d):
                    nn.init.kaiming_normal_(part.weight)
            network.train()(pixel_values=torch.randn(8, 3, EXAMPLES[kind].side, EXAMPLES[kind].side))
    network.save_pretrained(path, **more)
    return path


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("vit", tmp_path_factory.mktemp("hf") / "vit")


def copied(folder: Path, place: Path) -> Path:
    shutil.copytree(folder, place)
    return place


def refused_network(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is asked of the network from now on; it gets no answer."""
    asked = list[object]()

    def refuse(*given: object, **_: object) -> NoReturn:
        asked.append(given)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between the library's tries
    return asked


def features(backbone: Backbone, images: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = backbone.eval()(images)
    return found


def test_each_kind_has_an_example() -> None:
    assert EXAMPLES.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_kind_keeps_the_contract(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(kind, tmp_path / "published")
    asked, expected = refused_network(monkeypatch), EXAMPLES[kind]
    backbone = build_backbone(f"hf:{folder}", 3).eval()
    assert (backbone.input.side, backbone.input.channels, backbone.pretrained) == (expected.side, 3, True)
    images = torch.randn(3, 3, expected.side, expected.side, generator=torch.Generator().manual_seed(0))

    # What comes out of it, and that all of each image matters.
    original = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        right = expected.features(original, images)
    found = features(backbone, images)
    assert found.shape == (3, backbone.width) == (3, expected.width)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(features(backbone, images[1:]), found[1:], rtol=1e-4, atol=1e-5)
    corner = images.clone()
    corner[:, :, expected.side // 2 :, expected.side // 2 :] = 0
    assert (features(backbone, corner) != found).any(dim=1).all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert features(backbone, images).dtype == torch.float32

    # Its parts.
    reached: list[str] = []
    for part, module in backbone.parts.items():
        module.register_forward_hook(lambda *_, part=part: reached.append(part))
    features(backbone, images[:1])
    assert list(dict.fromkeys(reached)) == list(backbone.parts)
    held = [tensor for part in backbone.parts.values() for tensor in (*part.parameters(), *part.buffers())]
    assert {id(tensor) for tensor in held} == {id(tensor) for tensor in (*backbone.parameters(), *backbone.buffers())}
    if kind not in ("timm_wrapper", "poolformer"):
        assert len(backbone.parts) > 1

    # What a saved model holds of it makes it again, without the folder.
    description = json.loads(json.dumps(backbone.description))
    shutil.rmtree(folder)
    again = rebuild_backbone(description, backbone.state_dict())
    again.load_state_dict(backbone.state_dict())
    assert (again.input, again.width, list(again.parts)) == (backbone.input, backbone.width, list(backbone.parts))
    assert again.description == backbone.description
    assert torch.equal(features(again, images), found)
    assert not asked


@pytest.mark.parametrize("kind", ["vit", "convnext", "clip", "timm_wrapper"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_half_precision(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    folder = saved(kind, tmp_path / kind)
    transformers.AutoModel.from_pretrained(folder, dtype=dtype).save_pretrained(folder)
    backbone = build_backbone(str(folder), 3)
    assert {tensor.dtype for tensor in backbone.parameters()} == {torch.float32}
    original = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(features(backbone, images), EXAMPLES[kind].features(original, images))


def test_weights_in_several_files(tmp_path: Path) -> None:
    folder = saved("vit", tmp_path / "vit", max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    one = build_backbone(str(saved("vit", tmp_path / "one")), 3)
    several = build_backbone(str(folder), 3)
    assert all(torch.equal(weight, several.state_dict()[key]) for key, weight in one.state_dict().items())
    index = folder / "model.safetensors.index.json"
    content = index.read_text()
    index.write_text(content.replace("model-00002", "../one/model-00002"))
    with pytest.raises(InputError, match=r"lacks \.\./one/model-00002-of-"):
        build_backbone(str(folder), 3)
    index.write_text(content)
    next(folder.glob("model-00002*")).unlink()
    with pytest.raises(InputError, match=r"lacks model-00002-of-.*which model.safetensors.index.json names"):
        build_backbone(str(folder), 3)


class TestLearner:
    def test_it_is_used_as_it_is_and_found_again(self, vit: Path, tmp_path: Path) -> None:
        learner = Learner(backbone=str(vit), device="cpu").fit(IMAGES, LABELS)
        assert learner.config.fixed_in_all_stages, "on a CPU a pretrained backbone stays as it is"
        learner.discover(IMAGES[:12], 2, only_new=True).save(tmp_path / "model")
        loaded = Learner.load(tmp_path / "model", "cpu")
        assert (loaded.predict_proba(IMAGES) == learner.predict_proba(IMAGES)).all()
        original = transformers.AutoModel.from_pretrained(vit).state_dict()
        weights = loaded.network.backbone.state_dict()
        assert all(torch.equal(weight, original[name.removeprefix("model.")]) for name, weight in weights.items())

    def test_it_can_be_tuned_in_part(self, vit: Path) -> None:
        settings = {"fit.epochs": 1, "fit_frozen": ["embeddings", "layer1"], "fit_augment": "none"}
        learner = Learner("kmeans", f"hf:{vit}", device="cpu", settings=settings).fit(IMAGES, LABELS)
        assert tuple(learner.network.backbone.parts) == ("embeddings", "layer1", "layer2", "layernorm")
        original = transformers.AutoModel.from_pretrained(vit).state_dict()
        moved = {
            name.removeprefix("model.")
            for name, weight in learner.network.backbone.state_dict().items()
            if not torch.equal(weight, original[name.removeprefix("model.")])
        }
        assert moved
        assert not [name for name in moved if name.startswith(("embeddings", "layers.0"))]

    def test_a_saved_model_needs_neither_the_network_nor_the_folder(
        self, vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nor is a name in a model file ever looked up."""
        folder = copied(vit, tmp_path / "vit")
        learner = Learner("kmeans", str(folder), device="cpu").fit(IMAGES, LABELS)
        learner.save(tmp_path / "model")
        path = tmp_path / "model" / "model.json"
        path.write_text(path.read_text().replace(json.dumps(str(folder)), '"hf:strangers/network"'))
        shutil.rmtree(folder)
        asked = refused_network(monkeypatch)
        loaded = Learner.load(tmp_path / "model", "cpu")
        assert (loaded.predict_proba(IMAGES) == learner.predict_proba(IMAGES)).all()
        loaded.discover(IMAGES[:12], 2, only_new=True).save(tmp_path / "model2")
        assert Learner.load(tmp_path / "model2", "cpu").config.backbone == "hf:strangers/network"
        assert not asked
        with pytest.raises(InputError, match="cannot be fetched: connect to the network, or give a folder"):
            build_backbone("hf:strangers/network", 3)
        assert asked, "a name that somebody asks for is"

    def test_one_of_an_earlier_version_is_what_it_was(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It does not describe its network; its features are the first token's, whatever the kind."""
        folder = saved("clip_vision_model", tmp_path / "clip")
        Learner("kmeans", str(folder), device="cpu").fit(IMAGES, LABELS).save(tmp_path / "model")
        path = tmp_path / "model" / "model.json"
        content = json.loads(path.read_text())
        path.write_text(json.dumps({key: value for key, value in content.items() if key != "encoder"}))
        backbone = Learner.load(tmp_path / "model", "cpu").network.backbone
        images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        original = transformers.AutoModel.from_pretrained(folder).eval()
        with torch.no_grad():
            assert torch.equal(features(backbone, images), first(original, images))
        asked = refused_network(monkeypatch)
        path.write_text(path.read_text().replace(json.dumps(str(folder)), '"hf:strangers/network"'))
        with pytest.raises(InputError, match=r"cannot be loaded: .*'hf:strangers/network' .* not on this machine"):
            Learner.load(tmp_path / "model", "cpu")
        assert not asked

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"num_hidden_layers": 10**9}, "asks for more layers"),
            ({"hidden_size": 10**9}, "do not fit the description of its backbone"),
            ({"intermediate_size": 10**12}, "do not fit the description of its backbone"),
            ({"model_type": "bert"}, "unknown model_type 'bert'"),
            ({"model_type": "timm_wrapper", "architecture": "hf-hub:strangers/network"}, "which is refused"),
            ({"model_type": "timm_wrapper", "model_args": {"checkpoint_path": "x"}}, "checkpoint_path, which is re"),
            ({"auto_map": {"AutoModel": "own.Own"}}, "code of its own"),
        ],
    )
    def test_a_description_that_asks_for_anything_else(
        self, vit: Path, tmp_path: Path, change: Mapping[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Learner("kmeans", str(vit), device="cpu").fit(IMAGES, LABELS).save(tmp_path / "model")
        path = tmp_path / "model" / "model.json"
        content = json.loads(path.read_text())
        content["encoder"]["network"] |= change
        path.write_text(json.dumps(content))
        asked = refused_network(monkeypatch)
        with pytest.raises(InputError, match=words) as error:
            Learner.load(tmp_path / "model", "cpu")
        assert "\n" not in str(error.value)
        assert not asked


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


class TestProcessors:
    @pytest.mark.parametrize(
        ("kind", "processor", "options"),
        [
            ("vit", "ViTImageProcessorPil", {}),
            ("vit", "ViTImageProcessorPil", {"do_normalize": False}),
            ("vit", "ViTImageProcessorPil", {"do_rescale": False}),
            ("vit", "ViTImageProcessorPil", {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3}),
            ("clip", "CLIPImageProcessorPil", {"size": {"shortest_edge": 40}, "crop_size": 32}),
            ("clip", "CLIPImageProcessorPil", {"size": {"shortest_edge": 32}, "do_center_crop": False}),
            ("convnext", "ConvNextImageProcessorPil", {"size": {"shortest_edge": 32}}),
            ("efficientnet", "EfficientNetImageProcessorPil", {"image_std": [0.4, 0.5, 0.6]}),
            ("efficientnet", "EfficientNetImageProcessorPil", {"rescale_offset": True, "include_top": False}),
            ("mobilevit", "MobileViTImageProcessorPil", {"crop_size": {"height": 64, "width": 64}}),
        ],
    )
    @pytest.mark.parametrize("inside", [False, True])
    def test_images_are_as_its_own_processor_makes_them(
        self, kind: str, processor: str, options: dict[str, Any], inside: bool, tmp_path: Path
    ) -> None:
        folder, side = saved(kind, tmp_path / kind), EXAMPLES[kind].side
        if not hasattr(transformers, processor):
            pytest.skip("this transformers has no processors of Pillow alone")
        theirs = getattr(transformers, processor)(**{"size": {"height": side, "width": side}, **options})
        if inside:
            said = json.loads(theirs.to_json_string())
            (folder / "processor_config.json").write_text(json.dumps({"image_processor": said}))
        else:
            theirs.save_pretrained(folder)
        backbone = build_backbone(str(folder), 3)
        assert backbone.input.side == side
        image = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
        as_it_is = {"do_resize": False, "do_center_crop": False}
        expected = torch.from_numpy(np.stack(theirs.preprocess([image], **as_it_is)["pixel_values"]))
        mean, std = (torch.tensor(values)[:, None, None] for values in (backbone.input.mean, backbone.input.std))
        ours = (torch.from_numpy(image).permute(2, 0, 1)[None] / 255 - mean) / std
        ours = ours.flip(1) if kind == "mobilevit" else ours
        torch.testing.assert_close(ours, expected.float(), rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize(
        ("kind", "usual"),
        [("vit", IMAGENET), ("clip", CLIP), ("siglip_vision_model", ((0.5,) * 3, (0.5,) * 3))],
    )
    def test_without_a_file_of_it(self, kind: str, usual: tuple[Any, Any], tmp_path: Path) -> None:
        looks = traits_of(str(saved(kind, tmp_path / kind))).input
        assert (looks.mean, looks.std) == usual

    @pytest.mark.parametrize(
        ("said", "words"),
        [
            ({"image_mean": None}, r"has no image_mean that can be used \(None\)"),
            ({"image_mean": [0.5, 0.5]}, r"has no image_mean that can be used \(\[0.5, 0.5\]\)"),
            ({"image_std": [0.5, 0.5, 0]}, "has no image_std that can be used"),
            ({"image_mean": "half"}, "preprocessor_config.json is damaged"),
            ({"size": {"height": 32, "width": 64}}, "takes images of 32 x 64 pixels, not square ones"),
            ({"crop_size": [64, 32], "do_center_crop": True}, "takes images of 64 x 32 pixels, not square ones"),
            ({"size": {"height": 64, "width": 64}}, r"Input image size .*64"),
            ({"size": 0}, "names an image size that is none"),
            ({"size": {"height": "all", "width": 3}}, "preprocessor_config.json is damaged"),
        ],
    )
    def test_what_cannot_be_kept_is_refused_in_one_line(
        self, vit: Path, tmp_path: Path, said: dict[str, Any], words: str
    ) -> None:
        folder = copied(vit, tmp_path / "vit")
        usual = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        (folder / "preprocessor_config.json").write_text(json.dumps(usual | said))
        with pytest.raises(InputError, match=words) as error:
            build_backbone(str(folder), 3)
        assert "\n" not in str(error.value)


CODE = """
from pathlib import Path
Path({place!r}).touch()
from transformers import PretrainedConfig
class OwnConfig(PretrainedConfig):
    model_type = "own"
"""


class TestRefused:
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ({"model_type": "nothing known"}, "unknown model_type 'nothing known'"),
            ({"model_type": ["vit"]}, "unknown model_type"),
            ({}, "unknown model_type 'None'"),
            ({"model_type": "vit", "hidden_size": "many"}, "cannot be loaded"),
            ({"model_type": "vit", "quantization_config": {}}, "has quantised weights"),
            ({"architecture": "hf-hub:strangers/network"}, "asks timm for hf-hub:strangers/network"),
            ({"architecture": "resnet18", "model_args": {"checkpoint_path": "x"}}, "asks timm for checkpoint_path"),
        ],
    )
    def test_a_configuration(self, tmp_path: Path, content: dict[str, Any], words: str) -> None:
        (tmp_path / "config.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=words) as error:
            traits_of(str(tmp_path))
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("model_type", ["own", "vit"])
    def test_code_that_comes_with_a_network_is_not_run(
        self, model_type: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        folder, place = tmp_path / "own", tmp_path / "it was run"
        folder.mkdir()
        content = {"model_type": model_type, "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}}
        (folder / "config.json").write_text(json.dumps(content))
        (folder / "own.py").write_text(CODE.format(place=str(place)))
        with pytest.raises(InputError, match="needs code of its own"):
            build_backbone(str(folder), 3)
        assert not place.exists()
        assert "[y/N]" not in capfd.readouterr().out, "nobody is asked"

    def test_a_kernel_of_the_hub_is_not_fetched(
        self, vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = copied(vit, tmp_path / "vit")
        content = json.loads((folder / "config.json").read_text())
        content |= {"attn_implementation": "strangers/kernel", "_attn_implementation": "strangers/kernel"}
        (folder / "config.json").write_text(json.dumps(content))
        asked = refused_network(monkeypatch)
        build_backbone(str(folder), 3)
        assert not asked

    def test_pickled_weights(self, vit: Path, tmp_path: Path) -> None:
        folder = copied(vit, tmp_path / "pickled")
        torch.save(transformers.AutoModel.from_pretrained(vit).state_dict(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
        with pytest.raises(InputError, match=r"has no model\.safetensors, and pickled weights .* are not read"):
            build_backbone(str(folder), 3)

    @pytest.mark.parametrize("kind", ["vit", "convnext", "siglip"])
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda *_: {}, r"lacks 3 of \d+ tensors, such as .*: choose one"),
            (lambda key, tensor: {key: tensor[..., :1]}, r"has other shapes for 3 of \d+ tensors, such as"),
        ],
    )
    def test_weights_that_are_not_all_there(
        self, kind: str, change: Callable[[str, Tensor], dict[str, Tensor]], words: str, tmp_path: Path
    ) -> None:
        """The library would draw the others at random, and say so in a log."""
        from safetensors.torch import load_file, save_file

        folder = saved(kind, tmp_path / kind)
        tensors = load_file(folder / "model.safetensors")
        own = [key for key in tensors if "text" not in key and "pooler" not in key and tensors[key].ndim > 1]
        for key in own[1:4]:
            tensors |= change(key, tensor := tensors.pop(key))
            assert tensor.shape[-1] > 1
        save_file(
            {key: tensor.contiguous() for key, tensor in tensors.items()},
            folder / "model.safetensors",
            {"format": "pt"},
        )
        with pytest.raises(InputError, match=words) as error:
            build_backbone(str(folder), 3)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("size", [0, 4, 100, -50])
    def test_a_file_that_was_cut_short(self, vit: Path, tmp_path: Path, size: int) -> None:
        folder = copied(vit, tmp_path / "vit")
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(InputError, match="cannot be loaded") as error:
            build_backbone(str(folder), 3)
        assert "\n" not in str(error.value)

    def test_a_torchvision_that_cannot_be_imported(self, vit: Path, tmp_path: Path) -> None:
        """Such as one for another PyTorch. The library's own words are of something else."""
        broken = tmp_path / "site" / "torchvision"
        broken.mkdir(parents=True)
        (broken / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
        program = "from hoarfrost.models.backbones import build_backbone; import sys; build_backbone(sys.argv[1], 3)"
        path = os.pathsep.join([str(broken.parent), *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-c", program, str(vit)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.stderr.splitlines()[-1] == (
            "hoarfrost.errors.Unavailable: torchvision cannot be imported (operator torchvision::nms does not exist):"
            " install the torchvision that fits this PyTorch"
        )


def test_without_transformers(vit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that needs it is not called damaged."""
    Learner("kmeans", str(vit), device="cpu").fit(IMAGES, LABELS).save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"model cannot be loaded: Hugging Face .* pip install 'hoarfrost\[hf\]'$"):
        Learner.load(tmp_path / "model", "cpu")
    with pytest.raises(InputError, match="need transformers"):
        build_backbone(f"hf:{vit}", 3)


class TestTimm:
    def test_a_folder(self, tmp_path: Path) -> None:
        folder = saved("timm_wrapper", tmp_path / "timm")
        backbone = build_backbone(f"timm:{folder}", 3)
        assert backbone.input.mean == (0.1, 0.2, 0.3)
        assert backbone.input.std == (0.4, 0.5, 0.6)
        images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        assert torch.equal(features(backbone, images), features(build_backbone(f"hf:{folder}", 3), images))

    def test_as_timm_itself_saves_it(self, tmp_path: Path) -> None:
        if not works("timm"):
            pytest.skip("timm is not installed, or cannot be imported")
        import timm
        from timm.models import save_for_hf

        torch.manual_seed(0)
        network = timm.create_model("resnet18", num_classes=0).eval()
        save_for_hf(network, tmp_path / "timm", safe_serialization=True)
        backbone = build_backbone(f"timm:{tmp_path / 'timm'}", 3)
        images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            torch.testing.assert_close(features(backbone, images), network(images))
        assert (backbone.input.side, backbone.input.mean) == (224, IMAGENET[0])

    def test_a_name_is_looked_up_in_timm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        if not works("timm"):
            pytest.skip("timm is not installed, or cannot be imported")
        with pytest.raises(InputError, match=r"timm has no network 'nothing' with weights on the hub"):
            build_backbone("timm:nothing", 3)
        asked = refused_network(monkeypatch)
        with pytest.raises(InputError, match=r"config.json of 'timm/resnet18.a1_in1k' cannot be fetched"):
            build_backbone("timm:resnet18", 3)
        assert asked

    @pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed")
    def test_without_timm(self) -> None:
        with pytest.raises(InputError, match=r"networks of timm need that package: pip install 'hoarfrost\[timm\]'"):
            build_backbone("timm:resnet18", 3)
