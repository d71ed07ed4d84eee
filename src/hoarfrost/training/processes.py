"""Several processes that train one model, on one machine or more: Fabric starts none, ``torchrun`` or SLURM does.

The batch of the configuration is that of all processes together, and the learning rate is left as it is. Each process
computes the features of its part of a batch; the features are then brought together, and every process computes the
heads and the losses of the whole batch. So pairs, batch-wide distances and replay are those of one process. Class
statistics are counted by parts and joined. Files are written by the first process.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch import Tensor

from hoarfrost.data.sources import Share
from hoarfrost.errors import InputError
from hoarfrost.memory import Tally

T = TypeVar("T")


@dataclass(frozen=True)
class Launched:
    """What a launcher of several processes told this one."""

    local: int = 1
    """processes on this machine"""
    machines: int = 1

    @property
    def processes(self) -> int:
        """All of them."""
        return self.local * self.machines

    @classmethod
    def detect(cls) -> Launched:
        """By ``torchrun``, by SLURM's ``srun``, or as one process."""
        if TorchElasticEnvironment.detect():
            local = int(os.environ["LOCAL_WORLD_SIZE"])
            return cls(local, int(os.environ["WORLD_SIZE"]) // local)
        if SLURMEnvironment.detect():
            machines = int(os.environ.get("SLURM_NNODES", "1"))
            return cls(int(os.environ.get("SLURM_NTASKS", "1")) // machines, machines)
        return cls()


class Processes:
    """All processes of a run, each with its part of every batch. With one process nothing here does anything."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rank: int = fabric.global_rank
        self.count: int = fabric.world_size

    @property
    def alone(self) -> bool:
        """Whether this is the only one."""
        return self.count == 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def first(self, work: Callable[[], T]) -> T:
        """Work for the first process alone: its result, or its refusal, comes to all."""
        if self.alone:
            return work()
        outcome: tuple[T | None, Exception | None] = (None, None)
        if self.is_first:
            try:
                outcome = (work(), None)
            except (InputError, OSError) as error:
                outcome = (None, error)
        result, refusal = self.fabric.broadcast(outcome)
        if refusal is not None:
            raise refusal
        return cast(T, result)

    def share(self, batch_size: int) -> Share:
        """This process's part of each batch. The batch of the configuration is that of all processes together."""
        if batch_size % self.count:
            raise InputError(
                f"a batch of {batch_size} images cannot be shared by {self.count} processes: choose a multiple"
            )
        return Share(self.rank, self.count)

    def part_of(self, count: int) -> range:
        """This process's part of ``count`` things: consecutive ones, as even as can be."""
        return _parts(count, self.count)[self.rank]

    @property
    def gather(self) -> Callable[[Tensor], Tensor] | None:
        """Joins equal parts ``(B, D)`` of all processes, in training; None where there is one process."""
        return None if self.alone else self._gather

    def _gather(self, rows: Tensor) -> Tensor:
        whole: Tensor = _Gathered.apply(rows, self.rank, self.count)  # type: ignore[no-untyped-call]
        return whole

    def gather_rows(self, rows: Tensor, count: int) -> Tensor:
        """Joins what the processes have of ``count`` rows, each its ``part_of``."""
        if self.alone:
            return rows
        sizes = [len(part) for part in _parts(count, self.count)]
        padded = torch.zeros(max(sizes), *rows.shape[1:], dtype=rows.dtype, device=rows.device)
        padded[: len(rows)] = rows
        parts = _all_gathered(padded, self.count)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    def gather_tally(self, tally: Tally) -> Tally:
        """Joins what the processes counted, in their order: the same in each."""
        if self.alone:
            return tally
        columns = (tally.count, tally.mean, tally.squares)
        whole = Tally(tally.mean.shape[0], tally.mean.shape[1], tally.mean.device)
        for count, mean, squares in zip(*(_all_gathered(column, self.count) for column in columns), strict=True):
            whole.merge(count, mean, squares)
        return whole


def _parts(count: int, processes: int) -> list[range]:
    edges = [count * number // processes for number in range(processes + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(edges)]


def _all_gathered(part: Tensor, processes: int) -> list[Tensor]:
    parts = [torch.empty_like(part) for _ in range(processes)]
    torch.distributed.all_gather(parts, part.contiguous())
    return parts


class _Gathered(torch.autograd.Function):
    """All processes compute the loss of the whole batch, and each sends its gradient into its own part.

    The gradients of all processes are averaged afterwards. Those of the heads are the same in each, so that their
    average is right; those of the backbone have to be added up, so that they are multiplied here.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, rank: int, processes: int) -> Tensor:
        ctx.rank, ctx.processes, ctx.count = rank, processes, len(rows)
        return torch.cat(_all_gathered(rows, processes))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        start = ctx.rank * ctx.count
        return gradients[0][start : start + ctx.count] * ctx.processes, None, None
