"""What is remembered of images that are gone: for each class the mean and the variance of its features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hoarfrost.losses.terms import Replay


@dataclass(frozen=True)
class ClassStatistics:
    """Eq. (9) for C classes and D features, always on the CPU, stored with the model."""

    mean: Tensor
    """(C, D)"""
    variance: Tensor
    """(C, D), divided by n as the paper has it"""
    count: Tensor
    """(C,) images a class; 0 for a discovered class to which no image went"""

    def __len__(self) -> int:
        return len(self.mean)

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int) -> ClassStatistics:
        """The statistics of features ``(N, D)`` with class ids ``(N,)``; in double precision, since sums are long."""
        features, labels = features.cpu().double(), labels.cpu()
        count = torch.bincount(labels, minlength=classes)
        divisor = count.clamp(min=1)[:, None].double()
        mean = torch.zeros(classes, features.shape[1], dtype=torch.float64).index_add_(0, labels, features) / divisor
        squares = (features - mean[labels]).square()
        variance = torch.zeros_like(mean).index_add_(0, labels, squares) / divisor
        return cls(mean.float(), variance.float(), count)

    def extended(self, more: ClassStatistics) -> ClassStatistics:
        """With the classes of ``more`` behind these."""
        return ClassStatistics(
            torch.cat([self.mean, more.mean]),
            torch.cat([self.variance, more.variance]),
            torch.cat([self.count, more.count]),
        )

    def deviation(self, spread: str) -> Tensor:
        """Standard deviations ``(C, D)``: each class's own, as in Eq. (9), or "shared", their mean over the classes.

        The shared one is the public code's: from unbiased variances, with 1e-5 added to each.
        """
        if spread == "class":
            return self.variance.sqrt()
        count = self.count[:, None].to(self.variance.dtype)
        unbiased = self.variance * count / (count - 1).clamp(min=1)
        seen = self.count > 0
        shared = (unbiased[seen] + 1e-5).sqrt().mean(dim=0)
        return shared.expand_as(self.mean)


class Rehearsal:
    """Draws features of remembered classes, on the device of training."""

    def __init__(self, statistics: ClassStatistics, term: Replay, device: torch.device) -> None:
        seen = torch.nonzero(statistics.count > 0).flatten()
        self.mean = statistics.mean[seen].to(device)
        self.deviation = statistics.deviation(term.spread)[seen].to(device)
        self.classes = seen.to(device)
        self.every = torch.arange(len(seen), device=device).repeat_interleave(term.per_class)
        self.random = term.sampling == "random"

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features ``(R, D)`` and their class ids ``(R,)``; not clamped, as in the public code."""
        rows = self.every
        if self.random:
            rows = torch.randint(len(self.classes), rows.shape, generator=generator, device=rows.device)
        noise = torch.randn((len(rows), self.mean.shape[1]), generator=generator, device=rows.device)
        return self.mean[rows] + noise * self.deviation[rows], self.classes[rows]
