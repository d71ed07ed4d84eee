"""A backbone of another kind: as if pretrained, with a size and a normalisation of its own, without stem or stages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import ClassVar

import torch
from torch import Tensor, nn

from hoarfrost.models.backbone import Backbone, Input

INPUT = Input(side=64, channels=3, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))


class Patches(Backbone):
    """Patches of the image, a convolution over them, GELU; its weights are always the same."""

    width = 20
    input = INPUT
    seen: ClassVar[list[int]] = []
    """how many images each forward pass of any of them had"""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Sequential(nn.Conv2d(3, 12, 8, stride=8), nn.BatchNorm2d(12), nn.GELU())
        self.mixing = nn.Sequential(nn.Conv2d(12, 20, 3, stride=2), nn.GELU(), nn.Dropout2d(0.5))
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.randn(weight.shape, generator=generator) / 5)

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """Two of them."""
        return {"patches": self.patches, "mixing": self.mixing}

    def forward(self, images: Tensor) -> Tensor:
        """``(B, 3, 64, 64)`` to ``(B, 20)``."""
        assert images.shape[1:] == (3, 64, 64)
        Patches.seen.append(len(images))
        features: Tensor = self.mixing(self.patches(images)).mean(dim=(2, 3))
        return features


def works(package: str) -> bool:
    """Whether a package is installed and can be imported."""
    try:
        import_module(package)
    except Exception:
        return False
    return True
