"""The loss terms: each is its own configuration and a pure function of ``LossInputs``.

A method is a tuple of these with weights (``hoarfrost.methods``). A term says which views and heads it looks at, so
that nothing is computed in vain, and which heads it trains, so that a head without a gradient does not decay. Heads and
memories of its own it makes itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from hoarfrost.errors import InputError, require
from hoarfrost.losses import functional as F
from hoarfrost.losses.inputs import FIRST, SECOND, LossInputs, Sizes, View, present
from hoarfrost.losses.memory import Ensemble, LabelledQueue, Memory, Queue, Targets

Need = Literal["teacher", "old heads", "replay", "labelled images", "k-means start"]


@dataclass(frozen=True, kw_only=True)
class Term(ABC):
    """One summand of the objective: ``weight * r(epoch; ramp) * loss``. A weight of 0 leaves it out altogether."""

    kind: ClassVar[str]
    heads: ClassVar[tuple[str, ...]] = ()
    """the heads that it reads, each on all its views: "joint", "novel" (this step's), "auxiliary", or one it makes"""
    trains: ClassVar[frozenset[str]] = frozenset()
    """those of them that it trains; a head that no term names here gets no gradient"""
    strong_fields: ClassVar[tuple[str, ...]] = ()
    """fields that are a data set's strong changes of an image, unless a preset says otherwise"""
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("ramp", "start")

    weight: float = 1.0
    ramp: int = 0
    """epochs over which the weight rises; 0 for none"""
    start: int = 0
    """the epoch from which it takes part"""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        kind, same = vars(cls).get("kind"), (cls.__module__, cls.__qualname__)
        for other in derived_from(Term) if kind is not None else ():
            if vars(other).get("kind") == kind and (other.__module__, other.__qualname__) != same:
                del cls.kind  # nobody shall find this class by it
                name = f"{other.__module__}.{other.__name__}"
                raise InputError(f"the kind '{kind}' is already taken by {name}: rename this term")

    def __post_init__(self) -> None:
        for name in ("weight", "ramp", "start", "warm_up", "momentum", "threshold", "negatives", "own"):
            value = self._number(name, 0)
            require(value >= 0, f"{name} of {self.kind} must be at least 0, not {value}")
        for name in ("top_k", "per_class", "temperature", "update", "positives", "size", "mixed", "kept"):
            value = self._number(name, 1)
            require(0 < value < 2**31, f"{name} of {self.kind} must be above 0 and below 2**31, not {value}")
        for name in ("momentum", "own", "threshold"):
            value = self._number(name, 0)
            require(value < 1, f"{name} of {self.kind} must be below 1, not {value}")

    def _number(self, name: str, otherwise: float) -> float:
        """The value of a field, if there is one of that name and it is a number."""
        value = getattr(self, name, otherwise)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise

    @property
    def views(self) -> tuple[View, ...]:
        """The views of an image that it looks at."""
        return (FIRST,)

    @property
    def needs(self) -> frozenset[Need]:
        """What it looks at beside the features and logits of the network in training."""
        return frozenset()

    def make_heads(self, sizes: Sizes) -> Mapping[str, nn.Module]:
        """Heads of its own, by name, from ``(B, D)`` features; they are gone when the stage ends."""
        return {}

    def make_memory(self, sizes: Sizes) -> Memory | None:
        """What it remembers of the images during a stage."""
        return None

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


def derived_from(kind: Any) -> Iterator[Any]:
    """What derives from a class, and what derives from that."""
    for derived in kind.__subclasses__():
        yield derived
        yield from derived_from(derived)


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Term):
    """Stage one: the joint head learns the labelled classes, Eq. (1)."""

    kind: ClassVar[str] = "cross-entropy"
    heads: ClassVar[tuple[str, ...]] = ("joint",)
    trains: ClassVar[frozenset[str]] = frozenset({"joint"})

    class_mean: bool = False

    def loss(self, inputs: LossInputs) -> Tensor:
        """Ordinary cross-entropy."""
        return F.cross_entropy(inputs.logits("joint"), present(inputs.labels, "labels"), self.class_mean)


@dataclass(frozen=True, kw_only=True)
class Pairwise(Term):
    """The novel head puts images with like features together, Eq. (3) and (4)."""

    kind: ClassVar[str] = "pairwise"
    heads: ClassVar[tuple[str, ...]] = ("novel",)
    trains: ClassVar[frozenset[str]] = frozenset({"novel"})
    views: ClassVar[tuple[View, ...]] = (FIRST, SECOND)

    top_k: int = 5
    similarity: Literal["softmax", "logistic"] = "softmax"
    pairs: Literal["rank", "cosine"] = "rank"
    """the same strongest features (AutoNovel, FRoST), or a cosine above ``threshold`` (NCL)"""
    threshold: float = 0.95

    def loss(self, inputs: LossInputs) -> Tensor:
        """Pairs come from the first view's features, without a gradient."""
        first, second = inputs.logits("novel"), inputs.logits("novel", SECOND)
        features = inputs.features().detach()
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
    heads: ClassVar[tuple[str, ...]] = ("novel",)
    trains: ClassVar[frozenset[str]] = frozenset({"novel"})
    views: ClassVar[tuple[View, ...]] = (FIRST, SECOND)

    def loss(self, inputs: LossInputs) -> Tensor:
        """The gradient goes through both views."""
        first, second = inputs.logits_of_all("novel"), inputs.logits_of_all("novel", SECOND)
        return F.consistency(first.softmax(dim=1), second.softmax(dim=1))


@dataclass(frozen=True, kw_only=True)
class OldHeadConsistency(Term):
    """NCL, AutoNovel: the head of the labelled classes says the same of two views of an image, labelled or not."""

    kind: ClassVar[str] = "old-head-consistency"
    heads: ClassVar[tuple[str, ...]] = ("joint",)
    trains: ClassVar[frozenset[str]] = frozenset({"joint"})
    views: ClassVar[tuple[View, ...]] = (FIRST, SECOND)

    def loss(self, inputs: LossInputs) -> Tensor:
        """A softmax over the classes of stage one alone; the gradient goes through both views."""
        first, second = (inputs.logits_of_all("joint", view)[:, : inputs.labelled_classes] for view in self.views)
        return F.consistency(first.softmax(dim=1), second.softmax(dim=1))


@dataclass(frozen=True, kw_only=True)
class LabelledCrossEntropy(Term):
    """A reference, with labelled images mixed in: the head of the labelled classes goes on learning them."""

    kind: ClassVar[str] = "labelled-cross-entropy"
    heads: ClassVar[tuple[str, ...]] = ("joint",)
    trains: ClassVar[frozenset[str]] = frozenset({"joint"})
    needs: ClassVar[frozenset[Need]] = frozenset({"labelled images"})

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view; the logits of the classes of stage one compete."""
        part = inputs.labelled_images()
        return F.cross_entropy(part.logits("joint")[:, : inputs.labelled_classes], present(part.labels, "labels"))


@dataclass(frozen=True, kw_only=True)
class SelfTraining(Term):
    """The joint head learns the new classes from the novel head's pseudo-labels, Eq. (5) and (6)."""

    kind: ClassVar[str] = "self-training"
    heads: ClassVar[tuple[str, ...]] = ("novel", "joint")
    trains: ClassVar[frozenset[str]] = frozenset({"joint"})

    class_mean: bool = False

    def loss(self, inputs: LossInputs) -> Tensor:
        """Hard labels of the first view, every image, no threshold."""
        labels = inputs.seen_classes + inputs.logits("novel").detach().argmax(dim=1)
        return F.cross_entropy(inputs.logits("joint"), labels, self.class_mean)


@dataclass(frozen=True, kw_only=True)
class Replay(Term):
    """The joint head rehearses earlier classes on features drawn from their stored statistics, Eq. (10)."""

    kind: ClassVar[str] = "replay"
    trains: ClassVar[frozenset[str]] = frozenset({"joint"})
    needs: ClassVar[frozenset[Need]] = frozenset({"replay"})

    # Deviation: one spread for all, and every class in each step, are the public code's; the paper has the others.
    per_class: int = 20
    """features drawn a class and step ("every"), or on average ("random")"""
    spread: Literal["shared", "class", "isotropic"] = "shared"
    """one standard deviation for all classes, their mean (public code), each class's own (paper), or one for all
    features too (Happy)"""
    sampling: Literal["every", "random", "hard"] = "every"
    """every class equally often in each step (public code), classes drawn at random (paper), or those more often that
    are like others (Happy)"""
    temperature: float = 0.1
    """of those: their mean cosines with the other classes are divided by it before the softmax"""
    over: Literal["all", "earlier", "labelled"] = "all"
    """the logits that compete: of all classes, of those before this step, or of stage one's, which alone come then"""

    def loss(self, inputs: LossInputs) -> Tensor:
        """Nothing reaches the backbone."""
        logits = present(inputs.replay_logits, "replay_logits")
        if self.over != "all":
            logits = logits[:, : inputs.seen_classes if self.over == "earlier" else inputs.labelled_classes]
        return F.cross_entropy(logits, present(inputs.replay_labels, "replay_labels"))


@dataclass(frozen=True, kw_only=True)
class FeatureDistillation(Term):
    """The features stay near those of the previous model, Eq. (11), so that what is replayed stays true."""

    kind: ClassVar[str] = "feature-distillation"
    needs: ClassVar[frozenset[Need]] = frozenset({"teacher"})

    # Deviation: the paper prints the distance of samples; the public code has that of batches.
    form: Literal["batch", "sample", "cosine"] = "batch"

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view."""
        return F.feature_distillation(inputs.features(), present(inputs.teacher, "teacher").features(), self.form)


@dataclass(frozen=True, kw_only=True)
class LogitDistillation(Term):
    """Learning without Forgetting: the joint head's old logits stay near the previous model's, Eq. (2)."""

    kind: ClassVar[str] = "logit-distillation"
    heads: ClassVar[tuple[str, ...]] = ("joint",)
    trains: ClassVar[frozenset[str]] = frozenset({"joint"})
    needs: ClassVar[frozenset[Need]] = frozenset({"teacher"})

    temperature: float = 2.0
    form: Literal["softmax", "presoftmax"] = "softmax"
    class_mean: bool = False
    """divide by the number of old classes, as the paper prints it"""

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view, the classes that the teacher knows."""
        teacher, seen = present(inputs.teacher, "teacher").logits("joint"), inputs.seen_classes
        loss = F.logit_distillation(inputs.logits("joint")[:, :seen], teacher, self.temperature, self.form)
        return loss / seen if self.class_mean else loss


@dataclass(frozen=True, kw_only=True)
class OldHeadDistillation(Term):
    """ResTune's way not to forget: every earlier head, left as it is, says the same of the features as before."""

    kind: ClassVar[str] = "old-head-distillation"
    needs: ClassVar[frozenset[Need]] = frozenset({"teacher", "old heads"})

    temperature: float = 2.0

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view; the head of stage one's classes and that of each earlier discovery, added up."""
        now, before = present(inputs.old_heads, "old heads"), present(inputs.teacher, "teacher")
        labelled = inputs.labelled_classes
        heads = [(now.logits("joint")[:, :labelled], before.logits("joint")[:, :labelled])]
        heads += [(now.logits(name), before.logits(name)) for name in inputs.earlier_heads]
        losses = [F.logit_distillation(new, old, self.temperature, "softmax") for new, old in heads]
        return torch.stack(losses).sum()


@dataclass(frozen=True, kw_only=True)
class Clustering(Term):
    """Deep embedded clustering, as in DTC and ResTune: every image moves to what it was taken for, only surer.

    The novel head starts from k-means of the features. Targets are renewed after every ``update`` epochs.
    """

    kind: ClassVar[str] = "clustering"
    heads: ClassVar[tuple[str, ...]] = ("novel",)
    trains: ClassVar[frozenset[str]] = frozenset({"novel"})
    counted_in_epochs: ClassVar[tuple[str, ...]] = ("ramp", "start", "update", "warm_up")
    needs: ClassVar[frozenset[Need]] = frozenset({"k-means start"})

    update: int = 5
    warm_up: int = 0
    """first epochs in which the targets stay those of the start; at their end they are renewed"""
    momentum: float = 0.0
    """0: targets from the current probabilities; above: from their average over the epochs (DTC's TEP)"""

    def make_memory(self, sizes: Sizes) -> Memory:
        """The targets."""
        clusters = present(sizes.clusters, "k-means start")
        return Targets(clusters, renews=self.renews, warm_up=self.warm_up, momentum=self.momentum)

    def renews(self, epoch: int) -> bool:
        """Whether the targets are renewed after a 0-based epoch."""
        since = epoch + 1 - self.warm_up
        return since >= 0 and since % self.update == 0

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view."""
        return F.cluster_divergence(inputs.logits("novel"), inputs.memory("targets"))


@dataclass(frozen=True, kw_only=True)
class ClusterConsistency(Term):
    """DTC and ResTune: cluster probabilities agree between two views (PI), or with their past average (TE)."""

    kind: ClassVar[str] = "cluster-consistency"
    heads: ClassVar[tuple[str, ...]] = ("novel",)
    trains: ClassVar[frozenset[str]] = frozenset({"novel"})

    target: Literal["view", "ensemble"] = "view"
    momentum: float = 0.6
    """of the average"""

    @property
    def views(self) -> tuple[View, ...]:
        """Two, unless it looks at the average."""
        return (FIRST, SECOND) if self.target == "view" else (FIRST,)

    def make_memory(self, sizes: Sizes) -> Memory | None:
        """The average, if it looks at that."""
        if self.target == "view":
            return None
        return Ensemble(sizes.images, sizes.novel_classes, start=self.start, momentum=self.momentum)

    def loss(self, inputs: LossInputs) -> Tensor:
        """Mean squared difference."""
        first = inputs.logits("novel").softmax(dim=1)
        if self.target == "view":
            return F.consistency(first, inputs.logits("novel", SECOND).softmax(dim=1))
        return F.consistency(first, inputs.memory("ensemble"))


@dataclass(frozen=True, kw_only=True)
class ExtremePairs(Term):
    """ResTune: the auxiliary head puts together what the old head finds most alike, and apart what least so."""

    kind: ClassVar[str] = "extreme-pairs"
    heads: ClassVar[tuple[str, ...]] = ("auxiliary", "joint")
    trains: ClassVar[frozenset[str]] = frozenset({"auxiliary"})

    positives: int = 10
    negatives: int = 10

    def loss(self, inputs: LossInputs) -> Tensor:
        """First view; the pairs have no gradient."""
        similar = inputs.logits("joint")[:, : inputs.labelled_classes].detach().softmax(dim=1)
        pairs = F.extreme_pairs(similar, self.positives, self.negatives)
        return F.signed_pairwise_bce(inputs.logits("auxiliary").softmax(dim=1), pairs)


@dataclass(frozen=True, kw_only=True)
class Contrast(Term):
    """NCL: an image's features are like those of its second view, and of its neighbours among earlier images."""

    kind: ClassVar[str] = "contrast"
    views: ClassVar[tuple[View, ...]] = (FIRST, SECOND)

    size: int = 2000
    """of the queue, where there are as many images"""
    temperature: float = 0.05
    own: float = 0.2
    """the second view's part of the target; the neighbours share the rest"""

    def make_memory(self, sizes: Sizes) -> Memory:
        """The queue, never larger than there are images: an epoch fills it, and nothing drawn at random is left."""
        return Queue(min(self.size, sizes.images), sizes.features)

    def loss(self, inputs: LossInputs) -> Tensor:
        """The gradient goes through the first view."""
        query = F.unit_rows(inputs.features())
        key = F.unit_rows(inputs.features(SECOND).detach())
        queue = inputs.memory("queue")
        return F.neighbour_contrast(
            query,
            key,
            queue,
            temperature=self.temperature,
            own=self.own,
            neighbours=max(1, len(queue) // (2 * inputs.novel_classes)),
        )


@dataclass(frozen=True, kw_only=True)
class LabelledContrast(Term):
    """NCL, with labelled images mixed in: their features are like those of their class among earlier ones."""

    kind: ClassVar[str] = "labelled-contrast"
    views: ClassVar[tuple[View, ...]] = (FIRST, SECOND)
    needs: ClassVar[frozenset[Need]] = frozenset({"labelled images"})

    size: int = 2000
    """of the queue, where there are as many labelled images"""
    temperature: float = 0.05

    def make_memory(self, sizes: Sizes) -> Memory:
        """The queue of earlier ones."""
        return LabelledQueue(min(self.size, sizes.labelled_images), sizes.features)

    def loss(self, inputs: LossInputs) -> Tensor:
        """The gradient goes through the first view."""
        part = inputs.labelled_images()
        return F.labelled_contrast(
            F.unit_rows(part.features()),
            F.unit_rows(part.features(SECOND).detach()),
            inputs.memory("labelled_queue"),
            labels=present(part.labels, "labels"),
            queue_labels=inputs.memory("labelled_queue_labels"),
            temperature=self.temperature,
        )
