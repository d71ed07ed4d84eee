"""How probable it is that images are of one class: the one number from which a folder is sorted.

In a space where the covariance within classes is 1 and that between them diag(b), an image of class c is x = m_c + e,
with m_c ~ N(0, diag(b)) and e ~ N(0, 1). The class mean is integrated out. A group of v independent images with the
mean x then has this evidence, up to what all partitions of the same images share:

    f(v, x) = 1/2 sum_d [ b_d (v x_d)^2 / (1 + v b_d) - log(1 + v b_d) ]

Real classes are no Gaussians: images come in clumps, so that n of them tell less than n independent ones. They are
taken to tell as much as n / (r n^GROWTH), where the roughness r is learned from known classes that are hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

GROWTH = 0.6
"""the power with which the images of a class that tell no more than one grow with their number"""
SPREAD = 2.0
"""the variance of one more image about the mean of its class, where that of labelled images is 1"""
TABLE = np.concatenate([[0.0], np.geomspace(1e-4, 1e7, 1200)])
"""independent images for which the logarithms are computed; they are smooth in between"""


@dataclass(frozen=True)
class Evidence:
    """Of groups of images in a space with this variance ``between`` classes."""

    between: Floats
    roughness: float
    _logarithms: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        table = -0.5 * np.log1p(np.multiply.outer(TABLE, self.between)).sum(axis=1)
        object.__setattr__(self, "_logarithms", table)

    def redundancy(self, count: Floats) -> Floats:
        """How many of ``count`` images of one class tell as much as one independent image."""
        found: Floats = self.roughness * count**GROWTH
        return found

    def of(self, independent: Floats, mean: Floats) -> Floats:
        """``(n,)``: the evidence of groups with so many independent images ``(n,)`` and means ``(n, q)``."""
        total = independent[:, None] * mean
        pull = (total * total / (1 + independent[:, None] * self.between)) @ (self.between / 2)
        found: Floats = np.interp(independent, TABLE, self._logarithms) + pull
        return found

    def gains(self, count: float, mean: Floats, counts: Floats, means: Floats) -> Floats:
        """``(n,)``: what joining a group with each of some others ``(n,)``, ``(n, q)`` gains.

        Both are looked at as parts of the class that they would be together.
        """
        whole = count + counts
        many = self.redundancy(whole)
        middle = (count * mean + counts[:, None] * means) / whole[:, None]
        apart = self.of(counts / many, means) + self.of(count / many, np.broadcast_to(mean, means.shape))
        found: Floats = self.of(whole / many, middle) - apart
        return found

    def densities(self, points: Floats, count: Floats, mean: Floats) -> Floats:
        """``(N, n)``: the logarithm of the density of points ``(N, q)`` in groups, but for a constant."""
        expected, variance = self._predicted(count, mean)
        precision = 1 / variance
        found: Floats = points @ (expected * precision).T - 0.5 * (points * points) @ precision.T
        found -= 0.5 * (np.log(variance) + expected * expected * precision).sum(axis=1)
        return found

    def own_densities(self, points: Floats, count: Floats, mean: Floats) -> Floats:
        """``(N,)``: the same of each point in a group of its own ``(N,)``, ``(N, q)``."""
        expected, variance = self._predicted(count, mean)
        found: Floats = -0.5 * (np.log(variance) + (points - expected) ** 2 / variance).sum(axis=1)
        return found

    def _predicted(self, count: Floats, mean: Floats) -> tuple[Floats, Floats]:
        """Mean and variance ``(n, q)`` of one more image of each group."""
        independent = (count / np.maximum(self.redundancy(count), 1e-12))[:, None]
        left = self.between / (1 + independent * self.between)
        return left * independent * mean, SPREAD + left
