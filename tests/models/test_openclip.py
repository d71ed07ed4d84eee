"""Vision towers of OpenCLIP: a little network that is made and saved here."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from hoarfrost.errors import InputError
from hoarfrost.models.backbones import build_backbone, rebuild_backbone
from tests.models.patches import works

TEXT = {"context_length": 8, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1}
VISION = {"image_size": 32, "layers": 2, "width": 16, "head_width": 8, "patch_size": 8}
MODEL = {"embed_dim": 12, "vision_cfg": VISION, "text_cfg": TEXT}
PREPARED = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not works("open_clip"):
        pytest.skip("open_clip is not installed, or cannot be imported")
    import open_clip
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("openclip")
    torch.manual_seed(0)
    tensors = open_clip.CLIP(**MODEL).state_dict()
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / "open_clip_model.safetensors")
    content = {"model_cfg": MODEL, "preprocess_cfg": PREPARED}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    return folder


def copied(folder: Path, place: Path, **change: Any) -> Path:
    shutil.copytree(folder, place)
    path = place / "open_clip_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    return place


@pytest.mark.parametrize("prefix", ["", "openclip:"])
def test_features_are_those_of_the_package(published: Path, tmp_path: Path, prefix: str) -> None:
    import open_clip
    from safetensors.torch import load_file

    folder = copied(published, tmp_path / "copy")
    backbone = build_backbone(f"{prefix}{folder}", 3).eval()
    looks = backbone.input
    assert (looks.side, looks.channels, looks.mean, looks.std) == (32, 3, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    original = open_clip.CLIP(**MODEL).eval()
    original.load_state_dict(load_file(folder / "open_clip_model.safetensors"))
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = backbone(images)
        torch.testing.assert_close(found, original.encode_image(images))
    assert found.shape == (3, backbone.width) == (3, 12)
    shutil.rmtree(folder)
    again = rebuild_backbone(json.loads(json.dumps(backbone.description)), backbone.state_dict()).eval()
    again.load_state_dict(backbone.state_dict())
    with torch.no_grad():
        assert torch.equal(again(images), found)


def test_what_is_refused(published: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    def refused(folder: Path, words: str) -> None:
        with pytest.raises(InputError, match=words) as error:
            build_backbone(f"openclip:{folder}", 3)
        assert "\n" not in str(error.value)

    elsewhere = {**MODEL, "vision_cfg": {**VISION, "timm_model_name": "hf-hub:strangers/network"}}
    refused(copied(published, tmp_path / "elsewhere", model_cfg=elsewhere), "asks timm for hf-hub:strangers/network")
    strange = {**MODEL, "vision_cfg": {**VISION, "nothing_known": 3}}
    refused(copied(published, tmp_path / "strange", model_cfg=strange), "cannot be loaded .*nothing_known")
    refused(
        copied(published, tmp_path / "damaged", model_cfg={"embed_dim": "wide"}), "open_clip_config.json is damaged"
    )
    less = copied(published, tmp_path / "less")
    tensors = load_file(less / "open_clip_model.safetensors")
    del tensors["visual.ln_post.weight"], tensors["visual.proj"]
    save_file(tensors, less / "open_clip_model.safetensors")
    refused(less, r"lacks 2 of \d+ tensors, such as ln_post.weight")
    (less / "open_clip_model.safetensors").unlink()
    (less / "open_clip_pytorch_model.bin").touch()
    refused(less, r"has no open_clip_model.safetensors, and pickled weights .* are not read")


@pytest.mark.skipif(find_spec("open_clip") is not None, reason="open_clip is installed")
def test_without_the_package(tmp_path: Path) -> None:
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": MODEL}))
    with pytest.raises(InputError, match=r"needs open_clip: pip install 'hoarfrost\[openclip\]'"):
        build_backbone(f"openclip:{tmp_path}", 3)
