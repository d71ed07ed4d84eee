"""Calling the compiler: as often as one likes, and with all as before afterwards."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import Tensor

from hoarfrost.computing.compiling import compiled, gc_paused


def test_a_process_compiles_as_many_stages_as_it_likes() -> None:
    from torch._dynamo.testing import CompileCounter  # takes seconds, and every process of the tests reads this file

    def total(values: Tensor) -> Tensor:
        return values.sum()

    kinds = CompileCounter()
    assert [compiled(total, backend=kinds)(torch.ones(count)).item() for count in range(20)] == list(range(20))
    assert kinds.frame_count == 20


def test_garbage_is_collected_as_before_once_a_step_is_compiled() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), gc_paused():
        1 // gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()  # someone else's wish
    finally:
        gc.enable()
