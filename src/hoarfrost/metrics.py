"""Matching and scores: integer class ids go in, percentages come out.

A discovered class has no name, only a cluster number, so a score needs a matching of clusters to true classes. Write
K for the number of stage-one (known) classes, y_i for the true id of image i, p_i for its predicted id, and a(c) for
the cluster that the c-th discovered class is matched to. The two protocols differ in who may be matched with whom:

- **class-iNCD** (`class_incd_scores`). The novel head's predictions on the unlabelled *training* images of the new
  classes give a(c), once. The truth of a test image is then fixed, y if y < K and K + a(y - K) otherwise, and the
  joint head over all classes is simply right or wrong about it. An old image predicted as new is an error, and so is
  a new one predicted as old.
- **Original RT** (`original_rt_scores`), the protocol of ResTune. Old and New are each answered by the head of their
  own task, so the task of every image is given away. All is a clustering accuracy: the matching is fitted on the test
  images themselves and runs over all classes, so that an old class may be matched to a new cluster. A model that
  swaps old and new throughout scores 0 under class-iNCD and 100 here.

Ids are global (0..K-1 known, K + c the c-th discovered class) unless a function says otherwise. Anything that numpy
reads as a one-dimensional integer array is accepted, nothing is modified, and the mean over no images is nan.
`docs/protocol.md` works an example by hand.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hoarfrost.errors import DtypeError, InputError


@dataclass(frozen=True)
class ClassIncdScores:
    """Percentages of the class-iNCD protocol; nan for a group without images.

    >>> ClassIncdScores(old=80.0, new=20.0, all=50.0, hm=32.0).hm
    32.0
    """

    old: float
    """Accuracy on images of the stage-one classes."""
    new: float
    """Accuracy on images of all classes discovered so far."""
    all: float
    """Accuracy on all images."""
    hm: float
    """Harmonic mean of `old` and `new`."""


@dataclass(frozen=True)
class OriginalRtScores:
    """Percentages of ResTune's protocol; nan for a group without images.

    >>> OriginalRtScores(old=90.0, new=70.0, all=60.0).all
    60.0
    """

    old: float
    """Accuracy of the old head on old images."""
    new: float
    """Clustering accuracy of the new head on new images."""
    all: float
    """Clustering accuracy over all classes on all images."""


@dataclass(frozen=True)
class CategoryScores:
    """Percentages of generalised category discovery; nan for a group without images.

    >>> CategoryScores(old=90.0, new=70.0, all=80.0).new
    70.0
    """

    old: float
    """Accuracy on images of the labelled classes."""
    new: float
    """Accuracy on images of all other classes."""
    all: float
    """Accuracy on all images."""


@dataclass(frozen=True)
class StageScores:
    """Percentages after a stage of continual category discovery; nan for a group without images.

    >>> StageScores(old=90.0, new=70.0, all=80.0, labelled=95.0).labelled
    95.0
    """

    old: float
    """Accuracy on images of all classes that came before this stage."""
    new: float
    """Accuracy on images of the classes that this stage brought."""
    all: float
    """Accuracy on all images."""
    labelled: float
    """Accuracy on images of the classes that came with labels."""


def confusion_matrix(predicted: ArrayLike, true: ArrayLike, n: int) -> NDArray[np.int64]:
    """Count matrix M of shape (n, n): M[c, k] = #{i : y_i = c and p_i = k}. Rows are true, columns predicted.

    >>> confusion_matrix([1, 1, 0, 2], [0, 0, 1, 1], 3)
    array([[0, 2, 0],
           [1, 0, 1],
           [0, 0, 0]])
    """
    n = _count("n", n)
    predicted, true = _ids("predicted", predicted, n), _ids("true", true, n)
    _require_same_length(predicted=predicted, true=true)
    return np.bincount(true * n + predicted, minlength=n * n).reshape(n, n).astype(np.int64, copy=False)


def sparse_rows(matrix: NDArray[np.int64]) -> list[list[list[int]]]:
    """A count matrix for JSON: of each row the pairs ``[column, count]`` whose count is not 0, columns in order.

    >>> sparse_rows(np.array([[3, 0, 1], [0, 0, 0], [0, 2, 0]]))
    [[[0, 3], [2, 1]], [], [[1, 2]]]
    """
    return [[[int(k), int(row[k])] for k in np.flatnonzero(row)] for row in matrix]


def from_sparse_rows(rows: Sequence[Sequence[Sequence[int]]]) -> NDArray[np.int64]:
    """The (n, n) count matrix that `sparse_rows` was given.

    >>> from_sparse_rows([[[0, 3], [1, 1]], []])
    array([[3, 1],
           [0, 0]])
    """
    matrix = np.zeros((len(rows), len(rows)), dtype=np.int64)
    for c, row in enumerate(rows):
        for k, count in row:
            matrix[c, k] = count
    return matrix


def match_clusters(predicted: ArrayLike, true: ArrayLike, n: int) -> NDArray[np.int64]:
    """The assignment a, of shape (n,): class c is matched to cluster a[c], for the most images in agreement.

    a = argmax over permutations of 0..n-1 of sum_c M[c, a(c)], with M the confusion matrix (Hungarian assignment).
    Ids are 0..n-1 on both sides. The result is always a permutation, with empty clusters and empty classes too, and
    depends on M alone: neither on the order of the images nor, where several optima tie, on chance.

    >>> match_clusters([2, 2, 0, 0, 0], [0, 0, 1, 1, 2], 3)
    array([2, 0, 1])
    """
    from scipy.optimize import linear_sum_assignment

    # Deviation: the public code matches on a (known + n) x (known + n) matrix and cuts the novel rows out afterwards;
    # an empty cluster then shifts the map. An n x n matrix has nothing to cut out.
    _, clusters = linear_sum_assignment(confusion_matrix(predicted, true, n), maximize=True)
    return clusters.astype(np.int64, copy=False)


def match_unequal(predicted: ArrayLike, true: ArrayLike, *, clusters: int, classes: int) -> NDArray[np.int64]:
    """`match_clusters` for more clusters than classes, or fewer: a of shape (classes,), -1 for a class without one.

    Of all one-to-one maps between some classes and some clusters, as many as there can be, the one with the most images
    in agreement. Clusters are 0..clusters-1, classes 0..classes-1.

    >>> match_unequal([0, 0, 1, 2, 2, 2], [0, 0, 0, 1, 1, 1], clusters=3, classes=2)
    array([0, 2])
    >>> match_unequal([0, 0, 0, 1, 1], [0, 1, 1, 2, 2], clusters=2, classes=3)
    array([-1,  0,  1])
    """
    from scipy.optimize import linear_sum_assignment

    clusters, classes = _count("clusters", clusters), _count("classes", classes)
    predicted, true = _ids("predicted", predicted, clusters), _ids("true", true, classes)
    _require_same_length(predicted=predicted, true=true)
    counts = np.bincount(true * clusters + predicted, minlength=classes * clusters).reshape(classes, clusters)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    assignment = np.full(classes, -1, dtype=np.int64)
    assignment[rows] = columns
    return assignment


def unequal_scores(joint_predicted: ArrayLike, true: ArrayLike, known: int, assignment: ArrayLike) -> ClassIncdScores:
    """`class_incd_scores` with an assignment of `match_unequal`.

    A class without a cluster is never right, and neither is an image in a cluster that stands for no class.

    >>> unequal_scores([0, 4, 2, 3], [0, 1, 2, 3], known=2, assignment=[0, -1])
    ClassIncdScores(old=50.0, new=50.0, all=50.0, hm=50.0)
    """
    known = _count("known", known)
    assignment = _integers("assignment", assignment)
    matched = assignment[assignment >= 0]
    if (assignment < -1).any() or len(np.unique(matched)) < len(matched):
        raise InputError("assignment must give each class its own cluster, or -1 for none")
    targets = np.concatenate([np.arange(known), np.where(assignment < 0, -1, known + assignment)])
    return target_scores(joint_predicted, true, known, targets)


def target_scores(joint_predicted: ArrayLike, true: ArrayLike, known: int, targets: ArrayLike) -> ClassIncdScores:
    """The same where `targets` says of every true class which id it is to be predicted as, or -1 for none.

    >>> target_scores([0, 0, 2, 1], [0, 1, 2, 2], known=2, targets=[0, 0, 2])
    ClassIncdScores(old=100.0, new=50.0, all=75.0, hm=66.66666666666667)
    """
    ids = _integers("targets", targets)
    predicted, classes = _ids("joint_predicted", joint_predicted), _ids("true", true, ids.size)
    _require_same_length(joint_predicted=predicted, true=classes)
    hits, is_old = predicted == ids[classes], classes < known
    old, new = _percent(hits[is_old]), _percent(hits[~is_old])
    return ClassIncdScores(old=old, new=new, all=_percent(hits), hm=harmonic_mean(old, new))


def stage_scores(predicted: ArrayLike, true: ArrayLike, *, labelled: int, seen: int, targets: ArrayLike) -> StageScores:
    """Scores of a stage that began with `seen` classes, the first of which are the `labelled` ones.

    `targets` says of every true class which id it is to be predicted as, or -1 for none: what the matching is made of.

    >>> stage_scores([0, 3, 2, 3], [0, 1, 2, 3], labelled=1, seen=2, targets=[0, 1, 2, 3])
    StageScores(old=50.0, new=100.0, all=75.0, labelled=100.0)
    """
    whole = target_scores(predicted, true, seen, targets)
    return StageScores(whole.old, whole.new, whole.all, target_scores(predicted, true, labelled, targets).old)


def continual_scores(stage_one: float, stages: Sequence[StageScores]) -> tuple[float, float]:
    """Forgetting M_f and discovery M_d over all stages, of which the first learned from labels.

    M_f is the accuracy on the labelled classes after stage one less that after the last stage; M_d is the mean of New.

    >>> continual_scores(90.0, [StageScores(90, 50, 80, 88), StageScores(80, 70, 75, 81)])
    (9.0, 60.0)
    """
    return stage_one - stages[-1].labelled, sum(stage.new for stage in stages) / len(stages)


def clustering_accuracy(predicted: ArrayLike, true: ArrayLike, n: int) -> float:
    """Percentage of images with p_i = a(y_i), where a is matched on these very images. Ids are 0..n-1 on both sides.

    >>> clustering_accuracy([1, 1, 0, 0], [0, 0, 1, 1], 2)
    100.0
    """
    assignment = match_clusters(predicted, true, n)
    return _percent(_integers("predicted", predicted) == assignment[_integers("true", true)])


def clustering_agreement(predicted: ArrayLike, true: ArrayLike) -> tuple[float, float]:
    """Normalised mutual information (arithmetic mean) and adjusted Rand index, in percent: no matching is involved.

    >>> clustering_agreement([7, 7, 3, 3], [0, 0, 1, 1])
    (100.0, 100.0)
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    predicted, true = _integers("predicted", predicted), _integers("true", true)
    _require_same_length(predicted=predicted, true=true)
    if true.size == 0:
        return math.nan, math.nan
    mutual_information = normalized_mutual_info_score(true, predicted)
    return 100.0 * float(mutual_information), 100.0 * float(adjusted_rand_score(true, predicted))


def purity(predicted: ArrayLike, true: ArrayLike) -> float:
    """Percentage of images that are of the most frequent true class of their cluster; more clusters never lower it.

    >>> purity([0, 0, 0, 1], [5, 5, 6, 6])
    75.0
    """
    predicted, true = _ids("predicted", predicted), _ids("true", true)
    _require_same_length(predicted=predicted, true=true)
    if true.size == 0:
        return math.nan
    # Of the pairs that occur alone: ids may be anything.
    pairs, counts = np.unique(np.stack([predicted, true]), axis=1, return_counts=True)
    starts = np.flatnonzero(np.diff(pairs[0], prepend=-1))
    return 100.0 * int(np.maximum.reduceat(counts, starts).sum()) / true.size


def category_discovery_scores(predicted: ArrayLike, true: ArrayLike, known: int, clusters: int) -> CategoryScores:
    """Accuracies of generalised category discovery: one matching of all clusters with all classes, on these images.

    Old and new are then the parts of it. Old classes are matched like others, by what their images are predicted as.
    There may be more clusters than classes, or fewer: `match_unequal`.

    >>> category_discovery_scores([1, 1, 0, 2], [0, 0, 1, 2], known=2, clusters=3)
    CategoryScores(old=100.0, new=100.0, all=100.0)
    """
    known = _count("known", known)
    predicted, true = _ids("predicted", predicted, clusters), _ids("true", true)
    matched = match_unequal(predicted, true, clusters=clusters, classes=_smallest_range(true))
    hits, is_old = predicted == matched[true], true < known
    return CategoryScores(old=_percent(hits[is_old]), new=_percent(hits[~is_old]), all=_percent(hits))


def auroc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Percentage of the pairs of a positive and another image in which the positive has the higher score.

    Equal scores count for half; nan where one kind is missing.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True])
    75.0
    """
    from scipy.stats import rankdata

    values, chosen = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=np.bool_)
    count, others = int(chosen.sum()), int((~chosen).sum())
    if not count or not others:
        return math.nan
    above = float(rankdata(values)[chosen].sum()) - count * (count + 1) / 2
    return 100.0 * above / (count * others)


def calibration_error(confidence: ArrayLike, right: ArrayLike, bins: int = 15) -> float:
    """The expected calibration error, from 0 to 1: how far the probability of what was predicted is from being right.

    Images are put into ``bins`` of equal width by that probability; of each bin counts, by its size, the difference
    between the mean probability and the share that is right. nan without images.

    >>> round(calibration_error([0.9, 0.9, 0.6, 0.6], [True, True, True, False]), 6)
    0.1
    """
    given, correct = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.bool_)
    if given.shape != correct.shape:
        raise InputError(
            f"confidences and correctness must be given for every image, not {given.size} and {correct.size} of them"
        )
    if not given.size:
        return math.nan
    apart = np.bincount(_bins(given, bins), weights=given - correct)
    return float(np.abs(apart).sum() / given.size)


def calibration_by_chance(confidence: ArrayLike, bins: int = 15) -> float:
    """About what the calibration error of as many images is if their probabilities are true: not 0, by chance.

    In a bin the number that is right has the variance of the sum over p (1 - p), and the mean distance from the middle
    of a normal distribution is sqrt(2 / pi) times its standard deviation. Images are taken for independent: where some
    repeat, or are alike, this is a lower bound. nan without images.

    >>> round(calibration_by_chance([0.9] * 100), 3), round(calibration_by_chance([0.9] * 10_000), 3)
    (0.024, 0.002)
    """
    given = np.asarray(confidence, dtype=np.float64)
    if not given.size:
        return math.nan
    variance = np.bincount(_bins(given, bins), weights=given * (1 - given))
    return float(np.sqrt(2 / math.pi * variance).sum() / given.size)


def _bins(confidence: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    return np.minimum((confidence * bins).astype(np.int64), bins - 1)


def relabel(true: ArrayLike, known: int, assignment: ArrayLike) -> NDArray[np.int64]:
    """The id each image should be predicted as: y_i where y_i < known, else known + a(y_i - known).

    `assignment` holds a(c) for every class discovered so far, a permutation. After several steps it is the steps'
    assignments one after the other, each shifted by the number of classes discovered before it.

    >>> relabel([0, 1, 2, 3, 4], 2, [1, 2, 0])
    array([0, 1, 3, 4, 2])
    """
    known = _count("known", known)
    assignment = _permutation("assignment", assignment)
    # One lookup into a fresh array. Replacing ids in place, one class after another, would chain the replacements.
    target_of_class = np.concatenate([np.arange(known), known + assignment])
    return target_of_class[_ids("true", true, target_of_class.size)]


def class_incd_scores(
    joint_predicted: ArrayLike, true: ArrayLike, known: int, assignment: ArrayLike
) -> ClassIncdScores:
    """Scores of the joint head under a given assignment.

    With t = relabel(true, known, assignment): old = mean of [p_i = t_i] over y_i < known, new = the same over
    y_i >= known, all = the same over every image, hm = 2 old new / (old + new), which is 0 when both are 0.

    `known` counts the stage-one classes; `assignment` covers all discovered classes so far, and is empty before the
    first discovery (`new` and `hm` are nan then). Images of classes that are still to come must be left out.

    >>> class_incd_scores([0, 0, 3, 1], [0, 1, 2, 3], known=2, assignment=[1, 0])
    ClassIncdScores(old=50.0, new=50.0, all=50.0, hm=50.0)
    """
    hits = _joint_hits(joint_predicted, true, known, assignment)
    is_old = _integers("true", true) < known
    old, new = _percent(hits[is_old]), _percent(hits[~is_old])
    return ClassIncdScores(old=old, new=new, all=_percent(hits), hm=harmonic_mean(old, new))


def accuracy_by_step(
    joint_predicted: ArrayLike, true: ArrayLike, known: int, assignment: ArrayLike, novel_per_step: Sequence[int]
) -> tuple[float, ...]:
    """The paper's New-x-J, one number per discovery step x: accuracy of the joint head on the classes of step x.

    With s_x = known + n_1 + ... + n_(x-1) and n = novel_per_step: the mean of [p_i = t_i] over s_x <= y_i < s_x + n_x,
    where t = relabel(true, known, assignment). The n_x add up to the length of the assignment.

    >>> accuracy_by_step([2, 3, 0, 4], [2, 3, 4, 4], known=2, assignment=[0, 1, 2], novel_per_step=[2, 1])
    (100.0, 50.0)
    """
    hits = _joint_hits(joint_predicted, true, known, assignment)
    classes = _integers("true", true)
    sizes = [_count("novel_per_step", size) for size in novel_per_step]
    discovered = np.size(assignment)
    if sum(sizes) != discovered:
        raise InputError(f"novel_per_step adds up to {sum(sizes)}, but assignment covers {discovered} classes")
    edges = np.cumsum([known, *sizes])
    return tuple(_percent(hits[(start <= classes) & (classes < stop)]) for start, stop in pairwise(edges))


def original_rt_scores(
    old_head: ArrayLike, new_head: ArrayLike, concat: ArrayLike, true: ArrayLike, known: int
) -> OriginalRtScores:
    """Scores of ResTune's protocol, from three predictions for every test image.

    old = mean of [old_head_i = y_i] over y_i < known; new = clustering accuracy of `new_head` against y_i - known over
    y_i >= known; all = clustering accuracy of `concat` over every image and all classes. Each matching is its own.

    `old_head` and `concat` hold global ids, `new_head` holds 0..n-1. The number of new classes n is the smallest that
    holds every id of `true` and `new_head`; a larger one would add empty classes and change no score. `known` counts
    the classes before this step. From the second step on pass `relabel(true, stage_one, assignment)` as `true`: the
    truth of classes found in earlier steps is then the id that the model gave them.

    >>> original_rt_scores([0, 1, 0, 0], [0, 0, 1, 0], concat=[2, 3, 0, 1], true=[0, 1, 2, 3], known=2)
    OriginalRtScores(old=100.0, new=100.0, all=100.0)
    """
    known = _count("known", known)
    old_head, new_head = _ids("old_head", old_head), _ids("new_head", new_head)
    concat, true = _ids("concat", concat), _ids("true", true)
    _require_same_length(old_head=old_head, new_head=new_head, concat=concat, true=true)
    novel = max(0, _smallest_range(true) - known, _smallest_range(new_head))
    classes = max(known + novel, _smallest_range(concat))
    is_old = true < known
    return OriginalRtScores(
        old=_percent(old_head[is_old] == true[is_old]),
        new=clustering_accuracy(new_head[~is_old], true[~is_old] - known, novel),
        all=clustering_accuracy(concat, true, classes),
    )


def _joint_hits(joint_predicted: ArrayLike, true: ArrayLike, known: int, assignment: ArrayLike) -> NDArray[np.bool_]:
    """For each image, whether the joint head predicts the id its class is known by."""
    target = relabel(true, known, assignment)
    # An id beyond the joint head is refused, not counted as wrong: it comes from some other head's logits.
    predicted = _ids("joint_predicted", joint_predicted, known + np.size(assignment))
    _require_same_length(joint_predicted=predicted, true=target)
    hits: NDArray[np.bool_] = predicted == target
    return hits


def _percent(hits: NDArray[np.bool_]) -> float:
    """100 times the mean, from whole counts so that the order of the images cannot change a digit."""
    return 100.0 * int(np.count_nonzero(hits)) / hits.size if hits.size else math.nan


def harmonic_mean(first: float, second: float) -> float:
    """2ab / (a + b), and 0 where both are 0."""
    total = first + second
    return 2.0 * first * second / total if total != 0.0 else 0.0


def _smallest_range(ids: NDArray[np.int64]) -> int:
    """The smallest n with every id in 0..n-1."""
    return int(ids.max(initial=-1)) + 1


def _count(name: str, value: int) -> int:
    """`value` as a whole number, 0 or more."""
    try:
        count = operator.index(value)
    except TypeError:
        count = -1
    if count < 0:
        raise InputError(f"{name} is {value!r}: give a whole number, 0 or more")
    return count


def _integers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """`values` as a one-dimensional int64 array; an empty list has no type of its own and is accepted."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}: give one class id per image, a one-dimensional array")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise DtypeError(f"{name} holds {array.dtype}, but class ids are integers: give {name}.astype('int64')")
    return array.astype(np.int64, copy=False)


def _ids(name: str, values: ArrayLike, n: int | None = None) -> NDArray[np.int64]:
    """`values` as ids in 0..n-1, or as ids of 0 and more without `n`."""
    ids = _integers(name, values)
    outside = ids < 0 if n is None else (ids < 0) | (ids >= n)
    if outside.any():
        position = int(outside.argmax())
        limit = "" if n is None else f" and below {n}"
        raise InputError(f"{name}[{position}] is {ids[position]}: class ids must be at least 0{limit}")
    return ids


def _permutation(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """`values` as a permutation of 0..len-1."""
    array = _integers(name, values)
    if not np.array_equal(np.sort(array), np.arange(array.size)):
        raise InputError(f"{name} must hold each of 0 to {array.size - 1} once, one cluster for each discovered class")
    return array


def _require_same_length(**arrays: NDArray[np.int64]) -> None:
    """Refuse arrays that cannot be about the same images."""
    if len({array.size for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{name} {array.size}" for name, array in arrays.items())
        raise InputError(f"all arrays need one id per image, but their lengths differ: {lengths}")
