"""The loss terms: each is its own configuration and a pure function of ``LossInputs``.

A method is a tuple of these with weights (``hoarfrost.methods``). A term says what it needs, so that nothing is
computed in vain, and which heads it trains, so that a head without a gradient does not decay.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from hoarfrost.errors import require
from hoarfrost.losses import functional as F

Need = Literal["second view", "teacher", "replay"]
Head = Literal["joint", "novel"]


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """What one batch gives to the terms. B images, D features, C classes in all, n of them novel in this step."""

    known: int
    """classes before this step; the teacher knows just these"""
    features: Tensor
    """(B, D), first view"""
    joint: Tensor
    """(B, C) logits of the joint head, first view"""
    labels: Tensor | None = None
    """(B,) class ids; only in stage one"""
    novel: Tensor | None = None
    """(B, n) logits of this step's novel head, first view"""
    novel_second: Tensor | None = None
    """(B, n), second view"""
    teacher_features: Tensor | None = None
    """(B, D) of the previous model, first view"""
    teacher_joint: Tensor | None = None
    """(B, known) logits of the previous model, first view"""
    replay_joint: Tensor | None = None
    """(R, C) logits of the joint head on replayed features"""
    replay_labels: Tensor | None = None
    """(R,) class ids of the replayed features"""


def present(tensor: Tensor | None, name: str) -> Tensor:
    """The tensor, or an error that says which input a term asked for without declaring it in ``needs``."""
    if tensor is None:
        raise RuntimeError(f"the loss asks for '{name}', which this batch does not have")
    return tensor


@dataclass(frozen=True, kw_only=True)
class Term(ABC):
    """One summand of the objective: ``weight * r(epoch; ramp) * loss``. A weight of 0 leaves it out altogether."""

    kind: ClassVar[str]
    needs: ClassVar[frozenset[Need]] = frozenset()
    trains: ClassVar[frozenset[Head]] = frozenset()

    weight: float = 1.0
    ramp: int = 0
    """epochs over which the weight rises; 0 for none"""

    def __post_init__(self) -> None:
        for name in ("weight", "ramp"):
            require(getattr(self, name) >= 0, f"{name} of {self.kind} must not be below 0, as {getattr(self, name)} is")
        for name in ("top_k", "per_class", "temperature"):
            value = getattr(self, name, 1)
            require(value > 0, f"{name} of {self.kind} must be above 0, not {value}")

    @abstractmethod
    def loss(self, inputs: LossInputs) -> Tensor:
        """The value for one batch, a scalar, without the weight."""


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Term):
    """Stage one: the joint head learns the labelled classes, Eq. (1)."""

    kind: ClassVar[str] = "cross-entropy"
    trains: ClassVar[frozenset[Head]] = frozenset({"joint"})

    class_mean: bool = False

    def loss(self, inputs: LossInputs) -> Tensor:
        """Ordinary cross-entropy."""
        return F.cross_entropy(inputs.joint, present(inputs.labels, "labels"), self.class_mean)


@dataclass(frozen=True, kw_only=True)
class Pairwise(Term):
    """The novel head puts images with the same strongest features together, Eq. (3) and (4)."""

    kind: ClassVar[str] = "pairwise"
    needs: ClassVar[frozenset[Need]] = frozenset({"second view"})
    trains: ClassVar[frozenset[Head]] = frozenset({"novel"})

    top_k: int = 5
    similarity: Literal["softmax", "logistic"] = "softmax"

    def loss(self, inputs: LossInputs) -> Tensor:
        """Pairs come from the first view's features, without a gradient."""
        first, second = present(inputs.novel, "novel"), present(inputs.novel_second, "novel_second")
        same = F.rank_statistics(inputs.features.detach(), self.top_k)
        # Deviation: the paper prints the logistic form; the public code has the softmax one.
        if self.similarity == "logistic":
            return F.pairwise_bce_logistic(first, second, same)
        return F.pairwise_bce(first.softmax(dim=1), second.softmax(dim=1), same)


@dataclass(frozen=True, kw_only=True)
class Consistency(Term):
    """The novel head says the same of two views of an image, Eq. (7)."""

    kind: ClassVar[str] = "consistency"
    needs: ClassVar[frozenset[Need]] = frozenset({"second view"})
    trains: ClassVar[frozenset[Head]] = frozenset({"novel"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """The gradient goes through both views."""
        first, second = present(inputs.novel, "novel"), present(inputs.novel_second, "novel_second")
        return F.consistency(first.softmax(dim=1), second.softmax(dim=1))


@dataclass(frozen=True, kw_only=True)
class SelfTraining(Term):
    """The joint head learns the new classes from the novel head's pseudo-labels, Eq. (5) and (6)."""

    kind: ClassVar[str] = "self-training"
    trains: ClassVar[frozenset[Head]] = frozenset({"joint"})

    class_mean: bool = False

    def loss(self, inputs: LossInputs) -> Tensor:
        """Hard labels of the first view, every image, no threshold."""
        labels = inputs.known + present(inputs.novel, "novel").detach().argmax(dim=1)
        return F.cross_entropy(inputs.joint, labels, self.class_mean)


@dataclass(frozen=True, kw_only=True)
class Replay(Term):
    """The joint head rehearses earlier classes on features drawn from their stored statistics, Eq. (10)."""

    kind: ClassVar[str] = "replay"
    needs: ClassVar[frozenset[Need]] = frozenset({"replay"})
    trains: ClassVar[frozenset[Head]] = frozenset({"joint"})

    # Deviation: one spread for all, and every class in each step, are the public code's; the paper has the others.
    per_class: int = 20
    """features drawn a class and step ("every"), or on average ("random")"""
    spread: Literal["shared", "class"] = "shared"
    """one standard deviation for all classes, their mean (public code), or each class's own (paper)"""
    sampling: Literal["every", "random"] = "every"
    """every class equally often in each step (public code), or classes drawn at random (paper)"""

    def loss(self, inputs: LossInputs) -> Tensor:
        """Over all classes; nothing reaches the backbone."""
        return F.cross_entropy(
            present(inputs.replay_joint, "replay_joint"), present(inputs.replay_labels, "replay_labels")
        )


@dataclass(frozen=True, kw_only=True)
class FeatureDistillation(Term):
    """The features stay near those of the previous model, Eq. (11), so that what is replayed stays true."""

    kind: ClassVar[str] = "feature-distillation"
    needs: ClassVar[frozenset[Need]] = frozenset({"teacher"})

    # Deviation: the paper prints the distance of samples; the public code has that of batches.
    form: Literal["batch", "sample"] = "batch"

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view."""
        return F.feature_distillation(inputs.features, present(inputs.teacher_features, "teacher_features"), self.form)


@dataclass(frozen=True, kw_only=True)
class LogitDistillation(Term):
    """Learning without Forgetting: the joint head's old logits stay near the previous model's, Eq. (2)."""

    kind: ClassVar[str] = "logit-distillation"
    needs: ClassVar[frozenset[Need]] = frozenset({"teacher"})
    trains: ClassVar[frozenset[Head]] = frozenset({"joint"})

    temperature: float = 2.0
    form: Literal["softmax", "presoftmax"] = "softmax"
    class_mean: bool = False
    """divide by the number of old classes, as the paper prints it"""

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view, the classes that the teacher knows."""
        teacher = present(inputs.teacher_joint, "teacher_joint")
        loss = F.logit_distillation(inputs.joint[:, : inputs.known], teacher, self.temperature, self.form)
        return loss / inputs.known if self.class_mean else loss
