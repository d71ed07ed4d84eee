"""How many multiplications and additions training takes, counted while it goes forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
PRODUCTS = (
    torch.matmul,
    Tensor.matmul,
    Tensor.__matmul__,
    Tensor.__rmatmul__,
    torch.mm,
    torch.bmm,
    Tensor.mm,
    Tensor.bmm,
)


class Arithmetic(TorchFunctionMode):
    """Within its block convolutions, products of matrices and attention are counted, forward and backward.

    Backward each of them takes as much again for every factor that needs a gradient. PyTorch's own counter needs the
    backward pass too, and imports the compiler, which takes seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flop = 0.0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Does what is asked, and counts."""
        out = func(*args, **(kwargs or {}))
        if func in CONVOLUTIONS:
            self._count(out, args[0], args[1], terms=args[1][0].numel())
        elif func is F.linear or func in PRODUCTS:
            self._count(out, args[0], args[1], terms=args[0].shape[-1])
        elif func is F.scaled_dot_product_attention:
            query, key, value = args[:3]
            self._add(query.numel() * key.shape[-2], query, key)
            self._add(query.numel() // query.shape[-1] * value.shape[-1] * key.shape[-2], query, value)
        return out

    def _count(self, out: Tensor, *factors: Tensor, terms: int) -> None:
        """Each number of ``out`` is a sum of so many products."""
        self._add(out.numel() * terms, *factors)

    def _add(self, products: int, *factors: Tensor) -> None:
        needed = sum(factor.requires_grad for factor in factors) if torch.is_grad_enabled() else 0
        self.flop += 2.0 * products * (1 + needed)
