"""Multiplications and additions, counted against PyTorch's own counter, which carries the backward pass out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from hoarfrost.computing.arithmetic import Arithmetic


def drawn(*shape: int, learned: bool = True) -> Tensor:
    return torch.rand(shape, requires_grad=learned)


def attended(query: Tensor, key: Tensor) -> Tensor:
    found: Tensor = torch.nn.MultiheadAttention(8, 2, batch_first=True)(query, key, key)[0]
    return found


COMPUTED: dict[str, Callable[[], Tensor]] = {
    "a convolution": lambda: F.conv2d(drawn(2, 3, 9, 7), drawn(4, 3, 3, 3), stride=2),
    "of images": lambda: F.conv2d(drawn(2, 3, 9, 7, learned=False), drawn(4, 3, 3, 3), padding=1),
    "frozen": lambda: F.conv2d(drawn(2, 3, 9, 7), drawn(4, 3, 3, 3, learned=False)),
    "a layer": lambda: torch.nn.Linear(5, 3)(drawn(2, 4, 5)),
    "products": lambda: (drawn(4, 5) @ drawn(5, 3)).matmul(drawn(3, 2, learned=False)),
    "many products": lambda: torch.bmm(drawn(2, 4, 5), drawn(2, 5, 3)),
    "by the names of arguments": lambda: F.linear(input=drawn(2, 5), weight=drawn(3, 5)),
    "added to products": lambda: torch.addmm(drawn(4, 3), drawn(4, 5), drawn(5, 3)),
    "a layer of attention": lambda: attended(drawn(2, 4, 8), drawn(2, 6, 8)),
    "a layer of attention to itself": lambda: torch.nn.TransformerEncoderLayer(8, 2, 16)(drawn(4, 2, 8)),
    "no product": lambda: drawn(4, 5).softmax(dim=1) + drawn(5),
}


@pytest.mark.parametrize("compute", COMPUTED.values(), ids=COMPUTED.keys())
def test_it_is_what_pytorch_counts(compute: Callable[[], Tensor]) -> None:
    with FlopCounterMode(display=False) as theirs:
        torch.autograd.backward(compute().sum())
    with Arithmetic() as ours:
        compute()
    assert ours.flop == theirs.get_total_flops()


def test_channel_by_channel() -> None:
    """By hand: PyTorch takes the backward pass as if every channel looked at all of them."""
    with Arithmetic() as counted:
        F.conv2d(drawn(2, 6, 9, 7), drawn(6, 1, 3, 3), groups=6)
    assert counted.flop == 3 * 2 * (2 * 6 * 7 * 5) * 9


def test_attention() -> None:
    """It is two products for each head, which PyTorch does not count on a CPU."""
    query, key, value = drawn(2, 3, 4, 8), drawn(2, 3, 6, 8), drawn(2, 3, 6, 5)
    with Arithmetic() as counted:
        F.scaled_dot_product_attention(query, key, value)
    with Arithmetic() as by_products:
        (query @ key.mT).softmax(dim=-1) @ value
    assert counted.flop == by_products.flop


def test_without_gradients_nothing_goes_backward() -> None:
    a, b = drawn(4, 5), drawn(5, 3)
    with Arithmetic() as counted, torch.no_grad():
        a @ b
    assert counted.flop == 2 * 4 * 5 * 3
