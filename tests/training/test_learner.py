"""The learner as people use it from Python: arrays, image sets and folders in; ids, names and folders out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from hoarfrost import InputError, Learner
from hoarfrost.data.images import ImageSet
from hoarfrost.losses.terms import Consistency, CrossEntropy, Pairwise
from hoarfrost.methods import FROST, METHODS
from hoarfrost.settings import override
from hoarfrost.training.resolve import channel_statistics, resolve

TINY: dict[str, Any] = {"fit.epochs": 2, "fit.drops": [], "discover.epochs": 2, "discover.drops": []}


def little(count: int = 24, side: int = 12, channels: int | None = None, seed: int = 0) -> np.ndarray[Any, Any]:
    shape = (count, side, side) if channels is None else (count, side, side, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def tiny(**options: Any) -> Learner:
    given = {"method": "frost", "device": "cpu", **options}
    return Learner(**{**given, "settings": {**TINY, **given.pop("settings", {})}})


@pytest.fixture(scope="module")
def fitted() -> Learner:
    return tiny(seed=3).fit(little(), ["b", "a", "c"] * 8)


@pytest.fixture
def learner(fitted: Learner, tmp_path: Path) -> Learner:
    """A fresh copy each time."""
    fitted.save(tmp_path / "fresh")
    return Learner.load(tmp_path / "fresh", device="cpu")


def test_ids_follow_the_sorted_order_of_names(fitted: Learner) -> None:
    assert fitted.class_names == ("a", "b", "c")
    found = fitted.predictions(little())
    assert set(found.ids.tolist()) <= {0, 1, 2}
    assert fitted.predict(little()).tolist() == ["abc"[k] for k in found.ids]


def test_arguments_work_by_position() -> None:
    learner = Learner("frost-without-st", "small", 7)
    assert (learner.config.method.name, learner.config.backbone, learner.config.seed) == (
        "frost-without-st",
        "small",
        7,
    )


def test_fit_and_discover_return_the_learner(learner: Learner) -> None:
    assert learner.discover(little(seed=1), novel=2, only_new=True) is learner
    assert learner.class_names == ("a", "b", "c", "new-1", "new-2")
    assert learner.discover(little(seed=2), 1, only_new=True).class_names[-1] == "new-3"
    assert learner.predict_proba(little()).shape == (24, 6)
    assert learner.novel_per_step == (2, 1)


def test_numbers_as_labels_sort_as_numbers() -> None:
    assert tiny().fit(little(), [10, 9, 2] * 8).class_names == ("2", "9", "10")


@pytest.mark.parametrize("channels", [None, 1, 3, 4])
def test_gray_and_colour(channels: int | None) -> None:
    learner = tiny().fit(little(channels=channels), [0, 1] * 12)
    assert learner.channels == (3 if channels in (3, 4) else 1)
    # Other sizes and channels are converted to the model's.
    assert learner.predict(little(5, side=20, channels=3)).shape == (5,)
    assert learner.predict(little(5, side=9)).shape == (5,)


def test_what_the_images_decide() -> None:
    config = resolve(Learner(device="cpu").config, ImageSet(little(10, side=28)[..., None]), torch.device("cpu"))
    assert (config.image_size, config.backbone) == (32, "small")
    config = resolve(config, ImageSet(little(10, side=28)[..., None]), torch.device("cuda"))
    assert config.backbone == "small"  # once decided it stays
    assert (
        resolve(Learner().config, ImageSet(little(4, side=28)[..., None]), torch.device("cuda")).backbone == "resnet18"
    )


def test_channel_statistics_against_floating_point() -> None:
    pixels = little(7, channels=3)
    mean, std = channel_statistics(ImageSet(pixels))
    assert mean == pytest.approx((pixels / 255).mean(axis=(0, 1, 2)))
    assert std == pytest.approx((pixels / 255).std(axis=(0, 1, 2)))


def test_a_constant_image_can_be_normalised() -> None:
    _, std = channel_statistics(ImageSet(np.full((4, 8, 8, 1), 7, dtype=np.uint8)))
    assert std[0] > 0


def test_discovery_after_the_labelled_images_are_gone(tmp_path: Path) -> None:
    folder = tmp_path / "known"
    for index, image in enumerate(little(16, seed=1)):
        path = folder / ("cat" if index % 2 else "dog") / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    tiny().fit(folder).save(tmp_path / "model")
    shutil.rmtree(folder)
    learner = Learner.load(tmp_path / "model", device="cpu").discover(little(seed=2), novel=2, only_new=True)
    assert learner.class_names == ("cat", "dog", "new-1", "new-2")


def test_a_model_folder_holds_no_image_and_no_pickle(learner: Learner, tmp_path: Path) -> None:
    learner.save(tmp_path / "model")
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["model.json", "prototypes.safetensors", "weights.safetensors"]
    prototypes = load_file(tmp_path / "model" / "prototypes.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in prototypes.items()} == {
        "mean": (3, 64),
        "variance": (3, 64),
        "count": (3,),
    }


def test_loading_and_discovering_is_the_same_as_going_on(fitted: Learner, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    first, second = (
        Learner.load(tmp_path / "model", device="cpu").discover(little(seed=4), 2, only_new=True) for _ in range(2)
    )
    for name, tensor in first.network.state_dict().items():
        assert torch.equal(tensor, second.network.state_dict()[name])


def test_saving_again_replaces_the_model_alone(learner: Learner, tmp_path: Path) -> None:
    learner.save(tmp_path / "model")
    learner.discover(little(seed=2), 2, only_new=True).save(tmp_path / "model")
    assert Learner.load(tmp_path / "model", device="cpu").class_names[-1] == "new-2"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not a model"):
        learner.save(tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_a_failed_discovery_leaves_the_learner_as_it_was(learner: Learner) -> None:
    before = learner.predict_proba(little())
    with pytest.raises(InputError, match="24 images cannot hold 25"):
        learner.discover(little(), 25, only_new=True)
    assert np.array_equal(learner.predict_proba(little()), before)
    assert learner.class_names == ("a", "b", "c")


@pytest.mark.parametrize("novel", [0, -1, True, 1.5, "2"])
def test_numbers_of_new_classes_that_cannot_be(learner: Learner, novel: Any) -> None:
    with pytest.raises(InputError, match="at least 1"):
        learner.discover(little(), novel, only_new=True)


def test_other_types_are_refused_with_the_line_that_converts() -> None:
    with pytest.raises(TypeError, match="astype"):
        tiny().fit(little().astype(np.float32) / 255, [0, 1] * 12)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (little(), [0, 1] * 11, "22"),
        (little(), None, "labels"),
        (little(), [1] * 24, "class"),
        (little(side=4), [0, 1] * 12, "8"),
        (little()[0, 0], [0, 1] * 6, "shape"),
    ],
)
def test_bad_labels_and_images(images: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny().fit(images, labels)


def test_before_fit_there_is_nothing_to_predict_with() -> None:
    with pytest.raises(InputError, match="fit first"):
        tiny().predict(little())
    with pytest.raises(InputError, match="fit first"):
        tiny().discover(little(), 2, only_new=True)


def test_stage_one_is_data_too() -> None:
    assert FROST.stage_one == (CrossEntropy(),)
    halved = tiny(settings={"method.stage_one.cross-entropy.class_mean": True})
    assert halved.config.method.stage_one == (CrossEntropy(class_mean=True),)


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    learner = tiny(seed=np.int64(3), settings={"fit.epochs": np.int64(1)}).fit(little(), [0, 1] * 12)
    two: Any = np.int64(2)
    learner.discover(little(seed=1), two, only_new=True).save(tmp_path / "model")
    assert Learner.load(tmp_path / "model", device="cpu").novel_per_step == (2,)


def test_a_second_fit_starts_anew() -> None:
    learner = tiny().fit(little(), [0, 1] * 12)
    again = learner.fit(little(side=30, channels=3, seed=1) // 4, [0, 1] * 12).config
    fresh = tiny().fit(little(side=30, channels=3, seed=1) // 4, [0, 1] * 12).config
    assert again == fresh
    assert again.image_size == 32


def test_settings_of_one_discovery_are_not_those_of_the_next(learner: Learner) -> None:
    before = learner.config
    learner.reconfigure(override(before, {"discover.epochs": 1, "precision": "bf16"}))
    assert learner.runtime.half
    learner.discover(little(seed=1), 2, only_new=True)
    learner.reconfigure(before)
    assert learner.model.config == before
    assert not learner.runtime.half
    for changed in ({"image_size": 64}, {"fit_frozen": ["all"]}, {"fit_keeps": 0.5}):
        with pytest.raises(InputError, match=f"{next(iter(changed))} cannot be changed after fit"):
            learner.reconfigure(override(before, changed))


def test_image_sets_of_people_are_checked() -> None:
    rgba = ImageSet(little(channels=4), np.array([0, 1] * 12, dtype=np.int32), ("a", "b"))
    assert rgba.shape == (12, 12, 3)
    assert rgba.labels is not None
    assert rgba.labels.dtype == np.int64
    with pytest.raises(TypeError, match="astype"):
        ImageSet(little().astype(np.float32))
    with pytest.raises(InputError, match="one class"):
        tiny().fit(ImageSet(little(), np.zeros(24, dtype=np.int64), ("a", "b")))


@pytest.mark.parametrize("views", ["together", "separate"])
def test_views_in_one_pass_or_two(views: str) -> None:
    learner = tiny(settings={"views": views}).fit(little(), [0, 1] * 12).discover(little(seed=1), 2, only_new=True)
    assert learner.network.classes == 4


class TestAsAnEstimator:
    """What scikit-learn asks of whatever it clones and tunes."""

    def test_a_clone_has_the_same_parameters_and_has_learned_nothing(self) -> None:
        learner = Learner("frost", "small", 3, recipe="digits", device="cpu", settings={**TINY, "seed": 3})
        copied = clone(learner)
        assert copied is not learner
        assert copied.get_params() == learner.get_params()
        assert copied.config == learner.config
        assert clone(Learner()).config == Learner().config
        with pytest.raises(InputError, match="call fit first"):
            copied.predict(little())

    def test_parameters_are_set_by_name(self) -> None:
        learner = Learner(device="cpu", settings=TINY).set_params(method="autonovel", seed=5)
        assert (learner.config.method.name, learner.config.seed) == ("autonovel", 5)
        assert learner.get_params()["settings"] is TINY
        with pytest.raises(InputError, match="unknown parameter 'sed': did you mean 'seed'"):
            learner.set_params(sed=1)

    def test_a_method_of_ones_own_is_taken_as_it_is(self) -> None:
        method = replace(METHODS["frost"], name="mine", terms=(Pairwise(top_k=3), Consistency(weight=2.0)))
        learner = Learner(method, "small", device="cpu", settings=TINY)
        assert learner.config.method.name == "mine"
        assert [term.kind for term in learner.config.method.active] == ["pairwise", "consistency"]
        assert clone(learner).config == learner.config

    @pytest.mark.parametrize("method", ["hoarfrost", "frost", "ncl-labelled", "happy"])
    @pytest.mark.parametrize("backbone", ["auto", "efficientnet-lite0"])
    def test_parameters_of_a_configuration_make_it_again(self, method: str, backbone: str) -> None:
        settings = {
            "fit.epochs": 3,
            "discover.epochs": 4,
            "discover.drops": [1],
            "fit_augment": "crop",
            "mean": [0.5] * 3,
        }
        first = Learner(method, backbone, 3, settings=settings | {"std": [0.2] * 3, "fit_frozen": ["all"]})
        again = Learner.from_config(first.config, "cpu")
        given = again.get_params()
        assert (given["method"], given["backbone"], given["seed"]) == (method, backbone, 3)
        copied = clone(again)
        assert copied.config == first.config
        assert copied.get_params() == given
        assert again.set_params(seed=4).config == replace(first.config, seed=4)

    def test_parameters_of_a_method_that_no_preset_is(self) -> None:
        method = replace(METHODS["frost"], name="mine", terms=(Pairwise(top_k=3), Consistency(weight=2.0)))
        first = Learner(method, "small", settings=TINY)
        assert clone(Learner.from_config(first.config)).config == first.config

    def test_a_loaded_learner_can_be_cloned_and_fitted_anew(self, fitted: Learner, tmp_path: Path) -> None:
        fitted.save(tmp_path / "model")
        copied = clone(Learner.load(tmp_path / "model", "cpu"))
        with pytest.raises(InputError, match="call fit first"):
            copied.predict(little())
        again = copied.fit(little(), ["b", "a", "c"] * 8)
        assert np.array_equal(again.predict_proba(little()), fitted.predict_proba(little()))

    def test_it_says_what_it_is(self, fitted: Learner) -> None:
        assert is_classifier(tiny())
        with pytest.raises(NotFittedError):
            check_is_fitted(tiny())
        check_is_fitted(fitted)
        assert not hasattr(tiny(), "classes_")

    def test_labels_that_are_numbers_are_tuned_and_validated(self) -> None:
        images, labels = striped([5, 7, 9] * 10)
        assert cross_val_score(tiny(settings=LONGER), images, labels, cv=2).min() > 0.9
        search = GridSearchCV(tiny(settings=LONGER), {"seed": [0, 1]}, cv=2).fit(images, labels)
        assert search.best_score_ > 0.9
        assert accuracy_score(labels, search.predict(images)) > 0.9

    def test_it_is_the_last_step_of_a_pipeline_or_an_earlier_one(self) -> None:
        images, labels = striped([5, 7, 9] * 10)
        last = Pipeline([("turned", FunctionTransformer(np.flip)), ("learner", tiny(settings=LONGER))])
        assert last.fit(images, labels).score(images, labels) > 0.9
        assert last.classes_.tolist() == [5, 7, 9]
        earlier = Pipeline([("learner", tiny(settings=LONGER)), ("head", LogisticRegression())])
        assert earlier.fit(images, labels).score(images, labels) > 0.9
        assert earlier[0].transform(images).shape == (30, 64)


LONGER = {"fit.epochs": 8}


def striped(labels: list[int]) -> tuple[Any, Any]:
    """Images that are the brighter, the larger their label."""
    given = np.array(labels)
    return little(len(labels)) // 8 + (given * 20).astype(np.uint8)[:, None, None], given


class TestInANotebook:
    """Tables with small pictures; whatever a name holds, it is no markup."""

    def test_predictions_show_their_images(self, tmp_path: Path) -> None:
        evil = "<script>alert(1)</script>"
        folder = tmp_path / "known"
        for index, image in enumerate(little(32, seed=1)):
            path = folder / ("cat" if index % 2 else "dog & co") / f"{index}<b>.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
        learner = tiny().fit(folder).rename("cat", "<b>cat")
        found = learner.predictions(folder)
        page = found._repr_html_()
        assert page.count("<img ") == 24
        assert "and 8 more" in page
        assert found[3:5]._repr_html_().count("<img ") == 2
        assert learner.predictions(little(3))._repr_html_().count("<img ") == 3
        learner = tiny().fit(little(), [evil, "b", "c"] * 8)
        for shown in (page, learner._repr_html_(), learner.predictions(little())._repr_html_()):
            assert "<script" not in shown
            assert "<b>" not in shown

    def test_a_learner_shows_some_images_of_each_class(self, tmp_path: Path) -> None:
        assert "nothing learned yet" in tiny()._repr_html_()
        learner = tiny().fit(little(), ["b", "a", "c"] * 8)
        assert learner._repr_html_().count("<img ") == 12
        learner.discover(little(seed=1), 2, only_new=True)
        assert learner.assigned is not None
        new = sum(min(count, 4) for count in np.bincount(learner.assigned)[3:])
        assert learner._repr_html_().count("<img ") == 12 + new
        assert learner._repr_html_().count("discovered in step 1") == 2
        learner.save(tmp_path / "model")
        assert "<img" not in Learner.load(tmp_path / "model", "cpu")._repr_html_(), "a model folder holds no image"


class TestLabels:
    """What was given to ``fit`` comes back from ``predict``."""

    @pytest.mark.parametrize(
        ("labels", "kind"),
        [
            ([5, 7, 9], "i"),
            (["b", "a", "c"], "U"),
            ([0.5, 2.0, 4.0], "f"),
            (np.array([3, 1, 2], dtype=np.uint8), "i"),
            (np.array(["b", "a", "c"], dtype=object), "U"),
            (np.array([3, 1, 2], dtype=object), "i"),
        ],
    )
    def test_they_survive_the_folder(self, labels: Any, kind: str, tmp_path: Path) -> None:
        images, truth = striped([1, 5, 9] * 8)[0], np.tile(np.asarray(labels), 8)
        learner = tiny(method="hoarfrost", settings=LONGER).fit(images, truth)
        learner.save(tmp_path / "model")
        for each in (learner, Learner.load(tmp_path / "model", "cpu")):
            predicted = each.predict(images)
            assert predicted.dtype.kind == each.classes_.dtype.kind == kind
            assert each.classes_.tolist() == sorted(set(np.asarray(labels).tolist()))
            assert each.score(images, truth) == (predicted == truth).mean() > 0.9

    def test_truth_values_are_labels(self) -> None:
        images, labels = striped([1, 9] * 12)
        learner = tiny(settings=LONGER).fit(images, labels > 5)
        assert learner.predict(images).dtype == bool
        assert learner.score(images, labels > 5) > 0.9

    def test_discovered_and_renamed_classes_have_names(self, tmp_path: Path) -> None:
        images, labels = striped([5, 7, 9] * 8)
        learner = tiny(settings=LONGER).fit(images, labels)
        learner.discover(255 - images, 2, only_new=True).rename("7", "seven").rename("new-1", "one").save(
            tmp_path / "model"
        )
        learner = Learner.load(tmp_path / "model", "cpu")
        assert learner.classes_.tolist() == [5, "seven", 9, "one", "new-2"]
        assert learner.undo().undo().reject("new-1").classes_.tolist() == [5, 7, 9, "new-2"]
        assert set(learner.predict(images).tolist()) <= {5, 7, 9, "new-2"}
        assert learner.predict_proba(images).shape == (24, 4)
        found = learner.predictions(images, threshold=2.0)
        assert found.labels.tolist() == ["unsure"] * 24
        assert set(learner.predictions(images).ids.tolist()) <= {0, 1, 2, 4}, "ids stay"
        assert learner.predictions(images).rows(9)[0]["top"][-1]["class"] in learner.class_names

    def test_an_earlier_folder_gives_names(self, tmp_path: Path) -> None:
        learner = tiny().fit(little(), [5, 7, 9] * 8)
        learner.save(tmp_path / "model")
        content = json.loads((tmp_path / "model" / "model.json").read_text())
        assert content.pop("labels") == [5, 7, 9]
        (tmp_path / "model" / "model.json").write_text(json.dumps(content))
        assert Learner.load(tmp_path / "model", "cpu").classes_.tolist() == ["5", "7", "9"]
        for damaged in ([5, 7], [5, 5, 7], ["a", "b", "c"], [1, 2, None]):
            (tmp_path / "model" / "model.json").write_text(json.dumps({**content, "labels": damaged}))
            with pytest.raises(InputError, match="labels"):
                Learner.load(tmp_path / "model", "cpu")

    def test_scores_need_a_label_an_image(self, fitted: Learner) -> None:
        with pytest.raises(InputError, match="there are 3 labels for 24 images"):
            fitted.score(little(), ["a", "b", "c"])
        weights = [1.0] + [0.0] * 23
        assert fitted.score(little(), fitted.predict(little()), weights) == 1.0
