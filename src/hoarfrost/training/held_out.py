"""What a model makes of images that it has not learned from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hoarfrost.config import Config
from hoarfrost.data.images import ImageSet
from hoarfrost.models.network import Network
from hoarfrost.models.readout import Known
from hoarfrost.training.inference import Inference

FOLDS = 5
HELD_BACK = FOLDS - 1
"""the part that a backbone is not tuned on, where that is scored; of a class with fewer images it is empty"""


@dataclass(frozen=True)
class HeldOut:
    """Of labelled images, what is predicted where others were learned from."""

    predicted: NDArray[np.int64]
    """(N,): a class id; -1 for what is left out: the only image of its class, and what the backbone was tuned on"""
    probability: NDArray[np.float64]
    """(N,): of that class"""
    right: NDArray[np.bool_]
    """(N,)"""

    @property
    def scored(self) -> str:
        """How many of the images are, in words."""
        count = int((self.predicted >= 0).sum())
        return f"{count} of {len(self.predicted)} images, each by what was learned from others"

    @property
    def accuracy(self) -> float:
        """Percentage of those that are not left out."""
        return 100 * float(self.right[self.predicted >= 0].mean())


def held_out(inference: Inference, network: Network, labelled: ImageSet) -> HeldOut | None:
    """Each part of the images is scored by class statistics of the others; of a tuned backbone what was held back.

    Features are computed once. None where statistics do not decide by themselves, or no image can be scored so.
    """
    kind = network.design.readout
    assert labelled.labels is not None
    labels, counts = labelled.labels, np.bincount(labelled.labels)
    parts, fold = (HELD_BACK,) if inference.config.holds_back else range(FOLDS), folds(labels)
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
    return HeldOut(predicted, probability, predicted == labels)


def held_back(config: Config, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """``(N,)``: whether stage one, which has these labels, does not train with an image."""
    return folds(labels) == HELD_BACK if config.holds_back else np.zeros(len(labels), dtype=bool)


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
