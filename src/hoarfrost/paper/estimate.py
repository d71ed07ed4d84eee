"""How long runs will take: from runs of the kind that are finished, and else from their arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import mean

from hoarfrost.bench import LOADS, Load, stage_flop
from hoarfrost.computing.forecast import multiplication_rate
from hoarfrost.computing.runtime import Runtime, resolve_device
from hoarfrost.config import Config
from hoarfrost.paper.plan import Planned, stage_ones
from hoarfrost.scenario import parse_split
from hoarfrost.training.resolve import suited

TIMES_FLOOR = {"cuda": 4.0, "cpu": 8.0}
"""how many times longer than its multiplications alone training takes, as ``docs/speed.md`` has it"""


AROUND = {"cuda": 12.0, "cpu": 4.0}
"""seconds that a run takes beside its epochs: to start, to compile with the caches filled, to score, to write"""


def _kind(run: Planned) -> Planned:
    """What decides how long it takes: all but its name and its seed."""
    return replace(run, name="", seed=0)


class Estimate:
    """Seconds that runs take on a device; stage one counts where no other run has made it."""

    def __init__(self, device: str, folder: Path, plan: Sequence[Planned]) -> None:
        self.device, self.folder = device, folder
        finished = {run: content for run in plan if (content := run.metrics(folder)) is not None}
        self.took: dict[Planned, list[tuple[float, float]]] = {}
        for run, content in finished.items():
            seconds = (content["seconds"]["stage_one"], sum(content["seconds"]["discovery"]))
            self.took.setdefault(_kind(run), []).append(seconds)
        self._counted: dict[Planned, tuple[float, float]] = {}
        self._stage_ones: dict[tuple[object, ...], float] = {}

    @cached_property
    def rate(self) -> tuple[float, str]:
        """Operations a second here, and on what kind of device."""
        runtime = Runtime(self.device)
        return multiplication_rate(runtime), runtime.device.type

    def measure(self) -> None:
        """Measures the rate now, before others use the device; else that is done when it is first needed."""
        _ = self.rate

    def stages(self, run: Planned) -> tuple[float, float]:
        """Seconds of stage one and of all discoveries; alike for all seeds."""
        took = self.took.get(_kind(run))
        if took:
            return mean(one for one, _ in took), mean(rest for _, rest in took)
        if _kind(run) not in self._counted:
            self._counted[_kind(run)] = self._count(run)
        return self._counted[_kind(run)]

    def _count(self, run: Planned) -> tuple[float, float]:
        """From the arithmetic."""
        config, load = suited(run.config()), LOADS[run.dataset]
        size = config.image_size or 32
        sizes = parse_split(run.split, sum(map(int, run.split.split("-"))))
        each = load.images / load.known
        shared = _kind(run).stage_one
        if shared not in self._stage_ones:
            first = Load(round(sizes[0] * each), sizes[0], sizes[1])
            self._stage_ones[shared] = config.fit.epochs * self._seconds(config, first, size, 0)
        one = self._stage_ones[shared]
        if config.method.supervised:
            seen = [sum(sizes[: step + 1]) for step in range(1, len(sizes))]
            return one, sum(one * classes / sizes[0] for classes in seen)
        if not config.method.active:
            return one, 0.0
        found = 0.0
        for step in range(1, len(sizes)):
            seen_again = sizes[0] if config.method.labelled_images else 0
            whole = Load(round((sizes[step] + seen_again) * each), sum(sizes[:step]), sizes[step])
            found += config.discover.epochs * self._seconds(config, whole, size, 1)
        return one, found

    def _seconds(self, config: Config, load: Load, size: int, stage: int) -> float:
        rate, kind = self.rate
        config = replace(config, backbone="resnet18" if config.backbone == "auto" else config.backbone)
        return stage_flop(config, load, size=size, stage=stage) / rate * TIMES_FLOOR[kind]

    def total(self, plan: Sequence[Planned]) -> float:
        """Of runs that are to come, one after the other."""
        made, seconds = stage_ones(plan, self.folder), 0.0
        for run in plan:
            seconds += self.next(run, made)
        return seconds

    def next(self, run: Planned, made: set[tuple[object, ...]]) -> float:
        """Of one run, where these stage ones are made; 0 where it is finished. Its own is made then."""
        if run.metrics(self.folder) is not None:
            return 0.0
        one, rest = self.stages(run)
        seconds = AROUND[resolve_device(self.device).type] + rest + (0 if run.stage_one in made else one)
        made.add(run.stage_one)
        return seconds
