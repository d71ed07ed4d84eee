"""The bench measures what it says, on few images."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from hoarfrost.bench import Load, measure, stage_flop
from hoarfrost.cli import main
from hoarfrost.methods import get_method
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Network
from hoarfrost.recipes import get_recipe


def test_figures_fit_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--device", "cpu", "--images", "64", "--epochs", "1", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["dataset"], content["images"], content["classes"]) == ("digits", 64, [5, 5])
    assert (content["precision"], content["backbone"], content["image"]) == ("fp32", "small", [16, 16, 1])
    for stage in ("stage_one", "discovery"):
        part = content[stage]
        assert part["images_per_second"] == pytest.approx(64 / part["seconds_per_epoch"])
        assert part["times_floor"] == pytest.approx(part["seconds_per_epoch"] / part["floor_seconds"])
        rate = content["floor"]["multiplication_tflop_per_second"]
        assert part["floor_seconds"] == pytest.approx(part["tflop_per_epoch"] / rate)
    assert content["memory"]["device_peak_mib"] is None
    assert content["memory"]["host_peak_mib"] > 50
    assert content["start_up"]["to_first_step"] >= content["start_up"]["imports"]


def test_the_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "--device", "cpu", "--images", "40", "--epochs", "1", "--batch", "20", "--classes", "3-4"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "classes 3 + 4" in said
    for word in ("stage one", "discovery", "evaluation", "start-up", "memory", "bare loop", "floor"):
        assert word in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "cifar11"], "did you mean 'cifar10'"),
        (["--classes", "10"], "not of the form"),
        (["--classes", "4-3-3"], "not of the form 80-20"),
        (["--images", "0"], "expected a whole number above 0"),
        (["--device", "gpu"], "did you mean 'cuda'"),
    ],
)
def test_bad_arguments(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    try:
        code: object = main(["bench", *arguments])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert said in capsys.readouterr().err


def test_arithmetic_against_a_count_by_hand() -> None:
    """Stage one: forward, and twice that backward, but for the gradient of the images, which nobody needs."""
    config = get_recipe("digits").config(get_method("frost"), 0)
    load = Load(images=10, known=5, novel=5)
    config = replace(config, mean=(0.5,), std=(0.5,))
    counted = stage_flop(config, load, size=16, stage=0) / load.images
    network, operations = Network(build_backbone("small", 1), 5), []

    def count(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        if isinstance(module, torch.nn.Conv2d):
            area = module.kernel_size[0] * module.kernel_size[1]
            times = 2 if module.in_channels == 1 else 3
            operations.append(times * 2 * output[0].numel() * module.in_channels * area)

    for module in network.modules():
        module.register_forward_hook(count)
    network(torch.rand(1, 1, 16, 16))
    head = 3 * 2 * 64 * 5
    assert counted == pytest.approx(sum(operations) + head)


def test_discovery_needs_more_than_stage_one() -> None:
    """Two views and a teacher, with the stem and the first stage frozen."""
    config = get_recipe("digits").config(get_method("frost"), 0)
    content = measure(config, Load(images=40, known=3, novel=2), size=16, channels=1, epochs=1, device="cpu")
    assert content["discovery"]["tflop_per_epoch"] > content["stage_one"]["tflop_per_epoch"]
