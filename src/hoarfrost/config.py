"""The configuration of a learner: frozen dataclasses, checked when they are made."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from hoarfrost.data.arrays import MAX_SIDE, MIN_SIDE
from hoarfrost.data.augment import Augment, Crop
from hoarfrost.errors import require
from hoarfrost.losses.inputs import View
from hoarfrost.losses.terms import CrossEntropy, Term
from hoarfrost.models.backbone import ALL
from hoarfrost.models.network import Design
from hoarfrost.models.readout import Gaussians, ReadoutKind

MOST = 1e30
"""of a learning rate or a weight decay; single precision ends not far above"""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How one stage is optimised: SGD with momentum, and a learning rate that drops at given epochs, or smoothly."""

    epochs: int = 200
    batch_size: int | None = 128
    """images a batch; None in discovery: the new images in a mixed batch, whose labelled ones are left out"""
    mixed_batch: int = 128
    """images of a batch that would mix the labelled images with the new ones, as the authors' loader does"""
    learning_rate: float = 0.1
    drops: tuple[int, ...] = ()
    """0-based epochs before which the learning rate is multiplied by ``drop_factor``"""
    drop_factor: float = 0.1
    cosine: bool = False
    """whether the learning rate falls to 0 along half a cosine instead"""
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    warm_up: int = 0
    """first epochs, of all, that have a learning rate of their own"""
    warm_up_rate: float = 0.1

    def __post_init__(self) -> None:
        require(self.warm_up >= 0, f"warm_up must be at least 0, not {self.warm_up}")
        require(self.epochs > 0, f"epochs must be above 0, not {self.epochs}")
        for name in ("batch_size", "mixed_batch"):
            size = getattr(self, name)
            require(size is None or size > 1, f"{name} must be above 1, not {size}")
        for name, most in (("learning_rate", MOST), ("drop_factor", 1), ("warm_up_rate", MOST)):
            value = getattr(self, name)
            require(0 < value <= most, f"{name} must be above 0 and at most {most:g}, not {value}")
        require(0 <= self.momentum < 1, f"momentum must be at least 0 and below 1, not {self.momentum}")
        require(0 <= self.weight_decay <= MOST, f"weight_decay must be from 0 to {MOST:g}, not {self.weight_decay}")
        require(self.momentum > 0 or not self.nesterov, "nesterov needs a momentum above 0")

    def learning_rate_at(self, epoch: int) -> float:
        """The learning rate of a 0-based epoch.

        >>> Schedule(drops=(2, 4)).learning_rate_at(1), round(Schedule(drops=(2, 4)).learning_rate_at(4), 6)
        (0.1, 0.001)
        """
        if epoch < self.warm_up:
            return self.warm_up_rate
        if self.cosine:
            done = (epoch - self.warm_up) / max(self.epochs - self.warm_up, 1)
            return self.learning_rate * (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * self.drop_factor ** sum(epoch >= drop for drop in self.drops)

    def batch_of(self, new: int, labelled: int) -> int:
        """Images a batch where ``new`` images are to be learned from, after ``labelled`` ones that are gone.

        >>> Schedule(batch_size=None).batch_of(10_000, 40_000), Schedule(batch_size=None).batch_of(5_000, 40_000)
        (26, 14)
        """
        if self.batch_size is not None:
            return self.batch_size
        return max(2, round(self.mixed_batch * new / (labelled + new)))

    def shortened(self, epochs: int) -> Schedule:
        """The same course over another number of epochs: the drops move along.

        >>> Schedule(epochs=200, drops=(170,)).shortened(100).drops
        (85,)
        """
        drops = tuple(max(1, round(drop * epochs / self.epochs)) for drop in self.drops)
        warm_up = self.warm_up and max(1, round(self.warm_up * epochs / self.epochs))
        return replace(self, epochs=epochs, drops=drops, warm_up=warm_up)


USUAL_EPOCHS = 200
"""of a discovery in the papers' runs; where a data set has more or fewer, a method's own course is stretched alike"""


@dataclass(frozen=True, kw_only=True)
class Course:
    """How a method's stage differs from what is usual on the data set. What is None stays as it is there."""

    epochs: int = USUAL_EPOCHS
    """as a part of 200: 100 is half as many as usual; ramps and other epochs of the terms are counted in these"""
    warm_up: int = 0
    """epochs of these, the first, with a learning rate of ``warm_up_rate``"""
    warm_up_rate: float = 0.1
    learning_rate: float | None = None
    drops: tuple[int, ...] | None = None
    drop_factor: float | None = None
    cosine: bool = False
    nesterov: bool | None = None
    weight_decay: float | None = None
    batch: Literal["usual", "double", "stage one", "large"] = "usual"
    """how large batches are: as usual, twice that, as in stage one, or as large as suits the data set"""
    strong: float = 0.0
    """the share of images that are changed as strongly as suits the data set; 0: all as usual"""
    reflects: bool = False
    """whether shifted images are filled up by reflection, where the data set's usual ones are padded with zeros"""

    def of(self, usual: Schedule, *, stage_one: int | None, large: int) -> Schedule:
        """The schedule on a data set whose batches are so large in stage one, and where they are to be large."""
        if self == Course():
            return usual
        double = usual.batch_size and 2 * usual.batch_size
        batches = {"usual": usual.batch_size, "double": double, "stage one": stage_one, "large": large}
        own = replace(
            usual,
            epochs=self.epochs,
            warm_up=self.warm_up,
            warm_up_rate=self.warm_up_rate,
            learning_rate=self.learning_rate or usual.learning_rate,
            drop_factor=self.drop_factor or usual.drop_factor,
            batch_size=batches[self.batch],
            cosine=self.cosine or usual.cosine,
            nesterov=usual.nesterov if self.nesterov is None else self.nesterov,
            weight_decay=usual.weight_decay if self.weight_decay is None else self.weight_decay,
        )
        drops = usual.shortened(self.epochs).drops if self.drops is None else self.drops
        return replace(own, drops=drops).shortened(max(1, round(self.epochs * usual.epochs / USUAL_EPOCHS)))


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method of discovery: a row of weighted terms, and what is not a loss, as data too."""

    name: str
    summary: str = field(default="", compare=False)
    """for ``hoarfrost methods``; files do not have it, and rewording it changes no method"""
    paper: str
    terms: tuple[Term, ...]
    """of discovery"""
    stage_one: tuple[Term, ...] = (CrossEntropy(),)
    # Deviation: the paper does not say what is frozen; this is the public code's choice.
    frozen: tuple[str, ...] = ("stem", "stage1")
    """parts of the backbone that stay as they are in discovery; or "all", or "all but the last" """
    moving_statistics: bool = False
    """whether the batch statistics of frozen parts move all the same"""
    design: Design = field(default_factory=Design)
    course: Course = field(default_factory=Course, compare=False)
    """of discovery, for a recipe, which applies it: a configuration has it in ``discover``, and neither keeps nor
    compares this"""
    fit_course: Course = field(default_factory=Course, compare=False)
    """likewise of stage one"""
    when_fixed: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """settings that change where no discovery changes a pretrained backbone, by their dotted keys, such as
    ``method.terms.pairwise.weight``; files do not have them, and two methods may be equal without them"""
    start: Literal["random", "k-means", "joint k-means", "mixture"] = "random"
    """how a step's novel head begins. "joint k-means": the new rows of the joint head begin with those clusters of all
    images that are least like a known class (Happy). "mixture": one of Gaussians finds the new classes (VB-CGCD)"""
    decides: Literal["trained", "unmoved", "average"] = "trained"
    """which network stays after a discovery: the one that was trained; the one before, to which the trained one is a
    copy to discover with and to throw away; or one half-way between both"""
    weight_average: float = 0.0
    """of the weights in a discovery, a moving average with this decay is what is trained in the end; 0 for none"""
    supervised: bool = False
    """an upper bound: every step learns all classes so far anew, from labels"""
    labelled_images: bool = False
    """a reference: every discovery step sees the labelled images of stage one again, with their labels"""

    def __post_init__(self) -> None:
        by_clusters = self.start == "k-means"
        require(
            bool(self.active) or (self.start != "random" and self.design.readout.from_statistics),
            "method.terms needs at least one term with a weight above 0",
        )
        joint, replays = self.design.novel == "joint", any(term.kind == "replay" for term in self.active)
        for term in self.active:
            name, needs = f"method.terms.{term.kind}", term.needs
            require(
                "k-means start" not in needs or (by_clusters and self.design.novel == "centres"),
                f"{name} needs method.start=k-means and method.design.novel=centres",
            )
            require(
                "labelled images" not in needs or self.labelled_images,
                f"{name} needs the labelled images, which are gone: only --method ncl-labelled sees them again",
            )
            require("auxiliary" not in term.heads or self.design.residual, f"{name} needs method.design.residual=true")
            require(
                "replay" not in needs or replays,
                f"{name} needs replayed features: set method.terms.replay.weight=1",
            )
        require(
            self.start != "mixture" or (not self.active and isinstance(self.design.readout, Gaussians)),
            "method.start=mixture needs method.design.readout=gaussians, and no terms",
        )
        require(self.start != "joint k-means" or joint, "method.start=joint k-means needs method.design.novel=joint")
        require(not (by_clusters and joint), "method.start=k-means needs a novel head: set method.design.novel=linear")
        require(
            not joint or self.design.readout == ReadoutKind(),
            "method.design.novel=joint needs method.design.readout=joint",
        )
        require(
            0 <= self.weight_average < 1, f"weight_average must be at least 0 and below 1, not {self.weight_average}"
        )
        require(
            self.decides == "trained" or self.design.readout.from_statistics,
            f"method.decides={self.decides} needs a readout from class statistics: set method.design.readout=means, or"
            " gaussians",
        )
        require(any(term.weight for term in self.stage_one), "method.stage_one needs a term with a weight above 0")
        for name in ("terms", "stage_one"):
            terms = getattr(self, name)
            check_views(terms)
            kinds = [term.kind for term in terms]
            require(len(set(kinds)) == len(kinds), f"method.{name} must have each kind only once, not {kinds}")

    @property
    def sorts(self) -> bool:
        """Whether images of known classes are told apart from the others first, where some may be in a folder."""
        return self.start not in ("joint k-means", "mixture")

    @property
    def active(self) -> tuple[Term, ...]:
        """The terms that take part."""
        return tuple(term for term in self.terms if term.weight != 0)


def check_views(terms: tuple[Term, ...]) -> None:
    """Refuses terms that mean different views by one name."""
    found: dict[str, View] = {}
    for term in terms:
        for view in term.views:
            require(
                found.setdefault(view.name, view) == view,
                f"method.terms.{term.kind} augments the view '{view.name}' differently from another: rename the view",
            )


DECIDED: Mapping[str, Any] = MappingProxyType({"backbone": "auto", "image_size": None, "mean": None, "std": None})
"""settings that the images of stage one decide where nobody else has, and what they are then before"""

UNMOVED: Mapping[str, Any] = MappingProxyType(
    {"method.frozen": [ALL], "method.moving_statistics": False, "discover_augment": "none"}
)
"""the settings of a pretrained backbone that no discovery changes, so that features are computed once"""

STAYS: Mapping[str, Any] = MappingProxyType({"fit_frozen": [ALL], "fit_augment": "none", **UNMOVED})
"""those of one that stage one does not change either"""

TUNED: Mapping[str, Any] = MappingProxyType({"fit.learning_rate": 0.01, "discover.learning_rate": 0.01})
"""those of one that is trained further"""

HALF_WAY: Mapping[str, Any] = MappingProxyType(
    {"fit_keeps": 0.5, "fit.epochs": 20, "fit.batch_size": 64, "fit_augment": "resized-crop", **UNMOVED}
)
"""those of one that stage one trains further and brings half-way back, and that stays as it is from then on"""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that decides what a learner learns, apart from the images."""

    method: Method
    backbone: str = "auto"
    image_size: int | None = None
    """side in pixels; None takes it from the images of stage one"""
    mean: tuple[float, ...] | None = None
    """of each channel, in 0..1; None computes it from the images of stage one, and so for ``std``"""
    std: tuple[float, ...] | None = None
    fit_frozen: tuple[str, ...] = ()
    """parts of the backbone that stay as they are in stage one, or "all"; with a pretrained one, say"""
    fit_keeps: float = 0.0
    """the part of the weights that the backbone began with in those that it has after stage one, beside what training
    made of them (Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022)"""
    fit: Schedule = field(default_factory=Schedule)
    discover: Schedule = field(default_factory=Schedule)
    fit_augment: Augment = field(default_factory=Crop)
    discover_augment: Augment = field(default_factory=Crop)
    # Deviation: the public code sends the views through the network one after the other.
    views: Literal["together", "separate"] = "together"
    """all views in one forward pass, or one pass each, with batch statistics of its own"""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 autocast on a GPU, fp32 on a CPU"""
    seed: int = 0
    undecided: tuple[str, ...] = ()
    """settings that change where the backbone is a pretrained one; those that somebody sets are not among them"""

    def __post_init__(self) -> None:
        size = self.image_size
        require(
            size is None or MIN_SIDE <= size <= MAX_SIDE,
            f"the image size must be from {MIN_SIDE} to {MAX_SIDE} pixels, not {size}",
        )
        mean, std = self.mean or (), self.std or ()
        require(
            len(mean) == len(std), f"mean and std have {len(mean)} and {len(std)} values: give equally many, or neither"
        )
        require(all(value > 0 for value in std), f"std must be above 0, not {std}")
        require(self.fit.batch_size is not None, "fit.batch_size must be a number: stage one has no unlabelled images")
        require(0 <= self.fit_keeps < 1, f"fit_keeps must be at least 0 and below 1, not {self.fit_keeps}")
        require(0 <= self.seed < 2**63, f"the seed must be at least 0 and below 2**63, not {self.seed}")

    @property
    def left_open(self) -> tuple[str, ...]:
        """The settings that the images of stage one are to decide."""
        return tuple(name for name, open_ in DECIDED.items() if getattr(self, name) == open_) + self.undecided

    @property
    def fixed_in_all_stages(self) -> bool:
        """Whether no stage changes the backbone, so that its features of an image are always the same."""
        return ALL in self.fit_frozen and self.fixed_in_discovery

    @property
    def fixed_in_discovery(self) -> bool:
        """Whether no discovery changes the backbone, and stage one did not, or brought it part of the way back."""
        method, little = self.method, self.fit_keeps > 0 or ALL in self.fit_frozen
        return little and ALL in method.frozen and not method.moving_statistics and not method.design.residual

    @property
    def holds_back(self) -> bool:
        """Whether stage one does not train with some of its images, since it is scored by those."""
        return (
            self.fit_keeps > 0
            and self.fixed_in_discovery
            and not self.fixed_in_all_stages
            and self.method.design.readout.by_likelihood
        )

    def opened(self, names: Collection[str]) -> Config:
        """With these of the settings left open that images can decide."""
        again = {name: open_ for name, open_ in DECIDED.items() if name in names}
        return replace(self, **again, undecided=tuple(name for name in names if name not in DECIDED))

    def with_epochs(self, *, fit: int | None = None, discover: int | None = None) -> Config:
        """With stages shortened, or lengthened, to so many epochs: ramps move along with the drops."""
        method, one, new = self.method, fit or self.fit.epochs, discover or self.discover.epochs
        method = replace(
            method,
            stage_one=tuple(term.stretched(one / self.fit.epochs) for term in method.stage_one),
            terms=tuple(term.stretched(new / self.discover.epochs) for term in method.terms),
        )
        said = {"fit.epochs" if fit else "", "discover.epochs" if discover else ""}
        return replace(
            self,
            method=method,
            fit=self.fit.shortened(one),
            discover=self.discover.shortened(new),
            undecided=tuple(name for name in self.undecided if name not in said),
        )
