"""A convolution whose weight may be rounded elsewhere, and whose two gradients are then computed side by side."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PADDING = 1


class Conv(nn.Conv2d):
    """Without bias, padded by 1. While ``rounded`` is there, it computes with that instead of its weight."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, padding=PADDING, bias=False)
        self.rounded: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``(B, inputs, H, W)`` to ``(B, outputs, H / stride, W / stride)``."""
        if self.rounded is None:
            return F.conv2d(x, self.weight, None, self.stride, PADDING)
        out: Tensor = Convolution.apply(x.to(self.rounded.dtype), self.rounded, self.stride[0])  # type: ignore[no-untyped-call]
        return out


class Convolution(torch.autograd.Function):
    """The convolution itself, with ``gradients`` as its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        """As PyTorch has it."""
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        with torch.autocast(x.device.type, enabled=False):
            return F.conv2d(x, weight, None, stride, PADDING)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """The gradients that are needed."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, _ = ctx.needs_input_grad
        if of_x and of_weight:
            return (*gradients(gradient[0], x, weight, ctx.stride), None)
        one, two = _part(gradient[0], x, weight, ctx.stride, of_x=of_x, of_weight=of_weight)
        return one, two, None


@torch.library.custom_op("hoarfrost::gradients", mutates_args=())
def gradients(gradient: Tensor, x: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Those of x and weight. On a GPU at the same time: where layers are small, each alone leaves much of it idle."""
    if not x.is_cuda:
        of_x, of_weight = _part(gradient, x, weight, stride)
    else:
        current, side = torch.cuda.current_stream(x.device), _side(x.device)
        # Each stream waits for the other before and after, so memory that one lets go of the other may take.
        side.wait_stream(current)
        with torch.cuda.stream(side):
            _, of_weight = _part(gradient, x, weight, stride, of_x=False)
        of_x, _ = _part(gradient, x, weight, stride, of_weight=False)
        current.wait_stream(side)
    assert of_x is not None
    assert of_weight is not None
    return of_x, of_weight


@gradients.register_fake
def _(gradient: Tensor, x: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return torch.empty_like(x), torch.empty_like(weight)


def _part(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: int, *, of_x: bool = True, of_weight: bool = True
) -> tuple[Tensor | None, Tensor | None]:
    both = [stride, stride], [PADDING, PADDING], [1, 1]
    found = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, *both, False, [0, 0], 1, [of_x, of_weight, False]
    )
    return found[0], found[1]


@cache
def _side(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
