"""What a batch gives to the loss terms: features and logits by view and by head, and what is remembered.

Letters in shapes: B images, D features of the backbone, C classes in all, n of them novel in this step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from hoarfrost.data.augment import Augment

T = TypeVar("T")


@dataclass(frozen=True)
class View:
    """One randomly changed copy of every image of a batch."""

    name: str
    augment: Augment | None = None
    """how it is changed; None: as is usual in the stage"""


FIRST, SECOND = View("first"), View("second")


def name_of(view: View | None) -> str:
    """The name of a view, of the first where none is given."""
    # No view is the value of an argument that is left out: torch.compile does not follow such.
    return FIRST.name if view is None else view.name


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the heads and memories of a term are made for."""

    features: int
    """of the backbone"""
    images: int
    """to learn from"""
    labelled_classes: int
    """of stage one"""
    seen_classes: int
    """before this step"""
    novel_classes: int = 0
    """of this step; 0 in stage one"""
    labelled_images: int = 0
    """mixed into the batches, for a reference that sees them again"""
    clusters: Tensor | None = None
    """(images, n): k-means' probabilities of the new classes, where a method starts from k-means"""


@dataclass(frozen=True, kw_only=True)
class Activations:
    """What one network makes of the images of a batch."""

    features_by_view: Mapping[str, Tensor]
    """(B, D) each, of the backbone"""
    logits_by_head: Mapping[tuple[str, str], Tensor]
    """(B, outputs) each, by the names of head and view"""

    def features(self, view: View | None = None) -> Tensor:
        """``(B, D)`` of a view, the first unless told."""
        name = name_of(view)
        if name not in self.features_by_view:
            raise RuntimeError(f"the loss asks for the {name} view: declare it in the term's views")
        return self.features_by_view[name]

    def logits(self, head: str, view: View | None = None) -> Tensor:
        """``(B, outputs)`` of a head on a view, the first unless told."""
        name = name_of(view)
        if (head, name) not in self.logits_by_head:
            raise RuntimeError(f"the loss asks for '{head}' on the {name} view: declare both in heads and views")
        return self.logits_by_head[head, name]


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """What one batch gives to the terms."""

    labelled_classes: int
    """classes of stage one"""
    seen_classes: int
    """classes before this step; the teacher knows just these"""
    novel_classes: int = 0
    """classes of this step"""
    student: Activations
    """of the network in training"""
    labels: Tensor | None = None
    """(B,) class ids; only of labelled images"""
    teacher: Activations | None = None
    """of the previous model: its heads on its features, first view"""
    old_heads: Activations | None = None
    """of the previous model's heads, on the features of the network in training, first view"""
    earlier_heads: tuple[str, ...] = ()
    """the names of the novel heads that the previous model has"""
    replay_logits: Tensor | None = None
    """(R, C) of the joint head on replayed features"""
    replay_labels: Tensor | None = None
    """(R,) class ids of the replayed features"""
    memories: Mapping[str, Tensor] = field(default_factory=dict)
    """what the terms' memories give for these images, by name"""
    labelled_part: LossInputs | None = None
    """the same of labelled images that are mixed in, as a batch of their own; only for a reference"""

    def features(self, view: View | None = None) -> Tensor:
        """``(B, D)`` of a view, the first unless told."""
        return self.student.features(view)

    def logits(self, head: str, view: View | None = None) -> Tensor:
        """``(B, outputs)`` of a head on a view, the first unless told."""
        return self.student.logits(head, view)

    def memory(self, name: str) -> Tensor:
        """What a memory gives under a name."""
        if name not in self.memories:
            raise RuntimeError(f"the loss asks for '{name}', which no memory of the method's terms provides")
        return self.memories[name]

    def labelled_images(self) -> LossInputs:
        """The labelled images, for a term that takes no others."""
        return present(self.labelled_part, "labelled images")

    def logits_of_all(self, head: str, view: View | None = None) -> Tensor:
        """Of the new images and, where some are mixed in, of the labelled ones behind them."""
        new = self.logits(head, view)
        return new if self.labelled_part is None else torch.cat([new, self.labelled_part.logits(head, view)])


def present(value: T | None, name: str) -> T:
    """The value, or an error that says what a term asked for without declaring it in ``needs``."""
    if value is None:
        raise RuntimeError(f"the loss asks for '{name}', which this batch does not have")
    return value
