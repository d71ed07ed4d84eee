"""Terms that label images by themselves, or tell them apart without labels: those of the method ``hoarfrost``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from hoarfrost.data.augment import Augment, Strong
from hoarfrost.losses import functional as F
from hoarfrost.losses.inputs import FIRST, SECOND, LossInputs, Sizes, View
from hoarfrost.losses.terms import Term
from hoarfrost.models.heads import Cosine, projection


@dataclass(frozen=True, kw_only=True)
class SelfLabelling(Term):
    """The novel head predicts for each view what the other was labelled; the labels of a batch fill all classes alike.

    Asano et al., Self-labelling via simultaneous clustering and representation learning, ICLR 2020; Caron et al.,
    SwAV, NeurIPS 2020.
    """

    kind: ClassVar[str] = "self-labelling"
    heads: ClassVar[tuple[str, ...]] = ("novel",)
    trains: ClassVar[frozenset[str]] = frozenset({"novel"})
    views: ClassVar[tuple[View, ...]] = (FIRST, SECOND)

    sharpness: float = 0.5
    """labels are made of logits divided by this: with cosines divided by 0.1, 0.5 is SwAV's 0.05"""
    rounds: int = 3
    """of scaling rows and columns in turn"""

    def loss(self, inputs: LossInputs) -> Tensor:
        """The labels have no gradient."""
        (head,) = self.heads
        first, second = inputs.logits(head), inputs.logits(head, SECOND)
        labels = [F.balanced_labels(logits.detach() / self.sharpness, self.rounds) for logits in (first, second)]
        return F.swapped_cross_entropy(first, second, *labels)


@dataclass(frozen=True, kw_only=True)
class OverClustering(SelfLabelling):
    """The same with more clusters than there are classes, by a head of its own: finer labels shape better features."""

    kind: ClassVar[str] = "over-clustering"
    heads: ClassVar[tuple[str, ...]] = ("over-clusters",)
    trains: ClassVar[frozenset[str]] = frozenset({"over-clusters"})

    times: int = 4
    """clusters for each new class"""

    def make_heads(self, sizes: Sizes) -> Mapping[str, nn.Module]:
        """Cosines to as many prototypes."""
        return {"over-clusters": Cosine(sizes.features, self.times * sizes.novel_classes)}


@dataclass(frozen=True, kw_only=True)
class InstanceContrast(Term):
    """Two strongly changed views of an image are alike, and unlike all other images of the batch, in a projection.

    Chen et al., A simple framework for contrastive learning (SimCLR), ICML 2020.
    """

    kind: ClassVar[str] = "instance-contrast"
    heads: ClassVar[tuple[str, ...]] = ("projection",)
    trains: ClassVar[frozenset[str]] = frozenset({"projection"})
    strong_fields: ClassVar[tuple[str, ...]] = ("augment",)

    weight: float = 0.3
    temperature: float = 0.2
    size: int = 128
    """of the projection"""
    augment: Augment = field(default_factory=Strong)

    @property
    def views(self) -> tuple[View, ...]:
        """Two of its own, so that what learns from labels need not see such strong changes."""
        return (View("strong 1", self.augment), View("strong 2", self.augment))

    def make_heads(self, sizes: Sizes) -> Mapping[str, nn.Module]:
        """The projection."""
        return {"projection": projection(sizes.features, self.size)}

    def loss(self, inputs: LossInputs) -> Tensor:
        """All views of a batch against each other."""
        first, second = (F.unit_rows(inputs.logits("projection", view)) for view in self.views)
        return F.instance_contrast(torch.cat([first, second]), self.temperature)
