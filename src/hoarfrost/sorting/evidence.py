"""How probable it is that images are of one class: the one number from which a folder is sorted.

In a space where the covariance within classes is 1 and that between them diag(b), an image of class c is

    x = m_c + g + e,   m_c ~ N(0, diag(b)),   g ~ N(0, clumping),   e ~ N(0, roughness)

with one g for images that lie together in a clump: a class is no Gaussian, and many of its images say less than
independent ones would. So the mean of a group of n images tells its class mean as exactly as n / (1 + n r) independent
images do, where r = clumping / roughness. Class means are integrated out. What is left of a group with so many
effective images n and the mean x is its evidence, up to what all partitions of the same images share:

    f = sum_d [ -1/2 log(1 + n b_d / t) + 1/2 (b_d / t^2) (n x_d)^2 / (1 + n b_d / t) ],   t = roughness
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

TABLE = np.concatenate([[0.0], np.geomspace(1e-4, 1e7, 1200)])
"""effective images for which the logarithms are computed; they are smooth in between"""


@dataclass(frozen=True)
class Roughness:
    """How far classes are from Gaussians; learned from known classes that are hidden."""

    scatter: float
    """times the covariance within classes: how far images scatter about their clump"""
    clumping: float
    """the same of clumps about the mean of their class"""

    def effective(self, count: Floats) -> Floats:
        """So many independent images would tell as much of a class as ``count`` images of one group do."""
        found: Floats = count / (1 + count * self.clumping / self.scatter)
        return found


@dataclass(frozen=True)
class Evidence:
    """Of groups of images in a space with this variance ``between`` classes."""

    between: Floats
    roughness: Roughness
    _logarithms: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        table = -0.5 * np.log1p(np.multiply.outer(TABLE, self.between / self.roughness.scatter)).sum(axis=1)
        object.__setattr__(self, "_logarithms", table)

    def of(self, effective: Floats, mean: Floats) -> Floats:
        """``(n,)``: the evidence of groups with so many effective images ``(n,)`` and means ``(n, q)``."""
        ratio = self.between / self.roughness.scatter
        total = effective[:, None] * mean
        pull = (total * total / (1 + effective[:, None] * ratio)) @ (ratio / (2 * self.roughness.scatter))
        found: Floats = np.interp(effective, TABLE, self._logarithms) + pull
        return found

    def densities(self, points: Floats, effective: Floats, mean: Floats) -> Floats:
        """``(N, n)``: the logarithm of the density of points ``(N, q)`` in groups, but for a constant."""
        expected, variance = self._predicted(effective, mean)
        precision = 1 / variance
        found: Floats = points @ (expected * precision).T - 0.5 * (points * points) @ precision.T
        found -= 0.5 * (np.log(variance) + expected * expected * precision).sum(axis=1)
        return found

    def own_densities(self, points: Floats, effective: Floats, mean: Floats) -> Floats:
        """``(N,)``: the same of each point in a group of its own ``(N,)``, ``(N, q)``."""
        expected, variance = self._predicted(effective, mean)
        found: Floats = -0.5 * (np.log(variance) + (points - expected) ** 2 / variance).sum(axis=1)
        return found

    def _predicted(self, effective: Floats, mean: Floats) -> tuple[Floats, Floats]:
        """Mean and variance ``(n, q)`` of one more image of each group."""
        scatter, clumping = self.roughness.scatter, self.roughness.clumping
        told = self.between / (scatter + effective[:, None] * self.between)
        return told * effective[:, None] * mean, scatter + clumping + scatter * told
