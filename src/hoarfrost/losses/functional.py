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


def cosine_pairs(features: Tensor, threshold: float) -> Tensor:
    """Whether the cosine of two images' features is above ``threshold``: ``(B, D)`` to ``(B, B)`` bool. NCL."""
    unit = unit_rows(features)
    return unit @ unit.T > threshold


def extreme_pairs(probabilities: Tensor, positives: int, negatives: int) -> Tensor:
    """For each image 1 at the most similar ones and at itself, -1 at the least similar, 0 elsewhere: ``(B, B)``.

    Similar are images with a large product of their class probabilities ``(B, C)``. Where both apply the least similar
    win, but for the image itself. ResTune.
    """
    similarity = probabilities @ probabilities.T
    size = len(similarity)
    pairs = torch.zeros_like(similarity)
    pairs.scatter_(1, similarity.topk(min(positives, size), dim=1).indices, 1.0)
    pairs.scatter_(1, similarity.topk(min(negatives, size), dim=1, largest=False).indices, -1.0)
    return pairs.diagonal_scatter(pairs.new_ones(size))


def signed_pairwise_bce(p: Tensor, pairs: Tensor) -> Tensor:
    """Binary cross-entropy of P_ij = <p_i, p_j> where ``pairs`` is 1 or -1; the others count as 0 in the mean."""
    together = p @ p.T
    losses = -torch.where(pairs > 0, together + EPSILON, 1 - together + EPSILON).log()
    return (pairs.abs() * losses).mean()


def squared_distances(points: Tensor, centres: Tensor) -> Tensor:
    """``(B, D)`` and ``(K, D)`` to ``(B, K)``."""
    lengths = points.square().sum(dim=1, keepdim=True) + centres.square().sum(dim=1)
    return (lengths - 2 * points @ centres.T).clamp(min=0)


def student_t_logits(points: Tensor, centres: Tensor) -> Tensor:
    """-log(1 + distance^2), ``(B, K)``: their softmax is Student's t of the distances, as DTC and ResTune have it."""
    return -torch.log1p(squared_distances(points, centres))


def sharpened(q: Tensor) -> Tensor:
    """The target distribution of DTC: p_ik is q_ik^2 / sum_i q_ik, scaled to 1 for each image; ``(N, K)``."""
    weighted = q.square() / q.sum(dim=0).clamp(min=EPSILON)
    return weighted / weighted.sum(dim=1, keepdim=True).clamp(min=EPSILON)


def cluster_divergence(logits: Tensor, target: Tensor) -> Tensor:
    """KL(target || softmax(logits)), as a mean over all B x K entries, as the codes of DTC and ResTune have it."""
    return (torch.xlogy(target, target) - target * logits.log_softmax(dim=1)).mean()


def neighbour_contrast(
    query: Tensor, key: Tensor, queue: Tensor, *, temperature: float, own: float, neighbours: int
) -> Tensor:
    """The unlabelled contrastive loss of NCL: an image is like its second view, and like its neighbours in the queue.

    Of the similarities to its key and to the queue, ``(B, 1 + K)``, the strongest ``neighbours`` share a target of
    1 - ``own``; the key's is ``own`` whether it is among them or not. All features have length 1.
    """
    logits = torch.cat([(query * key).sum(dim=1, keepdim=True), query @ queue.T], dim=1) / temperature
    neighbours = min(neighbours, logits.shape[1])
    target = torch.zeros_like(logits).scatter_(1, logits.topk(neighbours, dim=1).indices, (1 - own) / neighbours)
    target[:, 0] = own
    return -(target * logits.log_softmax(dim=1)).sum(dim=1).mean()


def labelled_contrast(
    query: Tensor, key: Tensor, queue: Tensor, *, labels: Tensor, queue_labels: Tensor, temperature: float
) -> Tensor:
    """The labelled contrastive loss of NCL: an image is like its second view, and like those of its class in the queue.

    Of the similarities to its key and to the queue, ``(B, 1 + K)``, the key's and those of the image's class share the
    target evenly. ``labels`` are ``(B,)``, ``queue_labels`` ``(K,)``. All features have length 1.
    """
    logits = torch.cat([(query * key).sum(dim=1, keepdim=True), query @ queue.T], dim=1) / temperature
    same = labels[:, None] == queue_labels
    alike = torch.cat([torch.ones_like(same[:, :1]), same], dim=1).to(logits.dtype)
    target = alike / alike.sum(dim=1, keepdim=True)
    return -(target * logits.log_softmax(dim=1)).sum(dim=1).mean()


def balanced_labels(logits: Tensor, rounds: int) -> Tensor:
    """Soft labels ``(B, K)`` near softmax(logits) that share the batch evenly among the K clusters (Sinkhorn-Knopp).

    Each round scales the columns to B / K, then the rows to 1. Logarithms are scaled, so that no label becomes 0 before
    it is scaled up; B / K itself has no effect, since the rows come last.
    """
    for _ in range(rounds):
        logits = (logits - logits.logsumexp(dim=0)).log_softmax(dim=1)
    return logits.softmax(dim=1)


def swapped_cross_entropy(first: Tensor, second: Tensor, first_labels: Tensor, second_labels: Tensor) -> Tensor:
    """Cross-entropy of each view's logits ``(B, K)`` with the other view's soft labels, averaged over both."""
    one = -(second_labels * first.log_softmax(dim=1)).sum(dim=1).mean()
    other = -(first_labels * second.log_softmax(dim=1)).sum(dim=1).mean()
    return (one + other) / 2


def lacking_entropy(probabilities: Tensor) -> Tensor:
    """log K less the entropy of K probabilities ``(K,)``: 0 where all are equal."""
    return math.log(len(probabilities)) + torch.xlogy(probabilities, probabilities.clamp(min=EPSILON)).sum()


def group_entropy(mean: Tensor, seen: int, between: float, among: float) -> Tensor:
    """The soft entropy regularisation of Happy: of mean probabilities ``(C,)``, the first ``seen`` of which are old.

    What entropy lacks between the sums of old and new, and within each group, scaled to 1.
    """
    groups = [mean[:seen], mean[seen:]]
    sums = torch.stack([group.sum() for group in groups])
    within = [lacking_entropy(group / whole.clamp(min=EPSILON)) for group, whole in zip(groups, sums, strict=True)]
    return between * lacking_entropy(sums) + among * torch.stack(within).sum()


def instance_contrast(points: Tensor, temperature: float) -> Tensor:
    """The contrastive loss of SimCLR (NT-Xent): ``(2B, D)`` of length 1, row i and row i + B being the same image."""
    size = len(points) // 2
    itself = torch.eye(len(points), dtype=torch.bool, device=points.device)
    logits = (points @ points.T / temperature).masked_fill(itself, -torch.inf)
    partner = torch.arange(len(points), device=points.device).roll(size)
    return F.cross_entropy(logits, partner)


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


def unit_rows(features: Tensor) -> Tensor:
    """Each image's features scaled to length 1: ``(B, D)``."""
    return F.normalize(features, dim=1)


def unit_vector(batch: Tensor) -> Tensor:
    """A batch ``(B, D)`` as one vector of length 1, whatever its size: ``(B x D,)``."""
    return F.normalize(batch.flatten(), dim=0)


def batch_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Distance of the two batches, each flattened to one vector of unit length: one number, at most 2."""
    distance: Tensor = torch.linalg.vector_norm(unit_vector(student) - unit_vector(teacher))
    return distance


def feature_distillation(student: Tensor, teacher: Tensor, form: Literal["batch", "sample", "cosine"]) -> Tensor:
    """How far the features moved from the previous model's, ``(B, D)`` each.

    ``"sample"`` is Eq. (11), the mean distance of an image's features (the paper's minus sign is a slip); ``"batch"``
    is the public code's distance of the normalised, flattened batches; ``"cosine"`` is 1 minus the mean cosine of an
    image's features.
    """
    if form == "batch":
        return batch_distance(student, teacher)
    if form == "sample":
        distances: Tensor = torch.linalg.vector_norm(student - teacher, dim=1)
        return distances.mean()
    if form == "cosine":
        return 1 - (unit_rows(student) * unit_rows(teacher)).sum(dim=1).mean()
    raise ValueError(f"feature_distillation: form must be 'batch', 'sample' or 'cosine', not '{form}'")


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
    raise ValueError(f"logit_distillation: form must be 'softmax' or 'presoftmax', not '{form}'")
