"""The device and the precision of a run, through Lightning Fabric."""

from __future__ import annotations

import logging
import re
from typing import Literal

import torch
from lightning_fabric import Fabric

from hoarfrost.errors import InputError, unknown


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


class Runtime:
    """Where and how exactly a learner computes."""

    def __init__(self, device: str = "auto", precision: Literal["auto", "fp32", "bf16"] = "auto") -> None:
        self.device = resolve_device(device)
        # Fabric announces its precision and gives advice on standard error; the run's records say what was used.
        logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
        half = precision == "bf16" or (precision == "auto" and self.device.type == "cuda")
        self.fabric = Fabric(
            accelerator=self.device.type,
            devices=1 if self.device.index is None else [self.device.index],
            precision="bf16-mixed" if half else "32-true",
        )

    @property
    def hardware(self) -> str:
        """The device in words, for the records of a run."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return f"CPU, {torch.get_num_threads()} threads"
