"""Calling the compiler: what goes on meanwhile, and what is as before afterwards."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.callback import callback_handler
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.testing import CompileCounter

from hoarfrost.training.compiling import compiled, garbage_kept, while_compiling


def test_a_process_compiles_as_many_stages_as_it_likes() -> None:
    def total(values: Tensor) -> Tensor:
        return values.sum()

    kinds = CompileCounter()
    assert [compiled(total, backend=kinds)(torch.ones(count)).item() for count in range(20)] == list(range(20))
    assert kinds.frame_count == 20


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_done_while_compiling_is_done_when_the_compiled_code_begins(fails: bool) -> None:
    happened, compiles = list[str](), threading.Event()

    def work() -> None:
        assert compiles.wait(60)  # it goes on while the compiler works
        time.sleep(0.2)
        happened.append("worked")

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        happened.append("compiling")
        compiles.set()
        if fails:
            raise ValueError("no compiler")

        def run(*inputs: Tensor) -> Any:
            happened.append("runs")
            return graph.forward(*inputs)

        return run

    double = compiled(twice, backend=backend)
    with pytest.raises(BackendCompilerFailed) if fails else nullcontext(), while_compiling(work):
        assert double(torch.ones(2)).tolist() == [2, 2]
    assert happened == (["compiling", "worked"] if fails else ["compiling", "worked", "runs"])
    assert callback_handler.end_callbacks == []


def test_an_interrupt_while_waiting_leaves_the_compiler_as_it_was() -> None:
    happened, ready = list[str](), threading.Event()

    def work() -> None:
        assert ready.wait(60)
        time.sleep(0.5)  # by now it is waited for
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.5)
        happened.append("worked")

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        ready.set()
        return graph.forward

    with pytest.raises(KeyboardInterrupt), while_compiling(work):
        compiled(twice, backend=backend)(torch.ones(2))
    assert happened == ["worked"]
    torch._dynamo.reset()  # which it refuses while it takes something for unfinished


def test_where_no_thread_can_be_started_nothing_is_done_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with while_compiling(lambda: None):
        assert compiled(twice, backend="eager")(torch.ones(2)).tolist() == [2, 2]
        torch._dynamo.reset()  # takes the callbacks away
    assert callback_handler.end_callbacks == []


def twice(values: Tensor) -> Tensor:
    return values + values


def test_garbage_is_collected_as_before_once_a_step_is_compiled() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), garbage_kept():
        1 // gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with garbage_kept():
            pass
        assert not gc.isenabled()  # someone else's wish
    finally:
        gc.enable()
