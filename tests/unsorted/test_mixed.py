"""Old and new images in one folder, and what is learned for it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hoarfrost.unsorted import mixed
from hoarfrost.unsorted.beside import k_means_beside
from hoarfrost.unsorted.expectations import expectations
from hoarfrost.unsorted.known import KnownClasses, spanned
from hoarfrost.unsorted.mixed import (
    NOTHING,
    UNKNOWN,
    Expected,
    _usual_size,
    anything_new,
    count_new_classes,
    most_classes,
    tell_apart,
    worth_of,
)
from hoarfrost.unsorted.number import LEAST, Count, Levels, learned_levels

Floats = NDArray[np.float64]
Points = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]
FEATURES = 24


def images(classes: range, size: int, seed: int, apart: float = 1.5) -> tuple[Floats, Ids]:
    """Of classes that lie in the same places each time, so far apart."""
    places = np.random.default_rng(99).normal(size=(40, FEATURES)) * apart
    labels = np.repeat(np.arange(classes.start, classes.stop), size)
    return places[labels] + np.random.default_rng(seed).normal(size=(len(labels), FEATURES)), labels


def learned_of(classes: range, size: int, seed: int, apart: float = 1.5) -> tuple[KnownClasses, Expected, Levels]:
    """What is known of these classes, and what is to be expected of folders to come."""
    points, labels = images(classes, size, seed, apart)
    expected = expectations(points, labels, seed=0, diagonal=False, learned=False)
    assert expected is not None
    known = KnownClasses.of(points, labels, FEATURES, diagonal=False)
    return known, expected, learned_levels(points, labels, seed=0)


def test_old_and_new_are_told_apart_and_nothing_new_is_nothing() -> None:
    points, labels = images(range(9), 20, seed=0)
    known = KnownClasses.of(points, labels, FEATURES, diagonal=False)
    expected = expectations(points, labels, seed=0, diagonal=False, learned=False)
    assert expected is not None
    assert expected == expectations(points, labels, seed=0, diagonal=False, learned=False)
    levels = learned_levels(points, labels, seed=0)
    (old, old_labels), (new, new_labels) = images(range(9), 12, seed=1), images(range(9, 12), 20, seed=2)
    assert not anything_new(known, old, expected, seed=0)
    assert count_new_classes(known, old, old, expected, levels, seed=0).number == 0
    strange = np.concatenate([old, np.full((1, FEATURES), 30.0)])
    assert count_new_classes(known, strange, strange, expected, levels, seed=0).number == 0, "one image is no class"

    folder, true = np.concatenate([old, new]), np.concatenate([old_labels, new_labels])
    count = count_new_classes(known, folder, folder, expected, levels, seed=0)
    assert count.number == 3
    found = tell_apart(known, folder, count.number, seed=0)
    sure = ~found.unsure(expected)
    assert sure.mean() > 0.85
    assert np.array_equal(found.labels[sure], np.where(true < 9, true, -1)[sure])
    assert ((found.gap > 0) == (found.labels < 0)).all()
    assert expected.error is not None
    assert expected.error < 0.05

    odd = tell_apart(known, np.concatenate([folder, np.full((1, FEATURES), 60.0)]), 3, seed=0)
    assert odd.unsure(expected)[-1], "what is far from everything is unsure"


def test_a_few_strange_images_beside_a_new_class_are_no_class() -> None:
    known, expected, levels = learned_of(range(9), 20, seed=0)
    (old, _), (new, _) = images(range(9), 12, seed=1), images(range(9, 10), 20, seed=2)
    few, enough = (images(range(10, 11), size, seed=3)[0] for size in (LEAST - 1, LEAST + 2))
    for strange, number in ((few, 1), (enough, 2)):
        folder = np.concatenate([old, new, strange])
        assert count_new_classes(known, folder, folder, expected, levels, seed=0).number == number
    folder = np.concatenate([old, few])
    assert count_new_classes(known, folder, folder, expected, levels, seed=0) == NOTHING


@pytest.mark.parametrize(("classes", "size"), [(3, 6), (5, 4), (9, 20)])
def test_folders_of_few_known_images_have_nothing_new(classes: int, size: int) -> None:
    """In small folders a free centre may explain nothing at all, which says little of a folder to come."""
    points, labels = images(range(classes), size, seed=0)
    known = KnownClasses.of(points, labels, FEATURES, diagonal=False)
    expected = expectations(points, labels, seed=0, diagonal=False, learned=False)
    assert expected is not None
    old = [images(range(classes), folder, seed)[0] for folder in (1, 2, 5, 10) for seed in range(1, 7)]
    levels = learned_levels(points, labels, seed=0)
    counts = [count_new_classes(known, folder, folder, expected, levels, seed=0).number for folder in old]
    assert counts == [0] * len(old)
    new = images(range(classes, classes + 1), 6, seed=7)[0]
    assert all(anything_new(known, np.concatenate([folder, new]), expected, seed=0) for folder in old)


@pytest.mark.parametrize(("learned", "in_folder", "of_new"), [(5, 26, 30), (26, 6, 7)])
@pytest.mark.parametrize("seed", range(2))
def test_new_classes_are_as_large_as_known_ones_in_the_folder(
    learned: int, in_folder: int, of_new: int, seed: int
) -> None:
    """With the size of a class where it was learned, 14, 12, 1 and 2 are counted."""
    known, expected, levels = learned_of(range(12), learned, seed, apart=1.0)
    (old, _), (new, _) = images(range(12), in_folder, 10 + seed, 1.0), images(range(12, 16), of_new, 20 + seed, 1.0)
    folder = np.concatenate([old, new])
    assert count_new_classes(known, folder, folder, expected, levels, seed=0).number == 4


def test_how_large_a_class_is_taken_to_be() -> None:
    of_known = np.repeat([0, 1, 2, 5, 6], [10, 12, 40, 3, 1])
    assert _usual_size(of_known, 200, learned=5) == 12, "the median of those with enough, whatever the largest has"
    assert _usual_size(of_known, 200, learned=48) == 24, "between both, where they were learned from more"
    few = np.repeat([0, 1], [5, 5])
    assert _usual_size(few, 99, learned=48) == pytest.approx((5 * 48) ** 0.5)
    assert _usual_size(few, 100, learned=48) == 48, "a tenth of a folder or less says nothing"
    assert _usual_size(np.repeat(np.arange(9), LEAST - 1), 30, learned=48) == 48
    assert _usual_size(of_known[:0], 30, learned=48) == 48


def test_new_classes_may_be_much_larger_than_known_ones_in_the_folder() -> None:
    """With the size that those have there, 7 are counted."""
    known, expected, levels = learned_of(range(12), 20, seed=0)
    (old, _), (new, _) = images(range(12), LEAST, seed=10), images(range(12, 16), 40, seed=20)
    folder = np.concatenate([old, new])
    assert count_new_classes(known, folder, folder, expected, levels, seed=0).number == 4


def test_a_sample_of_a_folder_has_the_same_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    known, expected, levels = learned_of(range(12), 40, seed=0)
    folder = np.concatenate([images(range(12), 40, seed=10)[0], images(range(12, 16), 40, seed=20)[0]])
    whole = count_new_classes(known, folder, folder, expected, levels, seed=0)
    monkeypatch.setattr(mixed, "MOST", len(folder) // 2)
    part = count_new_classes(known, folder, folder, expected, levels, seed=0)
    assert part.number == whole.number == 4
    assert part.level < whole.level
    assert part.images_a_class == pytest.approx(whole.images_a_class, rel=0.1), "that of the folder"
    assert whole.images_a_class == pytest.approx(40, rel=0.1)


def test_a_few_images_that_look_known_do_not_say_how_large_classes_are() -> None:
    """With the size that those have, 6 are counted."""
    known, expected, levels = learned_of(range(12), 40, seed=0, apart=1.0)
    (old, _), (new, _) = images(range(1), LEAST, seed=10, apart=1.0), images(range(12, 16), 40, seed=20, apart=1.0)
    folder = np.concatenate([old, new])
    assert count_new_classes(known, folder, folder, expected, levels, seed=0).number == 4


def test_parts_of_known_classes_are_no_new_ones() -> None:
    """Their means were learned from few images, so that those in the folder lie beside them, all to the same side."""
    for seed in range(3):
        known, expected, levels = learned_of(range(9), 8, seed)
        (old, _), (new, _) = images(range(9), 12, seed + 10), images(range(9, 11), 12, seed + 20)
        folder = np.concatenate([old, new])
        assert count_new_classes(known, folder, folder, expected, levels, seed=0).number == 2


def test_centres_that_explain_little_are_no_classes() -> None:
    """Of classes that lie near each other Ward counts too many: more centres take old images, which lie apart again."""
    by_both, by_ward = list[int](), list[int]()
    for seed in range(2, 5):
        known, expected, levels = learned_of(range(12), 16, seed, apart=0.6)
        (old, _), (new, _) = (
            images(range(12), 16, seed + 50, apart=0.6),
            images(range(12, 18), 32, seed + 70, apart=0.6),
        )
        folder = np.concatenate([old, new])
        for found, worth in ((by_both, expected.worth), (by_ward, 0.0)):
            count = count_new_classes(known, folder, folder, replace(expected, worth=worth), levels, seed=0)
            assert count.least <= count.number <= count.most
            found.append(count.number)
    assert all(5 <= number <= 7 for number in by_both), by_both
    assert sum(by_ward) > sum(by_both) + 6, "without it there are two too many of six, or more"


@pytest.mark.parametrize("seed", range(3))
def test_what_a_centre_is_worth_lies_between_a_class_and_a_part_of_one(seed: int) -> None:
    known, _, _ = learned_of(range(9), 20, seed)
    (old, _), (new, _) = images(range(9), 20, seed + 10), images(range(9, 12), 20, seed + 20)
    points, fixed = known.reduced(np.concatenate([old, new]))
    worth = worth_of(points, fixed, 3, seed=0) * np.sqrt(20)  # about as many images has a known class in the folder
    left = [len(points) * np.log(k_means_beside(points, fixed, free, 0, starts=6).total) for free in range(7)]
    part = max(left[3] - left[4], (left[3] - left[5]) / 2, (left[3] - left[6]) / 3)
    assert worth == pytest.approx(part, rel=0.15)
    assert worth < min(left[2] - left[3], (left[1] - left[3]) / 2, (left[0] - left[3]) / 3)
    points, labels = images(range(9), 20, seed)
    usual, goes_on = (expectations(points, labels, 0, diagonal=False, learned=learned) for learned in (False, True))
    assert usual is not None
    assert goes_on is not None
    assert goes_on == replace(usual, deviation=UNKNOWN, worth=goes_on.worth), "from fewer folders"
    assert 0.5 * usual.worth < goes_on.worth < 2 * usual.worth


def test_a_centre_too_many_explains_less_the_more_classes_are_known() -> None:
    """What a few of many classes show is carried on to all of them, as far as real features bear it out."""
    points, labels = images(range(32), 16, seed=0)
    few = labels < 8
    of_few, carried = (
        expectations(points[few], labels[few], 0, classes=classes, diagonal=False, learned=False) for classes in (8, 32)
    )
    of_all = expectations(points, labels, 0, diagonal=False, learned=False)
    assert of_few is not None
    assert carried is not None
    assert of_all is not None
    assert carried == replace(of_few, worth=carried.worth)
    assert carried.worth == pytest.approx(of_few.worth * (8 / 32) ** 0.6)
    assert of_all.worth < carried.worth < of_few.worth, "in these points, alike in all directions, it falls faster"


@pytest.mark.parametrize(("far", "strange"), [(5, 3), (8, 2), (12, 1), (20, 1), (20, 3)])
def test_new_classes_are_found_beside_images_that_are_stranger(far: float, strange: int) -> None:
    known, expected, levels = learned_of(range(9), 20, seed=0)
    (old, _), (new, _) = images(range(9), 12, seed=1), images(range(9, 12), 20, seed=2)
    odd = far + np.random.default_rng(3).normal(size=(strange, FEATURES))
    folder = np.concatenate([old, new, odd])
    assert count_new_classes(known, folder, folder, expected, levels, seed=0).number == 3
    found = tell_apart(known, folder, 3, seed=0)
    assert found.unsure(expected)[-strange:].all()
    assert ((found.gap > 0) == (found.labels < 0)).all()
    assert (found.labels[len(old) : len(old) + len(new)] < 0).mean() > 0.95


def test_unseen_images_of_known_classes_lie_as_far_off_as_expected() -> None:
    """Means and covariance of a part of the images are worse than those of all: that had made it too far by much."""
    farther = []
    for seed in range(6):
        points, labels = images(range(9), 8, seed)
        known = KnownClasses.of(points, labels, FEATURES, diagonal=False)
        expected = expectations(points, labels, seed=0, diagonal=False, learned=False)
        assert expected is not None
        assert expected.images == len(points)
        unseen = known.nearest(images(range(9), 50, seed + 100)[0])
        farther.append((float(unseen.mean()) - expected.distance) / expected.deviation)
        new = known.nearest(images(range(9, 12), 50, seed + 100)[0])
        assert (float(new.mean()) - expected.distance) / expected.deviation > 1
    assert abs(np.mean(farther)) < 0.1, farther


def test_the_margin_leaves_unsure_what_errors_are_made_with() -> None:
    random = np.random.default_rng(5)
    labels = np.repeat(np.arange(9), 20)
    points = random.normal(size=(9, FEATURES))[labels] * 0.5 + random.normal(size=(len(labels), FEATURES))
    near = expectations(points, labels, seed=0, diagonal=False, learned=False)
    apart = expectations(*images(range(9), 20, seed=0), seed=0, diagonal=False, learned=False)
    assert near is not None
    assert apart is not None
    assert apart.margin == 0 < near.margin
    assert apart.error is not None
    assert near.error is not None
    assert apart.error < near.error
    assert expectations(points[:3], labels[:3], seed=0, diagonal=False, learned=False) is None


def test_variances_alone_will_do_and_learned_images_say_nothing_by_their_distance() -> None:
    points, labels = images(range(9), 20, seed=0)
    known = KnownClasses.of(points, labels, FEATURES, diagonal=True)
    np.testing.assert_allclose(
        known.covariance, np.diag(KnownClasses.of(points, labels, FEATURES, diagonal=False).covariance)
    )
    as_matrix = replace(known, covariance=np.diag(known.covariance))
    for one, other in zip(known.whitened(points), as_matrix.whitened(points), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-9)
    expected = expectations(points, labels, seed=0, diagonal=True, learned=True)
    assert expected is not None
    farther = points * 1.1
    assert not anything_new(known, farther, expected, seed=0)


@pytest.mark.parametrize("count", [5, 12, 40])
def test_points_in_fewer_numbers_are_as_far_apart(count: int) -> None:
    points = np.random.default_rng(count).normal(3, 2, (count, 12)).astype(np.float32)
    points[1] = points[0]
    found = spanned(points)
    assert found.shape == (count, min(count, 12))
    for one, other in itertools.combinations(range(count), 2):
        expected = np.linalg.norm(points[one].astype(float) - points[other])
        assert np.linalg.norm(found[one] - found[other]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("true", [0, 1, 2, 7, 27, 50])
def test_the_search_for_the_number_is_not_stopped_by_centres_that_do_not_count(true: int) -> None:
    """A quarter of the free centres are parts of known classes; Ward counts no more than there are."""

    def found(free: int) -> tuple[int, Count]:
        return min(free - free // 4, true + 1), Count(true, true, true, 1.0, ())

    assert most_classes(found)[0] == true
