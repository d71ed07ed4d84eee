"""Scores against brute force over all permutations, against scikit-learn, and against what must never change."""

from __future__ import annotations

import doctest
import inspect
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import FrozenInstanceError, astuple, dataclass
from itertools import permutations
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score
from sklearn.metrics import confusion_matrix as sklearn_confusion_matrix

from hoarfrost.errors import InputError
from hoarfrost.metrics import (
    ClassIncdScores,
    OriginalRtScores,
    StageScores,
    accuracy_by_step,
    auroc,
    calibration_by_chance,
    calibration_error,
    category_discovery_scores,
    class_incd_scores,
    clustering_accuracy,
    clustering_agreement,
    confusion_matrix,
    continual_scores,
    match_clusters,
    match_unequal,
    original_rt_scores,
    purity,
    relabel,
    stage_scores,
    unequal_scores,
)

PROTOCOL_PAGE = Path(__file__).parents[1] / "docs" / "protocol.md"

STEADY = settings(deadline=None, derandomize=True, max_examples=50)
"""The same examples on every run, and no time limit that a busy machine could break."""

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """Predictions of every head for the test images of one discovery step."""

    known: int
    novel: int
    true: Ids
    joint: Ids
    old_head: Ids
    new_head: Ids
    assignment: Ids

    @property
    def is_old(self) -> NDArray[np.bool_]:
        return np.asarray(self.true < self.known)


def ids(values: list[int]) -> Ids:
    return np.array(values, dtype=np.int64)


@st.composite
def clusterings(draw: st.DrawFn, most: int = 5) -> tuple[Ids, Ids, int]:
    """Predicted and true ids in 0..n-1, for 0 to 25 images."""
    n = draw(st.integers(1, most))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=25))
    return ids([predicted for predicted, _ in pairs]), ids([true for _, true in pairs]), n


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """At least one old and one new image; up to five classes in all, so that brute force stays cheap."""
    known = draw(st.integers(1, 3))
    novel = draw(st.integers(1, 5 - known))
    size = draw(st.integers(2, 20))

    def column(n: int) -> Ids:
        return ids(draw(st.lists(st.integers(0, n - 1), min_size=size, max_size=size)))

    true = column(known + novel)
    true[0], true[-1] = 0, known
    joint, old_head, new_head = column(known + novel), column(known), column(novel)
    assignment = ids(draw(st.permutations(range(novel))))
    return Case(known, novel, true, joint, old_head, new_head, assignment)


def best_agreement(predicted: Ids, true: Ids, n: int) -> int:
    """The most images that any of the n! matchings brings into agreement, counted one by one."""
    pairs: list[tuple[int, int]] = list(zip(predicted.tolist(), true.tolist(), strict=True))
    return max(sum(matching[c] == k for k, c in pairs) for matching in permutations(range(n)))


def naive_percent(hits: list[bool]) -> float:
    return 100.0 * sum(hits) / len(hits) if hits else math.nan


def naive_joint_accuracy(case: Case, classes: range) -> float:
    """Accuracy of the joint head on the images of `classes`, one image at a time."""
    hits = []
    for predicted, true in zip(case.joint.tolist(), case.true.tolist(), strict=True):
        if true in classes:
            expected = true if true < case.known else case.known + int(case.assignment[true - case.known])
            hits.append(predicted == expected)
    return naive_percent(hits)


def incd(case: Case) -> ClassIncdScores:
    return class_incd_scores(case.joint, case.true, case.known, case.assignment)


def rt(case: Case) -> OriginalRtScores:
    return original_rt_scores(case.old_head, case.new_head, case.joint, case.true, case.known)


# Matching


@STEADY
@given(clusterings())
def test_matching_is_the_best_permutation(clustering: tuple[Ids, Ids, int]) -> None:
    predicted, true, n = clustering
    assignment = match_clusters(predicted, true, n)
    assert assignment.dtype == np.int64
    assert sorted(assignment.tolist()) == list(range(n))
    assert np.count_nonzero(assignment[true] == predicted) == best_agreement(predicted, true, n)


@STEADY
@given(clusterings(), st.randoms(use_true_random=False))
def test_matching_does_not_depend_on_image_order(clustering: tuple[Ids, Ids, int], random: Random) -> None:
    predicted, true, n = clustering
    order = list(range(len(true)))
    random.shuffle(order)
    np.testing.assert_array_equal(match_clusters(predicted[order], true[order], n), match_clusters(predicted, true, n))


def test_matching_with_an_empty_cluster_does_not_shift() -> None:
    """Nothing falls into cluster 0: classes 0 and 1 must still get clusters 1 and 2, and class 2 what is left."""
    assert match_clusters([1, 1, 2, 2], [0, 0, 1, 1], 3).tolist() == [1, 2, 0]


def test_matching_with_an_empty_class() -> None:
    assert match_clusters([2, 2, 0], [2, 2, 1], 3).tolist() == [1, 0, 2]


def test_matching_without_images_is_a_permutation() -> None:
    assert sorted(match_clusters([], [], 4).tolist()) == [0, 1, 2, 3]
    assert match_clusters([], [], 0).tolist() == []


@STEADY
@given(st.permutations(range(20)))
def test_matching_inverts_a_renaming_of_twenty_clusters(names: list[int]) -> None:
    true = np.repeat(np.arange(20), 3)
    assert match_clusters(ids(names)[true], true, 20).tolist() == names


# Clustering scores


@STEADY
@given(clusterings())
def test_clustering_accuracy_against_brute_force(clustering: tuple[Ids, Ids, int]) -> None:
    predicted, true, n = clustering
    expected = 100.0 * best_agreement(predicted, true, n) / len(true) if len(true) else math.nan
    assert clustering_accuracy(predicted, true, n) == pytest.approx(expected, nan_ok=True)


@STEADY
@given(clusterings(), st.data())
def test_clustering_scores_ignore_cluster_names(clustering: tuple[Ids, Ids, int], data: st.DataObject) -> None:
    predicted, true, n = clustering
    renamed = ids(data.draw(st.permutations(range(n))))[predicted]
    before, after = clustering_accuracy(predicted, true, n), clustering_accuracy(renamed, true, n)
    assert after == pytest.approx(before, nan_ok=True)
    assert clustering_agreement(renamed, true) == pytest.approx(clustering_agreement(predicted, true), nan_ok=True)


@pytest.mark.filterwarnings("ignore:A single label was found")
@STEADY
@given(clusterings())
def test_confusion_matrix_against_scikit_learn(clustering: tuple[Ids, Ids, int]) -> None:
    predicted, true, n = clustering
    counts = confusion_matrix(predicted, true, n)
    assert counts.dtype == np.int64
    if len(true):
        np.testing.assert_array_equal(counts, sklearn_confusion_matrix(true, predicted, labels=range(n)))
    else:
        np.testing.assert_array_equal(counts, np.zeros((n, n)))


def test_agreement_of_independent_partitions() -> None:
    assert clustering_agreement([0, 1, 0, 1], [0, 0, 1, 1]) == pytest.approx((0.0, -50.0))


def test_agreement_without_images_is_nan() -> None:
    assert all(math.isnan(value) for value in clustering_agreement([], []))


# Relabelling


@STEADY
@given(cases())
def test_relabel_against_one_image_at_a_time(case: Case) -> None:
    expected = [
        class_id if class_id < case.known else case.known + int(case.assignment[class_id - case.known])
        for class_id in case.true.tolist()
    ]
    assert relabel(case.true, case.known, case.assignment).tolist() == expected


def test_relabel_does_not_chain_replacements() -> None:
    """Replacing in place, 2 to 3, then 3 to 4, then 4 to 2, would send every novel image to 2."""
    assert relabel([2, 3, 4], 2, [1, 2, 0]).tolist() == [3, 4, 2]


def test_relabel_returns_a_new_array_even_when_nothing_changes() -> None:
    true = ids([0, 1, 2])
    relabelled = relabel(true, 2, [0])
    assert not np.shares_memory(relabelled, true)


# Class-iNCD


@STEADY
@given(cases())
def test_class_incd_against_one_image_at_a_time(case: Case) -> None:
    scores = incd(case)
    assert scores.old == pytest.approx(naive_joint_accuracy(case, range(case.known)))
    assert scores.new == pytest.approx(naive_joint_accuracy(case, range(case.known, 5)))
    assert scores.all == pytest.approx(naive_joint_accuracy(case, range(5)))
    product, total = scores.old * scores.new, scores.old + scores.new
    assert scores.hm * total == pytest.approx(2 * product)
    assert (scores.hm == 0) == (product == 0)


@STEADY
@given(cases())
def test_class_incd_against_scikit_learn(case: Case) -> None:
    expected = relabel(case.true, case.known, case.assignment)
    scores = incd(case)
    assert scores.all == pytest.approx(100 * accuracy_score(expected, case.joint))
    assert scores.old == pytest.approx(100 * accuracy_score(expected[case.is_old], case.joint[case.is_old]))
    assert scores.new == pytest.approx(100 * accuracy_score(expected[~case.is_old], case.joint[~case.is_old]))


@STEADY
@given(cases())
def test_class_incd_is_the_diagonal_of_the_relabelled_confusion_matrix(case: Case) -> None:
    expected = relabel(case.true, case.known, case.assignment)
    counts = confusion_matrix(case.joint, expected, case.known + case.novel)
    assert incd(case).all == pytest.approx(100 * counts.trace() / counts.sum())


@STEADY
@given(cases(), st.data())
def test_class_incd_ignores_cluster_names(case: Case, data: st.DataObject) -> None:
    """A model whose novel head and joint head number the clusters differently gets the same scores."""
    names = ids(data.draw(st.permutations(range(case.novel))))
    renamed = np.concatenate([np.arange(case.known), case.known + names])[case.joint]
    assert class_incd_scores(renamed, case.true, case.known, names[case.assignment]) == incd(case)


@STEADY
@given(cases())
def test_class_incd_new_equals_clustering_accuracy_when_both_heads_agree(case: Case) -> None:
    """Where the joint head repeats the novel head and the matching is made on these images, nothing is lost."""
    new_head, novel_class = case.new_head[~case.is_old], case.true[~case.is_old] - case.known
    assignment = match_clusters(new_head, novel_class, case.novel)
    joint = np.where(case.is_old, case.old_head, case.known + case.new_head)
    scores = class_incd_scores(joint, case.true, case.known, assignment)
    assert scores.new == clustering_accuracy(new_head, novel_class, case.novel)


def test_class_incd_before_any_discovery() -> None:
    scores = class_incd_scores([0, 1, 1], [0, 1, 2], 3, [])
    assert (scores.old, scores.all) == pytest.approx((200 / 3, 200 / 3))
    assert math.isnan(scores.new)
    assert math.isnan(scores.hm)


def test_class_incd_without_old_images() -> None:
    scores = class_incd_scores([2, 0], [2, 2], 2, [0])
    assert (scores.new, scores.all) == (50.0, 50.0)
    assert math.isnan(scores.old)
    assert math.isnan(scores.hm)


def test_class_incd_without_images() -> None:
    assert all(math.isnan(value) for value in astuple(class_incd_scores([], [], 2, [0])))


def test_class_incd_with_nothing_right_has_harmonic_mean_zero() -> None:
    assert class_incd_scores([2, 0], [0, 2], 2, [0]) == ClassIncdScores(old=0.0, new=0.0, all=0.0, hm=0.0)


# New-x-J


@STEADY
@given(cases(), st.integers(0, 4))
def test_accuracy_by_step_against_one_image_at_a_time(case: Case, first: int) -> None:
    first = min(first, case.novel)
    sizes = [first, case.novel - first]
    middle, end = case.known + first, case.known + case.novel
    scores = accuracy_by_step(case.joint, case.true, case.known, case.assignment, sizes)
    expected = (
        naive_joint_accuracy(case, range(case.known, middle)),
        naive_joint_accuracy(case, range(middle, end)),
    )
    assert scores == pytest.approx(expected, nan_ok=True)


@STEADY
@given(cases())
def test_accuracy_of_a_single_step_is_new(case: Case) -> None:
    assert accuracy_by_step(case.joint, case.true, case.known, case.assignment, [case.novel]) == (incd(case).new,)


def test_accuracy_by_step_before_any_discovery_is_empty() -> None:
    assert accuracy_by_step([0, 1], [0, 1], 2, [], []) == ()


# Original RT


@STEADY
@given(cases())
def test_original_rt_against_brute_force(case: Case) -> None:
    scores, is_old = rt(case), case.is_old
    new_hits = best_agreement(case.new_head[~is_old], case.true[~is_old] - case.known, case.novel)
    all_hits = best_agreement(case.joint, case.true, case.known + case.novel)
    assert scores.old == pytest.approx(100 * accuracy_score(case.true[is_old], case.old_head[is_old]))
    assert scores.new == pytest.approx(100 * new_hits / np.count_nonzero(~is_old))
    assert scores.all == pytest.approx(100 * all_hits / len(case.true))


@STEADY
@given(cases(), st.data())
def test_original_rt_ignores_cluster_names(case: Case, data: st.DataObject) -> None:
    new_names = ids(data.draw(st.permutations(range(case.novel))))
    all_names = ids(data.draw(st.permutations(range(case.known + case.novel))))
    new_head, concat = new_names[case.new_head], all_names[case.joint]
    assert original_rt_scores(case.old_head, new_head, concat, case.true, case.known) == rt(case)


@STEADY
@given(cases(), st.data())
def test_original_rt_reads_each_head_on_its_own_images_only(case: Case, data: st.DataObject) -> None:
    old_id, new_id = data.draw(st.integers(0, case.known - 1)), data.draw(st.integers(0, case.novel - 1))
    old_head = np.where(case.is_old, case.old_head, old_id)
    new_head = np.where(case.is_old, new_id, case.new_head)
    assert original_rt_scores(old_head, new_head, case.joint, case.true, case.known) == rt(case)


@STEADY
@given(cases())
def test_original_rt_is_unchanged_by_relabelling_this_steps_classes(case: Case) -> None:
    """Why a caller may relabel all discovered classes at once, those of the present step included."""
    expected = relabel(case.true, case.known, case.assignment)
    assert original_rt_scores(case.old_head, case.new_head, case.joint, expected, case.known) == rt(case)


def test_original_rt_with_more_clusters_than_classes() -> None:
    """Cluster 2 of the new head and id 5 of concat belong to no class of the test images."""
    scores = original_rt_scores([0, 0, 0], [0, 0, 2], [0, 1, 5], [0, 1, 1], 1)
    assert astuple(scores) == pytest.approx((100.0, 50.0, 200 / 3))


def test_original_rt_without_new_images() -> None:
    scores = original_rt_scores([0, 0], [0, 0], [1, 0], [0, 1], 2)
    assert (scores.old, scores.all) == (50.0, 100.0)
    assert math.isnan(scores.new)


def test_original_rt_without_images() -> None:
    assert all(math.isnan(value) for value in astuple(original_rt_scores([], [], [], [], 0)))


# Both protocols


@STEADY
@given(cases())
def test_class_incd_never_exceeds_original_rt_on_all(case: Case) -> None:
    """Its relabelling is one of the matchings that Original RT takes the best of."""
    assert incd(case).all <= rt(case).all


@STEADY
@given(cases(), st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_image_order(case: Case, random: Random) -> None:
    order = list(range(len(case.true)))
    random.shuffle(order)
    shuffled = Case(
        known=case.known,
        novel=case.novel,
        true=case.true[order],
        joint=case.joint[order],
        old_head=case.old_head[order],
        new_head=case.new_head[order],
        assignment=case.assignment,
    )
    assert incd(shuffled) == incd(case)
    assert rt(shuffled) == rt(case)


def test_swapping_old_and_new_is_wrong_for_class_incd_and_perfect_for_original_rt() -> None:
    """The paper's figure on evaluation: old images are predicted as new classes and new images as old ones."""
    true = ids([0, 0, 1, 1, 2, 2, 3, 3])
    swapped = ids([2, 2, 3, 3, 0, 0, 1, 1])
    assert class_incd_scores(swapped, true, 2, [0, 1]) == ClassIncdScores(old=0.0, new=0.0, all=0.0, hm=0.0)
    assert class_incd_scores(swapped, true, 2, [1, 0]) == ClassIncdScores(old=0.0, new=0.0, all=0.0, hm=0.0)
    assert original_rt_scores(true % 2, swapped % 2, swapped, true, 2).all == 100.0


@STEADY
@given(cases())
def test_perfect_predictions_score_one_hundred(case: Case) -> None:
    joint = relabel(case.true, case.known, case.assignment)
    old_head = np.where(case.is_old, case.true, 0)
    new_head = np.where(case.is_old, 0, joint - case.known)
    assert set(astuple(class_incd_scores(joint, case.true, case.known, case.assignment))) == {100.0}
    assert set(astuple(original_rt_scores(old_head, new_head, joint, case.true, case.known))) == {100.0}


def test_noise_scores_at_chance_under_class_incd_and_above_it_when_matched() -> None:
    """10 classes, 100 images each: chance is 10, and a matching fitted on the test images can only add to it."""
    true = np.repeat(np.arange(10), 100)
    noise = np.random.default_rng(0).integers(0, 10, size=true.size)
    scores = class_incd_scores(noise, true, 5, np.arange(5))
    assert scores.all == pytest.approx(10.0, abs=3.0)
    assert scores.all < clustering_accuracy(noise, true, 10) < 20.0


@STEADY
@given(cases())
def test_no_input_is_modified(case: Case) -> None:
    arrays = (case.true, case.joint, case.old_head, case.new_head, case.assignment)
    copies = [array.copy() for array in arrays]
    for array in arrays:
        array.setflags(write=False)
    incd(case)
    rt(case)
    accuracy_by_step(case.joint, case.true, case.known, case.assignment, [case.novel])
    clustering_agreement(case.joint, case.true)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@STEADY
@given(cases(), st.sampled_from(["uint8", "int16", "int32", "uint64"]))
def test_every_integer_type_gives_the_same_scores(case: Case, dtype: str) -> None:
    true, joint, old_head, new_head, assignment = (
        array.astype(dtype) for array in (case.true, case.joint, case.old_head, case.new_head, case.assignment)
    )
    assert class_incd_scores(joint, true, case.known, assignment) == incd(case)
    assert original_rt_scores(old_head, new_head, joint, true, case.known) == rt(case)


def test_scores_are_plain_floats_and_frozen() -> None:
    scores = class_incd_scores([0, 2], [0, 2], 2, [0])
    assert {type(value) for value in astuple(scores)} == {float}
    assert {type(value) for value in astuple(original_rt_scores([0], [0], [0], [0], 1))} == {float}
    with pytest.raises(FrozenInstanceError):
        scores.old = 0.0  # type: ignore[misc]


# Refusals, interface, documentation


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: match_clusters([0, 2], [0, 1], 2), r"predicted\[1\] is 2: class ids must be at least 0 and below 2"),
        (lambda: match_clusters([0, 1], [-1, 1], 2), r"true\[0\] is -1"),
        (lambda: match_clusters([0, 1, 1], [0, 1], 2), "lengths differ: predicted 3, true 2"),
        (lambda: match_clusters([0.0, 1.0], [0, 1], 2), r"predicted holds float64.*predicted\.astype\('int64'\)"),
        (lambda: match_clusters([0, 1], [False, True], 2), "true holds bool"),
        (lambda: match_clusters([[0, 1]], [0, 1], 2), r"predicted has shape \(1, 2\)"),
        (lambda: match_clusters([0], [0], -1), "n is -1: give a whole number"),
        (lambda: match_clusters([0], [0], 1.5), "n is 1.5"),  # type: ignore[arg-type]
        (lambda: clustering_accuracy([0, 1], [0], 2), "lengths differ"),
        (lambda: clustering_agreement([0, 1], [0]), "lengths differ"),
        (lambda: confusion_matrix([3], [0], 3), r"predicted\[0\] is 3"),
        (lambda: relabel([3], 2, [0]), r"true\[0\] is 3: class ids must be at least 0 and below 3"),
        (lambda: relabel([2], 2, [1, 1]), "assignment must hold each of 0 to 1 once"),
        (lambda: class_incd_scores([3], [2], 2, [0]), r"joint_predicted\[0\] is 3"),
        (lambda: class_incd_scores([0, 0], [0], 2, [0]), "lengths differ: joint_predicted 2, true 1"),
        (lambda: class_incd_scores([0], [0], -2, [0]), "known is -2"),
        (lambda: accuracy_by_step([2], [2], 2, [0], [2]), "novel_per_step adds up to 2, but assignment covers 1"),
        (lambda: accuracy_by_step([2], [2], 2, [0], [-1, 2]), "novel_per_step is -1"),
        (lambda: original_rt_scores([0], [-1], [0], [0], 1), r"new_head\[0\] is -1: class ids must be at least 0$"),
        (lambda: original_rt_scores([0], [0], [0, 0], [0], 1), "lengths differ: old_head 1, new_head 1, concat 2"),
    ],
)
def test_refusals_say_what_is_wrong(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (match_clusters, ["predicted", "true", "n"]),
        (class_incd_scores, ["joint_predicted", "true", "known", "assignment"]),
        (original_rt_scores, ["old_head", "new_head", "concat", "true", "known"]),
    ],
)
def test_arguments_work_by_position_and_by_name(function: Callable[..., object], names: list[str]) -> None:
    parameters = inspect.signature(function).parameters.values()
    assert [parameter.name for parameter in parameters] == names
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def test_protocol_page_prints_what_it_says() -> None:
    results = doctest.testfile(str(PROTOCOL_PAGE), module_relative=False)
    assert results.failed == 0
    assert results.attempted > 10


def test_import_brings_in_numpy_only() -> None:
    code = "import sys, hoarfrost.metrics; print(sorted({'scipy', 'sklearn', 'torch'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


class TestUnequal:
    """More clusters than classes, or fewer."""

    @staticmethod
    def best_agreement(predicted: NDArray[np.int64], true: NDArray[np.int64], clusters: int, classes: int) -> int:
        """By trying every one-to-one map between as many as there can be."""
        pairs = Counter(zip(true.tolist(), predicted.tolist(), strict=True))
        if clusters >= classes:
            maps = (dict(enumerate(chosen)) for chosen in permutations(range(clusters), classes))
        else:
            maps = ({c: k for k, c in enumerate(chosen)} for chosen in permutations(range(classes), clusters))
        return max(sum(pairs[c, k] for c, k in each.items()) for each in maps)

    @pytest.mark.parametrize(("clusters", "classes"), [(7, 5), (5, 7), (4, 4), (1, 3), (3, 1)])
    def test_no_map_agrees_more(self, clusters: int, classes: int) -> None:
        for seed in range(10):
            generator = np.random.default_rng(seed)
            predicted, true = generator.integers(0, clusters, 30), generator.integers(0, classes, 30)
            found = match_unequal(predicted, true, clusters=clusters, classes=classes)
            matched = found[found >= 0]
            assert len(found) == classes
            assert len(set(matched.tolist())) == len(matched) == min(clusters, classes)
            agreement = int(np.sum(found[true] == predicted))
            assert agreement == self.best_agreement(predicted, true, clusters, classes)

    def test_equal_numbers_are_matched_as_ever(self) -> None:
        generator = np.random.default_rng(1)
        predicted, true = generator.integers(0, 6, 50), generator.integers(0, 6, 50)
        equal = match_clusters(predicted, true, 6)
        assert (match_unequal(predicted, true, clusters=6, classes=6) == equal).all()
        joint, truth = generator.integers(0, 9, 50), generator.integers(0, 9, 50)
        assert unequal_scores(joint, truth, 3, equal) == class_incd_scores(joint, truth, 3, equal)

    def test_scores_counted_by_hand(self) -> None:
        """Two old classes; three new ones, of which the second has no cluster; cluster 1 stands for none."""
        true = [0, 1, 1, 2, 2, 3, 4, 4]
        joint = [0, 1, 3, 4, 3, 3, 2, 0]
        scores = unequal_scores(joint, true, 2, [2, -1, 0])
        assert scores.old == pytest.approx(100 * 2 / 3)
        assert scores.new == pytest.approx(100 * 2 / 5)
        assert scores.all == pytest.approx(100 * 4 / 8)

    @pytest.mark.parametrize("assignment", [[0, 0], [-2, 0]])
    def test_an_assignment_that_is_none(self, assignment: list[int]) -> None:
        with pytest.raises(InputError, match="its own cluster, or -1"):
            unequal_scores([0], [0], 1, assignment)


class TestOfAFolder:
    """What `evaluate` says beside the protocols."""

    @pytest.mark.parametrize("seed", range(5))
    def test_purity_and_mutual_information_by_counting(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        predicted, true = generator.integers(0, 5, 40), generator.integers(0, 4, 40)
        pairs = Counter(zip(predicted.tolist(), true.tolist(), strict=True))
        most = sum(max(pairs[k, c] for c in range(4)) for k in range(5))
        assert purity(predicted, true) == 100 * most / 40

        def entropy(counts: list[int]) -> float:
            return -sum(n / 40 * math.log(n / 40) for n in counts if n)

        of_predicted, of_true = (entropy(list(Counter(ids.tolist()).values())) for ids in (predicted, true))
        shared = of_predicted + of_true - entropy(list(pairs.values()))
        assert clustering_agreement(predicted, true)[0] == pytest.approx(100 * 2 * shared / (of_predicted + of_true))

    def test_purity_of_nothing_and_of_large_ids(self) -> None:
        assert math.isnan(purity([], []))
        assert purity([10**12, 0], [7, 10**12]) == 100.0

    @pytest.mark.parametrize("seed", range(5))
    def test_calibration_error_bin_by_bin(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        sure, right, bins = random.random(60), random.random(60) < 0.6, 15
        sure[:2] = 0, 1
        error = 0.0
        for number in range(bins):
            last = number == bins - 1
            here = [i for i in range(60) if number <= sure[i] * bins < number + 1 or (last and sure[i] == 1)]
            if here:
                confidence, share = sum(sure[i] for i in here) / len(here), sum(right[i] for i in here) / len(here)
                error += len(here) / 60 * abs(confidence - share)
        assert calibration_error(sure, right, bins) == pytest.approx(error)
        assert math.isnan(calibration_error([], []))

    def test_calibration_by_chance_is_the_mean_over_many_draws(self) -> None:
        random = np.random.default_rng(0)
        sure = random.beta(4, 1, 300)
        drawn = [calibration_error(sure, random.random(300) < sure) for _ in range(2000)]
        assert calibration_by_chance(sure) == pytest.approx(np.mean(drawn), rel=0.05)
        assert calibration_by_chance(sure, bins=1) < calibration_by_chance(sure) < calibration_by_chance(sure, bins=60)
        assert calibration_by_chance([0.0, 1.0]) == 0
        assert math.isnan(calibration_by_chance([]))

    @pytest.mark.parametrize("seed", range(5))
    def test_auroc_by_all_pairs(self, seed: int) -> None:
        generator = np.random.default_rng(seed)
        scores, positive = generator.integers(0, 6, 30).astype(float), generator.random(30) < 0.4
        pairs = [(a > b) + 0.5 * (a == b) for a in scores[positive] for b in scores[~positive]]
        assert auroc(scores, positive) == pytest.approx(100 * float(np.mean(pairs)))
        assert math.isnan(auroc(scores, np.full(30, True)))

    @pytest.mark.parametrize(("clusters", "classes"), [(5, 5), (6, 4), (3, 5)])
    def test_category_discovery_over_all_maps(self, clusters: int, classes: int) -> None:
        for seed in range(5):
            generator = np.random.default_rng(seed)
            true = np.concatenate([np.arange(classes), generator.integers(0, classes, 30)])
            predicted = np.where(
                generator.random(len(true)) < 0.5, true % clusters, generator.integers(0, clusters, len(true))
            )
            scores = category_discovery_scores(predicted, true, known=2, clusters=clusters)
            best = TestUnequal.best_agreement(predicted, true, clusters, classes)
            old, new = int((true < 2).sum()), int((true >= 2).sum())
            assert scores.all == pytest.approx(100 * best / len(true))
            assert scores.old * old + scores.new * new == pytest.approx(100 * best)


def _best_by_hand(predicted: list[int], true: list[int], clusters: int, classes: int) -> int:
    """The most images that any one-to-one map of classes to clusters has in agreement, by trying all."""
    places = [*range(clusters), *[-1] * classes]
    return max(
        [p == chosen[t] for p, t in zip(predicted, true, strict=True)].count(True)
        for chosen in set(permutations(places, classes))
    )


@pytest.mark.parametrize("seed", range(20))
def test_continual_scores_agree_with_every_matching_tried_by_hand(seed: int) -> None:
    random = np.random.default_rng(seed)
    labelled, seen, classes, clusters = 2, 3, 4, int(random.integers(3, 6))
    true = np.concatenate([np.arange(classes), random.integers(0, classes, 16)])
    predicted = random.integers(0, clusters, len(true))
    targets = match_unequal(predicted, true, clusters=clusters, classes=classes)
    scores = stage_scores(predicted, true, labelled=labelled, seen=seen, targets=targets)
    best = _best_by_hand(predicted.tolist(), true.tolist(), clusters, classes)
    assert round(scores.all * len(true) / 100) == best
    for value, group in (
        (scores.old, true < seen),
        (scores.new, true >= seen),
        (scores.labelled, true < labelled),
    ):
        hits = [p == targets[t] for p, t in zip(predicted[group], true[group], strict=True)]
        assert value == pytest.approx(100 * sum(hits) / len(hits))


def test_forgetting_is_of_the_labelled_classes_and_discovery_the_mean_of_new() -> None:
    stages = [StageScores(old=80, new=30, all=60, labelled=85), StageScores(old=70, new=60, all=65, labelled=72.5)]
    assert continual_scores(90.0, stages) == (17.5, 45.0)
