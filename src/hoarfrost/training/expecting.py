"""What stage one learns of folders to come, and how such a folder is looked at before anything is learned from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hoarfrost.data.rows import Rows, mapped
from hoarfrost.data.sources import FeatureSet, Samples
from hoarfrost.errors import InputError
from hoarfrost.metrics import match_clusters
from hoarfrost.models.gaussians import mean_covariance
from hoarfrost.models.model import Model
from hoarfrost.models.network import Network
from hoarfrost.models.readout import Calibration, Gaussians
from hoarfrost.models.statistics import ClassStatistics, transformed
from hoarfrost.seeding import derive
from hoarfrost.training.calibration import calibrated
from hoarfrost.training.inference import Inference
from hoarfrost.training.observers import Observer
from hoarfrost.unsorted.clusters import in_few_directions, k_means, squared_distances, typical_of
from hoarfrost.unsorted.draws import from_each
from hoarfrost.unsorted.expectations import EXPECTING, expectations
from hoarfrost.unsorted.known import KnownClasses, spanned
from hoarfrost.unsorted.mixed import count_new_classes, tell_apart
from hoarfrost.unsorted.number import LARGEST, LEAST, Count, count_classes, learned_levels

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

MOST_COUNTED, MOST_SORTED, MOST_CLASSES = 4000, 1500, 64
"""labelled images, at random, from which levels are learned; those from which it is learned what to expect of mixed
folders, and of how many classes"""
DRAWS, STARTS = 32, 8
"""times that a third of the classes is held back as new, for the temperatures; starts of k-means each time"""
TEMPERATURES = np.geomspace(0.05, 100, 120)
"""that are looked at"""


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
    fewer = as_many_of_each(own, MOST_SORTED, seed, MOST_CLASSES)
    measured = np.asarray(sorting_points(inference.features(chosen.take(fewer), network), network))
    diagonal, config = statistics.for_readout.root is None, inference.config
    how = {"diagonal": diagonal, "learned": not config.still, "shaped": not config.fixed}
    tell = _told(inference.observer, EXPECTING)
    expected = first(lambda: expectations(measured, own[fewer], seed, **how, tell=tell))
    made = Calibration(levels=levels, expected=expected)
    if not network.design.readout.by_likelihood:
        return made
    found = None
    if inference.config.still and isinstance(images, FeatureSet):
        features = np.asarray(images.take(counted).images)
        tell = _told(inference.observer, DRAWS)
        found = first(lambda: held_back_temperatures(network, torch.from_numpy(features), own, seed, tell))
    if found is None:
        return replace(made, temperature=calibrated(inference, network, images, labels, statistics))
    return replace(made, temperature=found[0], novel_temperature=found[1])


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
    if isinstance(images, FeatureSet) or inference.config.still or len(network.backbone.parts) < 2:
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


def held_back_temperatures(
    network: Network, features: Tensor, labels: Ids, seed: int, tell: Callable[[], None] = lambda: None
) -> tuple[float, float] | None:
    """Of images that look like an old class and of those that look like a new one.

    A third of the classes is held back and discovered. Of each class some images are held out; the temperature is the
    one with which their mean probability is the share that is right. None where classes are too few, or where they do
    not share one covariance. ``tell`` is called after each of the draws.
    """
    random, kind = np.random.default_rng(seed), network.design.readout
    classes = len(np.unique(labels))
    if classes < 3 or not (isinstance(kind, Gaussians) and kind.covariance == "shared"):
        return None
    old, new = classes - classes // 3, classes // 3
    draws = [_held_back(labels, old, random) for _ in range(DRAWS)]
    if any(len(draw.fitted) < old or len(draw.folder) < new for draw in draws):
        return None
    measured = np.asarray(sorting_points(features.numpy(), network))
    points, made_of = spanned(measured), partial(KnownClasses.of, features=measured.shape[1], diagonal=False)

    def scored(draw: HeldBack) -> tuple[Floats, NDArray[np.bool_]] | None:
        """Scores of what was held out, and what is right."""
        ids, folder = draw.ids, draw.folder
        known = made_of(points[draw.fitted], ids[draw.fitted])
        seen = in_few_directions(known.whitened(points[folder])[0], points.shape[1], new)
        near = -squared_distances(seen, k_means(seen, new, draw.seed, starts=STARTS))
        clusters, typical = near.argmax(axis=1), typical_of(near)
        found = made_of(points[folder[typical]], clusters[typical])
        if len(found.means) < new:  # two centres on one image
            return None
        share = typical.sum() / (len(draw.fitted) + typical.sum())
        both = replace(known.joined(found, share), ridge=kind.ridge)
        white, means = both.whitened(points[draw.tested])
        scores = -squared_distances(np.asarray(white), means) / 2  # but for what all classes have in common
        target = np.concatenate([np.arange(old), old + match_clusters(clusters, ids[folder] - old, new)])
        return scores, scores.argmax(axis=1) == target[ids[draw.tested]]

    cases = [case for case in from_each(scored, draws, size=points.size, tell=tell) if case is not None]
    if not cases:
        return None
    looks_new = [scores.argmax(axis=1) >= old for scores, _ in cases]
    temperatures = [
        _fitting(
            [scores[is_new == which] for (scores, _), is_new in zip(cases, looks_new, strict=True)],
            [right[is_new == which] for (_, right), is_new in zip(cases, looks_new, strict=True)],
        )
        for which in (False, True)
    ]
    return temperatures[0], temperatures[1]


@dataclass(frozen=True)
class HeldBack:
    """A third of the classes as new ones, at random: the last ids are theirs."""

    ids: Ids
    """(N,): of all images"""
    tested: Ids
    fitted: Ids
    folder: Ids
    """positions of what is held out, of what is learned from, and of the new ones that are discovered"""
    seed: int


def _held_back(labels: Ids, old: int, random: np.random.Generator) -> HeldBack:
    order = random.permutation(np.unique(labels))
    ids = np.argsort(order)[np.searchsorted(np.sort(order), labels)]
    members = [random.permutation(np.flatnonzero(ids == label)) for label in range(len(order))]
    cut = [max(1, len(own) // 6) for own in members]
    tested = np.concatenate([own[:first] for own, first in zip(members, cut, strict=True)])
    rest = [own[first:] for own, first in zip(members, cut, strict=True)]
    return HeldBack(ids, tested, np.concatenate(rest[:old]), np.concatenate(rest[old:]), int(random.integers(2**31)))


def _fitting(scores: list[Floats], right: list[NDArray[np.bool_]]) -> float:
    """The temperature with which the mean of the highest probabilities is the share of the images that are right."""
    share = float(np.concatenate(right).mean()) if sum(map(len, right)) else 1.0
    apart = [part.astype(np.float64) - part.max(axis=1, keepdims=True) for part in scores if len(part)]
    sure = [
        np.concatenate([1 / np.exp(part / temperature).sum(axis=1) for part in apart] or [np.ones(1)]).mean()
        for temperature in TEMPERATURES
    ]
    return float(TEMPERATURES[np.abs(np.array(sure) - share).argmin()])


@dataclass(frozen=True)
class Look:
    """What is in a folder, before anything is learned from it."""

    novel: int
    """how many classes are new"""
    known: Ids
    """(N,): the class id of what is of a known class, -1 for the others"""
    unsure: NDArray[np.bool_]
    """(N,)"""
    count: Count | None
    """how the number was estimated, if it was"""


def look_at(inference: Inference, before: Model, images: Samples, novel: int | None, *, only_new: bool) -> Look:
    """Estimates the number of new classes, where it is None, and sorts out known ones, unless all are new."""
    nothing = Look(novel or 0, np.full(len(images), -1), np.zeros(len(images), dtype=bool), None)
    if only_new and novel is not None:
        return nothing
    calibration, first = before.calibration, inference.runtime.processes.first
    seed = derive(inference.config.seed, "look", before.network.steps + 1)
    counted = counting_points(inference, images, before.network) if novel is None else None
    if only_new:
        assert counted is not None
        count = first(lambda: count_classes(counted, calibration.levels, seed))
        return replace(nothing, novel=count.number, count=count)
    expected = calibration.expected
    if expected is None:
        raise InputError(
            "this model does not say what is to be expected of folders with known classes in them: fit it again, or say"
            " that all is new (only_new=True, --only-new)"
        )
    points = sorting_points(inference.features(images, before.network), before.network)
    statistics = before.remembered.for_readout
    present = np.flatnonzero(statistics.count.numpy() > 0)
    covariance = mean_covariance(statistics, torch.device("cpu")).numpy()
    if statistics.root is None:
        covariance = covariance.diagonal()
    known = KnownClasses(statistics.mean.numpy()[present].astype(np.float64), covariance, len(covariance))
    estimated = None
    if counted is not None:
        estimated = first(lambda: count_new_classes(known, points, counted, expected, calibration.levels, seed))
    number = estimated.number if estimated is not None else novel or 0
    found = first(lambda: tell_apart(known, points, number, seed))
    return Look(number, np.where(found.labels < 0, -1, present[found.labels]), found.unsure(expected), estimated)
