"""Residual networks for little images, as the papers of this field use them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hoarfrost.models.backbone import Backbone

AT_ONCE = 8
"""channels in half precision that a GPU multiplies fastest"""


class Conv(nn.Conv2d):
    """A convolution without bias that computes with ``rounded`` instead of its weight, while that is there."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, padding=1, bias=False)
        self.rounded: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``(B, inputs, H, W)`` to ``(B, outputs, H / stride, W / stride)``."""
        weight = self.weight
        if self.rounded is not None:
            weight = self.rounded
            if self.in_channels < AT_ONCE:  # zeros beside them change nothing
                more = (0, 0, 0, 0, 0, AT_ONCE - self.in_channels)
                x, weight = F.pad(x, more), F.pad(weight, more)
        return F.conv2d(x, weight, None, self.stride, self.padding)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut without parameters: averaged where it shrinks, zeros for added channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv(inputs, outputs, 3, stride=stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = Conv(outputs, outputs, 3)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.added = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """``(B, inputs, H, W)`` to ``(B, outputs, H / stride, W / stride)``."""
        shortcut = F.avg_pool2d(x, self.stride, ceil_mode=True) if self.stride > 1 else x
        if self.added:
            shortcut = F.pad(shortcut, (0, 0, 0, 0, 0, self.added))
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + shortcut)


@dataclass(frozen=True)
class Shape:
    """How deep and how wide a residual network is."""

    widths: tuple[int, ...]
    blocks: int
    stem_stride: Literal[1, 2] = 1
    """2 halves the image at once: a quarter of the work"""


def build_stage(shape: Shape, number: int) -> nn.Sequential:
    """The blocks of a 1-based stage; each but the first halves the image."""
    width, inputs = shape.widths[number - 1], shape.widths[max(number - 2, 0)]
    first = BasicBlock(inputs, width, 1 if number == 1 else 2)
    return nn.Sequential(first, *(BasicBlock(width, width, 1) for _ in range(shape.blocks - 1)))


class ResNet(Backbone):
    """A stem and stages, named ``stem``, ``stage1``, ``stage2`` ...; the features are the last stage's average.

    It can make another last stage, for methods that add a residual branch in each step.
    """

    def __init__(self, shape: Shape, channels: int) -> None:
        super().__init__()
        self.shape = shape
        first = shape.widths[0]
        stride = shape.stem_stride
        stem = Conv(channels, first, 2 + stride, stride=stride)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(first), nn.ReLU(inplace=True))
        numbers = range(1, len(shape.widths) + 1)
        self.stages = nn.Sequential(OrderedDict((f"stage{number}", build_stage(shape, number)) for number in numbers))
        self.width = shape.widths[-1]
        self.width_before_last = shape.widths[-2]

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """The stem and the stages."""
        return {"stem": self.stem, **dict(self.stages.named_children())}

    def forward(self, images: Tensor) -> Tensor:
        """``(B, C, H, W)`` to ``(B, width)``, never negative."""
        return self.pooled(self.stages(self.stem(images)))

    def with_before_last(self, images: Tensor) -> Tensor:
        """``(B, width + width_before_last)``: behind the features the average of the stage before the last."""
        maps = self.trunk(images)
        return torch.cat([self.pooled(self.last(maps)), self.pooled(maps)], dim=1)

    def trunk(self, x: Tensor) -> Tensor:
        """All but the last stage."""
        out: Tensor = self.stem(x)
        for stage in list(self.stages)[:-1]:
            out = stage(out)
        return out

    @property
    def last(self) -> nn.Module:
        """The last stage."""
        return self.stages[-1]

    def pooled(self, maps: Tensor) -> Tensor:
        """``(B, width, H, W)`` to ``(B, width)``."""
        # In single precision also under autocast: features are compared with each other and kept as statistics.
        return maps.mean(dim=(2, 3), dtype=torch.float32)

    def another_last(self) -> nn.Module:
        """A stage like the last one, as PyTorch initialises it."""
        return build_stage(self.shape, len(self.shape.widths))
