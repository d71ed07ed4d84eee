"""What a training will take: counted without computing, and said before it begins."""

from __future__ import annotations

import warnings

import pytest
import torch

from hoarfrost.computing import forecast as module
from hoarfrost.computing.forecast import forecast, warn_of_too_much
from hoarfrost.computing.runtime import Runtime
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Network

LARGE = (16, 3, 224, 224)


def network(name: str = "small") -> Network:
    return Network(build_backbone(name, 3), 4)


def test_what_is_kept_for_the_backward_pass_is_counted() -> None:
    """Against tensors that are really kept, on a batch that fits anywhere."""
    trained, kept = network(), dict[int, int]()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        features = trained(torch.rand(4, 3, 32, 32))
    assert forecast(trained, (4, 3, 32, 32)).bytes == pytest.approx(sum(kept.values()), rel=0.1)
    assert features.requires_grad


def test_it_grows_with_the_batch_and_the_sides_and_not_with_what_is_frozen() -> None:
    one, two = forecast(network(), (4, 3, 32, 32)), forecast(network(), (8, 3, 32, 32))
    assert two.bytes == pytest.approx(2 * one.bytes, rel=0.05)
    assert two.flop == pytest.approx(2 * one.flop, rel=0.01)
    assert forecast(network(), (4, 3, 64, 64)).flop == pytest.approx(4 * one.flop, rel=0.05)
    frozen = network().requires_grad_(False)
    still = forecast(frozen, (4, 3, 32, 32))
    outputs = 4 * 16 * 16 * 16  # of the first convolution: nobody needs the gradient of the images
    assert one.flop == pytest.approx(3 * still.flop - 2 * outputs * 3 * 16)
    assert still.bytes == 0


def told(monkeypatch: pytest.MonkeyPatch, *, free: int | None, steps: int, batch: tuple[int, int, int, int]) -> str:
    monkeypatch.setattr(module, "free_memory", lambda: free)
    monkeypatch.setattr("hoarfrost.computing.forecast.multiplication_rate", lambda _: 1e11)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_too_much(network("resnet18"), batch, steps, Runtime("cpu"))
    return "; ".join(str(warning.message) for warning in caught)


def test_too_little_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(monkeypatch, free=1 << 30, steps=1, batch=LARGE)
    assert "needs about 3." in said
    assert "1.0 GiB are free" in said
    assert told(monkeypatch, free=64 << 30, steps=1, batch=LARGE) == ""
    assert told(monkeypatch, free=None, steps=1, batch=LARGE) == "", "where the system does not tell, nothing is said"


def test_most_of_a_day_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(monkeypatch, free=None, steps=10_000, batch=LARGE)
    assert "hours or more on this CPU" in said
    assert "--backbone small" in said
    assert told(monkeypatch, free=None, steps=100, batch=LARGE) == ""


def test_of_little_images_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "forecast", lambda *_: pytest.fail("it takes a second or two"))
    assert told(monkeypatch, free=1, steps=10**9, batch=(256, 3, 32, 32)) == ""
