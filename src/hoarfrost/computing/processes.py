"""One process that trains a model, or several, on one machine or more, which ``torchrun`` or SLURM started.

The batch of the configuration is that of all processes together, and the learning rate is left as it is. Each process
computes the features of its part of a batch; the features are then brought together, and every process computes the
heads and the losses of the whole batch. So pairs, batch-wide distances and replay are those of one process. Class
statistics are counted by parts and joined. Batch normalisation is synchronised on GPUs; on CPUs, for which PyTorch has
no such thing, each process normalises by its own part, and running statistics are averaged after each epoch. Files are
written by the first process.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from hoarfrost.data.sources import WHOLE, Share
from hoarfrost.errors import InputError
from hoarfrost.launch import Launched, end_with_parent
from hoarfrost.models.statistics import Tally

T = TypeVar("T")


class Processes:
    """The processes of a run; here there is one, and nothing to share."""

    rank = 0
    count = 1
    gather: Callable[[Tensor], Tensor] | None = None
    """joins equal parts (B, D) of all processes, in training"""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def set_up(self, module: nn.Module) -> nn.Module:
        """The module, its gradients those of all processes."""
        return module

    def average_buffers(self, network: nn.Module) -> None:
        """Makes running statistics of batches those of all processes."""

    def first(self, work: Callable[[], T]) -> T:
        """Work for the first process alone: its result, or its refusal, comes to all."""
        return work()

    def share(self, batch_size: int) -> Share:
        """This process's part of each batch. The batch of the configuration is that of all processes together."""
        return WHOLE

    def part_of(self, count: int) -> range:
        """This process's part of ``count`` things: consecutive ones, as even as can be."""
        return _parts(count, self.count)[self.rank]

    def gather_rows(self, rows: Tensor, count: int) -> Tensor:
        """Joins what the processes have of ``count`` rows, each its ``part_of``."""
        return rows

    def gather_tally(self, tally: Tally) -> Tally:
        """Joins what the processes counted, in their order: the same in each."""
        return tally


class SeveralProcesses(Processes):
    """Processes that Lightning Fabric connects, by the launcher's word."""

    def __init__(self, launched: Launched, accelerator: str) -> None:
        from lightning_fabric import Fabric
        from lightning_fabric.strategies.ddp import DDPStrategy

        # Fabric gives advice on standard error; the run's records say what was used.
        logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
        self.fabric = Fabric(
            accelerator=accelerator,
            devices=launched.local,
            num_nodes=launched.machines,
            strategy=DDPStrategy(broadcast_buffers=False),  # they are averaged after each epoch
        )
        if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun is the parent: without it nobody ends its processes
            end_with_parent()
        self.fabric.launch()
        atexit.register(_leave)
        self.rank, self.count = self.fabric.global_rank, self.fabric.world_size
        self.gather = self._gather

    @property
    def device(self) -> torch.device:
        """Each process has a GPU of its own."""
        return self.fabric.device

    def set_up(self, module: nn.Module) -> nn.Module:
        """Wrapped by DDP; on GPUs batch statistics are those of the whole batch, on CPUs PyTorch has no such thing."""
        if self.device.type == "cuda":
            module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        with warnings.catch_warnings():
            # The option's new name is unknown to older versions of PyTorch.
            warnings.filterwarnings("ignore", message=".*broadcast_buffers", category=FutureWarning)
            wrapped: nn.Module = self.fabric.setup_module(module)
        return wrapped

    def average_buffers(self, network: nn.Module) -> None:
        """One sum over all that move; where batch statistics are synchronised they are equal already."""
        moving = (buffer for part in network.modules() if part.training for buffer in part.buffers(recurse=False))
        buffers = [buffer for buffer in moving if buffer.is_floating_point()]
        if not buffers:
            return
        whole = torch.cat([buffer.flatten() for buffer in buffers])
        torch.distributed.all_reduce(whole)
        whole /= self.count
        parts = whole.split([buffer.numel() for buffer in buffers])  # type: ignore[no-untyped-call]
        for buffer, part in zip(buffers, parts, strict=True):
            buffer.copy_(part.view_as(buffer))

    def first(self, work: Callable[[], T]) -> T:
        """The others wait."""
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
        """Refuses a batch that cannot be shared evenly."""
        if batch_size % self.count or batch_size < 2 * self.count:
            raise InputError(
                f"a batch of {batch_size} images cannot be shared by {self.count} processes: choose a"
                f" multiple of {self.count}, with at least two images per process"
            )
        return Share(self.rank, self.count)

    def _gather(self, rows: Tensor) -> Tensor:
        whole: Tensor = _Gathered.apply(rows, self.rank, self.count)  # type: ignore[no-untyped-call]
        return whole

    def gather_rows(self, rows: Tensor, count: int) -> Tensor:
        """Parts may differ by a row, which is filled up on the way."""
        sizes = [len(part) for part in _parts(count, self.count)]
        padded = torch.zeros(max(sizes), *rows.shape[1:], dtype=rows.dtype, device=rows.device)
        padded[: len(rows)] = rows
        parts = _all_gathered(padded, self.count)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    def gather_tally(self, tally: Tally) -> Tally:
        """A few tensors from each."""
        return tally.joined(lambda part: _all_gathered(part, self.count))


def _leave() -> None:
    """Parts from the others in order; the threads that connect them would otherwise end the process with an error."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


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
