"""One backbone and its heads: the joint head over all classes seen so far, and a novel head a discovery step."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from hoarfrost.models.backbones import Backbone


class Network(nn.Module):
    """``joint`` classifies everything seen so far; ``novel[t]`` only the classes that step t + 1 discovered."""

    def __init__(self, backbone: Backbone, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.joint = nn.Linear(backbone.features, classes)
        self.novel = nn.ModuleList()

    @property
    def classes(self) -> int:
        """All classes of the joint head."""
        return self.joint.out_features

    @property
    def novel_per_step(self) -> tuple[int, ...]:
        """How many classes each discovery step added."""
        return tuple(head.out_features for head in self.novel if isinstance(head, nn.Linear))

    @property
    def known(self) -> int:
        """The classes of stage one."""
        return self.classes - sum(self.novel_per_step)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images ``(B, C, H, W)`` to features ``(B, D)``; the heads are applied to those."""
        features: Tensor = self.backbone(images)
        return features


def placed(network: Network, device: torch.device) -> Network:
    """The network on a device, its convolutions channels-last, which is the faster layout on all of them."""
    network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def grow(network: Network, novel: int) -> Network:
    """A copy with room for ``novel`` more classes; the network itself is left as it is, to teach.

    The joint head keeps its rows; new rows start as PyTorch initialises them, with biases of the smallest old bias
    minus 1, so that at first hardly an image is taken for a new class. The new novel head starts at random.
    """
    grown = copy.deepcopy(network)
    old = network.joint
    joint = nn.Linear(old.in_features, old.out_features + novel)
    with torch.no_grad():
        joint.weight[: old.out_features] = old.weight.cpu()
        joint.bias[: old.out_features] = old.bias.cpu()
        joint.bias[old.out_features :] = old.bias.min().cpu() - 1
    grown.joint = joint.to(old.weight.device)
    grown.novel.append(nn.Linear(old.in_features, novel).to(old.weight.device))
    return grown
