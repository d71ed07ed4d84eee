"""A step as a CUDA graph: captured once, then replayed without the host in the way."""

from __future__ import annotations

from collections.abc import Callable

import torch

from hoarfrost.data.sources import Picked

WARM_UP = 3
"""steps before the capture: libraries choose their algorithms and allocate their memory in them"""


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
