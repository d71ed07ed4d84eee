"""What a backbone is: one contract for everything that makes features of images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from hoarfrost.errors import require, unknown

ALL = "all"
"""in the place of the names of all parts"""

BUT_LAST = "all but the last"
"""in the place of the names of all parts but the last"""


@dataclass(frozen=True, kw_only=True)
class Input:
    """What images must be for a backbone. None: whatever they are."""

    side: int | None = None
    """in pixels"""
    still_side: int | None = None
    """another one that suits it, which is chosen where it stays as it is"""
    channels: int | None = None
    mean: tuple[float, ...] | None = None
    """of each channel, in 0..1, and so for ``std``: what is subtracted, and what is divided by"""
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        sizes = {len(values) for values in (self.mean, self.std) if values is not None}
        require((self.mean is None) == (self.std is None), "a backbone needs both mean and std, or neither")
        require(
            self.channels is None or sizes <= {self.channels}, "mean and std of a backbone need one value per channel"
        )


class Backbone(nn.Module, ABC):
    """Makes features of images.

    Two copies of one, both in evaluation mode, give the same features of an image, whatever else is in its batch.
    """

    width: int
    """the number of features"""
    input = Input()
    """what its images must be"""
    width_before_last = 0
    """the number of features that the part before the last has; 0 where it does not give them"""
    pretrained = False
    """whether it has learned before: then it may stay as it is"""
    description: Mapping[str, Any] | None = None
    """what a saved model holds to make it again, as JSON; None where its name says all"""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, nn.Module]:
        """Its parts by name, from the image to the features; together they have all of its weights and statistics."""

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Normalised images ``(B, C, H, W)`` to features ``(B, width)``, in single precision."""

    def with_before_last(self, images: Tensor) -> Tensor:
        """``(B, width + width_before_last)``: behind the features those of the part before the last."""
        features: Tensor = self(images)
        return features

    def load_pretrained(self) -> None:
        """Takes the weights that it begins stage one with, where they lie in a file; a saved model has its own."""

    def chosen(self, names: Iterable[str]) -> dict[str, nn.Module]:
        """The parts of these names; one of them may be "all", or "all but the last"."""
        several = {ALL: tuple(self.parts), BUT_LAST: tuple(self.parts)[:-1]}
        return {part: self.part(part) for name in names for part in several.get(name, (name,))}

    def part(self, name: str) -> nn.Module:
        """A part by its name."""
        if name not in self.parts:
            raise unknown("part of the backbone", name, self.parts)
        return self.parts[name]
