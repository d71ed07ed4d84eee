"""What stage one learns of folders to come, and how such a folder is looked at before anything is learned from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hoarfrost.data.rows import Rows, mapped
from hoarfrost.data.sources import FeatureSet, Samples
from hoarfrost.errors import AllNewHelps
from hoarfrost.models.gaussians import mean_covariance
from hoarfrost.models.model import Model
from hoarfrost.models.network import Network
from hoarfrost.models.readout import Calibration, Gaussians
from hoarfrost.models.statistics import ClassStatistics, transformed
from hoarfrost.seeding import derive
from hoarfrost.sorting.folder import Sorter, sort_folder
from hoarfrost.sorting.hiding import TRIED, Hidden, Sureness
from hoarfrost.sorting.space import KnownClasses as Remembered
from hoarfrost.training.calibration import calibrated
from hoarfrost.training.inference import Inference
from hoarfrost.training.observers import Observer
from hoarfrost.unsorted.draws import few_threads
from hoarfrost.unsorted.expectations import EXPECTING, expectations
from hoarfrost.unsorted.known import KnownClasses
from hoarfrost.unsorted.mixed import count_new_classes, tell_apart
from hoarfrost.unsorted.number import LARGEST, LEAST, Count, count_classes, learned_levels

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

MOST_COUNTED, MOST_SORTED, MOST_CLASSES = 4000, 1500, 64
"""labelled images, at random, from which levels are learned; those from which it is learned what to expect of mixed
folders, and of how many classes"""


def learn_calibration(
    inference: Inference, network: Network, images: Samples, labels: Ids, statistics: ClassStatistics
) -> Calibration:
    """From all labelled images of stage one, with their class ids ``(N,)``."""
    config, readout, observer = inference.config, network.design.readout, inference.observer
    seed, first = derive(config.seed, "expected"), inference.runtime.processes.first
    counted = share_of_each(labels, MOST_COUNTED, seed)
    chosen, own = images.take(counted), labels[counted]
    if config.fixed_in_discovery and isinstance(chosen, FeatureSet):
        points = np.asarray(sorting_points(chosen.images, network))
        diagonal, tell = statistics.for_readout.root is None, _told(observer, TRIED)
        ridge = readout.ridge if isinstance(readout, Gaussians) and readout.covariance == "shared" else None
        with few_threads():
            sorter, sure = first(lambda: _learned(Hidden(points, own, seed, diagonal=diagonal), ridge, tell))
        if sure is not None:
            return Calibration(sure.temperature, unlike=sure.unlike, sorter=sorter)
        temperature = calibrated(inference, network, images, labels, statistics) if readout.by_likelihood else 1.0
        return Calibration(temperature, sorter=sorter)
    temperature = calibrated(inference, network, images, labels, statistics) if readout.by_likelihood else 1.0
    points = np.asarray(counting_points(inference, chosen, network))
    levels = first(lambda: learned_levels(points, own, seed))
    counts = np.bincount(labels)
    levels = replace(levels, images_a_class=float(np.median(counts[counts > 0])))
    fewer = as_many_of_each(own, MOST_SORTED, seed, MOST_CLASSES)
    measured = np.asarray(sorting_points(inference.features(chosen.take(fewer), network), network))
    how, tell_more = {"diagonal": statistics.for_readout.root is None, "learned": True}, _told(observer, EXPECTING)
    classes = int((counts >= LEAST).sum())  # those that can be tried
    expected = first(lambda: expectations(measured, own[fewer], seed, classes=classes, **how, tell=tell_more))
    return Calibration(temperature, levels=levels, expected=expected)


def _learned(hidden: Hidden, ridge: float | None, tell: Callable[[], None]) -> tuple[Sorter, Sureness | None]:
    """How folders are sorted, and how sure one may be where one covariance with a ``ridge`` decides for all classes."""
    sorter = hidden.learned(tell)
    return sorter, None if ridge is None else hidden.sureness(sorter, ridge, tell)


def _told(observer: Observer, count: int) -> Callable[[], None]:
    """What tells an observer of one more of so many draws."""
    done = itertools.count()

    def tell() -> None:
        observer.held_back(next(done), count)

    tell()
    return tell


def share_of_each(labels: Ids, most: int, seed: int) -> Ids:
    """Positions of about ``most`` images, or fewer: the same share of each class, and a few at least."""
    random = np.random.default_rng(seed)
    classes = random.permutation(np.unique(labels))[: max(2, most // 8)]
    parts = [random.permutation(np.flatnonzero(labels == label)) for label in classes]
    counts = [len(own) for own in parts]
    share = min(1.0, LARGEST / float(np.median(counts)), most / sum(counts))
    return np.sort(np.concatenate([own[: max(LEAST, round(share * len(own)))] for own in parts]))


def as_many_of_each(labels: Ids, most: int, seed: int, most_classes: int) -> Ids:
    """Positions of at most ``most`` images, as many of each class as can be."""
    random = np.random.default_rng(seed)
    classes = random.permutation(np.unique(labels))[:most_classes]
    each = min(LARGEST, most // len(classes))
    parts = [random.permutation(np.flatnonzero(labels == label))[:each] for label in classes]
    return np.sort(np.concatenate(parts))


def sorting_points(features: Rows, network: Network) -> Rows:
    """Features ``(N, D)`` as the readout looks at them."""

    def looked_at(rows: Floats) -> Floats:
        points: Floats = network.kept.transformed(torch.from_numpy(rows).float()).numpy()
        return points.astype(np.float64)

    return mapped(features, looked_at)


@torch.no_grad()
def counting_points(inference: Inference, images: Samples, network: Network) -> Rows:
    """``(N, D)``, in which classes are counted: features that no label has shaped, scaled as Hellinger's distance asks.

    Labels draw the features of known classes together, far more than those of new ones. So where the backbone was
    trained, the mean outputs of the part before its last one stand in their place.
    """
    if isinstance(images, FeatureSet) or inference.config.fixed_in_discovery or len(network.backbone.parts) < 2:
        return _hellinger(inference.features(images, network))
    part, outputs, rows = list(network.backbone.parts.values())[-2], list[Tensor](), list[Tensor]()

    def keep(_: nn.Module, __: Any, output: Tensor) -> None:
        outputs.append(output.float().flatten(2).mean(dim=2) if output.ndim > 2 else output.float())

    hook = part.register_forward_hook(keep)
    try:
        for _ in inference.batches(images, network):
            if outputs:  # of an image, and of its mirror image
                rows.append(torch.stack(outputs).mean(dim=0))
                outputs.clear()
    finally:
        hook.remove()
    if not rows:  # a part that is not called as a module, or a process without images
        return _hellinger(inference.features(images, network))
    return _hellinger(inference.runtime.processes.gather_rows(torch.cat(rows), len(images)).cpu().numpy())


def _hellinger(features: Rows) -> Rows:
    def scaled(rows: Floats) -> Floats:
        points: Floats = transformed(torch.from_numpy(rows), "hellinger").numpy()
        return points

    return mapped(features, scaled)


def known_classes(statistics: ClassStatistics) -> tuple[KnownClasses, Ids]:
    """Those that have images, as images are compared with them, and their ids."""
    present = np.flatnonzero(statistics.count.numpy() > 0)
    covariance = mean_covariance(statistics, torch.device("cpu")).numpy()
    if statistics.root is None:
        covariance = covariance.diagonal()
    return KnownClasses(statistics.mean.numpy()[present].astype(np.float64), covariance, len(covariance)), present


@dataclass(frozen=True)
class Look:
    """What is in a folder, before anything is learned from it."""

    novel: int
    """how many classes are new"""
    known: Ids
    """(N,): the class id of what is of a known class, -1 for the others"""
    unsure: NDArray[np.bool_]
    """(N,): not learned from"""
    strange: NDArray[np.bool_]
    """(N,): those of them that are a few like each other, and like no class"""
    count: Count | None
    """how the number was estimated, if it was"""
    clusters: Ids | None = None
    """(N,): the new class of each image, from 0, where the look has clustered them; of old ones too"""
    typical: NDArray[np.bool_] | None = None
    """(N,): whether it is one of the images that are remembered of its new class; None where all are"""
    nearest: tuple[tuple[int, ...], ...] = ()
    """of each new class the known classes that it is most like, where that was looked at"""


def remembered_classes(statistics: ClassStatistics) -> tuple[Remembered, Ids]:
    """The classes that have images, as folders are sorted beside them, and their ids."""
    seen = statistics.for_readout
    present = np.flatnonzero(seen.count.numpy() > 0)
    count, mean = (some.numpy()[present].astype(np.float64) for some in (seen.count, seen.mean))
    degrees = max(int(count.sum()) - len(count), 1)
    within = mean_covariance(seen, torch.device("cpu")).numpy().astype(np.float64) * (count.sum() / degrees)
    return Remembered(count, mean, within, degrees), present


NEAREST = 2
"""known classes that a new one is said to be most like"""


def sorted_out(before: Model, points: Floats, sorter: Sorter, novel: int | None, only_new: bool) -> Look:
    """What the one model of classes makes of a folder's points ``(N, D)``.

    Where all images are new, it says how many classes there are; k-means then finds them.
    """
    known, present = remembered_classes(before.remembered)
    found = sort_folder(known, points, sorter, novel=novel, only_new=only_new)
    estimate = None if novel is not None else Count(found.novel, found.least, found.most)
    if only_new:
        none = np.zeros(len(points), dtype=bool)
        return Look(found.novel, np.full(len(points), -1), none, none, estimate)
    new = found.labels >= len(present)
    labels = np.where(new | found.strange, -1, present[np.where(new | found.strange, 0, found.labels)])
    like = np.where(np.isnan(found.likeness), -np.inf, found.likeness)[:, : len(present)]
    nearest = tuple(tuple(present[row[:NEAREST]].tolist()) for row in np.argsort(-like, axis=1, kind="stable"))
    clusters = np.where(new, found.labels - len(present), 0)
    return Look(found.novel, labels, found.strange, found.strange, estimate, clusters, found.typical, nearest)


@contextmanager
def _telling_apart(observer: Observer, images: int) -> Iterator[None]:
    """Within the block the images are told apart, by few threads; an observer hears when it begins and ends."""
    observer.sorting(images, done=False)
    try:
        with few_threads():
            yield
    finally:
        observer.sorting(images, done=True)


def look_at(inference: Inference, before: Model, images: Samples, novel: int | None, *, only_new: bool) -> Look:
    """Estimates the number of new classes, where it is None, and sorts out known ones, unless all are new."""
    none = np.zeros(len(images), dtype=bool)
    nothing = Look(novel or 0, np.full(len(images), -1), none, none, None)
    if only_new and novel is not None:
        return nothing
    if before.calibration.sorter is not None:
        shown = np.asarray(sorting_points(inference.features(images, before.network), before.network))
        with _telling_apart(inference.observer, len(images)):
            sorter = before.calibration.sorter
            return inference.runtime.processes.first(lambda: sorted_out(before, shown, sorter, novel, only_new))
    calibration, first = before.calibration, inference.runtime.processes.first
    seed = derive(inference.config.seed, "look", before.network.steps + 1)
    counted = counting_points(inference, images, before.network) if novel is None else None
    if only_new:
        assert counted is not None
        with _telling_apart(inference.observer, len(images)):
            count = first(lambda: count_classes(counted, calibration.levels, seed))
        return replace(nothing, novel=count.number, count=count)
    expected = calibration.expected
    if expected is None:
        raise AllNewHelps("this model cannot tell known classes from new ones: fit it again")
    points = sorting_points(inference.features(images, before.network), before.network)
    statistics = before.remembered.for_readout
    known, present = known_classes(statistics)
    estimated = None
    with _telling_apart(inference.observer, len(images)):
        if counted is not None:
            estimated = first(lambda: count_new_classes(known, points, counted, expected, calibration.levels, seed))
        number = estimated.number if estimated is not None else novel or 0
        found = first(lambda: tell_apart(known, points, number, seed))
    labels = np.where(found.labels < 0, -1, present[found.labels])
    return Look(number, labels, found.unsure(expected), found.strange, estimated)
