"""Terms of continual category discovery: those of Happy, and Freeze-and-Cluster's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hoarfrost.losses import functional as F
from hoarfrost.losses.inputs import FIRST, SECOND, LossInputs, View
from hoarfrost.losses.terms import SelfTraining, Term


@dataclass(frozen=True, kw_only=True)
class ClusterLabels(SelfTraining):
    """The joint head learns the clusters of the start: the novel head that says them is not trained.

    Zhang et al., Freeze and Cluster, 2025.
    """

    kind: ClassVar[str] = "cluster-labels"


@dataclass(frozen=True, kw_only=True)
class SelfDistillation(Term):
    """The joint head predicts of each view what it says of the other, only surer.

    Wen et al., Parametric classification for generalized category discovery (SimGCD), ICCV 2023; Happy.
    """

    kind: ClassVar[str] = "self-distillation"
    heads: ClassVar[tuple[str, ...]] = ("joint",)
    trains: ClassVar[frozenset[str]] = frozenset({"joint"})
    views: ClassVar[tuple[View, ...]] = (FIRST, SECOND)

    sharpness: float = 0.5
    """targets are made of logits divided by this: with cosines divided by 0.1, 0.5 is Happy's temperature of 0.05"""

    def loss(self, inputs: LossInputs) -> Tensor:
        """The targets have no gradient."""
        first, second = inputs.logits("joint"), inputs.logits("joint", SECOND)
        targets = [(logits.detach() / self.sharpness).softmax(dim=1) for logits in (first, second)]
        return F.swapped_cross_entropy(first, second, *targets)


@dataclass(frozen=True, kw_only=True)
class GroupEntropy(Term):
    """The images of a batch are shared evenly between old and new, among the old classes and among the new.

    Ma et al., Happy: a debiased learning framework for continual generalized category discovery, NeurIPS 2024.
    """

    kind: ClassVar[str] = "group-entropy"
    heads: ClassVar[tuple[str, ...]] = ("joint",)
    trains: ClassVar[frozenset[str]] = frozenset({"joint"})
    views: ClassVar[tuple[View, ...]] = (FIRST, SECOND)

    between: float = 1.0
    """the weight of old against new"""
    among: float = 1.0
    """that of the classes of either group"""

    def loss(self, inputs: LossInputs) -> Tensor:
        """Of the mean probabilities of both views."""
        means = [inputs.logits("joint", view).softmax(dim=1).mean(dim=0) for view in self.views]
        return F.group_entropy((means[0] + means[1]) / 2, inputs.seen_classes, self.between, self.among)
