"""How sure a readout may be: the temperature of its probabilities.

A Gaussian is kinder to the images that it was made of than to others. So each half of the images is scored by Gaussians
of the other half, and no image has to be held back. Where no discovery changes the network and one covariance decides,
`hoarfrost.sorting.hiding` says it, of new classes too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.sources import Samples
from hoarfrost.models.network import Network
from hoarfrost.models.readout import Known
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.training.inference import Inference

Ids = NDArray[np.int64]

MOST = 50_000
"""images that are looked at, evenly taken"""
TEMPERATURES = (0.05, 1e4)
"""from the lowest to the highest that is looked at"""


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
