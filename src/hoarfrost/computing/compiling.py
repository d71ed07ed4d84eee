"""How PyTorch's compiler is called."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeVar

import torch

T = TypeVar("T")

COMBINED = {"combo_kernels": True}
"""options of the compiler: one kernel for several little ones, where there are many"""


def compiled(function: Callable[..., T], **options: Any) -> Callable[..., T]:
    """The function as the compiler makes it, for sizes that stay as they are.

    The compiler gets a copy: it makes eight kinds of one function and then no more, and a process may go through more
    stages than that.
    """
    copy = FunctionType(function.__code__.replace(), function.__globals__, closure=function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    with gc_paused():  # the first time, this imports the compiler
        made: Callable[..., T] = torch.compile(copy, dynamic=False, **options)
    return made


@contextmanager
def gc_paused() -> Iterator[None]:
    """Within the block Python's garbage collector is paused: it would look through all that a compiler makes."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def compiling_quietly() -> Iterator[None]:
    """Without the compiler's remarks on itself."""
    log = logging.getLogger("torch._inductor")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\.")
            yield
    finally:
        log.setLevel(level)
