"""Backbones of Hugging Face: little networks that are made and saved here."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from hoarfrost import Learner
from hoarfrost.errors import InputError
from hoarfrost.models.backbones import build_backbone, traits_of

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
KINDS: dict[str, Any] = {
    "vit": lambda: transformers.ViTConfig(**SMALL, intermediate_size=32, image_size=32, patch_size=8),
    "dinov2": lambda: transformers.Dinov2Config(**SMALL, mlp_ratio=2, image_size=56, patch_size=14),
}
IMAGES = np.random.default_rng(0).integers(0, 256, (24, 40, 40, 3), dtype=np.uint8)
IMAGES[::2] //= 3
LABELS = np.where(np.arange(24) % 2, "light", "dark")


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("hf") / request.param
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.AutoModel.from_config(KINDS[request.param]()).save_pretrained(path)
    if request.param == "dinov2":
        said = {"crop_size": {"height": 28, "width": 28}, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.2, 0.3]}
        (path / "preprocessor_config.json").write_text(json.dumps(said))
    return path


def test_features_are_those_of_the_first_token(folder: Path) -> None:
    backbone = build_backbone(f"hf:{folder}", 3).eval()
    original = transformers.AutoModel.from_pretrained(folder).eval()
    side = backbone.input.side
    assert side == (28 if folder.name == "dinov2" else 32), "its preprocessor says which, or else its configuration"
    assert backbone.input.mean == ((0.4, 0.5, 0.6) if folder.name == "dinov2" else (0.485, 0.456, 0.406))
    batch = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(backbone(batch), original(pixel_values=batch).last_hidden_state[:, 0])
    assert tuple(backbone.parts) == ("embeddings", "layer1", "layer2", "layernorm")
    held = {id(weight) for part in backbone.parts.values() for weight in part.parameters()}
    assert held == {id(weight) for weight in backbone.parameters()}


def test_a_learner_uses_it_as_it_is_and_finds_it_again(folder: Path, tmp_path: Path) -> None:
    learner = Learner(backbone=str(folder), device="cpu").fit(IMAGES, LABELS)
    assert learner.config.fixed_in_all_stages, "on a CPU a pretrained backbone stays as it is"
    learner.discover(IMAGES[:12], 2).save(tmp_path / "model")
    loaded = Learner.load(tmp_path / "model", "cpu")
    assert (loaded.predict_proba(IMAGES) == learner.predict_proba(IMAGES)).all()
    original = transformers.AutoModel.from_pretrained(folder).state_dict()
    weights = loaded.network.backbone.state_dict()
    assert all(torch.equal(weight, original[name.removeprefix("model.")]) for name, weight in weights.items())


def test_it_can_be_tuned_in_part(folder: Path) -> None:
    settings = {"fit.epochs": 1, "fit_frozen": ["embeddings", "layer1"], "fit_augment": "none"}
    learner = Learner("kmeans", f"hf:{folder}", device="cpu", settings=settings).fit(IMAGES, LABELS)
    original = transformers.AutoModel.from_pretrained(folder).state_dict()
    moved = {
        name.removeprefix("model.")
        for name, weight in learner.network.backbone.state_dict().items()
        if not torch.equal(weight, original[name.removeprefix("model.")])
    }
    assert moved
    assert all("0." not in name.split("layer")[-1][:3] and "embeddings" not in name for name in moved)


def test_one_that_cannot_be_had_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nothing known"}')
    with pytest.raises(InputError, match="cannot be loaded") as error:
        traits_of(str(tmp_path))
    assert "\n" not in str(error.value)


CODE = """
from pathlib import Path
Path({place!r}).touch()
from transformers import PretrainedConfig
class OwnConfig(PretrainedConfig):
    model_type = "own"
"""


def test_code_that_comes_with_a_network_is_not_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, place = tmp_path / "own", tmp_path / "it was run"
    folder.mkdir()
    content = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}}
    (folder / "config.json").write_text(json.dumps(content))
    (folder / "own.py").write_text(CODE.format(place=str(place)))
    with pytest.raises(InputError, match="cannot be loaded"):
        build_backbone(str(folder), 3)
    assert not place.exists()
    assert "[y/N]" not in capfd.readouterr().out, "nobody is asked"


def test_pickled_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "pickled"
    other.mkdir()
    (other / "config.json").write_bytes((folder / "config.json").read_bytes())
    network = transformers.AutoModel.from_pretrained(folder)
    torch.save(network.state_dict(), other / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"cannot be loaded .*model\.safetensors"):
        build_backbone(str(other), 3)


def test_a_name_in_a_model_file_is_not_looked_up_on_the_network(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Learner("kmeans", str(folder), device="cpu").fit(IMAGES, LABELS).save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    path.write_text(path.read_text().replace(json.dumps(str(folder)), '"hf:strangers/network"'))
    asked = list[object]()

    def refuse(*given: object, **_: object) -> NoReturn:
        asked.append(given)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(InputError, match=r"'hf:strangers/network' .* not on this machine: fetch it"):
        Learner.load(tmp_path / "model", "cpu")
    assert not asked
    with pytest.raises(InputError, match="cannot be loaded"):
        build_backbone("hf:strangers/network", 3)
    assert asked, "a name that somebody asks for is"
