"""What a model makes of images that it has not learned from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.images import ImageSet
from hoarfrost.models.network import Network
from hoarfrost.models.readout import Known
from hoarfrost.training.inference import Inference

FOLDS = 5
HELD_BACK = FOLDS - 1
"""the fold that a backbone which is tuned does not learn from; classes with fewer images have none in it"""


@dataclass(frozen=True)
class HeldOut:
    """Of labelled images, what is predicted where others were learned from."""

    predicted: NDArray[np.int64]
    """(N,): a class id; -1 for what is left out: the only image of its class, and what a backbone has learned from"""
    probability: NDArray[np.float64]
    """(N,): of that class"""
    right: NDArray[np.bool_]
    """(N,)"""
    scored: str
    """which of the images are, in words"""

    @property
    def accuracy(self) -> float:
        """Percentage of those that are not left out."""
        return 100 * float(self.right[self.predicted >= 0].mean())


def held_out(inference: Inference, network: Network, labelled: ImageSet) -> HeldOut | None:
    """Each part of the images is scored by class statistics of the other parts; of a tuned backbone one part alone.

    Features are computed once. None where statistics do not decide by themselves, or no image can be scored so.
    """
    kind = network.design.readout
    assert labelled.labels is not None
    labels, counts = labelled.labels, np.bincount(labelled.labels)
    parts, fold = range(FOLDS) if inference.config.fixed else (HELD_BACK,), folds(labels)
    fold[counts[labels] < 2] = FOLDS  # never scored
    if not kind.by_likelihood or not np.isin(fold, parts).any():
        return None
    samples = inference.computed_once(labelled, network)
    predicted, probability = np.full(len(labels), -1), np.zeros(len(labels))
    for number in parts:
        scored = np.flatnonzero(fold == number)
        if len(scored):
            others = np.where(fold != number, labels, -1)
            statistics = inference.statistics(samples, network, others, len(counts))
            outputs = inference.outputs(samples.take(scored), kind.read(network, Known(statistics)))
            predicted[scored], probability[scored] = outputs.predicted, outputs.probabilities.max(axis=1)
    which = "each fifth of them" if len(parts) > 1 else "a fifth of them, from which the backbone did not learn,"
    return HeldOut(predicted, probability, predicted == labels, which)


def folds(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """``(N,)``: the part that each image is in. Neighbours in a class, which may be of one scene, stay together.

    >>> folds(np.array([7, 7, 7, 7, 7, 7, 3, 3])).tolist()
    [0, 0, 1, 2, 3, 4, 0, 2]
    """
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    start, count = np.searchsorted(ordered, ordered), np.bincount(labels)[ordered]
    parts = np.empty_like(labels)
    parts[order] = (np.arange(len(labels)) - start) * FOLDS // count
    return parts
