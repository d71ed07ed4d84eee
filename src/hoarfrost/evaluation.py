"""Scores of a learner on a scenario: the only place where predictions and truth meet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost import metrics
from hoarfrost.data.cache import AUTO, ImageStorage
from hoarfrost.data.datasets import read_images
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError
from hoarfrost.scenario import Step, Truth
from hoarfrost.training.inference import Outputs, best
from hoarfrost.training.learner import Learner

Ids = NDArray[np.int64]


def percentages(scores: Any) -> dict[str, float | None]:
    """A dataclass of percentages for JSON: None for a group without images."""
    return {name: rounded(value) for name, value in asdict(scores).items()}


def rounded(value: float) -> float | None:
    """Percent with six decimals, as far as single images can tell; None for nan."""
    return None if math.isnan(value) else round(value, 6)


def match_step(novel_logits: NDArray[np.float32], truth: Truth, step: Step) -> Ids:
    """The clusters of a step's classes, from its novel head on its unlabelled training images: ``(novel,)``."""
    return metrics.match_clusters(best(novel_logits), truth.train_labels - step.seen_classes, step.novel)


@dataclass(frozen=True)
class Assignment:
    """Which cluster stands for which discovered class, over all steps so far."""

    known: int
    """classes of stage one"""
    clusters: tuple[Ids, ...]
    """of each step, counted within the step; -1 for a class without one, where numbers were estimated"""
    found: tuple[int, ...] = ()
    """clusters a step, where numbers were estimated; otherwise as many as classes"""

    @property
    def novel_per_step(self) -> tuple[int, ...]:
        """Classes a step."""
        return tuple(len(step) for step in self.clusters)

    @property
    def whole(self) -> Ids:
        """``(discovered,)``, counted over all steps."""
        offsets = np.cumsum((0, *(self.found or self.novel_per_step)))
        parts = [np.where(step < 0, -1, step + offset) for step, offset in zip(self.clusters, offsets, strict=False)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def with_step(self, clusters: Ids, found: int | None = None) -> Assignment:
        """With one more step."""
        more = () if found is None else (found,)
        return Assignment(self.known, (*self.clusters, clusters), (*self.found, *more))


def score_step(outputs: Outputs, true: Ids, assignment: Assignment) -> dict[str, Any]:
    """The scores of one discovery step on the test images, under both protocols: an entry of ``metrics.json``.

    ``outputs`` and ``true`` are of the test images of all classes so far. Row c of ``confusion`` is the class that
    output c was matched to, so that what is right is on the diagonal.
    """
    predicted = outputs.predicted
    whole, sizes = assignment.whole, assignment.novel_per_step
    known = assignment.known + sum(sizes[:-1])
    by_joint = metrics.accuracy_by_step(predicted, true, assignment.known, whole, sizes)
    # For the original protocol all classes before this step are old, those of earlier discoveries by their clusters.
    by_cluster = metrics.relabel(true, assignment.known, whole)
    original = metrics.original_rt_scores(
        outputs.scores[:, :known].argmax(axis=1), outputs.novel_scores[-1].argmax(axis=1), predicted, by_cluster, known
    )
    # ResTune's code matches old classes and predictions too, on the test images.
    old = by_cluster < known
    old_matched = metrics.clustering_accuracy(outputs.scores[old, :known].argmax(axis=1), by_cluster[old], known)
    # Deviation: the joint head alone decides. The public code's evaluator takes the joint and the novel head side by
    # side: where the novel head wins it counts an error, for which any wrong id will do.
    beside = np.concatenate([outputs.scores, outputs.novel_scores[-1]], axis=1).argmax(axis=1)
    classes = outputs.scores.shape[1]
    beside = np.where(beside < classes, beside, (by_cluster + 1) % classes)

    def scored(ids: Ids) -> dict[str, float | None]:
        return percentages(metrics.class_incd_scores(ids, true, assignment.known, whole))

    calibrated = outputs.side_by_side
    return {
        "index": len(sizes),
        "known": known,
        "novel": sizes[-1],
        "joint": scored(predicted),
        "calibrated": None if calibrated is None else scored(best(calibrated)),
        "new_by_step_joint": [rounded(value) for value in by_joint],
        "new_by_step_novel": [rounded(value) for value in novel_head_accuracies(outputs, true, assignment)],
        "original_rt": {**percentages(original), "old_matched": rounded(old_matched)},
        "joint_and_novel": scored(beside) if outputs.by_joint else None,
        "confusion": metrics.sparse_rows(metrics.confusion_matrix(predicted, by_cluster, classes)),
    }


def score_open_step(tested: Outputs, seen: Outputs, truth: Truth, step: Step, before: Assignment) -> dict[str, Any]:
    """The same where old images come back, or the number of new classes was estimated: clusters need not be classes.

    ``tested`` and ``seen`` are of the test images and of the step's own.
    """
    true = truth.test.labels
    assert true is not None
    found = tested.scores.shape[1] - before.known - sum(before.found)
    is_new = truth.train_labels >= step.seen_classes
    clusters = best(seen.novel_scores[-1][is_new]) if found else np.zeros(0, dtype=np.int64)
    among = truth.train_labels[is_new][: len(clusters)] - step.seen_classes
    matched = metrics.match_unequal(clusters, among, clusters=found, classes=step.novel)
    assignment = before.with_step(matched, found)
    whole, sizes, earlier = assignment.whole, assignment.novel_per_step, seen.scores.shape[1] - found
    targets = np.concatenate([np.arange(before.known), np.where(whole < 0, -1, before.known + whole)])
    edges = np.cumsum([before.known, *sizes])
    by_step = [
        metrics.target_scores(tested.predicted[own], true[own], 0, targets).all
        for own in ((true >= first) & (true < last) for first, last in pairwise(edges))
    ]
    newness = seen.scores[:, earlier:].max(axis=1) - seen.scores[:, :earlier].max(axis=1) if found else None

    def categories(predicted: Ids, labels: Ids) -> dict[str, float | None]:
        clusters = tested.scores.shape[1]
        return percentages(metrics.category_discovery_scores(predicted, labels, before.known, clusters=clusters))

    return {
        "index": len(sizes),
        "known": step.seen_classes,
        "novel": step.novel,
        "joint": percentages(metrics.unequal_scores(tested.predicted, true, before.known, whole)),
        "new_by_step_joint": [rounded(value) for value in by_step],
        "new_by_step_novel": [None] * len(sizes),
        "original_rt": dict.fromkeys(("old", "new", "all")),
        "assignment": matched.tolist(),
        "found": found,
        "count_error": found - step.novel,
        "category_discovery": categories(tested.predicted, true),
        "category_discovery_seen": categories(seen.predicted, truth.train_labels),
        "auroc_new": None if newness is None else rounded(metrics.auroc(newness, is_new)),
    }


def novel_head_accuracies(outputs: Outputs, true: Ids, assignment: Assignment) -> list[float]:
    """The paper's New-x-N: each novel head on the test images of its own classes, with a matching of its own."""
    accuracies, first = [], assignment.known
    for logits, size in zip(outputs.novel_scores, assignment.novel_per_step, strict=True):
        own = (true >= first) & (true < first + size)
        accuracies.append(metrics.clustering_accuracy(logits[own].argmax(axis=1), true[own] - first, size))
        first += size
    return accuracies


def stage_one_accuracy(outputs: Outputs, true: Ids) -> float | None:
    """Plain accuracy before any discovery."""
    return rounded(100 * float(np.mean(outputs.predicted == true))) if len(true) else None


def confident_images(probabilities: NDArray[np.floating], classes: Sequence[int], *, count: int) -> dict[int, Ids]:
    """For each class the positions of the images put into it, the surest first, at most ``count``."""
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    order = np.argsort(-confidence, kind="stable")
    return {c: order[predicted[order] == c][:count] for c in classes}


def score_folder(learner: Learner, folder: Path, match: Path | None, keep: ImageStorage = AUTO) -> dict[str, Any]:
    """Scores of a model on a labelled folder; classes that had no labels in stage one are the new ones.

    There may be more of them than were discovered, or fewer: a class without a cluster is never right.
    A folder does not say in which step a class was discovered, so that all steps are matched at once: with the novel
    head after one discovery, with the joint head's discovered classes after several.
    """
    labelled = learner.labelled_classes
    names = learner.class_names[:labelled]
    size, channels = learner.config.image_size, learner.channels
    tested = read_images(folder, labelled=True, size=size, channels=channels, keep=keep, least_classes=1)
    matched = tested
    if match is not None:
        matched = read_images(match, labelled=True, size=size, channels=channels, keep=keep, least_classes=1)
    new = sorted({*tested.class_names, *matched.class_names} - {*names})
    discovered = sum(learner.novel_per_step)
    if new and not discovered:
        some = ", ".join(new[:3]) + (", …" if len(new) > 3 else "")
        where = folder if match is None else f"{folder} with {match}"
        raise InputError(
            f"{where} has {len(new)} classes that had no labels ({some}), but none was discovered: leave them out"
        )
    ids = {name: index for index, name in enumerate((*names, *new))}
    true = _ids_by_name(tested, ids)
    outputs = learner.outputs(tested)
    predicted = outputs.predicted
    assignment, original = np.zeros(0, dtype=np.int64), None
    if discovered:
        on = _ids_by_name(matched, ids)
        among = on >= labelled
        clusters = discovered_clusters(
            learner.outputs(matched) if match is not None else outputs, learner.labelled_classes
        )
        assignment = metrics.match_unequal(clusters[among], on[among] - labelled, clusters=discovered, classes=len(new))
        heads = (
            outputs.scores[:, :labelled].argmax(axis=1),
            discovered_clusters(outputs, labelled),
        )
        original = percentages(metrics.original_rt_scores(*heads, predicted, true, labelled))
    return {
        "images": len(tested),
        "known": labelled,
        "novel": discovered,
        "matched_on": str(match or folder) if discovered else None,
        "joint": percentages(metrics.unequal_scores(predicted, true, labelled, assignment)),
        "original_rt": original,
    }


def discovered_clusters(outputs: Outputs, known: int) -> Ids:
    """For each image the discovered class that suits best, counted over all steps."""
    logits = outputs.novel_scores[0] if len(outputs.novel_scores) == 1 else outputs.scores[:, known:]
    return best(logits)


def _ids_by_name(images: ImageSet, ids: Mapping[str, int]) -> Ids:
    assert images.labels is not None
    return np.array([ids[name] for name in images.class_names], dtype=np.int64)[images.labels]
