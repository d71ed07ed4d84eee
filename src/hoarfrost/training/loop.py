"""The one training loop: stage one and every discovery step of every method run through it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

from hoarfrost.computing.runtime import Runtime
from hoarfrost.computing.sgd import SGD, Optimizer
from hoarfrost.config import Schedule
from hoarfrost.data.sources import ImageSource
from hoarfrost.errors import InputError, out_of_memory
from hoarfrost.seeding import derive, seeded
from hoarfrost.training.averaging import WeightAverage
from hoarfrost.training.objective import Objective
from hoarfrost.training.observers import Entry, Observer
from hoarfrost.training.step import Stepper

SETTINGS = ("momentum", "weight_decay", "nesterov")
"""of a schedule, which the optimiser gets as they are"""


class Checkpoint(Protocol):
    """Where the state after each epoch goes, and comes back from."""

    def load(self) -> tuple[int, dict[str, Tensor]] | None:
        """The number of finished epochs and the tensors, or None where nothing was saved."""

    def save(self, epochs: int, tensors: dict[str, Tensor]) -> None:
        """Replaces what was saved before."""

    def damaged(self) -> InputError:
        """The error for a state that does not fit the training that it was saved from."""


def train(
    objective: Objective,
    source: ImageSource,
    schedule: Schedule,
    *,
    runtime: Runtime,
    seed: int,
    stage: int,
    key: str,
    observer: Observer,
    checkpoint: Checkpoint | None,
    decay: float = 0.0,
) -> bool:
    """Trains ``objective.student`` in place, and says whether steps were compiled.

    An epoch's random numbers depend on seed, stage and epoch alone. ``key`` names the schedule in the configuration.
    With a ``decay`` above 0 the student ends with the moving average of its weights over the steps.
    """
    trained = {name: p for name, p in objective.student.named_parameters() if p.requires_grad}
    if not trained:
        raise InputError("nothing is left to train: leave a part of the backbone or a head unfrozen")
    optimizer = build_optimizer(trained.values(), schedule, runtime.device)
    average = WeightAverage(objective.student, decay) if decay else None
    done = _restore(objective, optimizer, trained, average, checkpoint, epochs=schedule.epochs)
    steps = (schedule.epochs - done) * len(source)
    stepper = Stepper(objective, source, optimizer, runtime=runtime, steps=steps, average=average)
    objective.train()
    observer.stage_started(stage, epochs=schedule.epochs, batches=len(source), done=done)
    if stepper.compile_pending and done < schedule.epochs:
        observer.compiling()
    saved, took = time.perf_counter(), 0.0
    with runtime.numerics(search=not objective.student.backbone.pretrained):
        for epoch in range(done, schedule.epochs):
            started = time.perf_counter()
            set_learning_rate(optimizer, schedule.learning_rate_at(epoch))
            objective.set_epoch(epoch)
            purpose = ("stage", stage, "epoch", epoch)
            layers = seeded(seed, *purpose, runtime.processes.rank, on_gpu=runtime.device.type == "cuda")
            with stepper.epoch(derive(seed, *purpose)), layers:
                for picked in source.picks(stepper.generator):
                    stepper(picked)
                    observer.batch_done()
            runtime.processes.average_buffers(objective.student)
            objective.epoch_done(epoch)
            norm = torch.nn.utils.get_total_norm(parameter.detach() for parameter in trained.values())
            *values, size = torch.cat([stepper.sums, norm[None]]).tolist()  # the epoch's only wait for the device
            entry = {"stage": stage, "epoch": epoch, **_entry(objective, source, values)}
            if not math.isfinite(size) or not math.isfinite(entry["loss"]):
                raise diverged(schedule, key)
            entry |= {"learning_rate": schedule.learning_rate_at(epoch), "seconds": time.perf_counter() - started}
            observer.epoch_done(entry, objective.student)
            objective.train()
            now = time.perf_counter()
            if checkpoint is not None and now - saved >= runtime.save_after(took) and runtime.processes.is_first:
                checkpoint.save(epoch + 1, _state(objective, optimizer, trained, average))
                saved = time.perf_counter()
                took = saved - now
    optimizer.zero_grad()
    if average is not None:
        average.take_over()
    return stepper.compiled


def build_optimizer(parameters: Iterable[torch.nn.Parameter], schedule: Schedule, device: torch.device) -> Optimizer:
    """SGD. On a GPU in one kernel, its learning rate in a tensor: a replayed step has the code of one epoch only."""
    rate, settings = schedule.learning_rate, {key: getattr(schedule, key) for key in SETTINGS}
    if device.type == "cuda":
        return torch.optim.SGD(parameters, lr=torch.tensor(rate, device=device), fused=True, **settings)
    return SGD(parameters, lr=rate, **settings)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """In place where it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def diverged(schedule: Schedule, key: str) -> InputError:
    """The error for a loss that became infinite or no number; ``key`` is that of the schedule."""
    rate = f"{key}.learning_rate={schedule.learning_rate / 10:g}"
    return InputError(f"the loss became NaN or infinite: lower the learning rate, as with --set {rate}")


def _entry(objective: Objective, source: ImageSource, sums: list[float]) -> Entry:
    *values, hits = (value / len(source) for value in sums)
    loss, *losses = values
    entry: Entry = {"loss": loss, "terms": dict(zip(objective.statistics[1:], losses, strict=True))}
    if source.labels is not None:
        entry["train_accuracy"] = 100 * hits / source.batch_size
    return entry


def _state(
    objective: Objective,
    optimizer: Optimizer,
    trained: dict[str, torch.nn.Parameter],
    average: WeightAverage | None,
) -> dict[str, Tensor]:
    tensors = {f"network.{name}": tensor for name, tensor in objective.student.state_dict().items()}
    tensors |= {f"memory.{name}": tensor for name, tensor in objective.memories.state_dict().items()}
    for name, parameter in trained.items():
        buffer = optimizer.state[parameter].get("momentum_buffer")
        if buffer is not None:  # none with a momentum of 0
            tensors[f"momentum.{name}"] = buffer
    if average is not None:
        tensors |= {f"average.{name}": tensor for name, tensor in average.averages.items()}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _restore(
    objective: Objective,
    optimizer: Optimizer,
    trained: dict[str, torch.nn.Parameter],
    average: WeightAverage | None,
    checkpoint: Checkpoint | None,
    *,
    epochs: int,
) -> int:
    """Puts back what ``_state`` gave, and says how many of the epochs are done."""
    saved = checkpoint.load() if checkpoint is not None else None
    if checkpoint is None or saved is None:
        return 0
    done, tensors = saved
    if not 0 < done <= epochs or not all(tensor.isfinite().all() for tensor in tensors.values()):
        raise checkpoint.damaged()
    try:
        for prefix, part in (("network.", objective.student), ("memory.", objective.memories)):
            part.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
        for name, parameter in trained.items():
            if f"momentum.{name}" in tensors:
                # In the parameter's own memory format, as the optimiser would have made it.
                buffer = torch.empty_like(parameter, requires_grad=False).copy_(tensors[f"momentum.{name}"])
                optimizer.state[parameter]["momentum_buffer"] = buffer
        for name, tensor in ({} if average is None else average.averages).items():
            tensor.copy_(tensors[f"average.{name}"])
    except (RuntimeError, KeyError) as error:  # other names or shapes
        if out_of_memory(error):
            raise
        raise checkpoint.damaged() from error
    return done
