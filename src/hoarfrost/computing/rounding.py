"""Weights in half precision, rounded all at once after each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hoarfrost.computing.compiling import COMBINED, compiled
from hoarfrost.computing.sgd import Optimizer
from hoarfrost.models.resnet import Conv


class Rounded:
    """The weights of the convolutions in half precision, rounded all at once after each step.

    Autocast would round each by itself, and its gradient back: some forty kernels that hardly have anything to do. The
    numbers are the same.
    """

    def __init__(self, objective: nn.Module, dtype: torch.dtype) -> None:
        layers = [layer for layer in objective.modules() if isinstance(layer, Conv)]
        self.layers = [
            (layer, layer.weight.detach().to(dtype).requires_grad_(layer.weight.requires_grad)) for layer in layers
        ]
        trained = [(layer.weight, copy) for layer, copy in self.layers if copy.requires_grad]
        self.weights, self.copies = [weight for weight, _ in trained], [copy for _, copy in trained]
        self.descend: Callable[..., None] | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within the block the layers compute with them."""
        for layer, copy in self.layers:
            layer.rounded = copy
        try:
            yield
        finally:
            for layer, _ in self.layers:
                layer.rounded = None

    def compile(self) -> None:
        """From now on the compiler makes few kernels of their part of a step, which read and write a number once."""
        self.descend = compiled(descend, options=COMBINED)

    @torch.no_grad()
    def step(self, optimizer: Optimizer) -> None:
        """A step of all weights, also of those that have no copy; the copies anew."""
        both = zip(self.weights, self.copies, strict=True)
        reached = [(weight, copy, copy.grad) for weight, copy in both if copy.grad is not None]
        weights, copies, gradients = ([parts[k] for parts in reached] for k in range(3))
        if not reached:  # all that have a copy are frozen
            optimizer.step()
            return
        for copy in copies:
            copy.grad = None
        if self.descend is not None:
            group = optimizer.param_groups[0]
            settings = {key: group[key] for key in ("lr", "momentum", "weight_decay", "nesterov")}
            self.descend(weights, copies, gradients, momenta_of(weights, optimizer), **settings)
            optimizer.step()  # it leaves out what has no gradient
            return
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.to(weight.dtype)
        optimizer.step()
        for weight, copy in zip(weights, copies, strict=True):
            copy.copy_(weight)


def descend(
    weights: list[Tensor],
    copies: list[Tensor],
    gradients: list[Tensor],
    momenta: list[Tensor],
    *,
    lr: Tensor | float,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
) -> None:
    """A step of PyTorch's SGD, from gradients in half precision; the copies become the rounded weights."""
    for at, weight in enumerate(weights):
        step = gradients[at].to(weight.dtype).add(weight, alpha=weight_decay)
        if momentum:
            moved = momenta[at].mul_(momentum).add_(step)
            step = step.add(moved, alpha=momentum) if nesterov else moved
        weight.sub_(step * lr)
        copies[at].copy_(weight)


def momenta_of(weights: list[Tensor], optimizer: Optimizer) -> list[Tensor]:
    """Where SGD keeps their momentum, from before its first step on; none where it has none."""
    if not optimizer.param_groups[0]["momentum"]:
        return []
    for weight in weights:
        if "momentum_buffer" not in optimizer.state[weight]:
            optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
    return [optimizer.state[weight]["momentum_buffer"] for weight in weights]
