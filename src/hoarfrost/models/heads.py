"""Heads that loss terms can make, beside PyTorch's own layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Cosine(nn.Module):
    """Logits are cosines between the features and a prototype each, divided by a temperature."""

    def __init__(self, features: int, outputs: int, temperature: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(outputs, features), dim=1))
        self.temperature = temperature

    def forward(self, features: Tensor) -> Tensor:
        """``(B, D)`` to ``(B, outputs)``."""
        return F.normalize(features, dim=1) @ F.normalize(self.weight, dim=1).T / self.temperature


class CosineLinear(nn.Linear):
    """A linear layer of cosines: they are divided by a temperature, and a bias is added."""

    temperature = 0.1

    def forward(self, features: Tensor) -> Tensor:
        """``(B, D)`` to ``(B, outputs)``."""
        cosines = F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))
        return cosines / self.temperature + self.bias


def projection(features: int, outputs: int) -> nn.Module:
    """A small network for a contrast between images, with one hidden layer as wide as the features."""
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, outputs))
