"""The compiler of PyTorch: how it is called, and what goes on meanwhile."""

from __future__ import annotations

import gc
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def compiled(function: Callable[..., T], **options: Any) -> Callable[..., T]:
    """The function as the compiler makes it, for sizes that stay as they are.

    The compiler gets a copy: it makes eight kinds of one function and then no more, and a process may go through more
    stages than that.
    """
    copy = FunctionType(function.__code__.replace(), function.__globals__, closure=function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    with garbage_kept():  # the first time, this imports the compiler
        made: Callable[..., T] = torch.compile(copy, dynamic=False, **options)
    return made


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Within the block Python does not look for garbage: a compiler has millions of objects to look through."""
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


@contextmanager
def while_compiling(work: Callable[[], None]) -> Iterator[None]:
    """A thread does this work, which compiles nothing itself, while something is compiled in the block.

    It is over when what was compiled begins: where algorithms are chosen by their times, nothing else is to run then.
    """
    from torch._dynamo.callback import callback_handler as compilations

    done, interrupts = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work()
        finally:
            done.set()

    def wait(_: object = None) -> None:
        while not done.is_set():
            try:
                done.wait()
            except KeyboardInterrupt as interrupt:  # the compiler cannot go on after a callback that failed
                interrupts.append(interrupt)

    try:
        threading.Thread(target=run).start()
    except RuntimeError:  # no room for one more thread: nothing is done beside
        done.set()
    compilations.register_end_callback(wait)
    try:
        yield
    finally:
        wait()
        if wait in compilations.end_callbacks:
            compilations.remove_end_callback(wait)
        if interrupts:
            raise interrupts[0]
