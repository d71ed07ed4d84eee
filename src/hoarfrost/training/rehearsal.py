"""Feature replay: features of classes whose images are gone, drawn from what is remembered of them."""

from __future__ import annotations

import torch
from torch import Tensor

from hoarfrost.losses.terms import Replay
from hoarfrost.models.statistics import ClassStatistics


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
