from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hoarfrost.config import Config, Schedule, from_json, override, parse_setting, to_json
from hoarfrost.data.augment import Affine, Augment, Crop, ResizedCrop
from hoarfrost.errors import InputError
from hoarfrost.methods import METHODS
from hoarfrost.recipes import RECIPES


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("method", METHODS)
def test_json_and_back_is_the_same(recipe: str, method: str) -> None:
    config = RECIPES[recipe].config(METHODS[method], seed=3)
    assert from_json(Config, json.loads(json.dumps(to_json(config)))) == config


@pytest.mark.parametrize("augment", [Augment(), Crop(pad=2, border="reflect"), Affine(rotate=0.1), ResizedCrop()])
def test_augmentations_keep_their_kind(augment: Augment) -> None:
    config = replace(RECIPES["digits"].config(METHODS["frost"], seed=0), fit_augment=augment)
    assert from_json(Config, to_json(config)).fit_augment == augment


def test_missing_keys_take_their_defaults() -> None:
    assert from_json(Schedule, {"epochs": 7}) == Schedule(epochs=7)


def test_override_reaches_terms_by_their_kinds() -> None:
    config = RECIPES["digits"].config(METHODS["frost"], seed=0)
    changed = override(config, {"method.terms.replay.per_class": 3, "discover.epochs": 9, "views": "separate"})
    assert to_json(changed)["method"]["terms"]["replay"]["per_class"] == 3
    assert (changed.discover.epochs, changed.views) == (9, "separate")
    assert override(config, {}) == config


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("discover.epoch", 3, "did you mean 'discover.epochs'"),
        ("method.terms.reply.weight", 1, "did you mean 'method.terms.replay'"),
        ("sede", 1, "did you mean 'seed'"),
        ("seed.more", 1, "'seed' has nothing below it"),
        ("discover.epochs", "ten", "discover.epochs must be of type int"),
        ("discover.epochs", 1.5, "discover.epochs must be of type int"),
        ("discover.epochs", True, "discover.epochs must be of type int"),
        ("discover.epochs", 0, "epochs must be above 0"),
        ("discover.drops", 3, "must be a list"),
        ("fit_augment.kind", "crops", "did you mean 'crop'"),
        ("views", "apart", "unknown views 'apart'"),
        ("precision", "fp16", "did you mean"),
        ("fit", 3, "fit must be an object"),
        ("method.name", "dtc", "choose another one with --method"),
        ("fit.momentum", 1.5, "momentum must be from 0 to below 1"),
        ("std", [0.5], "mean and std"),
        ("discover.learning_rate", float("nan"), "discover.learning_rate must be a number"),
    ],
)
def test_bad_settings_are_named(key: str, value: object, message: str) -> None:
    config = RECIPES["digits"].config(METHODS["frost"], seed=0)
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        override(config, {key: value})


def test_missing_required_key() -> None:
    with pytest.raises(InputError, match="'method' is missing"):
        from_json(Config, {})


@pytest.mark.parametrize("text", ["discover.epochs", "=3", ""])
def test_settings_need_an_equals_sign(text: str) -> None:
    with pytest.raises(InputError, match="key=value"):
        parse_setting(text)


def test_the_learning_rate_drops_at_its_epochs() -> None:
    schedule = Schedule(epochs=10, learning_rate=1.0, drops=(4, 8), drop_factor=0.5)
    assert [schedule.learning_rate_at(epoch) for epoch in range(10)] == [1.0] * 4 + [0.5] * 4 + [0.25] * 2


def test_shortening_scales_drops_and_ramps() -> None:
    config = RECIPES["cifar10"].config(METHODS["frost"], seed=0).with_discover_epochs(20)
    assert (config.discover.epochs, config.discover.drops) == (20, (17,))
    ramps = {term.kind: term.ramp for term in config.method.terms}
    assert ramps["consistency"] == ramps["self-training"] == 5


def test_a_recipe_does_not_bring_back_a_term_that_a_method_leaves_out() -> None:
    config = RECIPES["cifar100"].config(METHODS["frost-without-st"], seed=0)
    weights = {term.kind: term.weight for term in config.method.terms}
    assert weights["self-training"] == 0
    assert weights["consistency"] == 50
