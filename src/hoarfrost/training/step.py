"""One step of the optimiser. On a GPU the step is compiled, and replayed without the host in the way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from hoarfrost.computing.capture import Capture
from hoarfrost.computing.compiling import COMBINED, compiled, compiling_quietly, gc_paused
from hoarfrost.computing.rounding import Rounded
from hoarfrost.computing.runtime import Runtime
from hoarfrost.computing.sgd import Optimizer
from hoarfrost.data.sources import ImageSource, Picked
from hoarfrost.training.averaging import WeightAverage
from hoarfrost.training.objective import Objective, Outcome, Replayed


class Pass(nn.Module):
    """From picked images and random numbers to the loss: all of a step that is compiled as one."""

    def __init__(self, source: ImageSource, objective: Objective, runtime: Runtime) -> None:
        super().__init__()
        self.source, self.objective, self.runtime = source, objective, runtime

    def forward(self, picked: Picked, drawn: tuple[Tensor, ...], replayed: Replayed | None) -> Outcome:
        """The loss, the statistics, and what memories are to keep."""
        batch = self.source.batch(picked, drawn)
        with self.runtime.autocast():
            outcome: Outcome = self.objective(batch.images, batch.labels, replayed, picked[0])
        return outcome


class Stepper:
    """Steps the optimiser, batch after batch, and adds up the statistics on the device.

    ``generator`` is one for the whole stage, seeded anew for each epoch: what is replayed draws from it too.
    """

    def __init__(
        self,
        objective: Objective,
        source: ImageSource,
        optimizer: Optimizer,
        *,
        runtime: Runtime,
        steps: int,
        average: WeightAverage | None = None,
    ) -> None:
        self.objective, self.source, self.runtime, self.average = objective, source, runtime, average
        self.generator = torch.Generator(device=runtime.device)
        self.sums = torch.zeros(len(objective.statistics) + 1, device=runtime.device)
        whole = Pass(source, objective, runtime)
        self.module, self.optimizer = runtime.processes.set_up(whole), optimizer
        self.compute: Callable[..., Outcome] = self.module
        self._rounded = Rounded(objective, torch.bfloat16) if runtime.rounds else None
        self.compile_pending = runtime.compiles(steps)
        if self.compile_pending:
            options = COMBINED if objective.teacher is None else None
            self.compute = partial(compiled(Pass.forward, options=options), whole)
            if self._rounded is not None:
                self._rounded.compile()
        self._capture = Capture(self.generator) if runtime.captures else None

    @property
    def compiled(self) -> bool:
        """Whether steps are compiled: where that was tried and failed, they are not."""
        return self.compute is not self.module

    @contextmanager
    def epoch(self, seed: int) -> Iterator[None]:
        """Around the steps of an epoch. Outside of it the networks are as anybody expects them."""
        self.generator.manual_seed(seed)
        self.sums.zero_()
        with nullcontext() if self._rounded is None else self._rounded.in_use():
            yield

    def __call__(self, picked: Picked) -> None:
        """One step; nothing here waits for the device."""
        if self.compile_pending:
            self.compile_pending = False
            drawn = self.generator.get_state()
            try:
                with compiling_quietly(), gc_paused():
                    self._take(picked)
            except Exception as error:  # torch.compile needs a C++ compiler: going on without is slower, and as right
                self.compute = self.module
                if self._rounded is not None:
                    self._rounded.descend = None
                self.generator.set_state(drawn)
                self._take(picked)  # what fails here too was not the compiler's fault
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                warnings.warn(f"the training step could not be compiled and runs uncompiled: {reason}", stacklevel=2)
        else:
            self._take(picked)

    def _take(self, picked: Picked) -> None:
        if self._capture is None:
            self.step(picked)
        else:
            self._capture(self.step, picked)

    def step(self, picked: Picked) -> None:
        """The step itself: all of it is on the device."""
        self.optimizer.zero_grad()
        drawn, replayed = self.source.draw(self.generator), self.objective.draw(self.generator)
        loss, statistics, updates = self.compute(picked, drawn, replayed)
        torch.autograd.backward(loss)
        if self._rounded is None:
            self.optimizer.step()
        else:
            self._rounded.step(self.optimizer)
        if self.average is not None:
            self.average.update()
        self.objective.apply_updates(picked[0], updates)
        self.sums += statistics
