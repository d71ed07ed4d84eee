"""What is remembered of images that are gone: the mean and the variance of their class's features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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

    def first(self, classes: int) -> ClassStatistics:
        """Of the first classes alone."""
        return ClassStatistics(self.mean[:classes], self.variance[:classes], self.count[:classes])

    def extended(self, more: ClassStatistics) -> ClassStatistics:
        """With the classes of ``more`` behind these."""
        return ClassStatistics(
            torch.cat([self.mean, more.mean]),
            torch.cat([self.variance, more.variance]),
            torch.cat([self.count, more.count]),
        )

    def merged(self, stands_for: Tensor) -> ClassStatistics:
        """Where classes stand for others, ``(C,)`` ids: those together, in the place of that one; -1 leaves one out.

        A class that is part of another has no images of its own any more.
        """
        whole = Tally(len(self), self.mean.shape[1], self.mean.device)
        for columns in range(len(self)):  # one after the other: two may stand for the same
            target = int(stands_for[columns])
            if target < 0:
                continue
            count, mean, squares = (torch.zeros_like(part) for part in (whole.count, whole.mean, whole.squares))
            count[target], mean[target] = self.count[columns], self.mean[columns].double()
            squares[target] = self.variance[columns].double() * self.count[columns]
            whole.merge(count, mean, squares)
        return whole.statistics()

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
