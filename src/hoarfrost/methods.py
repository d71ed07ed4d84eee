"""The methods: one table of presets. An ablation is a preset with a weight of 0, never new code."""

from __future__ import annotations

from dataclasses import replace

from hoarfrost.config import Method
from hoarfrost.errors import unknown
from hoarfrost.losses.terms import (
    Consistency,
    FeatureDistillation,
    LogitDistillation,
    Pairwise,
    Replay,
    SelfTraining,
)

PAPER = "Roy et al., Class-incremental Novel Class Discovery, ECCV 2022"

# The values that depend on the data set (the weight and ramp of consistency, the weight of self-training, the number of
# replayed features) are set by its recipe: hoarfrost.recipes.
FROST = Method(
    name="frost",
    summary="feature replay, feature distillation and self-training of one joint head",
    paper=PAPER,
    terms=(
        Pairwise(weight=1.0),
        Consistency(weight=5.0, ramp=50),
        SelfTraining(weight=0.01, ramp=50),
        Replay(weight=1.0),
        FeatureDistillation(weight=10.0),
    ),
)


def without(method: Method, *kinds: str, name: str, summary: str) -> Method:
    """The method with the weights of some terms set to 0."""
    terms = tuple(replace(term, weight=0.0) if term.kind in kinds else term for term in method.terms)
    return replace(method, name=name, summary=summary, terms=terms)


def with_logit_distillation(form: str, *, replay: bool) -> Method:
    """FRoST with Learning without Forgetting in the place of feature distillation, and of replay unless asked for."""
    distillation = (
        LogitDistillation(weight=10.0, form="softmax")
        if form == "softmax"
        else LogitDistillation(weight=10.0, form="presoftmax")
    )
    left_out = ("feature-distillation",) if replay else ("feature-distillation", "replay")
    suffix, words = ("-replay", " and feature replay") if replay else ("", "")
    summary = f"ablation: logit distillation ({form}){words} against forgetting"
    base = without(FROST, *left_out, name=f"lwf-{form}{suffix}", summary=summary)
    return replace(base, terms=(*base.terms, distillation))


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        FROST,
        without(
            FROST,
            "feature-distillation",
            name="frost-without-fd",
            summary="ablation: FRoST without feature distillation",
        ),
        without(FROST, "replay", name="frost-without-fr", summary="ablation: FRoST without feature replay"),
        without(FROST, "self-training", name="frost-without-st", summary="ablation: FRoST without self-training"),
        without(
            FROST,
            "feature-distillation",
            "replay",
            name="frost-without-fd-fr",
            summary="ablation: FRoST without feature distillation and replay",
        ),
        without(
            FROST,
            "feature-distillation",
            "replay",
            "self-training",
            name="frost-without-fd-fr-st",
            summary="ablation: only the clustering of FRoST; its joint head is not trained",
        ),
        with_logit_distillation("softmax", replay=False),
        with_logit_distillation("presoftmax", replay=False),
        with_logit_distillation("softmax", replay=True),
        with_logit_distillation("presoftmax", replay=True),
    )
}


def get_method(name: str) -> Method:
    """The preset of a name."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
