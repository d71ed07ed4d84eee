"""What a training will take, before it begins: memory of a step, and time on a CPU."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hoarfrost.computing.arithmetic import Arithmetic
from hoarfrost.computing.runtime import Runtime
from hoarfrost.data.images import free_memory
from hoarfrost.models.network import Network

LONG = 12 * 3600
"""seconds of a stage from which somebody is told before it begins"""

LITTLE = 500_000
"""pixels of a batch up to which nothing is asked, which would take a second or two"""

QUICK = 1e15
"""operations that no CPU takes most of a day for; with fewer its rate is not measured"""

OVER_FLOOR = 2.0
"""times that training takes its multiplications alone, at least; so that nobody is warned for nothing"""


@dataclass(frozen=True)
class Forecast:
    """Of one step of the backbone, forward and backward."""

    bytes: int
    """kept from the forward pass for the backward pass"""
    flop: float


def forecast(network: Network, batch: tuple[int, int, int, int]) -> Forecast:
    """For images ``(B, C, H, W)``; nothing is computed, and no memory is taken."""
    shadow = copy.deepcopy(network).to("meta")
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            kept[id(tensor.untyped_storage())] = tensor.untyped_storage().nbytes()
        return tensor

    def give(tensor: Any) -> Any:
        return tensor

    with Arithmetic() as counted, torch.autograd.graph.saved_tensors_hooks(keep, give):
        shadow(torch.empty(batch, device="meta"))
    return Forecast(sum(kept.values()), counted.flop)


def warn_of_too_much(network: Network, batch: tuple[int, int, int, int], steps: int, runtime: Runtime) -> None:
    """Says before a stage begins that it will hardly fit into memory, or that it will take most of a day on a CPU."""
    count, _, height, width = batch
    if count * height * width <= LITTLE:
        return
    try:
        expected = forecast(network, batch)
    except Exception:  # a backbone that cannot be run without memory of its own: nothing is known
        return
    size = expected.bytes // 2 if runtime.half else expected.bytes
    on_gpu = runtime.device.type == "cuda"
    free = torch.cuda.mem_get_info(runtime.device)[0] if on_gpu else free_memory()
    images = "reduce --image-size or the batch size (--set discover.batch_size)"
    if free is not None and size > free:
        warnings.warn(
            f"a training step needs about {size / 2**30:.1f} GiB, but only {free / 2**30:.1f} GiB are free: {images}",
            stacklevel=2,
        )
    if on_gpu or expected.flop * steps < QUICK:
        return
    seconds = OVER_FLOOR * expected.flop * steps / multiplication_rate(runtime)
    if seconds > LONG:
        warnings.warn(
            f"this stage will take {seconds / 3600:.0f} hours or more on this CPU: use a GPU, --backbone small or a "
            "smaller --image-size; Ctrl-C stops it and --resume continues it",
            stacklevel=2,
        )


def multiplication_rate(runtime: Runtime) -> float:
    """Operations a second in a large multiplication of random matrices, in the precision of the networks.

    Of all processes together, as far as they have devices of their own.
    """
    on_gpu, dtype = runtime.device.type == "cuda", torch.bfloat16 if runtime.half else torch.float32
    with runtime.numerics():
        best = max(_rate(side, runtime.device, dtype) for side in ((8192,) if on_gpu else (256, 1024)))
    return best * (runtime.processes.count if on_gpu else 1)


def _rate(side: int, device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second in a product of two square matrices."""
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    best, repeats = float("inf"), (4 if device.type == "cuda" else 1)
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(repeats):
            a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, (time.perf_counter() - started) / repeats)
        if best > 1:  # some CPUs have half precision in name only
            break
    return float(2 * side**3 / best)
