from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import ClassVar

import pytest

from hoarfrost.config import Config, Schedule
from hoarfrost.data.augment import Affine, Augment, Crop, ResizedCrop
from hoarfrost.errors import InputError
from hoarfrost.losses.terms import Clustering, Consistency, FeatureDistillation, Need, Pairwise, Replay
from hoarfrost.methods import METHODS
from hoarfrost.recipes import RECIPES, get_recipe
from hoarfrost.settings import filled, from_json, override, parse_setting, to_json


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
        ("seed.more", 1, "'seed' has no keys below it"),
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
        ("method.supervised", True, "method.supervised is fixed by the preset"),
        ("method.labelled_images", True, "method.labelled_images is fixed by the preset"),
        ("method", {"name": "mine"}, "choose another one with --method"),
        ("method.course.learning_rate", 0.05, "set discover instead, as in discover.learning_rate=0.05"),
        ("method.design.readout", "logit", "did you mean 'logits'"),
        ("discover.warm_up", -1, "warm_up must be at least 0"),
        ("discover.warm_up_rate", 0, "warm_up_rate must be above 0"),
        ("method.terms.pairwise.threshold", 1.0, "threshold of pairwise must be below 1"),
        ("fit.momentum", 1.5, "momentum must be at least 0 and below 1"),
        ("std", [0.5], "mean and std"),
        ("discover.learning_rate", float("nan"), "discover.learning_rate must be a number"),
    ],
)
def test_bad_settings_are_named(key: str, value: object, message: str) -> None:
    config = RECIPES["digits"].config(METHODS["frost"], seed=0)
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        override(config, {key: value})


def test_a_term_may_derive_from_another() -> None:
    class Doubled(FeatureDistillation):
        kind: ClassVar[str] = "doubled-distillation"

    class Unnamed(FeatureDistillation):
        """Has no kind of its own, and takes nobody's place."""

    method = replace(METHODS["frost"], terms=(Doubled(), FeatureDistillation()))
    config = replace(RECIPES["digits"].config(METHODS["frost"], seed=0), method=method)
    assert [type(term) for term in from_json(Config, to_json(config)).method.terms] == [Doubled, FeatureDistillation]


def test_missing_required_key() -> None:
    with pytest.raises(InputError, match="'method' is missing"):
        from_json(Config, {})


@pytest.mark.parametrize("text", ["discover.epochs", "=3", ""])
def test_settings_need_an_equals_sign(text: str) -> None:
    with pytest.raises(InputError, match="KEY=VALUE"):
        parse_setting(text)


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000], ids=["digits", "brackets"])
def test_settings_that_python_does_not_read_are_text(value: str) -> None:
    assert parse_setting(f"discover.epochs={value}") == ("discover.epochs", value)


def test_the_learning_rate_drops_at_its_epochs() -> None:
    schedule = Schedule(epochs=10, learning_rate=1.0, drops=(4, 8), drop_factor=0.5)
    assert [schedule.learning_rate_at(epoch) for epoch in range(10)] == [1.0] * 4 + [0.5] * 4 + [0.25] * 2


def test_shortening_scales_drops_and_ramps() -> None:
    config = RECIPES["cifar10"].config(METHODS["frost"], seed=0).with_epochs(discover=20)
    assert (config.discover.epochs, config.discover.drops) == (20, (17,))
    ramps = {term.kind: term.ramp for term in config.method.terms}
    assert ramps["consistency"] == ramps["self-training"] == 5


def test_a_recipe_does_not_bring_back_a_term_that_a_method_leaves_out() -> None:
    config = RECIPES["cifar100"].config(METHODS["frost-without-st"], seed=0)
    weights = {term.kind: term.weight for term in config.method.terms}
    assert weights["self-training"] == 0
    assert weights["consistency"] == 50


def test_a_term_that_is_switched_on_has_the_numbers_of_the_data_set() -> None:
    config = RECIPES["cifar100"].config(METHODS["frost-without-fr"], seed=0)
    assert "replay" not in {term.kind for term in config.method.active}
    on = override(config, {"method.terms.replay.weight": 1.0})
    assert on.method.terms == RECIPES["cifar100"].config(METHODS["frost"], seed=0).method.terms
    assert {term.kind: term for term in on.method.active}["replay"] == Replay(per_class=2)


@pytest.mark.parametrize(
    ("dataset", "labelled", "new", "batch"),
    [
        ("cifar10", 25_000, 25_000, 64),
        ("cifar100", 40_000, 10_000, 26),
        ("cifar100", 40_000, 5_000, 14),
        ("cifar100", 25_000, 25_000, 64),
        ("cifar10", 20_000, 15_000, 55),
        ("cifar100", 49_500, 500, 2),
        ("tiny-imagenet", 90_000, 10_000, 128),
        ("tiny-imagenet", 90_000, 5_000, 128),
    ],
)
def test_the_codes_batch_has_the_new_images_of_the_authors_loader(
    dataset: str, labelled: int, new: int, batch: int
) -> None:
    for method in ("frost", "autonovel", "lwf-softmax"):
        discover = get_recipe(dataset).config(METHODS[method], seed=0).discover
        assert discover.batch_of(new, labelled) == batch
    assert get_recipe(dataset, "paper").config(METHODS["frost"], seed=0).discover.batch_of(new, labelled) == 128


@pytest.mark.parametrize("dataset", RECIPES)
def test_the_papers_variant_is_as_printed_for_every_data_set(dataset: str) -> None:
    code, paper = (get_recipe(dataset, variant).config(METHODS["frost"], seed=0) for variant in ("code", "paper"))
    terms = {term.kind: term for term in paper.method.terms}
    pairwise, replay, distillation = terms["pairwise"], terms["replay"], terms["feature-distillation"]
    assert isinstance(pairwise, Pairwise)
    assert isinstance(replay, Replay)
    assert isinstance(distillation, FeatureDistillation)
    assert (pairwise.similarity, distillation.form, terms["self-training"].weight) == ("logistic", "sample", 0.05)
    assert (replay.spread, replay.sampling) == ("class", "random")
    assert paper.discover.batch_size == 128
    for schedule in (paper.fit, paper.discover):
        assert schedule.drops == (round(schedule.epochs * 0.85),)
    # What the paper prints and the code does not contradict stays.
    before = {term.kind: term for term in code.method.terms}
    assert terms["consistency"] == before["consistency"]
    assert terms["self-training"].ramp == before["self-training"].ramp


@pytest.mark.parametrize(
    ("dataset", "split", "epochs", "batch", "drop", "weight", "ramp"),
    [  # as the scripts of commit c86bc0d have it
        ("cifar10", None, 300, 64, 170, 5.0, 50),
        ("cifar10", "5-3-2", 300, 64, 170, 5.0, 50),
        ("cifar100", "80-20", 500, 51, 340, 25.0, 300),
        ("cifar100", "80-10-10", 400, 28, 340, 25.0, 300),
        ("tiny-imagenet", None, 300, 64, 170, 50.0, 150),
        ("tiny-imagenet", "180-10-10", 300, 64, 170, 50.0, 150),
    ],
)
def test_the_released_variant_has_the_schedule_of_the_first_scripts(
    dataset: str, split: str | None, epochs: int, batch: int, drop: int, weight: float, ramp: int
) -> None:
    code, released = (
        get_recipe(dataset, name, split).config(METHODS["frost"], seed=0) for name in ("code", "released")
    )
    images = {"cifar10": (25_000, 25_000), "cifar100": (10_000, 40_000), "tiny-imagenet": (10_000, 90_000)}[dataset]
    new = 5_000 if split == "80-10-10" else images[0]
    discover, terms = released.discover, {term.kind: term for term in released.method.terms}
    assert (discover.epochs, discover.drops, discover.batch_of(new, images[1])) == (epochs, (drop,), batch)
    assert (terms["consistency"].weight, terms["consistency"].ramp, terms["self-training"].ramp) == (weight, ramp, ramp)
    assert terms["self-training"].weight == 0.01
    # All else is the code's, so that both begin with one stage one.
    before = {term.kind: term for term in code.method.terms}
    assert [terms[kind] for kind in ("pairwise", "replay", "feature-distillation")] == [
        before[kind] for kind in ("pairwise", "replay", "feature-distillation")
    ]
    assert (released.fit, released.fit_augment, released.views) == (code.fit, code.fit_augment, code.views)


def test_nothing_was_released_for_other_data_sets() -> None:
    with pytest.raises(InputError, match=r"first scripts cover only .*, not 'digits'"):
        get_recipe("digits", "released")


def test_stage_one_of_the_code_drops_three_times() -> None:
    for dataset in ("cifar10", "cifar100", "tiny-imagenet"):
        assert get_recipe(dataset).fit.drops == (30, 60, 90)


def test_an_ablation_of_the_paper_does_not_get_its_term_back() -> None:
    paper = get_recipe("cifar10", "paper").config(METHODS["frost-without-st"], seed=0)
    assert "self-training" not in {term.kind for term in paper.method.active}


def test_an_unknown_variant_is_named() -> None:
    with pytest.raises(InputError, match=re.escape("unknown variant 'papers': did you mean 'paper'?")):
        get_recipe("digits", "papers")


def test_stage_one_needs_a_number_of_images_a_batch() -> None:
    config = RECIPES["digits"].config(METHODS["frost"], seed=0)
    with pytest.raises(InputError, match=r"fit\.batch_size must be a number"):
        override(config, {"fit.batch_size": None})
    assert override(config, {"discover.batch_size": None}).discover.batch_of(100, 300) == 32


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("dtc", {"method.design.novel": "linear"}, "method.terms.clustering needs method.start=k-means"),
        ("dtc", {"method.start": "random"}, "method.terms.clustering needs method.start=k-means"),
        ("restune", {"method.design.residual": False}, "extreme-pairs needs method.design.residual=true"),
        ("joint", {"method.start": "k-means"}, "method.start=k-means needs a novel head"),
        ("autonovel", {"method.design.novel": "joint"}, "method.design.novel=joint needs method.design.readout=joint"),
        ("kmeans", {"method.start": "random"}, "needs at least one term"),
        ("dtc", {"method.terms.clustering.update": 0}, "update of clustering must be above 0"),
    ],
)
def test_what_does_not_fit_together_is_named(method: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        override(RECIPES["digits"].config(METHODS[method], seed=0), changes)


def test_a_term_that_needs_replayed_features_needs_a_replay_term() -> None:
    class Rehearsing(Consistency):
        kind: ClassVar[str] = "rehearsing"
        needs: ClassVar[frozenset[Need]] = frozenset({"replay"})

    frost = METHODS["frost"]
    assert Rehearsing() in replace(frost, terms=(*frost.terms, Rehearsing())).active
    without = METHODS["frost-without-fr"]
    with pytest.raises(InputError, match=r"rehearsing needs replayed features.*replay\.weight=1"):
        replace(without, terms=(*without.terms, Rehearsing()))


def test_a_method_has_its_own_course_on_each_data_set() -> None:
    dtc = RECIPES["cifar10"].config(METHODS["dtc"], seed=0)
    course = dtc.discover
    assert (course.epochs, course.batch_size, course.drops, course.warm_up) == (110, 128, (50, 70, 90), 10)
    rates = [course.learning_rate_at(epoch) for epoch in (0, 9, 10, 49, 50, 70, 90)]
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.0125, 0.00625])
    clustering, consistency = dtc.method.terms
    assert isinstance(clustering, Clustering)
    assert (clustering.warm_up, clustering.update, consistency.start, consistency.ramp) == (10, 5, 10, 5)
    assert RECIPES["cifar100"].config(METHODS["dtc"], seed=0).method.terms[0] == Clustering(update=30, warm_up=10)

    short = RECIPES["digits"].config(METHODS["dtc"], seed=0)  # a fifth of the usual 200 epochs
    assert (short.discover.epochs, short.discover.warm_up, short.discover.drops) == (22, 2, (10, 14, 18))
    assert (short.method.terms[1].start, short.method.terms[1].ramp) == (2, 1)

    restune = RECIPES["tiny-imagenet"].config(METHODS["restune"], seed=0).discover
    assert (restune.epochs, restune.drops, restune.learning_rate) == (100, (), 0.05)
    for name in ("frost", "autonovel", "ncl", "joint"):
        for recipe in RECIPES.values():
            assert recipe.config(METHODS[name], seed=0).discover == recipe.discover


def test_restune_and_dtc_shift_with_reflected_borders() -> None:
    reflected, padded = Crop(border="reflect"), Crop(border="zero")
    for name, augment in (("restune", reflected), ("dtc", reflected), ("dtc-te", reflected), ("ncl", padded)):
        assert RECIPES["cifar100"].config(METHODS[name], seed=0).discover_augment == augment, name
        for usual in ("digits", "cifar10", "tiny-imagenet", "folder"):
            recipe = RECIPES[usual]
            assert recipe.config(METHODS[name], seed=0).discover_augment == recipe.discover_augment


def test_a_course_that_was_applied_is_neither_kept_nor_compared() -> None:
    config = RECIPES["cifar10"].config(METHODS["restune"], seed=0)
    content = to_json(config)
    assert "course" not in content["method"]
    assert from_json(Config, content) == config
    content["method"]["course"] = {"epochs": 100, "learning_rate": 0.05}  # as older files have it
    assert from_json(Config, content) == config
    assert filled(content) == to_json(config)


def test_a_shortened_course_keeps_its_parts() -> None:
    config = RECIPES["cifar10"].config(METHODS["dtc"], seed=0).with_epochs(discover=11)
    clustering, consistency = config.method.terms
    assert isinstance(clustering, Clustering)
    assert (config.discover.warm_up, clustering.warm_up, consistency.start, config.discover.drops) == (
        1,
        1,
        1,
        (5, 7, 9),
    )


def test_a_course_of_its_own_may_have_other_epochs_of_stage_one() -> None:
    recipe = replace(get_recipe("cifar10"), own_fit_epochs=50)
    frost, own = (recipe.config(METHODS[name], seed=0).fit for name in ("frost", "hoarfrost"))
    assert (frost.epochs, frost.drops) == (100, (30, 60, 90))
    assert (own.epochs, own.drops) == (50, (15, 30, 45))
    assert get_recipe("tiny-imagenet").config(METHODS["hoarfrost"], seed=0).fit.epochs == 60
