"""How many multiplications and additions training takes, counted while it goes forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
PRODUCTS = (torch.matmul, torch.mm, torch.bmm, Tensor.matmul, Tensor.mm, Tensor.bmm, Tensor.__matmul__, F.linear)
SUMS_WITH_PRODUCTS = (torch.addmm, torch.baddbmm, Tensor.addmm, Tensor.baddbmm)


class Arithmetic(TorchFunctionMode):
    """Within its block convolutions, products of matrices and attention are counted, forward and backward.

    Backward each of them takes as much again for every factor that needs a gradient. PyTorch's own counter needs the
    backward pass too, and imports the compiler, which takes seconds. Products that are written as ``einsum`` are not
    counted.
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
        given = (*args, *(kwargs or {}).values())
        if func in CONVOLUTIONS:
            self._add(out.numel() * given[1][0].numel(), *given[:2])
        elif func in PRODUCTS:
            self._add(out.numel() * given[0].shape[-1], *given[:2])
        elif func in SUMS_WITH_PRODUCTS:
            self._add(out.numel() * given[1].shape[-1], *given[1:3])
        elif func is F.scaled_dot_product_attention:
            self._attend(*given[:3])
        elif func is F.multi_head_attention_forward:  # what it computes inside is not seen here
            query, key, value = given[:3]
            features, learned = query.shape[-1], out[0]
            for projected in (query, key, value, query):
                self._add(projected.numel() * features, learned, learned)
            # Of all heads together it is what one head of all features would take.
            self._attend(*(tensor.transpose(0, -2) for tensor in (query, key, value)), learned, learned)
        return out

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, *learned: Tensor) -> None:
        """Queries ``(..., L, D)`` by keys ``(..., S, D)``, and what comes out by values ``(..., S, E)``."""
        self._add(query.numel() * key.shape[-2], *(learned or (query, key)))
        self._add(query.numel() // query.shape[-1] * value.shape[-1] * key.shape[-2], *(learned or (query, value)))

    def _add(self, products: int, *factors: Tensor) -> None:
        needed = sum(factor.requires_grad for factor in factors) if torch.is_grad_enabled() else 0
        self.flop += 2.0 * products * (1 + needed)
