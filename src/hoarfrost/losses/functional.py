"""The mathematics of the losses: pure functions of tensors, each with the equation it comes from.

Equation numbers are those of the paper (Class-incremental Novel Class Discovery, ECCV 2022). Where the authors' public
code computes something else, both forms are here; ``docs/deviations.md`` says which is the default.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-7


def sigmoid_rampup(epoch: float, length: float) -> float:
    """r(t) = exp(-5 (1 - clip(t, 0, T) / T)^2), and 1 where T is 0.

    >>> round(sigmoid_rampup(0, 50), 4), sigmoid_rampup(50, 50), sigmoid_rampup(3, 0)
    (0.0067, 1.0, 1.0)
    """
    if length <= 0:
        return 1.0
    remaining = 1.0 - min(max(epoch, 0.0), length) / length
    return math.exp(-5.0 * remaining * remaining)


def rank_statistics(features: Tensor, k: int) -> Tensor:
    """Whether two images have the same set of ``k`` strongest features: Eq. (3), ``(B, D)`` to ``(B, B)`` bool.

    Between equal features the one with the lower index ranks first.
    """
    k = min(k, features.shape[1])
    # topk leaves the order of equal values open; a stable sort does not.
    strongest = features.sort(dim=1, descending=True, stable=True).indices[:, :k].sort(dim=1).values
    return (strongest[:, None, :] == strongest[None, :, :]).all(dim=2)


def pairwise_bce(p: Tensor, q: Tensor, same: Tensor) -> Tensor:
    """Binary cross-entropy over all ordered pairs, i = j included: Eq. (4) with P_ij = <p_i, q_j>.

    ``p`` and ``q`` are class probabilities ``(B, C)`` of the two views; ``same`` is ``(B, B)``, of bool.
    """
    together = p @ q.T
    return -torch.where(same.bool(), together + EPSILON, 1 - together + EPSILON).log().mean()


def pairwise_bce_logistic(a: Tensor, b: Tensor, same: Tensor) -> Tensor:
    """Eq. (4) as the paper prints it: P_ij is the logistic function of the dot product of the head's outputs."""
    return F.binary_cross_entropy_with_logits(a @ b.T, same.to(a.dtype))


def consistency(p: Tensor, q: Tensor) -> Tensor:
    """Mean squared difference between the probabilities of two views, over all B x C entries: Eq. (7)."""
    return (p - q).square().mean()


def cross_entropy(logits: Tensor, labels: Tensor, class_mean: bool = False) -> Tensor:
    """Cross-entropy, Eq. (1) and (5); ``class_mean`` divides by the number of classes as the paper prints it."""
    loss = F.cross_entropy(logits, labels)
    return loss / logits.shape[1] if class_mean else loss


def unit_vector(batch: Tensor) -> Tensor:
    """A batch ``(B, D)`` as one vector of length 1, whatever its size: ``(B x D,)``."""
    return F.normalize(batch.flatten(), dim=0)


def batch_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Distance of the two batches, each flattened to one vector of unit length: one number, at most 2."""
    distance: Tensor = torch.linalg.vector_norm(unit_vector(student) - unit_vector(teacher))
    return distance


def feature_distillation(student: Tensor, teacher: Tensor, form: Literal["batch", "sample"]) -> Tensor:
    """How far the features moved from the previous model's, ``(B, D)`` each.

    ``"sample"`` is Eq. (11), the mean distance of an image's features (the paper's minus sign is a slip); ``"batch"``
    is the public code's distance of the normalised, flattened batches.
    """
    if form == "batch":
        return batch_distance(student, teacher)
    if form == "sample":
        distances: Tensor = torch.linalg.vector_norm(student - teacher, dim=1)
        return distances.mean()
    raise ValueError(f"feature_distillation: form '{form}' is neither 'batch' nor 'sample'")


def logit_distillation(
    student: Tensor, teacher: Tensor, temperature: float, form: Literal["softmax", "presoftmax"]
) -> Tensor:
    """Learning without Forgetting on the old classes' logits, ``(B, K)`` each.

    ``"softmax"`` is Eq. (2) without its 1/K, as the public code has it: -mean_i sum_k softmax(t_i / T)_k log
    softmax(s_i / T)_k; ``"presoftmax"`` is the distance of the normalised, flattened logits, without a temperature.
    """
    if form == "softmax":
        target = (teacher / temperature).softmax(dim=1)
        return -(target * (student / temperature).log_softmax(dim=1)).sum(dim=1).mean()
    if form == "presoftmax":
        return batch_distance(student, teacher)
    raise ValueError(f"logit_distillation: form '{form}' is neither 'softmax' nor 'presoftmax'")
