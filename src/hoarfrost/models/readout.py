"""Readouts: how the features of an image become a decision among all classes.

A preset names a kind of readout with its settings, as data. The object that decides is made of those, of a network, and
of what is remembered of its classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from hoarfrost.errors import require
from hoarfrost.models.gaussians import ClassGaussians
from hoarfrost.models.statistics import ClassStatistics, KeptStatistics, Transform
from hoarfrost.sorting.folder import Sorter
from hoarfrost.unsorted.mixed import Expected
from hoarfrost.unsorted.number import Levels

if TYPE_CHECKING:
    from hoarfrost.models.network import Network


FALLS = 4
"""the power of the distance by which likeness falls, beyond `Calibration.unlike`"""


@dataclass(frozen=True)
class Calibration:
    """How sure a readout may be, and what is to be expected of images to come."""

    temperature: float = 1.0
    """by which scores are divided before their softmax"""
    unlike: float | None = None
    """the squared distance from the nearest class beyond which an image is unlike everything known; None where nobody
    knows, as in models of earlier versions"""
    levels: Levels = field(default_factory=Levels)
    """where splitting into classes ends"""
    expected: Expected | None = None
    """of folders in which old and new are mixed, where the network goes on learning"""
    sorter: Sorter | None = None
    """how folders are sorted, where the network stays as it is; None in models of earlier versions"""

    def with_more(self, temperature: float, *, images: int, more: int) -> Calibration:
        """After ``more`` images that have another temperature: between both, by the numbers of images."""
        share = more / max(images + more, 1)
        return replace(self, temperature=float(self.temperature ** (1 - share) * temperature**share))


@dataclass(frozen=True)
class Known:
    """What a model knows beside its network, as a readout needs it."""

    statistics: ClassStatistics
    calibration: Calibration = field(default_factory=Calibration)
    by_heads: bool = True
    """whether its novel heads were trained with this network, and no other one"""


class Readout:
    """The joint head decides. Other readouts derive from this."""

    def __init__(self, network: Network, calibration: Calibration | None = None) -> None:
        self.network, self.calibration = network, calibration or Calibration()

    def scores(self, features: Tensor) -> Tensor:
        """``(B, C)``: the class with the highest is what an image is taken for."""
        return self.network.joint_logits(features)

    def probabilities(self, features: Tensor) -> Tensor:
        """``(B, C)``, calibrated: the softmax of the scores, divided by the temperature."""
        return self.tempered(self.scores(features)).softmax(dim=1)

    def tempered(self, scores: Tensor) -> Tensor:
        """Scores ``(B, C)``, divided by the temperature."""
        return scores / self.calibration.temperature

    def likeness(self, scores: Tensor, present: Tensor) -> Tensor | None:
        """``(B,)``: 1, or less the less an image with these scores is like any class that is ``present`` (C,) bool.

        Probabilities are those of an image that is of some class, and say nothing of this. None where nobody knows.
        """
        return None

    def novel_scores(self, features: Tensor, step: int) -> Tensor:
        """``(B, n)``: of the classes of one discovery, counted from 0, by what decides among them alone."""
        return self.network.novel_logits(features, step)

    def unlikeness(self, features: Tensor) -> Tensor:
        """``(B,)``: how unlike everything known an image is; the larger, the more.

        Of heads it is the energy, -log of the sum of exp(logit): the evidence for all classes together, so that an
        image between two known classes is not unlike both, and nothing changes when two classes are merged.
        """
        return -self.scores(features).logsumexp(dim=1)

    def side_by_side(self, features: Tensor) -> Tensor | None:
        """``(B, C)``, where heads that do not know each other decide: the probabilities of each head by itself."""
        return None


class Concatenated(Readout):
    """The labelled classes' logits beside what every step's novel head says: its logits, or its probabilities."""

    def __init__(self, network: Network, *, probabilities: bool) -> None:
        super().__init__(network)
        self.by_probabilities = probabilities

    def scores(self, features: Tensor) -> Tensor:
        """Old logits first, then those of each step."""
        novel = self._novel(features)
        if self.by_probabilities:
            # Deviation: raw logits beside probabilities, as the authors of ResTune concatenate; one hardly ever sees
            # a new class through it. ``calibrated`` in metrics.json has probabilities on both sides.
            novel = [logits.softmax(dim=1) for logits in novel]
        return torch.cat([self._labelled(features), *novel], dim=1)

    def side_by_side(self, features: Tensor) -> Tensor:
        """Every head's own softmax."""
        heads = [self._labelled(features), *self._novel(features)]
        return torch.cat([logits.softmax(dim=1) for logits in heads], dim=1)

    def _labelled(self, features: Tensor) -> Tensor:
        return self.network.joint_logits(features)[:, : self.network.labelled_classes]

    def _novel(self, features: Tensor) -> list[Tensor]:
        return [self.network.novel_logits(features, step) for step in range(self.network.steps)]


class Nearest(Readout):
    """The joint head decides, which every discovery sets to the nearest class mean."""

    def __init__(self, network: Network, known: Known) -> None:
        super().__init__(network)
        statistics, self.by_heads = known.statistics, known.by_heads
        self.means = statistics.mean[statistics.count > 0].to(network.joint.weight.device)

    def novel_scores(self, features: Tensor, step: int) -> Tensor:
        """By the step's novel head, or by the means where that is another network's."""
        if self.by_heads:
            return super().novel_scores(features, step)
        return self.scores(features)[:, self.network.columns(step)]

    def unlikeness(self, features: Tensor) -> Tensor:
        """The squared distance from the nearest mean."""
        return torch.cdist(self.network.backbone_features(features), self.means).amin(dim=1).square()


class GaussianReadout(Readout):
    """The class decides in whose Gaussian the features are most likely, whatever the joint head says."""

    def __init__(self, network: Network, known: Known, settings: Gaussians) -> None:
        super().__init__(network, known.calibration)
        self.by_heads = known.by_heads
        self.gaussians = settings.gaussians(known.statistics, network.joint.weight.device)

    def _looked_at(self, features: Tensor) -> Tensor:
        return self.network.kept.transformed(self.network.decisive(features).float())

    def scores(self, features: Tensor) -> Tensor:
        """Log-likelihoods."""
        return self.gaussians.log_likelihoods(self._looked_at(features))

    def likeness(self, scores: Tensor, present: Tensor) -> Tensor | None:
        """Less than 1 beyond a squared distance from the nearest class."""
        limit = self.calibration.unlike
        if limit is None:
            return None
        return (limit / self.gaussians.nearest(scores, present)).clamp(max=1) ** FALLS

    def novel_scores(self, features: Tensor, step: int) -> Tensor:
        """By the step's novel head, or by its Gaussians where that is another network's."""
        if self.by_heads:
            return super().novel_scores(features, step)
        return self.gaussians.log_likelihoods(self._looked_at(features), self.network.columns(step))

    def unlikeness(self, features: Tensor) -> Tensor:
        """The smallest squared Mahalanobis distance from a class."""
        return self.gaussians.distances(self._looked_at(features)).amin(dim=1)


@dataclass(frozen=True)
class ReadoutKind:
    """The joint head decides: the base of the kinds."""

    kind: ClassVar[str] = "joint"
    concatenates: ClassVar[bool] = False
    """whether heads that do not know each other decide together"""
    from_statistics: ClassVar[bool] = False
    """whether class statistics decide after a discovery"""
    by_likelihood: ClassVar[bool] = False
    """whether they do from stage one on, by probabilities that are calibrated; no row of weights decides then"""

    @property
    def kept(self) -> KeptStatistics:
        """What class statistics must keep for it."""
        return KeptStatistics()

    def read(self, network: Network, known: Known | None = None) -> Readout:
        """The readout of a network; one in training, with nothing known of its new classes, is read by its heads."""
        return Readout(network)


@dataclass(frozen=True)
class HeadLogits(ReadoutKind):
    """The labelled classes' logits beside those of every step's novel head."""

    kind: ClassVar[str] = "logits"
    concatenates: ClassVar[bool] = True

    def read(self, network: Network, known: Known | None = None) -> Readout:
        """Heads side by side."""
        return Concatenated(network, probabilities=self.kind == HeadProbabilities.kind)


@dataclass(frozen=True)
class HeadProbabilities(HeadLogits):
    """The labelled classes' logits beside the probabilities of every step's novel head."""

    kind: ClassVar[str] = "probabilities"


@dataclass(frozen=True)
class ClassMeans(ReadoutKind):
    """The nearest class mean."""

    kind: ClassVar[str] = "means"
    from_statistics: ClassVar[bool] = True

    def read(self, network: Network, known: Known | None = None) -> Readout:
        """By the joint head, which is set to the means."""
        return Readout(network) if known is None else Nearest(network, known)


@dataclass(frozen=True)
class Gaussians(ReadoutKind):
    """The most likely of Gaussians, one a class."""

    kind: ClassVar[str] = "gaussians"
    from_statistics: ClassVar[bool] = True
    by_likelihood: ClassVar[bool] = True
    covariance: Literal["full", "diagonal", "shared", "low-rank"] = "full"
    """of each class; of each class without what features have in common; one for all; or of each class in its main
    directions, and without what features have in common in the others"""
    rank: int = 32
    """how many main directions, where the covariance is low-rank"""
    shrink: float = 0.5
    """how far each class's covariance moves to the mean of all: from 0, not at all, to 1"""
    ridge: float = 0.01
    """added to all variances, as a part of their mean"""
    features: Transform = "plain"
    """as they are, divided by their length, or the square root of each"""

    def __post_init__(self) -> None:
        require(self.rank > 0, f"rank must be above 0, not {self.rank}")
        require(0 <= self.shrink <= 1, f"shrink must be from 0 to 1, not {self.shrink}")
        require(0 < self.ridge <= 1e6, f"ridge must be above 0 and at most 1e+06, not {self.ridge}")

    @property
    def kept(self) -> KeptStatistics:
        """A covariance, unless variances do."""
        return KeptStatistics("none" if self.covariance == "diagonal" else self.covariance, self.rank, self.features)

    def gaussians(self, statistics: ClassStatistics, device: torch.device) -> ClassGaussians:
        """One for each class."""
        diagonal = self.covariance == "diagonal"
        return ClassGaussians(
            statistics.for_readout, shrink=self.shrink, ridge=self.ridge, diagonal=diagonal, device=device
        )

    def read(self, network: Network, known: Known | None = None) -> Readout:
        """By likelihood."""
        return Readout(network) if known is None else GaussianReadout(network, known, self)
