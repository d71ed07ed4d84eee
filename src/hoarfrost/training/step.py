"""One step of the optimiser. On a GPU the step is compiled, and replayed without the host in the way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from hoarfrost.data.sources import ImageSource, Picked
from hoarfrost.models.backbones import Conv
from hoarfrost.training.compiling import compiled, compiling_quietly, gc_paused
from hoarfrost.training.objective import Objective, Outcome, Replayed
from hoarfrost.training.runtime import Runtime

WARM_UP = 3
"""steps before the capture: libraries choose their algorithms and allocate their memory in them"""

OPTIONS = {"combo_kernels": True, "pattern_matcher": False}
"""of the compiler in stage one: one kernel for several little ones, by which it is some percent faster; no search for
patterns, which takes time and gained none. Discovery was not faster for one kernel instead of several."""


class Pass(nn.Module):
    """From picked images and random numbers to the loss: all of a step that is compiled as one."""

    def __init__(self, source: ImageSource, objective: Objective, runtime: Runtime) -> None:
        super().__init__()
        self.source, self.objective, self.runtime = source, objective, runtime

    def forward(self, picked: Picked, drawn: tuple[Tensor, ...], replayed: Replayed | None) -> Outcome:
        """The loss, the statistics, and what memories noticed."""
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
        optimizer: torch.optim.Optimizer,
        *,
        runtime: Runtime,
        steps: int,
    ) -> None:
        self.objective, self.source, self.runtime = objective, source, runtime
        self.generator = torch.Generator(device=runtime.device)
        self.sums = torch.zeros(len(objective.statistics) + 1, device=runtime.device)
        whole = Pass(source, objective, runtime)
        self.module, self.optimizer = runtime.processes.set_up(whole), optimizer
        self.compute: Callable[..., Outcome] = self.module
        self._rounded = Rounded(objective, torch.bfloat16) if runtime.rounds else None
        self.untried = runtime.compiles(steps)
        if self.untried:
            options = dict(OPTIONS) if objective.teacher is None else None
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
        if self.untried:
            self.untried = False
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
                warnings.warn(f"the step could not be compiled and runs as it is: {reason}", stacklevel=2)
        else:
            self._take(picked)

    def _take(self, picked: Picked) -> None:
        if self._capture is None:
            self.step(picked)
        else:
            self._capture(self.step, picked)

    def step(self, picked: Picked) -> None:
        """The step itself: all of it is on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        drawn, replayed = self.source.draw(self.generator), self.objective.draw(self.generator)
        loss, statistics, noticed = self.compute(picked, drawn, replayed)
        torch.autograd.backward(loss)
        if self._rounded is None:
            self.optimizer.step()
        else:
            self._rounded.step(self.optimizer)
        self.objective.note(picked[0], noticed)
        self.sums += statistics


class Rounded:
    """The weights of the convolutions in half precision, rounded all at once after each step.

    Autocast would round each by itself, and its gradient back: some forty kernels that hardly have anything to do. The
    numbers are the same.
    """

    def __init__(self, objective: Objective, dtype: torch.dtype) -> None:
        layers = [layer for layer in objective.modules() if isinstance(layer, Conv)]
        self.layers = [
            (layer, layer.weight.detach().to(dtype).requires_grad_(layer.weight.requires_grad)) for layer in layers
        ]
        trained = [(layer.weight, copy) for layer, copy in self.layers if copy.requires_grad]
        self.weights, self.copies = [weight for weight, _ in trained], [copy for _, copy in trained]
        self.descend: Callable[..., None] | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within the block the layers compute with them."""
        for layer, copy in self.layers:
            layer.rounded = copy
        try:
            yield
        finally:
            for layer, _ in self.layers:
                layer.rounded = None

    def compile(self) -> None:
        """From now on the compiler sees their part of a step as one, and need not read or write a number twice."""
        self.descend = compiled(descend)

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """A step of all weights, also of those that have no copy; the copies anew."""
        both = zip(self.weights, self.copies, strict=True)
        reached = [(weight, copy, copy.grad) for weight, copy in both if copy.grad is not None]
        weights, copies, gradients = ([parts[k] for parts in reached] for k in range(3))
        for copy in copies:
            copy.grad = None
        if self.descend is not None:
            group = optimizer.param_groups[0]
            settings = {key: group[key] for key in ("lr", "momentum", "weight_decay", "nesterov")}
            self.descend(weights, copies, gradients, momenta_of(weights, optimizer), **settings)
            optimizer.step()  # it leaves out what has no gradient
            return
        widened = [torch.empty_like(weight) for weight in weights]
        torch._foreach_copy_(widened, gradients)
        for weight, gradient in zip(weights, widened, strict=True):
            weight.grad = gradient
        optimizer.step()
        torch._foreach_copy_(copies, weights)


def descend(
    weights: list[Tensor],
    copies: list[Tensor],
    gradients: list[Tensor],
    momenta: list[Tensor],
    *,
    lr: Tensor | float,
    momentum: float,
    weight_decay: float,
    nesterov: bool,
) -> None:
    """A step of PyTorch's SGD, from gradients in half precision; the copies become the rounded weights."""
    steps = [torch.empty_like(weight) for weight in weights]
    torch._foreach_copy_(steps, gradients)
    torch._foreach_add_(steps, weights, alpha=weight_decay)
    if momentum:
        torch._foreach_mul_(momenta, momentum)
        torch._foreach_add_(momenta, steps)
        steps = list(torch._foreach_add(steps, momenta, alpha=momentum)) if nesterov else momenta
    torch._foreach_sub_(weights, torch._foreach_mul(steps, lr))
    torch._foreach_copy_(copies, weights)


def momenta_of(weights: list[Tensor], optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Where SGD keeps their momentum, from before its first step on; none where it has none."""
    if not optimizer.param_groups[0]["momentum"]:
        return []
    for weight in weights:
        if "momentum_buffer" not in optimizer.state[weight]:
            optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
    return [optimizer.state[weight]["momentum_buffer"] for weight in weights]


class Capture:
    """A CUDA graph of a step: the first steps run as they are, then one is captured and replayed from there on."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.warm_up = WARM_UP
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Picked | None = None

    def __call__(self, step: Callable[[Picked], None], picked: Picked) -> None:
        """A step on the picked images; always the same ``step``, which is not kept, as it may hold this."""
        if self.inputs is None:
            copies = {id(part): part.clone() for part in picked}  # one where indices are the pick themselves
            self.inputs = tuple(copies[id(part)] for part in picked)
        for place, part in {id(place): (place, part) for place, part in zip(self.inputs, picked, strict=True)}.values():
            place.copy_(part, non_blocking=True)
        if self.warm_up:
            self.warm_up -= 1
            self._aside(step, self.inputs)
            return
        if self.graph is None:
            self.graph = self._captured(step, self.inputs)
        self.graph.replay()

    def _aside(self, step: Callable[[Picked], None], picked: Picked) -> None:
        """On a stream of its own, as captures need it."""
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        try:
            with torch.cuda.stream(side):
                step(picked)
        finally:
            current.wait_stream(side)

    def _captured(self, step: Callable[[Picked], None], inputs: Picked) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        # Threads that read images ahead use the device too, and are no part of this.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            step(inputs)
        # On its stream the capture set the generator's numbers back; the first replay sets them anew, after that.
        current.wait_stream(side)
        return graph
