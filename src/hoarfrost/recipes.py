"""What suits a data set: one table of sizes, augmentations, schedules and the terms' values.

Where the paper and its public code differ, a recipe follows the code; ``as_printed`` makes the paper's of it, and
``as_released`` that of the authors' first scripts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from hoarfrost.config import HALF_WAY, STAYS, TUNED, Config, Course, Method, Schedule
from hoarfrost.data.augment import Affine, Augment, Crop, ResizedCrop, Strong
from hoarfrost.data.datasets import get_dataset
from hoarfrost.errors import InputError, unknown
from hoarfrost.losses.terms import Term
from hoarfrost.methods import when_fixed

TermValues = Mapping[str, Mapping[str, Any]]
VARIANTS = ("code", "paper", "released")
"""whose settings: those of the public code, those that the paper prints, or those of the authors' scripts as they were
first released, in July 2022"""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings that a data set brings to every method."""

    split: str | None
    """the usual split into steps"""
    backbone: str
    image_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    fit: Schedule
    own_fit_epochs: int | None = None
    """epochs of stage one where a method has a course of its own there; None: as many as usual"""
    discover: Schedule
    fit_augment: Augment
    discover_augment: Augment
    strong_augment: Strong = field(default_factory=Strong)
    """the strongest changes that leave an image in its class"""
    large_batch: int = 512
    """images a batch, where a method wants many"""
    terms: TermValues = field(default_factory=lambda: MappingProxyType({}))
    """values of terms by kind, for what a method leaves at the term's default. A weight of 0 is a method's own, and
    its other values are there, so that the weight alone switches it on"""

    def config(self, method: Method, seed: int) -> Config:
        """The learner's configuration for a method on this data."""
        first = self.fit
        if self.own_fit_epochs is not None and method.fit_course != Course():
            first = first.shortened(self.own_fit_epochs)
        fit, discover = (
            course.of(usual, stage_one=self.fit.batch_size, large=self.large_batch)
            for course, usual in ((method.fit_course, first), (method.course, self.discover))
        )
        scale = discover.epochs / method.course.epochs
        terms = tuple(self._tuned(term, scale) for term in method.terms)
        stage_one = tuple(self._tuned(term, fit.epochs / self.fit.epochs) for term in method.stage_one)
        augment = self._augment(method.course, self.discover_augment)
        if method.course.reflects and isinstance(augment, Crop):
            augment = replace(augment, border="reflect")
        # An image of which the mirror image may be of another class is not looked at in a mirror.
        design = replace(method.design, mirror=method.design.mirror and self.strong_augment.flip > 0)
        return Config(
            method=replace(method, terms=terms, stage_one=stage_one, design=design),
            backbone=self.backbone,
            image_size=self.image_size,
            mean=self.mean,
            std=self.std,
            fit=fit,
            discover=discover,
            fit_augment=self._augment(method.fit_course, self.fit_augment),
            discover_augment=augment,
            seed=seed,
            undecided=tuple({**STAYS, **TUNED, **HALF_WAY, **when_fixed(method)}) if self.backbone == "auto" else (),
        )

    def _augment(self, course: Course, usual: Augment) -> Augment:
        if not course.strong:
            return usual
        return replace(self.strong_augment, share=course.strong)

    def _tuned(self, term: Term, scale: float) -> Term:
        of_data = {**dict.fromkeys(term.strong_fields, self.strong_augment), **self.terms.get(term.kind, {})}
        usual = {
            field.name: field.default if field.default_factory is MISSING else field.default_factory()
            for field in fields(term)
        }
        values = {key: value for key, value in of_data.items() if getattr(term, key) == usual[key]}
        return replace(term.stretched(scale), **values)


def term_values(
    *,
    beta: float,
    gamma: float,
    ramp: int,
    per_class: int,
    update: int,
    between_images: float = 0.3,
) -> TermValues:
    """The numbers in which the methods' runs differ between data sets.

    Contrast ``between_images`` gains nothing where many classes are known, and takes time (docs/hoarfrost.md).
    """
    return {
        "instance-contrast": {"weight": between_images},
        "consistency": {"weight": gamma, "ramp": ramp},
        "old-head-consistency": {"weight": gamma, "ramp": ramp},
        "self-training": {"weight": beta, "ramp": ramp},
        "replay": {"per_class": per_class},
        "clustering": {"update": update},
    }


# Deviation: the public code goes on to 200 epochs, dropping every 30; after the third drop the rate is 1e-4.
STAGE_ONE = Schedule(epochs=100, batch_size=128, drops=(30, 60, 90))

# On CIFAR the public code loads labelled and new images together, 128 a batch, and drops the labelled ones. Here no old
# image is loaded: a batch has as many new ones as are left there on average.
AS_LOADED = Schedule(epochs=200, batch_size=None, mixed_batch=128, drops=(170,))

RECIPES: dict[str, Recipe] = {
    "digits": Recipe(
        split="5-5",
        backbone="small",
        image_size=16,
        fit=Schedule(epochs=20, batch_size=64, drops=(14, 18)),
        discover=Schedule(epochs=40, batch_size=32, drops=(34,)),
        fit_augment=Affine(),
        discover_augment=Affine(rotate=0.15, shift=0.08),
        strong_augment=Strong(flip=0.0, area=(0.5, 1.0), pad=2, gray=0.0),
        large_batch=64,
        terms=term_values(beta=0.2, gamma=5.0, ramp=27, per_class=20, update=2),
    ),
    "cifar10": Recipe(
        split="5-5",
        backbone="resnet18",
        image_size=32,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
        fit=STAGE_ONE,
        discover=AS_LOADED,
        fit_augment=Crop(border="zero"),
        discover_augment=Crop(border="reflect"),
        terms=term_values(beta=0.01, gamma=5.0, ramp=50, per_class=20, update=5),
    ),
    "cifar100": Recipe(
        split="80-20",
        backbone="resnet18",
        image_size=32,
        mean=(0.507, 0.487, 0.441),
        std=(0.267, 0.256, 0.276),
        fit=STAGE_ONE,
        discover=AS_LOADED,
        fit_augment=Crop(border="zero"),
        discover_augment=Crop(border="zero"),
        terms=term_values(beta=0.01, gamma=50.0, ramp=150, per_class=2, update=30, between_images=0.0),
    ),
    "tiny-imagenet": Recipe(
        split="180-20",
        backbone="resnet18",
        image_size=64,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        fit=STAGE_ONE,
        own_fit_epochs=60,  # of 90,000 images: more steps than 100 epochs of CIFAR
        discover=Schedule(epochs=200, batch_size=128, drops=(170,)),
        fit_augment=ResizedCrop(),
        discover_augment=ResizedCrop(),
        terms=term_values(beta=0.01, gamma=50.0, ramp=150, per_class=3, update=30, between_images=0.0),
    ),
    # Anybody's images: size, backbone and normalisation come from the images; no mirror image, since a mirrored digit,
    # letter or sign may be another class.
    "folder": Recipe(
        split=None,
        backbone="auto",
        fit=Schedule(epochs=40, batch_size=64, drops=(28, 36)),
        discover=Schedule(epochs=60, batch_size=32, drops=(51,)),
        fit_augment=Affine(border="reflect"),
        discover_augment=Affine(rotate=0.15, shift=0.08, border="reflect"),
        strong_augment=Strong(flip=0.0),
        large_batch=64,
        terms=term_values(beta=0.2, gamma=5.0, ramp=40, per_class=20, update=3),
    ),
}


PRINTED: TermValues = {
    "pairwise": {"similarity": "logistic"},
    "self-training": {"weight": 0.05},
    "feature-distillation": {"form": "sample"},
    "replay": {"spread": "class", "sampling": "random"},
}
"""what the paper prints of its terms, for every data set; where the code differs it is the terms' default"""

PRINTED_DROP = 170 / 200
"""of the epochs that are done when the learning rate drops, in both stages"""


def as_printed(recipe: Recipe) -> Recipe:
    """The recipe with what the paper prints, where its public code differs."""
    fit, discover = (
        replace(schedule, drops=(max(1, round(PRINTED_DROP * schedule.epochs)),))
        for schedule in (recipe.fit, recipe.discover)
    )
    terms = {kind: {**recipe.terms.get(kind, {}), **PRINTED.get(kind, {})} for kind in (*recipe.terms, *PRINTED)}
    return replace(recipe, fit=fit, discover=replace(discover, batch_size=128), terms=terms)


@dataclass(frozen=True, kw_only=True)
class Scripts:
    """What the authors' first scripts have for a data set."""

    discover: Schedule
    epochs_a_step: int
    """of each discovery where there are several"""
    terms: TermValues = field(default_factory=lambda: MappingProxyType({}))
    """where they differ from the recipe's"""


# Deviation: stage one has 100 epochs here too, as in STAGE_ONE; the scripts have 200.
FIRST_SCRIPTS: dict[str, Scripts] = {
    "cifar10": Scripts(discover=replace(AS_LOADED, epochs=300), epochs_a_step=300),
    "cifar100": Scripts(
        discover=replace(AS_LOADED, epochs=500, mixed_batch=256, drops=(340,)),
        epochs_a_step=400,
        terms=term_values(beta=0.01, gamma=25.0, ramp=300, per_class=2, update=30, between_images=0.0),
    ),
    "tiny-imagenet": Scripts(
        discover=Schedule(epochs=300, batch_size=64, drops=(170,)),
        epochs_a_step=300,
    ),
}
"""of July 2022, before the preprint (commit c86bc0d of OatmealLiu/class-iNCD)"""


def as_released(name: str, recipe: Recipe, *, discoveries: int) -> Recipe:
    """The recipe of a data set with the schedule of the authors' first scripts."""
    scripts = FIRST_SCRIPTS.get(name)
    if scripts is None:
        known = ", ".join(FIRST_SCRIPTS)
        raise InputError(f"the authors' first scripts cover only {known}, not '{name}': choose another --variant")
    epochs = scripts.discover.epochs if discoveries == 1 else scripts.epochs_a_step
    terms = {**recipe.terms, **scripts.terms}
    return replace(recipe, discover=replace(scripts.discover, epochs=epochs), terms=terms)


def get_recipe(name: str, variant: str = "code", split: str | None = None) -> Recipe:
    """The recipe of a data set's name, in one of the ``VARIANTS``; one without its own has that of anybody's images.

    The variant ``released`` has another schedule where the ``split`` has several discoveries.
    """
    recipe = RECIPES.get(name) or get_dataset(name).recipe or RECIPES["folder"]
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    if variant == "released":
        return as_released(name, recipe, discoveries=(split or recipe.split or "").count("-"))
    return recipe if variant == "code" else as_printed(recipe)
