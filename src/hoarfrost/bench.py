"""How fast and how large: the real loop on made-up images, against the arithmetic that it cannot do without."""

from __future__ import annotations

import resource
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from hoarfrost.computing.arithmetic import Arithmetic
from hoarfrost.computing.forecast import multiplication_rate
from hoarfrost.computing.runtime import Compile, Runtime, resolve_device
from hoarfrost.config import Config, Schedule
from hoarfrost.data.images import ImageSet
from hoarfrost.data.sources import Normaliser
from hoarfrost.errors import InputError
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Network, grow, to_channels_last
from hoarfrost.training.learner import Learner
from hoarfrost.training.objective import Objective, choose_trained, make_heads, sizes_of
from hoarfrost.training.observers import Entry, Observer
from hoarfrost.training.resolve import resolve


@dataclass(frozen=True)
class Load:
    """How much there is to learn."""

    images: int
    """in each stage"""
    known: int
    novel: int


LOADS: dict[str, Load] = {
    "digits": Load(900, 5, 5),
    "cifar10": Load(25_000, 5, 5),
    "cifar100": Load(40_000, 80, 20),
    "tiny-imagenet": Load(90_000, 180, 20),
}
"""the numbers of the paper's splits; discovery gets as many images as stage one"""


class Clock(Observer):
    """Notes when the first epoch began, and how long each took."""

    def __init__(self) -> None:
        self.began = 0.0
        self.epochs: list[float] = []

    def stage_started(self, stage: int, *, epochs: int, batches: int, done: int) -> None:
        """Looks at the clock."""
        self.began = time.perf_counter()

    def epoch_done(self, entry: Entry, network: Network) -> None:
        """Looks at the clock."""
        self.epochs.append(entry["seconds"])

    @property
    def steady(self) -> float:
        """Seconds an epoch, once everything is warm."""
        return statistics.median(self.epochs[1:])

    @property
    def warm_up(self) -> float:
        """What the first epoch took longer: compiling, capturing, choosing algorithms."""
        return max(0.0, self.epochs[0] - self.steady)


class BareLoop(Clock):
    """A plain loop of PyTorch with the same network, batch and augmentation, run between the epochs of ours."""

    def __init__(self, images: ImageSet, config: Config, runtime: Runtime) -> None:
        super().__init__()
        assert images.labels is not None
        assert config.mean is not None
        assert config.std is not None
        device = self.device = runtime.device
        self.runtime, self.augment = runtime, config.fit_augment
        self.batch = min(config.fit.batch_of(len(images), 0), len(images))
        self.normalise = Normaliser(config.mean, config.std, device)
        self.pixels, self.labels = (
            torch.from_numpy(images.images).to(device),
            torch.from_numpy(images.labels).to(device),
        )
        network = Network(build_backbone(config.backbone, images.shape[2]), len(images.class_names))
        self.network = to_channels_last(network, device)
        schedule = config.fit
        self.optimizer = torch.optim.SGD(
            self.network.parameters(),
            lr=schedule.learning_rate,
            momentum=schedule.momentum,
            weight_decay=schedule.weight_decay,
        )
        self.bare: list[float] = []

    def epoch_done(self, entry: Entry, network: Network) -> None:
        """An epoch of its own."""
        super().epoch_done(entry, network)
        started = time.perf_counter()
        self.epoch()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.bare.append(time.perf_counter() - started)

    def epoch(self) -> None:
        """What anybody would write first."""
        generator = torch.Generator(device=self.device).manual_seed(len(self.bare))
        order = torch.randperm(len(self.pixels), generator=generator, device=self.device)
        order = torch.cat([order, order[: -len(order) % self.batch]])
        for rows in torch.split(order, self.batch):
            images = self.normalise(self.augment(self.pixels[rows], generator))
            self.optimizer.zero_grad()
            with self.runtime.autocast():
                features = self.network(images)
            loss = F.cross_entropy(self.network.joint(features), self.labels[rows])
            torch.autograd.backward(loss)
            self.optimizer.step()

    @property
    def overhead(self) -> float:
        """How much longer ours takes, in percent; each epoch is compared with the bare one right after it."""
        ratios = [ours / bare for ours, bare in zip(self.epochs[1:], self.bare[1:], strict=True)]
        return 100 * (statistics.median(ratios) - 1)


def measure(
    config: Config,
    load: Load,
    *,
    size: int,
    channels: int,
    epochs: int = 3,
    device: str = "auto",
    compiled: Compile = "on",
    began: float | None = None,
) -> dict[str, Any]:
    """Trains both stages for ``epochs`` and one to warm up; gives times, memory and the floor.

    ``began`` is the ``time.perf_counter()`` at which start-up began, if that was earlier.
    """
    imported = time.perf_counter()
    if not config.method.active or config.method.supervised or config.method.labelled_images:
        raise InputError(f"the method '{config.method.name}' has no discovery to measure: choose another")
    began = imported if began is None else began
    config = replace(config, image_size=size, mean=(0.5,) * channels, std=(0.25,) * channels)
    # As many images stand for the new ones: their batch goes by the classes, of which all have as many images.
    discover = replace(config.discover, batch_size=config.discover.batch_of(load.novel, load.known))
    config = replace(config, fit=_steady(config.fit, epochs), discover=_steady(discover, epochs))
    images = made_up(load.images, size, channels, load.known)
    on_gpu = resolve_device(device).type == "cuda"
    compiled = compiled if on_gpu else "off"  # on a CPU nothing is
    config = resolve(config, images, resolve_device(device))
    learner = Learner.from_config(config, device, compiled)
    runtime = learner.runtime
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(runtime.device)
    # One of several processes would take a whole epoch for the bare loop, and its part for ours.
    fitting = BareLoop(images, config, runtime) if runtime.processes.count == 1 else Clock()
    finding = Clock()
    learner.fit(images, observer=fitting)
    begun = time.perf_counter()
    learner.discover(images.without_labels(), load.novel, observer=finding, only_new=True)
    evaluated = []
    for _ in range(3):
        started = time.perf_counter()
        learner.outputs(images)
        evaluated.append(time.perf_counter() - started)
    rate = multiplication_rate(runtime)
    return {
        "hardware": runtime.hardware,
        "precision": "bf16" if runtime.half else "fp32",
        "backbone": learner.config.backbone,
        "image": [size, size, channels],
        "compiled": "on" if learner.trained["compiled"] else "off",
        "images": load.images,
        "classes": [load.known, load.novel],
        "stage_one": {
            "batch": min(config.fit.batch_of(load.images, 0), load.images),
            **_figures(fitting.steady, load.images, stage_flop(config, load, size=size, stage=0), rate),
            "bare_loop_seconds": statistics.median(fitting.bare[1:]) if isinstance(fitting, BareLoop) else None,
            "overhead_percent": fitting.overhead if isinstance(fitting, BareLoop) else None,
        },
        "discovery": {
            "batch": learner.trained["batch_size"],
            **_figures(finding.steady, load.images, stage_flop(config, load, size=size, stage=1), rate),
        },
        "evaluation": {
            "seconds": statistics.median(evaluated),
            "images_per_second": load.images / statistics.median(evaluated),
        },
        "start_up": {
            "imports": imported - began,
            "to_first_step": fitting.began - began,
            "stage_one_warm_up": fitting.warm_up,
            "discovery_warm_up": finding.began - begun + finding.warm_up,
            "to_steady": fitting.began - began + fitting.warm_up,
        },
        "memory": {
            "device_peak_mib": torch.cuda.max_memory_allocated(runtime.device) / 2**20 if on_gpu else None,
            "host_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        },
        "floor": {"multiplication_tflop_per_second": rate / 1e12},
    }


def made_up(count: int, size: int, channels: int, classes: int) -> ImageSet:
    """Labelled noise."""
    generator = np.random.default_rng(0)
    try:
        pixels = generator.integers(0, 256, (count, size, size, channels), dtype=np.uint8)
    except (MemoryError, ValueError):
        raise InputError(f"{count} images of {size}x{size}x{channels} do not fit into memory: choose fewer") from None
    return ImageSet(pixels, np.arange(count, dtype=np.int64) % classes, tuple(f"class-{n}" for n in range(classes)))


def _steady(schedule: Schedule, epochs: int) -> Schedule:
    """A learning rate so small that noise does no harm."""
    return replace(schedule, epochs=epochs + 1, drops=(), learning_rate=1e-3)


def _figures(seconds: float, images: int, flop: float, rate: float) -> dict[str, float]:
    floor = flop / rate
    return {
        "seconds_per_epoch": seconds,
        "images_per_second": images / seconds,
        "tflop_per_epoch": flop / 1e12,
        "floor_seconds": floor,
        "times_floor": seconds / floor,
    }


def stage_flop(config: Config, load: Load, *, size: int, stage: int) -> float:
    """Multiplications and additions of one epoch of a stage, counted on two images."""
    method, channels = config.method, len(config.mean or (0.5,))
    backbone = build_backbone(config.backbone, channels)
    channels = backbone.input.channels or channels
    teacher = Network(backbone, load.known, method.design)
    terms = method.active if stage else method.stage_one
    terms = tuple(term for term in terms if term.kind != "replay")  # a head on features: nothing beside the rest
    student = grow(teacher, load.novel) if stage else teacher
    make_heads(student, terms, sizes_of(student, 2))
    choose_trained(student, frozen=method.frozen if stage else config.fit_frozen, terms=terms)
    start = None
    if stage:
        start = torch.full((2, load.novel), 1 / load.novel)
        teacher.requires_grad_(False)
    objective = Objective(
        student, terms=terms, images=2, labelled_images=2, teacher=teacher if stage else None, clusters=start
    )
    objective.set_epoch(0)
    objective.train()
    images = torch.rand(2 * len(objective.views), channels, size, size)
    with Arithmetic() as counted:
        replayed = objective.draw(torch.Generator())
        new = 1 if objective.mixes else 2  # where labelled images are mixed in, one of the two is labelled
        labels = torch.zeros(1 if stage else 2, dtype=torch.int64) if objective.mixes or not stage else None
        objective(images, labels, replayed, torch.arange(new))
    return float(counted.flop) / 2 * load.images
