"""Gathers what a report shows from a learner, a scenario and a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost import evaluation, metrics, store
from hoarfrost.config import Config
from hoarfrost.data.images import ImageSet
from hoarfrost.models.model import Discovery
from hoarfrost.report.data import DiscoveryData, FitData, Group, LabelledClass, ReportData, Shown
from hoarfrost.scenario import Scenario
from hoarfrost.training.held_out import HeldOut
from hoarfrost.training.inference import Outputs
from hoarfrost.training.learner import Learner
from hoarfrost.training.observers import Entry
from hoarfrost.unsorted import clusters

Images = np.ndarray[Any, np.dtype[np.uint8]]
Ids = NDArray[np.int64]

TYPICAL, DOUBTFUL, FULL_CLASSES = 8, 4, 12
"""images of a new class on the page of a discovery, and the number of classes up to which it has as many"""
KNOWN_CLASSES, KNOWN_IMAGES, UNSURE = 12, 4, 12
"""known classes that it shows, typical images of each and as many doubtful ones, and unsure images"""
FEW = 8
"""images of a class below which their mean probability says nothing: they were all that it was made of"""
MISTAKEN = 24
"""images on the page of ``fit`` that are taken for another class"""
POINTS = 1000
"""images on its map"""


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
    names, confusion = learner.model.class_names, None
    steps = [step.images for step in scenario.steps[1:]]
    if assignment.found:  # clusters need not be classes
        steps = [images for images, found in zip(steps, assignment.found, strict=True) if found]
    else:
        names = cluster_names(scenario.class_names, assignment)
        targets = metrics.relabel(test.labels, assignment.known, assignment.whole)
        confusion = metrics.confusion_matrix(learner.outputs(test).predicted, targets, learner.network.classes)
    shown, sizes = discovered_images(learner, dict(enumerate(steps, start=1)), names)
    seconds = content["seconds"]["total"]
    return ReportData(
        title=f"{content['method']} on {content['dataset']}, {content['split']}",
        facts=(
            ("method", content["method"]),
            ("data set", content["dataset"]),
            ("classes per step", content["split"]),
            ("seed", str(content["seed"])),
            ("backbone", learner.config.backbone),
            ("hardware", content["hardware"]),
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


def discovery_report(learner: Learner, images: ImageSet, log: Sequence[Entry], *, mixed: bool) -> DiscoveryData:
    """What can be shown of the last discovery, which was in these images, without any truth."""
    found, assigned = learner.model.discovery, learner.assigned
    assert found is not None
    assert assigned is not None
    prepared = learner.prepare(images)
    features = learner.outputs(prepared.take(on_map(len(prepared))), features=True).features
    assert features is not None
    names = learner.model.class_names
    data = discovery_data(found, assigned, learner.outputs(prepared), features, prepared, names)
    expected = learner.model.calibration.expected if mixed and found.new else None
    error = None if expected is None else expected.error
    sentence, facts = found.in_words(mixed=mixed), _facts(learner, log)
    return replace(data, sentence=sentence, facts=facts, log=log, error=error, left_out=images.left_out)


def _facts(learner: Learner, log: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
    return (
        ("method", learner.config.method.name),
        ("seed", str(learner.config.seed)),
        ("backbone", learner.config.backbone),
        ("hardware", learner.runtime.hardware),
        *([("training time", f"{sum(line['seconds'] for line in log):.0f} s")] if log else []),
    )


def measured(held_out: HeldOut, config: Config) -> str:
    """On which images the accuracy of ``fit`` was measured, in words."""
    scored, count = int((held_out.predicted >= 0).sum()), len(held_out.predicted)
    if config.holds_back:
        return f"measured on {scored} images that were not trained on"
    return f"cross-validated on {'all ' if scored == count else f'{scored} of '}{count} images"


def fit_report(
    learner: Learner, images: ImageSet, held_out: HeldOut | None, log: Sequence[Entry], *, doubts: Sequence[str]
) -> FitData:
    """What the page of ``fit`` shows of the labelled images."""
    labels, names = images.labels, learner.model.class_names
    assert labels is not None
    doubts = [*doubts, *([images.left_out] if images.left_out else [])]
    sizes = np.bincount(labels, minlength=len(names)).tolist()
    learned = f"Learned {len(names)} classes from {len(images)} images"
    if held_out is None:
        rows = [LabelledClass(name, size) for name, size in zip(names, sizes, strict=True)]
        return FitData(
            sentence=learned,
            expected="Accuracy was not estimated, since no images were held out: measure it with hoarfrost evaluate.",
            doubts=doubts,
            classes=rows,
            facts=_facts(learner, log),
            log=log,
        )
    looked_at = held_out.predicted >= 0
    wrong = np.flatnonzero(looked_at & ~held_out.right)
    surest = wrong[np.argsort(-held_out.probability[wrong], kind="stable")][:MISTAKEN]

    def row(c: int) -> LabelledClass:
        own = looked_at & (labels == c)
        others = np.bincount(held_out.predicted[own & ~held_out.right], minlength=len(names))
        return LabelledClass(
            names[c],
            sizes[c],
            int(own.sum()),
            100 * float(held_out.right[own].mean()) if own.any() else None,
            names[int(others.argmax())] if others.any() else None,
        )

    def words(position: int) -> str:
        name = f"image {position}" if images.paths is None else images.paths[position]
        return f"{name}: like {names[held_out.predicted[position]]}"

    pixels = learner.prepare(images).pixels(surest)
    return FitData(
        sentence=learned,
        expected=(
            f"Expect about {held_out.accuracy:.1f} % of images like these to be right"
            f" ({measured(held_out, learner.config)})."
        ),
        doubts=doubts,
        classes=[row(c) for c in range(len(names))],
        mistaken=[Shown(words(position), image) for position, image in zip(surest.tolist(), pixels, strict=True)],
        mistaken_images=len(wrong),
        facts=_facts(learner, log),
        log=log,
    )


def on_map(images: int) -> Ids:
    """Positions of the images that the map of features shows, of so many."""
    return np.linspace(0, images - 1, min(images, POINTS)).astype(np.int64)


def discovery_data(
    found: Discovery,
    assigned: Ids,
    outputs: Outputs,
    features: NDArray[np.float32],
    images: ImageSet,
    names: Sequence[str],
) -> DiscoveryData:
    """What is shown of N images that were ``assigned`` (N,) to classes, the last of which are new; -1 is unsure.

    ``features`` are of the images that are ``on_map``.
    """
    first, probabilities = len(names) - len(found.new), outputs.sureness
    new, old = list(range(first, len(names))), np.unique(assigned[(assigned >= 0) & (assigned < first)])
    sizes = np.bincount(assigned[assigned >= 0], minlength=len(names))
    least_sure = [probabilities[assigned == c, c].min() for c in old]
    by_doubt = old[np.argsort(least_sure, kind="stable")].tolist()
    doubted, others = by_doubt[:KNOWN_CLASSES], by_doubt[KNOWN_CLASSES:]
    share = min(1.0, FULL_CLASSES / max(1, len(new)))  # with many classes fewer images of each
    typical, doubtful = max(1, round(share * TYPICAL)), max(1, round(share * DOUBTFUL))
    ranked = {c: _ranked(assigned, probabilities, c) for c in (*new, *doubted)}
    most = {c: (typical, doubtful) if c >= first else (KNOWN_IMAGES, KNOWN_IMAGES) for c in ranked}
    ends = {c: (order[: most[c][0]], order[most[c][0] :][::-1][: most[c][1]]) for c, order in ranked.items()}
    unsure = np.flatnonzero(assigned < 0)
    unsure = unsure[np.argsort(probabilities[unsure].max(axis=1), kind="stable")][:UNSURE]
    chosen = np.unique(np.concatenate([unsure, *(part for parts in ends.values() for part in parts)]).astype(np.int64))
    pixels = dict(zip(chosen.tolist(), images.pixels(chosen), strict=True))

    def shown(positions: Sequence[int]) -> list[Shown]:
        paths = images.paths
        return [Shown(f"image {row}" if paths is None else paths[row], pixels[row]) for row in positions]

    def group(c: int) -> Group:
        own = outputs.scores[assigned == c] if c >= first else outputs.scores[:0]
        near = [k for k in _nearest(own) if k != c][:1]  # its own comes first as a rule
        like = found.nearest[c - first] if c >= first and found.nearest else _nearest(own[:, :first])
        sure = float(probabilities[assigned == c, c].mean()) if sizes[c] >= FEW else None
        return Group(
            names[c],
            int(sizes[c]),
            shown(ends[c][0]),
            shown(ends[c][1]),
            nearest=[names[k] for k in like],
            near_new=names[near[0]] if near and near[0] >= first else None,
            probability=sure,
        )

    return DiscoveryData(
        sentence=found.in_words(mixed=True),
        new=[group(c) for c in new],
        known=[group(c) for c in doubted],
        known_classes=len(old),
        known_others=[(names[c], int(sizes[c])) for c in others],
        unsure=shown(unsure.tolist()),
        unsure_images=found.unsure,
        count=found.count,
        points=clusters.principal_components(features, 2),
        point_groups=np.where(assigned < 0, -2, np.maximum(assigned - first, -1))[on_map(len(assigned))],
    )


def _ranked(assigned: Ids, probabilities: NDArray[np.float64], c: int) -> list[int]:
    """Positions of the images that were given to a class, the most probable first."""
    positions = np.flatnonzero(assigned == c)
    ranked: list[int] = positions[np.argsort(-probabilities[positions, c], kind="stable")].tolist()
    return ranked


def _nearest(scores: NDArray[np.float32], count: int = 2) -> list[int]:
    """The classes with the highest mean of scores ``(n, C)``; without those that are merged or rejected."""
    if not len(scores):
        return []
    means = scores.mean(axis=0, dtype=np.float64)
    best: list[int] = np.argsort(-means, kind="stable")[:count].tolist()
    return [c for c in best if np.isfinite(means[c])]


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
        probabilities = learner.outputs(prepared).probabilities
        totals = np.bincount(probabilities.argmax(axis=1), minlength=len(names))
        classes = range(firsts[step - 1], firsts[step])
        for c, positions in evaluation.confident_images(probabilities, classes, count=count).items():
            shown[names[c]], sizes[names[c]] = prepared.pixels(positions), int(totals[c])
    return shown, sizes


def write_report(path: Path, data: ReportData | DiscoveryData | FitData) -> None:
    """Writes ``report.html`` as a whole."""
    from hoarfrost.report.html import render

    store.write_bytes(path, render(data).encode())
