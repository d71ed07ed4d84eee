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
from hoarfrost.errors import InputError
from hoarfrost.models.gaussians import mean_covariance
from hoarfrost.models.model import Model
from hoarfrost.models.network import Network
from hoarfrost.models.readout import Calibration, Gaussians
from hoarfrost.models.statistics import ClassStatistics, transformed
from hoarfrost.seeding import derive
from hoarfrost.training.calibration import calibrated
from hoarfrost.training.inference import Inference
from hoarfrost.training.observers import Observer
from hoarfrost.unsorted.draws import few_threads
from hoarfrost.unsorted.expectations import EXPECTING, expectations
from hoarfrost.unsorted.known import KnownClasses
from hoarfrost.unsorted.mixed import count_new_classes, tell_apart
from hoarfrost.unsorted.number import LARGEST, LEAST, Count, count_classes, learned_levels
from hoarfrost.unsorted.sureness import DRAWS, held_back_sureness, old_or_new, unlike_beyond

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

MOST_COUNTED, MOST_SORTED, MOST_CLASSES = 4000, 1500, 64
"""labelled images, at random, from which levels are learned; those from which it is learned what to expect of mixed
folders, and of how many classes"""


def learn_calibration(
    inference: Inference, network: Network, images: Samples, labels: Ids, statistics: ClassStatistics
) -> Calibration:
    """From all labelled images of stage one, with their class ids ``(N,)``."""
    seed, first = derive(inference.config.seed, "expected"), inference.runtime.processes.first
    counted = share_of_each(labels, MOST_COUNTED, seed)
    chosen, own = images.take(counted), labels[counted]
    points = np.asarray(counting_points(inference, chosen, network))
    levels = first(lambda: learned_levels(points, own, seed))
    counts = np.bincount(labels)
    levels = replace(levels, images_a_class=float(np.median(counts[counts > 0])))
    config, readout, observer = inference.config, network.design.readout, inference.observer
    fixed = config.fixed_in_discovery
    made, decide, found = Calibration(), None, None
    if isinstance(readout, Gaussians) and readout.covariance == "shared" and fixed and isinstance(images, FeatureSet):
        looked_at, ridge = np.asarray(sorting_points(images.take(counted).images, network)), readout.ridge
        tell = _told(observer, DRAWS)
        found = first(lambda: held_back_sureness(looked_at, own, ridge, seed, tell))
        with few_threads():
            made = replace(made, unlike=first(lambda: unlike_beyond(looked_at, own, ridge)))
        if found is not None:
            made = replace(made, temperature=found.old, novel_temperature=found.new, novel_impurity=found.impurity)
            decide = old_or_new(found, ridge)
    if found is None and readout.by_likelihood:
        made = replace(made, temperature=calibrated(inference, network, images, labels, statistics))
    fewer = as_many_of_each(own, MOST_SORTED, seed, MOST_CLASSES)
    measured = np.asarray(sorting_points(inference.features(chosen.take(fewer), network), network))
    diagonal = statistics.for_readout.root is None
    classes = int((counts >= LEAST).sum())  # those that can be tried
    how = {"diagonal": diagonal, "learned": not fixed, "shaped": fixed and not config.fixed_in_all_stages}
    tell_more = _told(observer, EXPECTING)
    expected = first(
        lambda: expectations(measured, own[fewer], seed, classes=classes, **how, decide=decide, tell=tell_more)
    )
    return replace(made, levels=levels, expected=expected)


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
        raise InputError(
            "this model cannot tell known classes from new ones: fit it again, or say that all images are new "
            "(only_new=True, --only-new)"
        )
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
