"""Feature replay: features of classes whose images are gone, drawn from what is remembered of them."""

from __future__ import annotations

import torch
from torch import Tensor

from hoarfrost.losses.terms import Replay
from hoarfrost.models.statistics import ClassStatistics


class Rehearsal:
    """Draws features of remembered classes, on the device of training; some more than are rehearsed, if asked for."""

    def __init__(self, statistics: ClassStatistics, term: Replay, device: torch.device, extra_samples: int = 0) -> None:
        seen = torch.nonzero(statistics.count > 0).flatten()
        self.mean = statistics.mean[seen].to(device)
        self.deviation = statistics.deviation(term.spread)[seen].to(device)
        self.classes = seen.to(device)
        self.every = torch.arange(len(seen), device=device).repeat_interleave(term.per_class)
        self.random, self.extra_samples = term.sampling == "random", extra_samples

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features ``(R + extra, D)`` and the class ids ``(R,)`` of the first; not clamped, as in the public code."""
        rows = self.every
        if self.random:
            rows = self._any(len(rows), generator)
        drawn = torch.cat([rows, self._any(self.extra_samples, generator)]) if self.extra_samples else rows
        noise = torch.randn((len(drawn), self.mean.shape[1]), generator=generator, device=rows.device)
        return self.mean[drawn] + noise * self.deviation[drawn], self.classes[rows]

    def _any(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.randint(len(self.classes), (count,), generator=generator, device=self.classes.device)
