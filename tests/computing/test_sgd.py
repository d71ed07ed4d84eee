"""SGD of our own against PyTorch's, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn import Parameter

from hoarfrost.computing.sgd import SGD


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
@pytest.mark.parametrize("decay", [0.0, 1e-4])
def test_every_step_is_that_of_pytorch(momentum: float, decay: float, nesterov: bool) -> None:
    settings: dict[str, Any] = {"lr": 0.1, "momentum": momentum, "weight_decay": decay, "nesterov": nesterov}
    start = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last), torch.randn(7), torch.randn(2)
    ours, theirs = ([Parameter(tensor.clone()) for tensor in start] for _ in range(2))
    own, usual = SGD(ours, **settings), torch.optim.SGD(theirs, **settings)
    for step in range(5):
        for optimizer in (own, usual):
            optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
            optimizer.zero_grad()
        for one, other in zip(ours[:2] if step % 2 else ours, theirs, strict=False):  # the last not in every step
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        own.step()
        usual.step()
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other)
            kept, expected = own.state[one], usual.state[other]
            assert ("momentum_buffer" in kept) == (expected.get("momentum_buffer") is not None)
            if kept:
                assert torch.equal(kept["momentum_buffer"], expected["momentum_buffer"])
                assert kept["momentum_buffer"].stride() == expected["momentum_buffer"].stride()


def test_training_on_a_cpu_does_not_import_the_compiler() -> None:
    code = """
import sys, numpy as np
from hoarfrost import Learner
images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 1), dtype=np.uint8)
learner = Learner(settings={"fit.epochs": 1, "discover.epochs": 1}, device="cpu")
learner.fit(images, np.arange(8) % 2).discover(images, 2, only_new=True)
from hoarfrost.bench import Load, stage_flop
assert stage_flop(learner.config, Load(8, 2, 2), size=8, stage=1) > 0
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr
