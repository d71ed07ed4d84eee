"""Where every random number comes from: a seed and the name of what it is for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed that depends on the run's seed and on what it is for, and on nothing else.

    Each epoch draws from a generator of its own, so that going on after an interruption needs no generator's state.

    >>> derive(0, "epoch", 1) == derive(0, "epoch", 1), derive(0, "epoch", 1) == derive(0, "epoch", 2)
    (True, False)
    """
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(device: torch.device, seed: int, *purpose: str | int) -> torch.Generator:
    """A generator on ``device`` for one purpose."""
    return torch.Generator(device=device).manual_seed(derive(seed, *purpose))


@contextmanager
def seeded(seed: int, *purpose: str | int, on_gpu: bool = False) -> Iterator[None]:
    """Seeds torch's global CPU generator inside the block, and restores it after; the current GPU's too if asked.

    Layers initialise from the first; in training dropout draws from that of its device.
    """
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if on_gpu else []):
        torch.default_generator.manual_seed(derive(seed, *purpose))
        if on_gpu:
            torch.cuda.manual_seed(derive(seed, *purpose))
        yield
