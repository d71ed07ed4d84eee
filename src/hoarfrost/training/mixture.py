"""VB-CGCD's way through a folder: one mixture of all its features, from which what is old is taken out.

Dai and Chauhan, Continual Generalized Category Discovery: Learning and Forgetting from a Bayesian Perspective, ICML
2025. Deviation: the Gaussians of classes are computed from their images, where the public code takes 1,000 steps of
Adam towards the same maximum of likelihood. Its early stop is kept: `aligned`.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from hoarfrost.data.rows import chunks
from hoarfrost.data.sources import Samples
from hoarfrost.models.gaussians import mean_covariance
from hoarfrost.models.model import Model
from hoarfrost.models.readout import Gaussians
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.seeding import derive
from hoarfrost.training.expecting import Look, sorting_points
from hoarfrost.training.inference import Inference
from hoarfrost.unsorted.clusters import principal_components

Ids = NDArray[np.int64]

MOST_DIRECTIONS = 128
"""in which the mixture is fitted"""

STEPS = 10
"""on the way from the mean covariance of the known classes to each new class's own"""


def mixture_labels(points: NDArray[np.floating], components: int, seed: int) -> Ids:
    """``(N,)``: the component of a mixture of Gaussians, each with a covariance of its own, that each point is of."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    few = principal_components(points, min(MOST_DIRECTIONS, points.shape[1], len(points)))
    ridge = max(1e-6 * float(few.var(axis=0).mean()), 1e-12)
    mixture = GaussianMixture(components, random_state=seed % 2**32, reg_covar=ridge)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is only a start
        return np.asarray(mixture.fit_predict(few), dtype=np.int64)


def aligned(found: ClassStatistics, known: ClassStatistics, settings: Gaussians, *, factor: float) -> ClassStatistics:
    """New classes with covariances about as wide as those of the known ones: the early stop by determinants.

    From the mean covariance of the known classes they go towards their own, and stop before the mean of their
    determinants, on a logarithmic scale, is below that of the known ones divided by ``factor``.
    """
    root = found.for_readout.root
    if root is None or root.ndim == 2 or not (found.count > 0).any():
        return found  # there is no covariance of a class
    device = torch.device("cpu")
    between = mean_covariance(known.for_readout, device)
    least = mean_log_determinant(known, settings) - math.log(factor)
    last = found.drawn_to(between, 1.0)
    for step in range(1, STEPS + 1):
        nearer = found.drawn_to(between, 1 - step / STEPS)
        if mean_log_determinant(nearer, settings) < least:
            break
        last = nearer
    return last


def mean_log_determinant(statistics: ClassStatistics, settings: Gaussians) -> float:
    """Over the classes that have images, of the covariances by which they decide."""
    gaussians = settings.gaussians(statistics, torch.device("cpu"))
    return float(gaussians.log_determinant[gaussians.seen].mean())


def first_factor(labelled: int, seen: int, novel: int) -> float:
    """Of the first fit, to all images: all classes so far by the labelled ones.

    >>> first_factor(50, 50, 10)
    1.2
    """
    return (seen + novel) / labelled


def second_factor(seen: int, novel: int) -> float:
    """Of the second fit, to what is left: the square root of the part of the classes that is new.

    >>> second_factor(30, 10)
    0.5
    """
    return math.sqrt(novel / (seen + novel))


def look_by_mixture(inference: Inference, before: Model, images: Samples, look: Look, *, only_new: bool) -> Look:
    """The ``look`` with a new class for each image, and with the known class of what is old.

    A component for each new class is fitted to all images, old ones too. The Gaussians of its images and those of the
    known classes then decide which images are old; if that leaves too few, all are new.
    """
    network, readout = before.network, before.network.design.readout
    assert isinstance(readout, Gaussians)
    seed = derive(inference.config.seed, "mixture", network.steps + 1)
    points = np.asarray(sorting_points(inference.features(images, network), network))
    clusters = inference.runtime.processes.first(lambda: mixture_labels(points, look.novel, seed))
    whole = replace(look, clusters=clusters)
    if only_new:
        return whole
    found = inference.statistics(images, network, clusters, look.novel)
    factor = first_factor(network.labelled_classes, network.classes, look.novel)
    known = before.remembered
    both = known.extended(aligned(found, known, readout, factor=factor))
    gaussians = readout.gaussians(both, inference.runtime.device)
    rows = (torch.from_numpy(part).float().to(inference.runtime.device) for part in chunks(points))
    predicted = torch.cat([gaussians.log_likelihoods(part).argmax(dim=1) for part in rows]).cpu().numpy()
    if (predicted >= network.classes).sum() < max(look.novel, 2):
        return whole
    return replace(whole, known=np.where(predicted < network.classes, predicted, -1))
