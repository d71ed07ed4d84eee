"""A Gaussian for each class: how likely features are in each, and how far they lie from its mean.

The covariance of a class is drawn towards the mean of all: (1 - s) Sigma_c + s mean(Sigma) + r v 1, where s is how far,
v is the mean variance of a feature and r a small ridge. So a class with fewer images than features has one too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hoarfrost.errors import InputError
from hoarfrost.models.statistics import ClassStatistics

AT_ONCE = 2**25
"""numbers that are computed at once, so that memory does not grow with the number of classes"""
OF_A_PROCESSOR = 2**22
"""the same for distances, where more at once takes no less time"""


def mean_covariance(statistics: ClassStatistics, device: torch.device) -> Tensor:
    """``(D, D)`` over the classes that have images, in double precision; of variances alone where no more is kept."""
    seen = statistics.count > 0
    if statistics.root is None:
        return statistics.variance[seen].double().mean(dim=0).diag().to(device)
    if statistics.root.ndim == 2:
        return statistics.covariances(device=device)[0]
    total = sum(statistics.covariances(part, device)[seen[part].to(device)].sum(dim=0) for part in _parts(statistics))
    return torch.as_tensor(total) / seen.sum()


def _parts(statistics: ClassStatistics) -> list[slice]:
    """The classes, as many at a time as there is memory for."""
    at_once = max(1, AT_ONCE // statistics.mean.shape[1] ** 2)
    return [slice(k, k + at_once) for k in range(0, len(statistics), at_once)]


class ClassGaussians:
    """C Gaussians of D features, on a device; ``statistics`` are of the features that they are asked about."""

    def __init__(
        self, statistics: ClassStatistics, *, shrink: float, ridge: float, diagonal: bool, device: torch.device
    ) -> None:
        self.mean = statistics.mean.to(device)
        self.seen = (statistics.count > 0).to(device)
        seen = statistics.count > 0
        if not seen.any():
            raise InputError("no class has images to estimate a Gaussian from: give each class some images")
        if diagonal:
            variance = statistics.variance.to(device).double()
            between = variance[self.seen].mean(dim=0)
            variance = (1 - shrink) * variance + shrink * between + ridge * _above_zero(between)
            self.whitening = variance.rsqrt().float()
            self.log_determinant = variance.log().sum(dim=1).float()
        else:
            self._decompose(statistics, shrink, ridge)

    def _decompose(self, statistics: ClassStatistics, shrink: float, ridge: float) -> None:
        """Sets what makes features white: ``(C, D, D)``, or ``(1, D, D)`` where the classes share one."""
        device, features = self.mean.device, self.mean.shape[1]
        shared = statistics.root is not None and statistics.root.ndim == 2
        parts = [slice(None)] if shared else _parts(statistics)
        between = mean_covariance(statistics, device)
        mean_variance = _above_zero(between.diagonal())
        one = torch.eye(features, dtype=torch.float64, device=device)
        whitening, determinants = [], []
        for part in parts:
            drawn = between[None] if shared else (1 - shrink) * statistics.covariances(part, device) + shrink * between
            factor, failed = torch.linalg.cholesky_ex(drawn + ridge * mean_variance * one)
            if failed.any():
                raise InputError("the class statistics lack covariances: restore the model, or fit it again")
            whitening.append(torch.linalg.solve_triangular(factor, one.expand_as(factor), upper=False).float())
            determinants.append(2 * factor.diagonal(dim1=1, dim2=2).log().sum(dim=1).float())
        self.whitening, self.log_determinant = torch.cat(whitening), torch.cat(determinants)

    def distances(self, features: Tensor, classes: slice = slice(None)) -> Tensor:
        """``(B, c)`` squared Mahalanobis distances of features ``(B, D)`` from some classes; inf without images."""
        mean, seen, whitening = self.mean[classes], self.seen[classes], self.whitening
        shared = whitening.ndim == 3 and len(whitening) == 1
        if shared:  # features and means are whitened once each, not every pair of them
            features, mean = (points @ whitening[0].mT for points in (features, mean))
        most = OF_A_PROCESSOR if features.device.type == "cpu" else AT_ONCE
        at_once = max(1, most // max(features.numel(), 1))
        found = []
        for start in range(0, len(mean), at_once):
            part = slice(start, start + at_once)
            apart = features - mean[part, None]
            if not shared:
                weights = whitening[classes][part]
                apart = apart * weights[:, None] if weights.ndim == 2 else apart @ weights.mT
            found.append(apart.square().sum(dim=2))
        return torch.cat(found).T.masked_fill(~seen, math.inf)

    def log_likelihoods(self, features: Tensor, classes: slice = slice(None)) -> Tensor:
        """``(B, c)`` of features ``(B, D)``; -inf for a class without images."""
        return -0.5 * (self.distances(features, classes) + self._constant(classes))

    def nearest(self, log_likelihoods: Tensor, among: Tensor) -> Tensor:
        """``(B,)``: the smallest squared Mahalanobis distance of features with these log-likelihoods ``(B, C)``.

        ``among`` (C,) says which classes count.
        """
        return (-2 * log_likelihoods - self._constant()).masked_fill(~among, math.inf).amin(dim=1)

    def _constant(self, classes: slice = slice(None)) -> Tensor:
        """``(c,)`` or ``(1,)``: what -2 log-likelihood has more than the squared distance."""
        determinant = self.log_determinant if len(self.log_determinant) == 1 else self.log_determinant[classes]
        return determinant + self.mean.shape[1] * math.log(2 * math.pi)


def _above_zero(variances: Tensor) -> Tensor:
    """Their mean; a small number where nothing varies."""
    return variances.mean().clamp(min=1e-12)
