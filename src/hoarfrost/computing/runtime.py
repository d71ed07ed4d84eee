"""Where and how a run computes: device, precision, compilation and processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from hoarfrost.computing.processes import Processes, SeveralProcesses
from hoarfrost.errors import InputError, unknown
from hoarfrost.launch import Launched

Compile = Literal["auto", "on", "off"]

COMPILE_FROM = 10_000
"""steps from which a stage is compiled: between where that pays with an empty cache of compiled code and with a filled
one, as ``benchmarks/speed.py`` finds them"""

SAVE_EVERY = 10.0
"""seconds between two checkpoints on a GPU, at least: an epoch may take less there"""

SAVE_SHARE = 0.02
"""of a GPU's time that checkpoints may take: a large network takes a while to write"""


def resolve_device(name: str) -> torch.device:
    """``auto``, ``cpu``, ``cuda`` or ``cuda:1``; auto takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    if not re.fullmatch(r"cuda(:\d+)?", name):
        raise unknown("device", "cuda" if name.lower() == "gpu" else name, ["auto", "cpu", "cuda", "cuda:0"])
    if not torch.cuda.is_available():
        raise InputError(f"device '{name}' is not available: this PyTorch sees no GPU; use --device cpu")
    device = torch.device(name)
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise InputError(f"device '{name}' does not exist: there are {torch.cuda.device_count()} GPUs, counted from 0")
    return device


def all_devices(name: str) -> tuple[str, ...]:
    """The devices among which runs of one GPU each may choose: all GPUs, unless one is named."""
    if name not in ("auto", "cuda") or resolve_device(name).type == "cpu" or torch.cuda.device_count() == 1:
        return (name,)
    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))


def memory_of(name: str) -> int | None:
    """Bytes of a GPU; None of a CPU."""
    device = resolve_device(name)
    return None if device.type == "cpu" else int(torch.cuda.get_device_properties(device).total_memory)


def driver_version() -> str | None:
    """Of NVIDIA's driver, where the system says it."""
    path = Path("/proc/driver/nvidia/version")
    found = re.search(r"(\d+(?:\.\d+)+)", path.read_text()) if path.is_file() else None
    return None if found is None else found[1]


class Runtime:
    """Where and how exactly a learner computes."""

    def __init__(
        self,
        device: str = "auto",
        precision: Literal["auto", "fp32", "bf16"] = "auto",
        compiled: Compile = "auto",
    ) -> None:
        self.device = resolve_device(device)
        self.compiled = compiled
        self.half = precision == "bf16" or (precision == "auto" and self.device.type == "cuda")
        self.processes = Processes()
        launched = Launched.detect()
        if launched.processes > 1:
            if self.device.index is not None:
                raise InputError(f"device '{device}': each of several processes gets its own GPU; use --device cuda")
            several = SeveralProcesses(launched, self.device.type)
            self.processes, self.device = several, several.device

    def autocast(self) -> torch.autocast:
        """Within the block networks compute in half precision, where that is asked for."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.half)

    @property
    def hardware(self) -> str:
        """The device in words, for the records of a run."""
        threads = torch.get_num_threads()
        one = f"CPU, {threads} thread{'' if threads == 1 else 's'}"
        if self.device.type == "cuda":
            one = torch.cuda.get_device_name(self.device)
        return one if self.processes.count == 1 else f"{self.processes.count} x {one}"

    def describe(self) -> dict[str, Any]:
        """How numbers are computed in training, as far as that may change them, for the records of a run."""
        with self.numerics():
            single = torch.get_float32_matmul_precision() == "highest" and not torch.backends.cudnn.allow_tf32
        on_gpu = self.device.type == "cuda"
        return {
            "networks": "bf16" if self.half else "fp32",
            "heads": "fp32",
            "tf32": on_gpu and not single,
            "torch": torch.__version__,
            "driver": driver_version() if on_gpu else None,
        }

    @property
    def captures(self) -> bool:
        """Whether steps are captured once and replayed."""
        return self.device.type == "cuda" and self.processes.count == 1

    @property
    def rounds(self) -> bool:
        """Whether the weights of a step are rounded to half precision all at once."""
        return self.half and self.captures

    def compiles(self, steps: int) -> bool:
        """Whether so many steps are compiled."""
        if self.processes.count > 1:
            return False
        if self.compiled == "auto":
            return self.captures and steps >= COMPILE_FROM
        return self.compiled == "on"

    def save_after(self, took: float) -> float:
        """Seconds from one checkpoint, which took so long, to the next; 0 for one after each epoch."""
        return max(SAVE_EVERY, took / SAVE_SHARE) if self.device.type == "cuda" else 0.0

    @contextmanager
    def numerics(self, *, search: bool = True) -> Iterator[None]:
        """How a GPU multiplies within the block: what is not in half precision is in true single precision, not TF32.

        With ``search`` it tries all the ways that it has for each size of a batch, which takes seconds.
        """
        if self.device.type != "cuda":
            yield
            return
        cudnn, before = torch.backends.cudnn, torch.get_float32_matmul_precision()
        flags = cudnn.benchmark, cudnn.benchmark_limit, cudnn.allow_tf32
        try:
            torch.set_float32_matmul_precision("highest")
            cudnn.benchmark, cudnn.benchmark_limit, cudnn.allow_tf32 = search, 0, False  # 0: no limit
            with torch.cuda.device(self.device):  # streams and captures are those of the current device
                yield
        finally:
            torch.set_float32_matmul_precision(before)
            cudnn.benchmark, cudnn.benchmark_limit, cudnn.allow_tf32 = flags
