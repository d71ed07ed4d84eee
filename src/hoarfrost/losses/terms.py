"""The loss terms: each is its own configuration and a pure function of ``LossInputs``.

A method is a tuple of these with weights (``hoarfrost.methods``). A term says what it needs, so that nothing is
computed in vain, and which heads it trains, so that a head without a gradient does not decay.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from hoarfrost.errors import require
from hoarfrost.losses import functional as F

Need = Literal[
    "second view",
    "joint second view",
    "teacher",
    "replay",
    "old head",
    "targets",
    "ensemble",
    "queue",
    "auxiliary",
    "labelled images",
]
Head = Literal["joint", "novel", "auxiliary"]


MIXES = 5
"""how often NCL mixes each negative"""


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """What one batch gives to the terms. B images, D features, C classes in all, n of them novel in this step."""

    known: int
    """classes before this step; the teacher knows just these"""
    labelled: int
    """classes of stage one"""
    features: Tensor
    """(B, D) of the backbone, first view"""
    features_second: Tensor | None = None
    """(B, D), second view"""
    joint: Tensor
    """(B, C) logits of the joint head, first view"""
    joint_second: Tensor | None = None
    """(B, C), second view"""
    labels: Tensor | None = None
    """(B,) class ids; only of labelled images"""
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
    replay_more: Tensor | None = None
    """(M, D) further features of remembered classes, to mix with others"""
    old_head: Tensor | None = None
    """(B, known) logits of the previous model's joint head on the features of this one, first view"""
    old_novel: tuple[Tensor, ...] = ()
    """(B, n_t) each: logits of the previous model's novel heads on the features of this one, first view"""
    teacher_novel: tuple[Tensor, ...] = ()
    """(B, n_t) each: logits of the previous model's novel heads, first view"""
    auxiliary: Tensor | None = None
    """(B, n) logits of the auxiliary head on this step's residual features, first view"""
    targets: Tensor | None = None
    """(B, n) class probabilities that these images were given earlier, sharpened"""
    ensemble: Tensor | None = None
    """(B, n) class probabilities of these images, averaged over earlier epochs"""
    queue: Tensor | None = None
    """(K, D) features of earlier images, of length 1"""
    labelled_queue: Tensor | None = None
    """(K, D) features of earlier labelled images, of length 1"""
    labelled_queue_labels: Tensor | None = None
    """(K,) their class ids; -1 where no image was yet"""
    labelled_part: LossInputs | None = None
    """the same of the labelled images that are mixed in, as a batch of their own; only for a reference"""

    def labelled_images(self) -> LossInputs:
        """The labelled images, for a term that takes no others."""
        if self.labelled_part is None:
            raise RuntimeError("the loss asks for labelled images, which this batch does not have")
        return self.labelled_part

    def everything(self, name: str) -> Tensor:
        """A field of the new images and, where some are mixed in, of the labelled ones behind them."""
        new = present(getattr(self, name), name)
        if self.labelled_part is None:
            return new
        return torch.cat([new, present(getattr(self.labelled_part, name), name)])


def present(tensor: Tensor | None, name: str) -> Tensor:
    """The tensor, or an error that says which input a term asked for without declaring it in ``needs``."""
    if tensor is None:
        raise RuntimeError(f"the loss asks for '{name}', which this batch does not have")
    return tensor


@dataclass(frozen=True, kw_only=True)
class Term(ABC):
    """One summand of the objective: ``weight * r(epoch; ramp) * loss``. A weight of 0 leaves it out altogether."""

    kind: ClassVar[str]
    trains: ClassVar[frozenset[Head]] = frozenset()
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("ramp", "start")

    weight: float = 1.0
    ramp: int = 0
    """epochs over which the weight rises; 0 for none"""
    start: int = 0
    """the epoch from which it takes part"""

    def __post_init__(self) -> None:
        for name in ("weight", "ramp", "start", "warm_up", "momentum", "threshold", "negatives", "own"):
            value = getattr(self, name, 0)
            require(value >= 0, f"{name} of {self.kind} must not be below 0, as {value} is")
        for name in ("top_k", "per_class", "temperature", "update", "positives", "size", "mixed", "kept"):
            value = getattr(self, name, 1)
            require(0 < value < 2**31, f"{name} of {self.kind} must be above 0 and below 2**31, not {value}")
        for name in ("momentum", "own", "threshold"):
            value = getattr(self, name, 0)
            require(value < 1, f"{name} of {self.kind} must be below 1, not {value}")

    @property
    def needs(self) -> frozenset[Need]:
        """What it looks at, beside the first view's features and logits."""
        return frozenset()

    def weight_at(self, epoch: int) -> float:
        """The weight in a 0-based epoch."""
        return self.weight * F.sigmoid_rampup(epoch - self.start, self.ramp) if epoch >= self.start else 0.0

    def stretched(self, scale: float) -> Self:
        """The same for a course that is so many times as long."""
        counts = {name: getattr(self, name) for name in self.counted_in_epochs}
        return replace(self, **{name: count and max(1, round(count * scale)) for name, count in counts.items()})

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
    """The novel head puts images with like features together, Eq. (3) and (4)."""

    kind: ClassVar[str] = "pairwise"
    trains: ClassVar[frozenset[Head]] = frozenset({"novel"})

    top_k: int = 5
    similarity: Literal["softmax", "logistic"] = "softmax"
    pairs: Literal["rank", "cosine"] = "rank"
    """the same strongest features (AutoNovel, FRoST), or a cosine above ``threshold`` (NCL)"""
    threshold: float = 0.95

    @property
    def needs(self) -> frozenset[Need]:
        """Both views."""
        return frozenset({"second view"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """Pairs come from the first view's features, without a gradient."""
        first, second = present(inputs.novel, "novel"), present(inputs.novel_second, "novel_second")
        features = inputs.features.detach()
        if self.pairs == "cosine":
            same = F.cosine_pairs(features, self.threshold)
        else:
            same = F.rank_statistics(features, self.top_k)
        # Deviation: the paper prints the logistic form; the public code has the softmax one.
        if self.similarity == "logistic":
            return F.pairwise_bce_logistic(first, second, same)
        return F.pairwise_bce(first.softmax(dim=1), second.softmax(dim=1), same)


@dataclass(frozen=True, kw_only=True)
class Consistency(Term):
    """The novel head says the same of two views of an image, Eq. (7); of labelled ones too, where they are mixed in."""

    kind: ClassVar[str] = "consistency"
    trains: ClassVar[frozenset[Head]] = frozenset({"novel"})

    @property
    def needs(self) -> frozenset[Need]:
        """Both views."""
        return frozenset({"second view"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """The gradient goes through both views."""
        first, second = inputs.everything("novel"), inputs.everything("novel_second")
        return F.consistency(first.softmax(dim=1), second.softmax(dim=1))


@dataclass(frozen=True, kw_only=True)
class OldHeadConsistency(Term):
    """NCL, AutoNovel: the head of the labelled classes says the same of two views of an image, labelled or not."""

    kind: ClassVar[str] = "old-head-consistency"
    trains: ClassVar[frozenset[Head]] = frozenset({"joint"})

    @property
    def needs(self) -> frozenset[Need]:
        """Both views, and what the joint head says of the second."""
        return frozenset({"second view", "joint second view"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """A softmax over the classes of stage one alone; the gradient goes through both views."""
        first, second = (inputs.everything(name)[:, : inputs.labelled] for name in ("joint", "joint_second"))
        return F.consistency(first.softmax(dim=1), second.softmax(dim=1))


@dataclass(frozen=True, kw_only=True)
class LabelledCrossEntropy(Term):
    """A reference, with labelled images mixed in: the head of the labelled classes goes on learning them."""

    kind: ClassVar[str] = "labelled-cross-entropy"
    trains: ClassVar[frozenset[Head]] = frozenset({"joint"})

    @property
    def needs(self) -> frozenset[Need]:
        """Labelled images."""
        return frozenset({"labelled images"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view; the logits of the classes of stage one compete."""
        part = inputs.labelled_images()
        return F.cross_entropy(part.joint[:, : inputs.labelled], present(part.labels, "labels"))


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
    trains: ClassVar[frozenset[Head]] = frozenset({"joint"})

    # Deviation: one spread for all, and every class in each step, are the public code's; the paper has the others.
    per_class: int = 20
    """features drawn a class and step ("every"), or on average ("random")"""
    spread: Literal["shared", "class"] = "shared"
    """one standard deviation for all classes, their mean (public code), or each class's own (paper)"""
    sampling: Literal["every", "random"] = "every"
    """every class equally often in each step (public code), or classes drawn at random (paper)"""
    over: Literal["all", "earlier", "labelled"] = "all"
    """the logits that compete: of all classes, of those before this step, or of stage one's, which alone come then"""

    @property
    def needs(self) -> frozenset[Need]:
        """Features of remembered classes."""
        return frozenset({"replay"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """Nothing reaches the backbone."""
        logits = present(inputs.replay_joint, "replay_joint")
        if self.over != "all":
            logits = logits[:, : inputs.known if self.over == "earlier" else inputs.labelled]
        return F.cross_entropy(logits, present(inputs.replay_labels, "replay_labels"))


@dataclass(frozen=True, kw_only=True)
class FeatureDistillation(Term):
    """The features stay near those of the previous model, Eq. (11), so that what is replayed stays true."""

    kind: ClassVar[str] = "feature-distillation"

    # Deviation: the paper prints the distance of samples; the public code has that of batches.
    form: Literal["batch", "sample"] = "batch"

    @property
    def needs(self) -> frozenset[Need]:
        """The previous model."""
        return frozenset({"teacher"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view."""
        return F.feature_distillation(inputs.features, present(inputs.teacher_features, "teacher_features"), self.form)


@dataclass(frozen=True, kw_only=True)
class LogitDistillation(Term):
    """Learning without Forgetting: the joint head's old logits stay near the previous model's, Eq. (2)."""

    kind: ClassVar[str] = "logit-distillation"
    trains: ClassVar[frozenset[Head]] = frozenset({"joint"})

    temperature: float = 2.0
    form: Literal["softmax", "presoftmax"] = "softmax"
    class_mean: bool = False
    """divide by the number of old classes, as the paper prints it"""

    @property
    def needs(self) -> frozenset[Need]:
        """The previous model."""
        return frozenset({"teacher"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view, the classes that the teacher knows."""
        teacher = present(inputs.teacher_joint, "teacher_joint")
        loss = F.logit_distillation(inputs.joint[:, : inputs.known], teacher, self.temperature, self.form)
        return loss / inputs.known if self.class_mean else loss


@dataclass(frozen=True, kw_only=True)
class OldHeadDistillation(Term):
    """ResTune's way not to forget: every earlier head, left as it is, says the same of the features as before."""

    kind: ClassVar[str] = "old-head-distillation"

    temperature: float = 2.0

    @property
    def needs(self) -> frozenset[Need]:
        """The previous model, and its heads on the features of this one."""
        return frozenset({"teacher", "old head"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view; the head of stage one's classes and that of each earlier discovery, added up."""
        now, before = present(inputs.old_head, "old_head"), present(inputs.teacher_joint, "teacher_joint")
        labelled = inputs.labelled
        heads = [(now[:, :labelled], before[:, :labelled])]
        heads += zip(inputs.old_novel, inputs.teacher_novel, strict=True)
        losses = [F.logit_distillation(new, old, self.temperature, "softmax") for new, old in heads]
        return torch.stack(losses).sum()


@dataclass(frozen=True, kw_only=True)
class Clustering(Term):
    """Deep embedded clustering, as in DTC and ResTune: every image moves to what it was taken for, only surer.

    The novel head starts from k-means of the features. Targets are renewed after every ``update`` epochs.
    """

    kind: ClassVar[str] = "clustering"
    trains: ClassVar[frozenset[Head]] = frozenset({"novel"})
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("ramp", "start", "update", "warm_up")

    update: int = 5
    warm_up: int = 0
    """first epochs in which the targets stay those of the start; at their end they are renewed"""
    momentum: float = 0.0
    """0: targets from the current probabilities; above: from their average over the epochs (DTC's TEP)"""

    @property
    def needs(self) -> frozenset[Need]:
        """A target for each image."""
        return frozenset({"targets"})

    def renews(self, epoch: int) -> bool:
        """Whether the targets are renewed after a 0-based epoch."""
        since = epoch + 1 - self.warm_up
        return since >= 0 and since % self.update == 0

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view."""
        return F.cluster_divergence(present(inputs.novel, "novel"), present(inputs.targets, "targets"))


@dataclass(frozen=True, kw_only=True)
class ClusterConsistency(Term):
    """DTC and ResTune: cluster probabilities agree between two views (PI), or with their past average (TE)."""

    kind: ClassVar[str] = "cluster-consistency"
    trains: ClassVar[frozenset[Head]] = frozenset({"novel"})

    target: Literal["view", "ensemble"] = "view"
    momentum: float = 0.6
    """of the average"""

    @property
    def needs(self) -> frozenset[Need]:
        """A second view, or the average."""
        return frozenset({"second view"} if self.target == "view" else {"ensemble"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """Mean squared difference."""
        first = present(inputs.novel, "novel").softmax(dim=1)
        if self.target == "view":
            return F.consistency(first, present(inputs.novel_second, "novel_second").softmax(dim=1))
        return F.consistency(first, present(inputs.ensemble, "ensemble"))


@dataclass(frozen=True, kw_only=True)
class ExtremePairs(Term):
    """ResTune: the auxiliary head puts together what the old head finds most alike, and apart what least so."""

    kind: ClassVar[str] = "extreme-pairs"
    trains: ClassVar[frozenset[Head]] = frozenset({"auxiliary"})

    positives: int = 10
    negatives: int = 10

    @property
    def needs(self) -> frozenset[Need]:
        """The auxiliary head."""
        return frozenset({"auxiliary"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view; the pairs have no gradient."""
        similar = inputs.joint[:, : inputs.labelled].detach().softmax(dim=1)
        pairs = F.extreme_pairs(similar, self.positives, self.negatives)
        return F.signed_pairwise_bce(present(inputs.auxiliary, "auxiliary").softmax(dim=1), pairs)


@dataclass(frozen=True, kw_only=True)
class Contrast(Term):
    """NCL: an image's features are like those of its second view, and of its neighbours among earlier images."""

    kind: ClassVar[str] = "contrast"

    size: int = 2000
    """of the queue, where there are as many images"""
    temperature: float = 0.05
    own: float = 0.2
    """the second view's part of the target; the neighbours share the rest"""
    hard_negatives: bool = False
    """whether negatives are mixed with features of labelled classes, which the replay term has to draw"""
    mixed: int = 400
    """negatives a query that are mixed; 50 where five classes are new"""
    kept: int = 400
    """mixtures a query, the hardest"""

    @property
    def needs(self) -> frozenset[Need]:
        """A second view, the queue, and what negatives are mixed with."""
        needs: set[Need] = {"second view", "queue"}
        return frozenset(needs | {"replay"} if self.hard_negatives else needs)

    def loss(self, inputs: LossInputs) -> Tensor:
        """The gradient goes through the first view."""
        query = F.unit_rows(inputs.features)
        key = F.unit_rows(present(inputs.features_second, "features_second").detach())
        queue, novel = present(inputs.queue, "queue"), present(inputs.novel, "novel").shape[1]
        harder = None
        if self.hard_negatives:
            more = present(inputs.replay_more, "replay_more")
            labelled = more.view(MIXES, self.mixed, more.shape[1])
            harder = F.hard_negatives(query.detach(), queue, labelled, mixed=self.mixed, kept=self.kept)
        return F.neighbour_contrast(
            query,
            key,
            queue,
            temperature=self.temperature,
            own=self.own,
            neighbours=max(1, len(queue) // (2 * novel)),
            harder=harder,
        )


@dataclass(frozen=True, kw_only=True)
class LabelledContrast(Term):
    """NCL, with labelled images mixed in: their features are like those of their class among earlier ones."""

    kind: ClassVar[str] = "labelled-contrast"

    size: int = 2000
    """of the queue, where there are as many labelled images"""
    temperature: float = 0.05

    @property
    def needs(self) -> frozenset[Need]:
        """Labelled images in two views, and the queue of earlier ones."""
        return frozenset({"second view", "labelled images"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """The gradient goes through the first view."""
        part = inputs.labelled_images()
        return F.labelled_contrast(
            F.unit_rows(part.features),
            F.unit_rows(present(part.features_second, "features_second").detach()),
            present(inputs.labelled_queue, "labelled_queue"),
            labels=present(part.labels, "labels"),
            queue_labels=present(inputs.labelled_queue_labels, "labelled_queue_labels"),
            temperature=self.temperature,
        )
