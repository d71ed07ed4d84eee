"""Gathers what a report shows from a learner, a scenario and a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hoarfrost import evaluation, metrics, store
from hoarfrost.data.images import ImageSet
from hoarfrost.report.data import ReportData
from hoarfrost.scenario import Scenario
from hoarfrost.training.learner import Learner
from hoarfrost.training.observers import Entry

Images = np.ndarray[Any, np.dtype[np.uint8]]


def report_data(
    content: Mapping[str, Any],
    learner: Learner,
    scenario: Scenario,
    *,
    assignment: evaluation.Assignment,
    log: Sequence[Entry],
) -> ReportData:
    """What the report of a run shows; ``content`` is that of ``metrics.json``."""
    test = scenario.truths[-1].test
    assert test.labels is not None
    names, confusion = learner.class_names, None
    steps = [step.images for step in scenario.steps[1:]]
    if assignment.found:  # clusters need not be classes
        steps = [images for images, found in zip(steps, assignment.found, strict=True) if found]
    else:
        names = cluster_names(scenario.class_names, assignment)
        targets = metrics.relabel(test.labels, assignment.known, assignment.whole)
        confusion = metrics.confusion_matrix(learner.predict(test), targets, learner.network.classes)
    shown, sizes = discovered_images(learner, dict(enumerate(steps, start=1)), names)
    seconds = content["seconds"]["total"]
    return ReportData(
        title=f"{content['method']} on {content['dataset']}, {content['split']}",
        facts=(
            ("method", content["method"]),
            ("data set", content["dataset"]),
            ("classes a step", content["split"]),
            ("seed", str(content["seed"])),
            ("backbone", learner.config.backbone),
            ("computed on", content["hardware"]),
            ("time", f"{seconds:.0f} s"),
        ),
        metrics=content,
        log=log,
        class_names=names,
        known=learner.labelled_classes,
        novel_per_step=learner.novel_per_step,
        weight_norms=joint_norms(learner),
        confusion=confusion,
        samples=shown,
        sizes=sizes,
    )


def discovery_report(learner: Learner, images: ImageSet, log: Sequence[Entry]) -> ReportData:
    """What can be shown of a discovery without any truth."""
    step = len(learner.novel_per_step)
    shown, sizes = discovered_images(learner, {step: images}, learner.class_names)
    return ReportData(
        title=f"{learner.novel_per_step[-1]} new classes in {len(images)} images",
        facts=(
            ("method", learner.config.method.name),
            ("discovery step", str(step)),
            ("seed", str(learner.config.seed)),
            ("backbone", learner.config.backbone),
            ("computed on", learner.runtime.hardware),
            ("time", f"{sum(line['seconds'] for line in log):.0f} s"),
        ),
        metrics=None,
        log=log,
        class_names=learner.class_names,
        known=learner.labelled_classes,
        novel_per_step=learner.novel_per_step,
        weight_norms=joint_norms(learner),
        confusion=None,
        samples=shown,
        sizes=sizes,
    )


def cluster_names(class_names: Sequence[str], assignment: evaluation.Assignment) -> tuple[str, ...]:
    """The names of the joint head's outputs: a discovered one is called after the class that it was matched to."""
    known = assignment.known
    names = list(class_names)
    for class_index, cluster in enumerate(assignment.whole):
        names[known + cluster] = class_names[known + class_index]
    return tuple(names)


def joint_norms(learner: Learner) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The length of the weight vector that decides for each class; none where no weights decide."""
    norms = learner.network.weight_norms()
    return np.zeros(0, dtype=np.float32) if norms is None else norms.cpu().numpy()


def discovered_images(
    learner: Learner, images_of_step: Mapping[int, ImageSet], names: Sequence[str], *, count: int = 16
) -> tuple[dict[str, Images], dict[str, int]]:
    """For each class of those steps (from 1) the images that the joint head is surest of, and how many it has."""
    shown: dict[str, Images] = {}
    sizes: dict[str, int] = {}
    firsts = np.cumsum((learner.labelled_classes, *learner.novel_per_step))
    for step, images in images_of_step.items():
        prepared = learner.prepare(images)
        probabilities = learner.predict_proba(prepared)
        totals = np.bincount(probabilities.argmax(axis=1), minlength=len(names))
        classes = range(firsts[step - 1], firsts[step])
        for c, positions in evaluation.confident_images(probabilities, classes, count=count).items():
            shown[names[c]], sizes[names[c]] = prepared.pixels(positions), int(totals[c])
    return shown, sizes


def write_report(path: Path, data: ReportData) -> None:
    """Writes ``report.html`` as a whole."""
    from hoarfrost.report.html import render

    store.write_bytes(path, render(data).encode())
