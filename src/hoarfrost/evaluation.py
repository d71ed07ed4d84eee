"""Scores of a learner on a scenario: the only place where predictions and truth meet."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from hoarfrost.models.classes import ClassTable
from hoarfrost.scenario import Step, Truth
from hoarfrost.training.inference import Outputs, best
from hoarfrost.training.learner import Learner

Ids = NDArray[np.int64]

TEST_MATCHING = "test_matching"
"""all classes with all predicted ids, on the test images that are scored: as Happy has it"""

TRAINING_MATCHING = "training_matching"
"""new classes with the clusters of their stage, on its training images: as class-iNCD and VB-CGCD have it"""


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
    is_new, earlier = truth.train_labels >= step.seen_classes, seen.scores.shape[1] - found
    called_new = is_new & (seen.predicted >= earlier)  # the others would vote for classes that they are not in
    clusters, among = seen.predicted[called_new] - earlier, truth.train_labels[called_new] - step.seen_classes
    matched = metrics.match_unequal(clusters, among, clusters=found, classes=step.novel)
    assignment = before.with_step(matched, found)
    whole, sizes = assignment.whole, assignment.novel_per_step
    targets = np.concatenate([np.arange(before.known), np.where(whole < 0, -1, before.known + whole)])
    edges = np.cumsum([before.known, *sizes])
    by_step = [
        metrics.target_scores(tested.predicted[own], true[own], 0, targets).all
        for own in ((true >= first) & (true < last) for first, last in pairwise(edges))
    ]
    clusters_so_far = tested.scores.shape[1]
    matchings = {
        TEST_MATCHING: metrics.match_unequal(tested.predicted, true, clusters=clusters_so_far, classes=int(edges[-1])),
        TRAINING_MATCHING: targets,
    }
    newness = seen.scores[:, earlier:].max(axis=1) - seen.scores[:, :earlier].max(axis=1) if found else None

    def categories(predicted: Ids, labels: Ids) -> dict[str, float | None]:
        return percentages(metrics.category_discovery_scores(predicted, labels, before.known, clusters=clusters_so_far))

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
        "continual": {
            name: percentages(
                metrics.stage_scores(
                    tested.predicted, true, labelled=before.known, seen=step.seen_classes, targets=matching
                )
            )
            for name, matching in matchings.items()
        },
    }


def continual_summary(
    stage_one: float | None, steps: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, float | None]]:
    """Forgetting and discovery over the steps of a run, by each matching: the field ``continual`` of ``metrics.json``.

    Stage one has no clusters, so that its accuracy is the same by both.
    """
    first, found = math.nan if stage_one is None else stage_one, {}
    for name in (TEST_MATCHING, TRAINING_MATCHING):
        stages = [
            metrics.StageScores(
                **{key: math.nan if value is None else value for key, value in step["continual"][name].items()}
            )
            for step in steps
        ]
        forgetting, discovery = metrics.continual_scores(first, stages)
        found[name] = {"forgetting": rounded(forgetting), "discovery": rounded(discovery)}
    return found


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

    There may be more of them than were discovered, or fewer: a class without a cluster is never right. A discovered
    class that a person has named stands for the class of that name; the others are matched. A folder does not say in
    which step a class was discovered, so that all steps are matched at once: with the novel head after one discovery,
    with the joint head's discovered classes after several. Where the numbers differ, images that are taken for a known
    class have no part in it: they would decide which class a cluster stands for that they are not in.
    """
    labelled, table = learner.labelled_classes, learner.model.classes
    size, channels = learner.config.image_size, learner.channels
    tested = read_images(folder, labelled=True, size=size, channels=channels, keep=keep, least_classes=1)
    matched = tested
    if match is not None:
        matched = read_images(match, labelled=True, size=size, channels=channels, keep=keep, least_classes=1)
    truth = FolderTruth.of(table, labelled, {*tested.class_names, *matched.class_names})
    found = [k for k in table.present if table.rows[k].step]
    true, outputs = truth.ids(tested), learner.outputs(tested)
    if not found and (true >= labelled).all():
        raise InputError(f"{folder} has no class of this model: name its sub-folders like the classes of the model")
    predicted, original = outputs.predicted, None
    if found:
        on = truth.ids(matched)
        said = outputs if match is None else learner.outputs(matched)
        as_many = len(found) == len(truth.new)
        truth = truth.matched(discovered_clusters(said, table, labelled) if as_many else said.predicted, on, found)
        heads = outputs.scores[:, :labelled].argmax(axis=1), discovered_clusters(outputs, table, labelled) - labelled
        original = percentages(metrics.original_rt_scores(*heads, predicted, true, labelled))
    is_new, newness = true >= labelled, -outputs.scores[:, :labelled].max(axis=1)
    if found:  # from image to image scores differ in scale, so that only their differences can be compared
        newness += outputs.scores[:, found].max(axis=1)
    return {
        "images": len(tested),
        "known": labelled,
        "novel": sum(learner.novel_per_step),
        "matched_on": str(match or folder) if found else None,
        "joint": percentages(metrics.target_scores(predicted, true, labelled, truth.targets)),
        "original_rt": original,
        "category_discovery": percentages(
            metrics.category_discovery_scores(predicted, true, labelled, clusters=len(table))
        ),
        "clustering": {
            name: _clustering(predicted[some], true[some])
            for name, some in (("all", np.full(len(true), True)), ("new", is_new))
        },
        "auroc_new": rounded(metrics.auroc(newness, is_new)),
        "calibration": _calibration(outputs.sureness.max(axis=1), predicted == truth.targets[true]),
        "new_classes": {"found": len(found), "true": len(truth.new), "error": len(found) - len(truth.new)},
        "classes": truth.by_class(predicted, true, table.names),
        "clusters": truth.by_cluster(predicted, true, table.names, found),
    }


@dataclass(frozen=True)
class FolderTruth:
    """The classes of a labelled folder, and which class of a model each of them is.

    Ids of the truth are those of the labelled classes, and after them the new classes in the order of their names.
    """

    table: ClassTable
    labelled: int
    new: tuple[str, ...]
    targets: Ids
    """(T,): the id that each true class is to be predicted as, -1 for none"""
    how: tuple[str | None, ...]
    """by what each target is known: its label, the name that a person gave it, or matching"""

    @classmethod
    def of(cls, table: ClassTable, labelled: int, names: Collection[str]) -> FolderTruth:
        """Before clusters are matched."""
        stands_for, old = table.stands_for[:labelled], {*table.own_names[:labelled]}
        by_name = {table.own_names[k]: k for k in table.present if table.own_names[k] != table.rows[k].name}
        new = tuple(sorted({*names} - old))
        targets = [*stands_for.tolist(), *(by_name.get(name, -1) for name in new)]
        how = [*["label"] * labelled, *("name" if name in by_name else None for name in new)]
        return cls(table, labelled, new, np.array(targets, dtype=np.int64), tuple(how))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the true classes, T."""
        return (*self.table.own_names[: self.labelled], *self.new)

    def ids(self, images: ImageSet) -> Ids:
        """``(N,)`` of the true classes; of labelled ones that were merged, that of the one they belong to now."""
        number = {name: index for index, name in enumerate(self.names)}
        for index, target in enumerate(self.targets[: self.labelled].tolist()):
            number[self.names[index]] = target if target < self.labelled else index
        assert images.labels is not None
        return np.array([number[name] for name in images.class_names], dtype=np.int64)[images.labels]

    def matched(self, clusters: Ids, true: Ids, found: Sequence[int]) -> FolderTruth:
        """With targets for the new classes that have none, from the cluster ``(N,)`` of each image, a class id."""
        free = [k for k in found if k not in self.targets]
        open_ = [c for c in range(self.labelled, len(self.targets)) if self.targets[c] < 0]
        some = np.isin(clusters, free) & np.isin(true, open_)
        pairs = np.searchsorted(free, clusters[some]), np.searchsorted(open_, true[some])
        assignment = metrics.match_unequal(*pairs, clusters=len(free), classes=len(open_))
        targets, how = self.targets.copy(), list(self.how)
        for class_, cluster in zip(open_, assignment.tolist(), strict=True):
            if cluster >= 0:
                targets[class_], how[class_] = free[cluster], "matching"
        return replace(self, targets=targets, how=tuple(how))

    def called(self, model_class: int, names: Sequence[str]) -> str:
        """A class of the model: by the true class that it stands for, or as the model calls it."""
        stands_for = np.flatnonzero(self.targets == model_class)
        return self.names[stands_for[0]] if len(stands_for) else names[model_class]

    def by_class(self, predicted: Ids, true: Ids, names: Sequence[str]) -> list[dict[str, Any]]:
        """A row for each true class that has images, the one with the lowest accuracy first."""
        rows = []
        for class_ in np.unique(true).tolist():
            target, own = int(self.targets[class_]), predicted[true == class_]
            right = int(np.count_nonzero(own == target)) if target >= 0 else 0
            wrong = np.bincount(own[own != target], minlength=1)
            rows.append(
                {
                    "class": self.names[class_],
                    "kind": "old" if class_ < self.labelled else "new",
                    "images": len(own),
                    "right": right,
                    "accuracy": rounded(100 * right / len(own)),
                    "called": names[target] if target >= 0 else None,
                    "known_by": self.how[class_],
                    "taken_for": self.called(int(wrong.argmax()), names) if right < len(own) else None,
                    "taken": int(wrong.max()),
                }
            )
        return sorted(rows, key=lambda row: (row["accuracy"], -row["images"]))

    def by_cluster(self, predicted: Ids, true: Ids, names: Sequence[str], found: Sequence[int]) -> list[dict[str, Any]]:
        """A row for each discovered class: which true class it stands for, and how pure it is."""
        rows = []
        for cluster in found:
            stands_for, inside = np.flatnonzero(self.targets == cluster), true[predicted == cluster]
            rows.append(
                {
                    "cluster": names[cluster],
                    "images": len(inside),
                    "class": self.names[stands_for[0]] if len(stands_for) else None,
                    "purity": rounded(metrics.purity(np.zeros(len(inside), dtype=np.int64), inside)),
                    "mostly": self.names[np.bincount(inside).argmax()] if len(inside) else None,
                }
            )
        return rows


def _clustering(predicted: Ids, true: Ids) -> dict[str, float | None]:
    """How well predictions agree with the truth as clusters, whatever they are called."""
    information, rand = metrics.clustering_agreement(predicted, true)
    return {
        "purity": rounded(metrics.purity(predicted, true)),
        "nmi": rounded(information),
        "ari": rounded(rand),
    }


SURE = 0.9
"""the probability from which on a prediction is called sure"""


def _calibration(probability: NDArray[np.float64], right: NDArray[np.bool_]) -> dict[str, Any]:
    """Whether what is said to be 90 percent sure is right nine times in ten."""
    sure = probability >= SURE
    return {
        "error": rounded(metrics.calibration_error(probability, right)),
        "by_chance": rounded(metrics.calibration_by_chance(probability)),
        "probability": rounded(100 * float(probability.mean())),
        "sure": int(sure.sum()),
        "sure_accuracy": rounded(100 * float(right[sure].mean())) if sure.any() else None,
    }


def discovered_clusters(outputs: Outputs, table: ClassTable, labelled: int) -> Ids:
    """For each image the id of the discovered class that suits best."""
    by_head = len(outputs.novel_scores) == 1 and not table.is_edited
    return best(outputs.novel_scores[0] if by_head else outputs.scores[:, labelled:]) + labelled
