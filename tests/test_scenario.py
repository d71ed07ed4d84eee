"""A scenario gives away nothing of later classes, and its truth is true."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from hoarfrost.data.datasets import load_dataset
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError
from hoarfrost.scenario import build_scenario, class_order, parse_split

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox")
SIZES = (3, 2, 1)
SPLIT = "3-2-1"
Order = Literal["natural", "seeded"]


def labelled(per_class: int, seed: int) -> ImageSet:
    """Random images, sorted by class as folders are, with the class in the first pixel."""
    labels = np.repeat(np.arange(len(NAMES)), per_class)
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), 8, 8, 1), dtype=np.uint8)
    images[:, 0, 0, 0] = labels
    paths = tuple(f"{NAMES[label]}/{position}.png" for position, label in enumerate(labels))
    return ImageSet(images, labels, NAMES, paths)


TRAIN = labelled(per_class=5, seed=0)
TEST = labelled(per_class=2, seed=1)


def pixels(images: ImageSet) -> NDArray[np.uint8]:
    return images.pixels(slice(None))


def true_names(images: ImageSet) -> list[str]:
    """The names of the images' classes, read from their pixels."""
    return [NAMES[code] for code in pixels(images)[:, 0, 0, 0]]


class TestParseSplit:
    @pytest.mark.parametrize(
        ("text", "classes", "expected"),
        [("5-5", 10, (5, 5)), ("80-10-10", 100, (80, 10, 10)), ("2-1", 3, (2, 1)), ("4-3-2-1", 10, (4, 3, 2, 1))],
    )
    def test_good(self, text: str, classes: int, expected: tuple[int, ...]) -> None:
        assert parse_split(text, classes) == expected

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("5", "not of the form"),
            ("10", "not of the form"),
            ("", "not of the form"),
            ("a-b", "not of the form"),
            ("5--5", "not of the form"),
            ("-5-5", "not of the form"),
            ("5-5-", "not of the form"),
            ("5.0-5", "not of the form"),
            ("5-٥", "not of the form"),
            ("0-10", "at least 2 classes"),
            ("1-9", "at least 2 classes"),
            ("10-0", "the others at least 1"),
            ("4-3", "adds up to 7 classes, but the data set has 10"),
            ("8-3", "adds up to 11 classes, but the data set has 10"),
        ],
    )
    def test_bad(self, text: str, message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            parse_split(text, 10)
        assert f"'{text}'" in str(caught.value)
        assert "\n" not in str(caught.value)


class TestClassOrder:
    def test_natural(self) -> None:
        assert class_order(5, order="natural", seed=3).tolist() == [0, 1, 2, 3, 4]

    def test_seeded_is_a_permutation_that_the_seed_decides(self) -> None:
        first, again, other = (class_order(20, order="seeded", seed=seed).tolist() for seed in (1, 1, 2))
        assert sorted(first) == list(range(20))
        assert first == again
        assert first != other
        assert first != sorted(first)


class TestSteps:
    def test_numbers(self) -> None:
        scenario = build_scenario(TRAIN, TEST, split=SPLIT)
        assert len(scenario) == len(scenario.truths) == 3
        assert [step.index for step in scenario] == [0, 1, 2]
        assert [step.seen_classes for step in scenario] == [0, 3, 5]
        assert [step.novel for step in scenario] == list(SIZES)
        assert [len(step.images) for step in scenario] == [15, 10, 5]

    def test_only_the_first_has_labels(self) -> None:
        first, *later = build_scenario(TRAIN, TEST, split=SPLIT)
        assert first.images.labels is not None
        assert first.images.class_names == NAMES[:3]
        for step in later:
            assert step.images.labels is None
            assert step.images.paths is None
            assert step.images.class_names == ()

    @pytest.mark.parametrize(("order", "seed"), [("natural", 0), ("seeded", 1), ("seeded", 2)])
    def test_images_are_of_their_classes_alone(self, order: Order, seed: int) -> None:
        scenario = build_scenario(TRAIN, TEST, split=SPLIT, order=order, seed=seed)
        for step in scenario:
            own = scenario.class_names[step.seen_classes : step.seen_classes + step.novel]
            assert sorted(true_names(step.images)) == sorted(name for name in own for _ in range(5))

    def test_every_image_comes_once(self) -> None:
        together = np.concatenate([pixels(step.images) for step in build_scenario(TRAIN, TEST, split=SPLIT)])
        assert sorted(image.tobytes() for image in together) == sorted(image.tobytes() for image in pixels(TRAIN))

    def test_labels_have_no_part_in_the_order(self) -> None:
        """Other truths among the classes of a step, in another order, give the very same images."""
        generator = np.random.default_rng(0)
        assert TRAIN.labels is not None
        labels = TRAIN.labels.copy()
        for classes in ((0, 1, 2), (3, 4), (5,)):
            members = np.flatnonzero(np.isin(labels, classes))
            labels[members] = labels[generator.permutation(members)]
        assert not np.array_equal(labels, TRAIN.labels)
        shuffled = ImageSet(pixels(TRAIN), labels, NAMES).take(generator.permutation(len(TRAIN)))
        one, other = build_scenario(TRAIN, TEST, split=SPLIT), build_scenario(shuffled, TEST, split=SPLIT)
        for index in (1, 2):
            np.testing.assert_array_equal(pixels(one.steps[index].images), pixels(other.steps[index].images))

    def test_later_images_are_not_sorted_by_class(self) -> None:
        truth = build_scenario(TRAIN, TEST, split="2-4").truths[1].train_labels
        assert truth.tolist() != sorted(truth.tolist())


@pytest.mark.parametrize(("order", "seed"), [("natural", 0), ("seeded", 1), ("seeded", 2)])
class TestTruth:
    def test_train_labels_belong_to_the_images(self, order: Order, seed: int) -> None:
        scenario = build_scenario(TRAIN, TEST, split=SPLIT, order=order, seed=seed)
        for step, truth in zip(scenario.steps, scenario.truths, strict=True):
            assert [scenario.class_names[label] for label in truth.train_labels] == true_names(step.images)
        first = scenario.steps[0].images
        assert first.labels is not None
        assert first.labels.tolist() == scenario.truths[0].train_labels.tolist()
        assert first.class_names == scenario.class_names[:3]

    def test_test_sets_grow(self, order: Order, seed: int) -> None:
        scenario = build_scenario(TRAIN, TEST, split=SPLIT, order=order, seed=seed)
        assert [len(truth.test) for truth in scenario.truths] == [6, 10, 12]
        for truth, seen in zip(scenario.truths, (3, 5, 6), strict=True):
            assert truth.test.labels is not None
            assert truth.test.class_names == scenario.class_names[:seen]
            assert set(truth.test.labels.tolist()) == set(range(seen))
            assert [scenario.class_names[label] for label in truth.test.labels] == true_names(truth.test)

    def test_class_names_follow_the_order(self, order: Order, seed: int) -> None:
        scenario = build_scenario(TRAIN, TEST, split=SPLIT, order=order, seed=seed)
        learned = class_order(len(NAMES), order=order, seed=seed)
        assert scenario.class_names == tuple(NAMES[index] for index in learned)
        assert (scenario.class_names == NAMES) == (order == "natural")


class TestErrors:
    def test_unlabelled_images(self) -> None:
        with pytest.raises(InputError, match="labelled"):
            build_scenario(TRAIN.without_labels(), TEST, split=SPLIT)
        with pytest.raises(InputError, match="labelled"):
            build_scenario(TRAIN, TEST.without_labels(), split=SPLIT)

    def test_a_split_that_does_not_fit(self) -> None:
        with pytest.raises(InputError, match="adds up to 5 classes, but the data set has 6"):
            build_scenario(TRAIN, TEST, split="3-2")


def test_a_share_of_the_labelled_classes_comes_back_without_labels() -> None:
    train, test = load_dataset("digits", None)
    whole = build_scenario(train, test, split="5-3-2", seed=1)
    mixed = build_scenario(train, test, split="5-3-2", seed=1, mixed=0.5)
    first, labels = mixed.steps[0], mixed.steps[0].images.labels
    assert labels is not None
    full = np.bincount(whole.truths[0].train_labels)
    assert np.bincount(labels).tolist() == [count - round(0.5 * count) for count in full.tolist()]
    kept = {pixels.tobytes() for pixels in first.images.pixels(slice(None))}
    for step, truth, alone in zip(mixed.steps[1:], mixed.truths[1:], whole.steps[1:], strict=True):
        assert step.mixed
        assert step.images.labels is None
        old = truth.train_labels < 5
        assert old.sum() == sum(round(0.5 * count) for count in full.tolist())
        assert (~old).sum() == len(alone.images), "all of the new ones, and of no other step"
        back = {pixels.tobytes() for pixels in step.images.pixels(np.flatnonzero(old))}
        assert not back & kept, "what comes back was not in stage one"
        assert (step.seen_classes, step.novel) == (alone.seen_classes, alone.novel)
    assert not any(step.mixed for step in whole.steps)
    with pytest.raises(InputError, match="at least 0 and below 1"):
        build_scenario(train, test, split="5-5", mixed=1.0)
