"""How sure a readout may be: the temperature of its probabilities.

A Gaussian is kinder to the images that it was made of than to others. So each half of the images is scored by Gaussians
of the other half, and no image has to be held back. Where features never change, known classes are held back as if they
were new, which says how sure one may be of those too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.sources import Samples
from hoarfrost.data.unsure import UNSURE_BELOW
from hoarfrost.metrics import match_clusters
from hoarfrost.models.network import Network
from hoarfrost.models.readout import Gaussians, Known, ReadoutKind
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.training.inference import Inference
from hoarfrost.unsorted.draws import from_each
from hoarfrost.unsorted.expectations import Decide
from hoarfrost.unsorted.known import KnownClasses, spanned, with_clusters

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

MOST = 50_000
"""images that are looked at, evenly taken"""
TEMPERATURES = (0.05, 1e4)
"""from the lowest to the highest that is looked at"""
DRAWS = 32
"""times that a third of the classes is held back as new"""
UNLIKE, PARTS = 2.0, 6
"""times the median squared distance of held-out images of known classes: what lies farther off is unlike everything;
and in how many parts they are held out"""
LOOKED_AT = np.geomspace(0.05, 100, 120)
"""temperatures, where classes are held back"""


def calibrated(
    inference: Inference,
    network: Network,
    images: Samples,
    labels: Ids,
    statistics: ClassStatistics,
    before: ClassStatistics | None = None,
) -> float:
    """The temperature, from images with class ids ``(N,)``, -1 for none. Those of ``before`` are known already.

    ``statistics`` are of the other classes, from all of the images.
    """
    first = 0 if before is None else len(before)
    kind = network.design.readout
    labelled = np.flatnonzero(labels >= first)
    chosen = labelled[np.linspace(0, len(labelled) - 1, min(len(labelled), MOST)).astype(np.int64)]
    images, labels = inference.computed_once(images.take(chosen), network), labels[chosen]
    half = alternating(labels)
    halves = [np.flatnonzero(half == number) for number in (0, 1)]
    if not all(map(len, halves)):
        return 1.0
    scores, true = [], []
    for scored, counted in (halves, halves[::-1]):
        found = inference.statistics(images.take(counted), network, labels[counted] - first, len(statistics))
        readout = kind.read(network, Known(found if before is None else before.extended(found)))
        scores.append(inference.outputs(images.take(scored), readout).scores)
        true.append(labels[scored])
    return fitted_temperature(np.concatenate(scores), np.concatenate(true))


def alternating(labels: Ids) -> Ids:
    """``(N,)``: 0 and 1 by turns, within each class.

    >>> alternating(np.array([5, 5, 2, 5, 2])).tolist()
    [0, 1, 0, 0, 1]
    """
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    half = np.empty_like(labels)
    half[order] = (np.arange(len(labels)) - np.searchsorted(ordered, ordered)) % 2
    return half


def fitted_temperature(scores: NDArray[np.float32], true: Ids) -> float:
    """The one with which the softmax of ``scores`` (N, C) gives the true classes (N,) the highest likelihood.

    N images that are all right do not show that errors never happen: as in Platt's scaling the truth is taken for
    right with a probability of (N + 1) / (N + 2), and for any other class with the rest. An image whose class has no
    score is left out.
    """
    from scipy.optimize import minimize_scalar

    own = scores[np.arange(len(true)), true]
    usable = np.isfinite(own)
    if not usable.any():
        return 1.0
    apart = scores[usable].astype(np.float64) - own[usable, None]
    finite = np.isfinite(apart)
    others = np.where(finite, apart, 0).sum(axis=1) / np.maximum(finite.sum(axis=1) - 1, 1)
    pull = float(others.mean()) / (len(apart) + 2)

    def loss(log_temperature: float) -> float:
        temperature = np.exp(log_temperature)
        return float(np.logaddexp.reduce(apart / temperature, axis=1).mean() - pull / temperature)

    bounds = tuple(np.log(TEMPERATURES).tolist())
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4}).x))


def held_back_temperatures(
    measured: Floats, labels: Ids, kind: ReadoutKind, seed: int, tell: Callable[[], None]
) -> tuple[float, float] | None:
    """Of images that look like an old class and of those that look like a new one, from features as a readout of this
    ``kind`` looks at them ``(N, D)``, and class ids.

    A third of the classes is held back and discovered. Of each class some images are held out; the temperature is the
    one with which their mean probability is the share that is right. None where classes are too few, or where they do
    not share one covariance. ``tell`` is called after each of the draws.
    """
    several = np.bincount(labels)[labels] > 1  # one is held out, one is left
    measured, labels = measured[several], labels[several]
    random, classes = np.random.default_rng(seed), len(np.unique(labels))
    if classes < 3 or not (isinstance(kind, Gaussians) and kind.covariance == "shared"):
        return None
    old, new = classes - classes // 3, classes // 3
    draws = [_held_back(labels, old, random) for _ in range(DRAWS)]
    points, made_of = spanned(measured), partial(KnownClasses.of, features=measured.shape[1], diagonal=False)

    def scored(draw: HeldBack) -> tuple[Floats, NDArray[np.bool_]] | None:
        """Scores of what was held out, and what is right."""
        ids, folder = draw.ids, draw.folder
        known = made_of(points[draw.fitted], ids[draw.fitted])
        found = with_clusters(known, len(draw.fitted), points[folder], new, draw.seed)
        if found is None:
            return None
        both, clusters = found
        scores = replace(both, ridge=kind.ridge).scores(points[draw.tested])
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


def unlike_beyond(measured: Floats, labels: Ids, ridge: float) -> float | None:
    """The squared distance from the nearest class beyond which an image is unlike everything, from features as a
    readout with this ``ridge`` looks at them ``(N, D)``, and class ids.

    Each part of the images is compared with classes that are made of the others. None where those would have next to
    nothing that says how their images vary.
    """
    order = np.argsort(labels, kind="stable")
    part = np.empty_like(labels)
    part[order] = np.arange(len(labels)) % PARTS
    points, classes = spanned(measured), len(np.unique(labels))
    if len(labels) * (PARTS - 1) / PARTS < 2 * classes:
        return None

    def distances(number: int) -> Floats:
        rest = part != number
        known = KnownClasses.of(points[rest], labels[rest], features=measured.shape[1], diagonal=False)
        scores = replace(known, ridge=ridge).scores(points[~rest])
        found: Floats = -2 * scores.max(axis=1)
        return found

    usual = float(np.median(np.concatenate([distances(number) for number in range(PARTS)])))
    return UNLIKE * usual if usual > 0 else None


def old_or_new(of_old: float, of_new: float, ridge: float) -> Decide:
    """What a readout with these temperatures, and with this ridge, takes points for."""

    def decide(classes: KnownClasses, points: Floats, old: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        scores = replace(classes, ridge=ridge).scores(points)
        is_new = scores.argmax(axis=1) >= old
        return is_new, _highest(scores / np.where(is_new, of_new, of_old)[:, None]) >= UNSURE_BELOW

    return decide


def _highest(scores: Floats) -> Floats:
    """``(N,)``: the highest probability of each row."""
    found: Floats = 1 / np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)
    return found


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
    some = [part for part in scores if len(part)]
    sure = [
        np.concatenate([_highest(part / temperature) for part in some] or [np.ones(1)]).mean()
        for temperature in LOOKED_AT
    ]
    return float(LOOKED_AT[np.abs(np.array(sure) - share).argmin()])
