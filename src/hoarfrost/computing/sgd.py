"""Stochastic gradient descent on a CPU, as PyTorch has it, to the last digit.

PyTorch's own imports its compiler when it is made, which takes longer than many a training here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter


class SGD:
    """What the loop needs of ``torch.optim.SGD``: one group of parameters, and their momenta in ``state``."""

    def __init__(
        self, parameters: Iterable[Parameter], *, lr: float, momentum: float, weight_decay: float, nesterov: bool
    ) -> None:
        group = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov}
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), **group}]
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)

    def zero_grad(self) -> None:
        """No gradients, as before the first step."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Of all that have a gradient."""
        group = self.param_groups[0]
        for parameter in group["params"]:
            step = parameter.grad
            if step is None:
                continue
            if group["weight_decay"]:
                step = step.add(parameter, alpha=group["weight_decay"])
            if group["momentum"]:
                kept = self.state[parameter]
                if "momentum_buffer" in kept:
                    kept["momentum_buffer"].mul_(group["momentum"]).add_(step)
                else:
                    kept["momentum_buffer"] = step.clone()
                momentum = kept["momentum_buffer"]
                step = step.add(momentum, alpha=group["momentum"]) if group["nesterov"] else momentum
            parameter.add_(step, alpha=-group["lr"])


Optimizer = SGD | torch.optim.Optimizer
