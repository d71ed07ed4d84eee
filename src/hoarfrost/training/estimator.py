"""The learner as scikit-learn sees it: its parameters after loading, and its tags."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hoarfrost.config import Config, Method
from hoarfrost.errors import InputError
from hoarfrost.methods import get_method
from hoarfrost.recipes import get_recipe
from hoarfrost.settings import changes, override

RECIPE, VARIANT = "folder", "code"
"""what the parameters of a configuration start from"""


def parameters_of(config: Config) -> dict[str, Any]:
    """The constructor's parameters that make a configuration; what images are to decide is left open.

    The method has its name where a preset and settings make it, and is an object elsewhere.
    """
    for method in (config.method.name, config.method):
        try:
            settings = _settings(method, config)
        except InputError:  # of a method that no installed package has, or whose settings are fixed
            continue
        return {
            "method": method,
            "backbone": config.backbone,
            "seed": config.seed,
            "recipe": RECIPE,
            "variant": VARIANT,
            "settings": settings or None,
        }
    raise InputError("no parameters make this learner's configuration: keep the configuration instead")


def _settings(method: str | Method, config: Config) -> dict[str, Any]:
    """Those that make a configuration of a method's own; an ``InputError`` where none do."""
    preset = get_method(method) if isinstance(method, str) else method
    begun = replace(get_recipe(RECIPE, VARIANT).config(preset, config.seed), backbone=config.backbone)
    settings = changes(begun, config)
    made = override(begun, settings)
    if made.undecided != config.undecided or changes(made, config):
        raise InputError("these settings make another configuration")
    return settings


def tags() -> Any:
    """What scikit-learn asks of an estimator: a classifier that needs labels, and takes images, paths or objects."""
    from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags, TransformerTags

    return Tags(
        estimator_type="classifier",
        target_tags=TargetTags(required=True),
        transformer_tags=TransformerTags(preserves_dtype=[]),
        classifier_tags=ClassifierTags(),
        input_tags=InputTags(two_d_array=False, three_d_array=True, one_d_array=True, string=True),
    )
