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
        """The statistics of features ``(N, D)`` with class ids ``(N,)``."""
        tally = Tally(classes, features.shape[1], features.device)
        tally.add(features, labels.to(features.device))
        return tally.statistics()

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


class Tally:
    """Class statistics of features that come batch by batch; in double precision, since sums are long."""

    def __init__(self, classes: int, features: int, device: torch.device) -> None:
        self.count = torch.zeros(classes, dtype=torch.float64, device=device)
        self.mean = torch.zeros(classes, features, dtype=torch.float64, device=device)
        self.squares = torch.zeros_like(self.mean)
        """of the distances from the mean, added up"""

    def add(self, features: Tensor, labels: Tensor) -> None:
        """A batch ``(B, D)`` with class ids ``(B,)``."""
        features = features.double()
        count = torch.zeros_like(self.count).index_add_(0, labels, torch.ones_like(features[:, 0]))
        mean = torch.zeros_like(self.mean).index_add_(0, labels, features) / count.clamp(min=1)[:, None]
        squares = torch.zeros_like(self.mean).index_add_(0, labels, (features - mean[labels]).square())
        self.merge(count, mean, squares)

    def merge(self, count: Tensor, mean: Tensor, squares: Tensor) -> None:
        """What another tally counted: two means are joined by how far they lie apart."""
        whole = self.count + count
        part = (count / whole.clamp(min=1))[:, None]
        apart = mean - self.mean
        self.squares += squares + apart.square() * part * self.count[:, None]
        self.mean += apart * part
        self.count = whole

    def statistics(self) -> ClassStatistics:
        """What was counted so far."""
        variance = self.squares / self.count.clamp(min=1)[:, None]
        return ClassStatistics(self.mean.float().cpu(), variance.float().cpu(), self.count.long().cpu())


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
