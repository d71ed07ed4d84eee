"""On a GPU: the captured, the compiled and the plain step are one and the same. Skipped where there is none."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from hoarfrost import Learner
from hoarfrost.data.augment import Crop
from hoarfrost.data.images import ImageSet
from hoarfrost.data.sources import ImageSource, Normaliser
from hoarfrost.models.network import Network
from hoarfrost.training.observers import Entry, Observer
from hoarfrost.training.runtime import Runtime
from hoarfrost.training.step import Capture

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

STEADY = {
    "fit.epochs": 2,
    "fit.drops": [1],
    "fit.learning_rate": 0.01,
    "fit.batch_size": 32,
    "discover.epochs": 2,
    "discover.drops": [1],
    "discover.learning_rate": 0.01,
    "discover.batch_size": 32,
    "precision": "fp32",
    "image_size": 16,
}
"""a rate so small that rounding does not grow into another course"""


class Losses(Observer):
    def __init__(self) -> None:
        self.seen: list[dict[str, float]] = []

    def epoch_done(self, entry: Entry, network: Network) -> None:
        self.seen.append({"loss": entry["loss"], **entry["terms"]})


def pictures(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Blots, so that there is something to learn."""
    generator = np.random.default_rng(seed)
    blots = generator.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return blots.repeat(4, axis=1).repeat(4, axis=2)


def trained(
    monkeypatch: pytest.MonkeyPatch, *, captured: bool, compiled: Literal["on", "off"]
) -> tuple[list[dict[str, float]], dict[str, Tensor]]:
    with monkeypatch.context() as patch:
        if not captured:
            patch.setattr(Runtime, "captures", property(lambda _: False))
        losses = Losses()
        learner = Learner(backbone="resnet18", device="cuda", compiled=compiled, settings=STEADY)
        learner.fit(pictures(320, 0), np.arange(320) % 4, observer=losses)
        learner.discover(pictures(300, 1), 3, observer=losses)
    return losses.seen, {name: tensor.cpu() for name, tensor in learner.network.state_dict().items()}


@pytest.mark.parametrize(("captured", "compiled"), [(True, "off"), (False, "on"), (True, "on")])
def test_however_a_step_runs_it_learns_the_same(
    monkeypatch: pytest.MonkeyPatch, captured: bool, compiled: Literal["on", "off"]
) -> None:
    plain, expected = trained(monkeypatch, captured=False, compiled="off")
    losses, weights = trained(monkeypatch, captured=captured, compiled=compiled)
    for one, two in zip(plain, losses, strict=True):
        assert two == pytest.approx(one, rel=2e-2, abs=2e-3)
    for name, tensor in expected.items():
        if tensor.is_floating_point():
            distance = torch.linalg.vector_norm(weights[name] - tensor) / torch.linalg.vector_norm(tensor).clamp(min=1)
            assert distance < 0.02, name


def test_replayed_steps_draw_new_numbers_and_those_of_plain_ones() -> None:
    device = torch.device("cuda")
    source = ImageSource(
        ImageSet(pictures(64, 0)),
        augment=Crop(),
        views=1,
        batch_size=8,
        normaliser=Normaliser((0.5,) * 3, (0.2,) * 3, device),
        device=device,
    )

    def drawn(replayed: bool) -> list[list[float]]:
        generator = torch.Generator(device=device)
        chance = torch.zeros(8, device=device)
        found: list[list[float]] = []

        def step(picked: object) -> None:
            chance.copy_(source.draw(generator)[1])

        capture = Capture(generator)
        for epoch in range(2):
            generator.manual_seed(epoch)
            for picked in source.picks(generator):
                if replayed:
                    capture(step, picked)
                else:
                    step(picked)
                found.append(chance.tolist())
        return found

    plain, replayed = drawn(replayed=False), drawn(replayed=True)
    assert len({tuple(numbers) for numbers in replayed}) == len(replayed) == 16
    assert replayed == plain


def test_half_precision_learns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEADY, "precision", "bf16")
    full, _ = trained(monkeypatch, captured=False, compiled="off")
    half, _ = trained(monkeypatch, captured=True, compiled="on")
    for one, two in zip(full, half, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=0.05, abs=0.02)
