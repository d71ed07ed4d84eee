"""On a GPU: the captured, the compiled and the plain step are one and the same. Skipped where there is none."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from hoarfrost import Learner
from hoarfrost.computing.capture import Capture
from hoarfrost.computing.runtime import Runtime
from hoarfrost.config import Method, Schedule
from hoarfrost.data.augment import Crop
from hoarfrost.data.images import ImageSet
from hoarfrost.data.sources import ImageSource, Normaliser
from hoarfrost.methods import METHODS
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Network, grow, to_channels_last
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.training.loop import build_optimizer
from hoarfrost.training.objective import Objective, choose_trained, make_heads, sizes_of
from hoarfrost.training.step import Stepper

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.filterwarnings("error:the step could not be compiled"),
]

OURS = METHODS["hoarfrost"]
BY_NAME = {**METHODS, "fit": METHODS["frost"], "fit with contrast": OURS}

Stage = str
"""stage one, "fit", or a discovery by a method"""

STAGES = ["fit", "frost", "ncl", "ncl-labelled", "restune", "dtc-te", "fit with contrast", "hoarfrost"]
STEPS = 8
SMALL = Schedule(epochs=1, drops=(), learning_rate=1e-7)
"""A rate so small that steps do not depend on those before them. At 1e-3 it takes eight steps until weights that differ
by 1e-7 at first move apart by a quarter of the way; what is compared is which way they go, their momentum."""


def pictures(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Blots, so that there is something to learn."""
    generator = np.random.default_rng(seed)
    blots = generator.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return blots.repeat(4, axis=1).repeat(4, axis=2)


def objective_of(stage: Stage, device: torch.device) -> Objective:
    torch.manual_seed(0)
    method = BY_NAME[stage]
    teacher = to_channels_last(Network(build_backbone("resnet18", 3), 4, method.design), device)
    if stage.startswith("fit"):
        make_heads(teacher, method.stage_one, sizes_of(teacher, 32 * STEPS))
        choose_trained(teacher, frozen=(), terms=method.stage_one)
        return Objective(teacher, terms=method.stage_one).to(device)
    teacher.requires_grad_(False)
    student = to_channels_last(grow(teacher, 3), device)
    make_heads(student, method.active, sizes_of(student, 32 * STEPS))
    choose_trained(student, frozen=method.frozen, terms=method.active)
    objective = Objective(
        student,
        terms=method.active,
        images=32 * STEPS,
        labelled_images=24 * STEPS,
        teacher=teacher,
        statistics=ClassStatistics.of(torch.rand(40, 512), torch.arange(40) % 4, 4),
        clusters=torch.rand(32 * STEPS, 3).softmax(dim=1),
    )
    return objective.to(device)


def taken(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    *,
    captured: bool,
    compiled: Literal["on", "off"],
    precision: Literal["fp32", "bf16"] = "fp32",
) -> dict[str, Tensor]:
    """The momentum of each weight after some steps, and what they add up."""
    with monkeypatch.context() as patch:
        if not captured:
            patch.setattr(Runtime, "captures", property(lambda _: False))
        runtime = Runtime("cuda", precision, compiled)
        objective = objective_of(stage, runtime.device)
        objective.set_epoch(20)
        objective.train()
        labels = np.arange(32 * STEPS, dtype=np.int64) % 4
        source = ImageSource(
            ImageSet(pictures(32 * STEPS, 0), labels if stage.startswith("fit") else None, ("a", "b", "c", "d")),
            views=objective.augments(Crop()),
            batch_size=32,
            normaliser=Normaliser((0.5,) * 3, (0.25,) * 3, runtime.device),
            device=runtime.device,
            mixed_in=ImageSet(pictures(24 * STEPS, 1), labels[: 24 * STEPS], tuple("abcd"))
            if objective.mixes
            else None,
        )
        trained = {name: p for name, p in objective.student.named_parameters() if p.requires_grad}
        optimizer = build_optimizer(trained.values(), SMALL, runtime.device)
        stepper = Stepper(objective, source, optimizer, runtime=runtime, steps=STEPS)
        for epoch in range(2):  # in the second one a queue is full of images' features
            with runtime.numerics(), stepper.epoch(seed=epoch):
                for picked in source.picks(stepper.generator):
                    stepper(picked)
    return {"statistics": stepper.sums, **{name: optimizer.state[p]["momentum_buffer"] for name, p in trained.items()}}


def distances(one: dict[str, Tensor], two: dict[str, Tensor]) -> dict[str, float]:
    """For each weight, how far two momenta are apart as a part of their length."""
    assert one.keys() == two.keys()
    norm = torch.linalg.vector_norm
    return {name: (norm(one[name] - two[name]) / norm(one[name])).item() for name in one}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("captured", "compiled"), [(True, "off"), (False, "on"), (True, "on")])
def test_however_a_step_runs_it_does_the_same(
    monkeypatch: pytest.MonkeyPatch, stage: Stage, captured: bool, compiled: Literal["on", "off"]
) -> None:
    plain = taken(stage, monkeypatch, captured=False, compiled="off")
    found = taken(stage, monkeypatch, captured=captured, compiled=compiled)
    apart = distances(plain, found)
    assert max(apart.values()) < 0.05, apart
    assert min(torch.linalg.vector_norm(tensor).item() for tensor in plain.values()) > 0


@pytest.mark.parametrize("stage", ["fit", "frost"])
def test_half_precision_does_nearly_the_same(monkeypatch: pytest.MonkeyPatch, stage: Stage) -> None:
    plain = taken(stage, monkeypatch, captured=False, compiled="off", precision="bf16")
    fast = taken(stage, monkeypatch, captured=True, compiled="on", precision="bf16")
    exact = taken(stage, monkeypatch, captured=False, compiled="off")
    usual, ours = distances(exact, plain), distances(exact, fast)
    assert ours["statistics"] < 0.02
    # Rounding differs from one way to the next, but none may be further from the truth than PyTorch's own.
    assert all(ours[name] < 1.5 * usual[name] + 0.02 for name in usual), (usual, ours)


def test_replayed_steps_draw_new_numbers_and_those_of_plain_ones() -> None:
    device = torch.device("cuda")
    source = ImageSource(
        ImageSet(pictures(64, 0)),
        views=(Crop(),),
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


@pytest.mark.parametrize(
    "method",
    [
        OURS,
        replace(OURS, decides="average", weight_average=0.9),
        replace(OURS, decides="trained", frozen=("all",)),
        replace(METHODS["frost"], weight_average=0.9),
    ],
    ids=["unmoved", "average", "frozen", "averaged weights"],
)
def test_a_whole_run_learns(method: Method) -> None:
    labels = np.arange(320) % 4
    images = pictures(8, 0)[labels] ^ pictures(320, 1) % 16
    settings = {
        "fit.epochs": 6,
        "fit.drops": [],
        "discover.epochs": 6,
        "discover.drops": [],
        "discover.batch_size": 32,
        "discover.learning_rate": 0.02,  # at 0.1 FRoST forgets up to half of the classes here, on a CPU too
    }
    learner = Learner(method, "small", device="cuda", compiled="on", settings=settings).fit(images, labels)
    assert (learner.predict(images) == labels).mean() > 0.9
    learner.discover(pictures(8, 0)[4 + labels] ^ pictures(320, 2) % 16, novel=4, only_new=True)
    assert (learner.predict(images) == labels).mean() > 0.5
    assert learner.assigned is not None
    assert len(np.unique(learner.assigned)) > 1, "clusters were found"


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("sides", [(64, 64), (65, 96), (67, 71)])
def test_a_pretrained_network_sees_on_a_gpu_what_it_sees_on_a_cpu(
    sides: tuple[int, int], training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros around the image come to it in two ways."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    network = build_backbone("efficientnet-lite0", 3).train(training)
    images = torch.randn(4, 3, *sides, generator=torch.Generator().manual_seed(0))
    found = [copy.deepcopy(network).to(device)(images.to(device)).detach().cpu() for device in ("cpu", "cuda")]
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)
