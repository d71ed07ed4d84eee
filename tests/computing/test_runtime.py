"""Which device a name stands for."""

from __future__ import annotations

import pytest
import torch

from hoarfrost.computing.runtime import all_devices, resolve_device
from hoarfrost.errors import InputError


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """As many as the test asks for; none of them is touched."""
    count: int = request.param
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    return count


@pytest.mark.parametrize(
    ("gpus", "name", "devices"),
    [
        (0, "auto", ("auto",)),
        (0, "cpu", ("cpu",)),
        (1, "auto", ("auto",)),
        (1, "cuda", ("cuda",)),
        (3, "auto", ("cuda:0", "cuda:1", "cuda:2")),
        (3, "cuda", ("cuda:0", "cuda:1", "cuda:2")),
        (3, "cuda:1", ("cuda:1",)),
        (3, "cpu", ("cpu",)),
    ],
    indirect=["gpus"],
)
def test_runs_have_all_gpus_unless_one_is_named(gpus: int, name: str, devices: tuple[str, ...]) -> None:
    assert all_devices(name) == devices
    for device in devices:
        assert resolve_device(device).type == ("cuda" if gpus and name != "cpu" else "cpu")


@pytest.mark.parametrize(
    ("gpus", "name", "message"),
    [
        (0, "cuda", "this PyTorch sees no GPU; use --device cpu"),
        (2, "cuda:2", "there are 2 GPUs, counted from 0"),
        (2, "gpu", "did you mean 'cuda'"),
    ],
    indirect=["gpus"],
)
def test_what_is_not_there_is_refused(gpus: int, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_device(name)
