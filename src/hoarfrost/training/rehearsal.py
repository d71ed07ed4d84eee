"""Feature replay: features of classes whose images are gone, drawn from what is remembered of them."""

from __future__ import annotations

import torch
from torch import Tensor

from hoarfrost.losses.functional import unit_rows
from hoarfrost.losses.terms import Replay
from hoarfrost.models.statistics import ClassStatistics


def hardness(means: Tensor, temperature: float) -> Tensor:
    """``(S,)``: how often each class is drawn; the more like the others its mean ``(S, D)`` is, the more often (Happy).

    The softmax of the mean cosine with the other classes, divided by the temperature.
    """
    cosines = unit_rows(means) @ unit_rows(means).T
    others = (cosines.sum(dim=1) - cosines.diagonal()) / max(len(means) - 1, 1)
    return (others / temperature).softmax(dim=0)


class Rehearsal:
    """Draws features of remembered classes, on the device of training."""

    def __init__(self, statistics: ClassStatistics, term: Replay, device: torch.device) -> None:
        seen = torch.nonzero(statistics.count > 0).flatten()
        self.mean = statistics.mean[seen].to(device)
        self.deviation = statistics.deviation(term.spread)[seen].to(device)
        self.classes = seen.to(device)
        self.every = torch.arange(len(seen), device=device).repeat_interleave(term.per_class)
        self.random = term.sampling == "random"
        self.until = hardness(self.mean, term.temperature).cumsum(dim=0) if term.sampling == "hard" else None
        """(S,): up to where of [0, 1) a random number stands for each class, where some are drawn more often"""

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features ``(R, D)`` and their class ids ``(R,)``; not clamped, as in the public code."""
        rows = self.every
        if self.random:
            rows = torch.randint(len(self.classes), rows.shape, generator=generator, device=rows.device)
        if self.until is not None:
            where = torch.rand(rows.shape, generator=generator, device=rows.device)
            rows = torch.searchsorted(self.until, where).clamp(max=len(self.classes) - 1)
        noise = torch.randn((len(rows), self.mean.shape[1]), generator=generator, device=rows.device)
        return self.mean[rows] + noise * self.deviation[rows], self.classes[rows]
