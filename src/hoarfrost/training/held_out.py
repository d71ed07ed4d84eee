"""What a model makes of images that it has not learned from, where its backbone has learned from none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.images import ImageSet
from hoarfrost.models.network import Network
from hoarfrost.models.readout import Known
from hoarfrost.training.inference import Inference

FOLDS = 5


@dataclass(frozen=True)
class HeldOut:
    """Of labelled images, what is predicted where others were learned from."""

    predicted: NDArray[np.int64]
    """(N,): a class id; -1 for the only image of its class, which is left out"""
    probability: NDArray[np.float64]
    """(N,): of that class"""
    right: NDArray[np.bool_]
    """(N,)"""

    @property
    def accuracy(self) -> float:
        """Percentage of those that are not left out."""
        return 100 * float(self.right[self.predicted >= 0].mean())


def held_out(inference: Inference, network: Network, labelled: ImageSet) -> HeldOut | None:
    """Each part of the images is scored by class statistics of the other parts.

    Features are computed once. None where statistics do not decide by themselves, or no class has two images.
    """
    kind = network.design.readout
    assert labelled.labels is not None
    labels, counts = labelled.labels, np.bincount(labelled.labels)
    if not kind.by_likelihood or not (counts > 1).any():
        return None
    samples, fold = inference.computed_once(labelled, network), folds(labels)
    fold[counts[labels] < 2] = FOLDS  # never scored
    predicted, probability = np.full(len(labels), -1), np.zeros(len(labels))
    for number in range(FOLDS):
        scored = np.flatnonzero(fold == number)
        if len(scored):
            others = np.where(fold != number, labels, -1)
            statistics = inference.statistics(samples, network, others, len(counts))
            outputs = inference.outputs(samples.take(scored), kind.read(network, Known(statistics)))
            predicted[scored], probability[scored] = outputs.predicted, outputs.probabilities.max(axis=1)
    return HeldOut(predicted, probability, predicted == labels)


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
