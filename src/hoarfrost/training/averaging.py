"""Averages of weights: over the steps of a training, and of two networks."""

from __future__ import annotations

import copy

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from hoarfrost.models.backbone import Backbone
from hoarfrost.models.network import Network


class WeightAverage:
    """An exponential moving average (EMA) of what a training changes: its weights and its batch statistics."""

    def __init__(self, network: Network, decay: float) -> None:
        self.tensors = {name: weight.detach() for name, weight in network.named_parameters() if weight.requires_grad}
        self.tensors |= {name: buffer for name, buffer in network.named_buffers() if buffer.is_floating_point()}
        self.averages = {name: tensor.clone() for name, tensor in self.tensors.items()}
        self._move = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def update(self) -> None:
        """After a step: average = decay * average + (1 - decay) * weights; on the device, without a wait."""
        self._move(list(self.averages.values()), list(self.tensors.values()), None)

    @torch.no_grad()
    def take_over(self) -> None:
        """The network gets the averages for its own."""
        for name, tensor in self.tensors.items():
            tensor.copy_(self.averages[name])


@torch.no_grad()
def move_towards(backbone: Backbone, other: Backbone, share: float) -> None:
    """Changes weights and batch statistics: from now on this ``share`` of each is the other's."""
    theirs = other.state_dict()
    for name, tensor in backbone.state_dict().items():
        if tensor.is_floating_point():
            tensor.lerp_(theirs[name], share)


def average_of(first: Network, second: Network) -> Network:
    """A network like the first, with a backbone half-way between both."""
    between = copy.deepcopy(first)
    move_towards(between.backbone, second.backbone, 0.5)
    return between
