"""How long runs will take: from runs of the kind that are finished, and else from their arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import mean

from hoarfrost.bench import LOADS, Load, multiplication_rate, stage_flop
from hoarfrost.config import Config
from hoarfrost.paper.plan import Planned, stage_ones
from hoarfrost.scenario import parse_split
from hoarfrost.training.runtime import Runtime

TIMES_FLOOR = {"cuda": 4.0, "cpu": 8.0}
"""how many times longer than its multiplications alone training takes, as ``docs/speed.md`` has it"""


class Estimate:
    """Seconds that runs take on a device; stage one counts where no other run has made it."""

    def __init__(self, device: str, folder: Path, plan: Sequence[Planned]) -> None:
        self.device, self.folder = device, folder
        self._stage_ones: dict[tuple[object, ...], float] = {}
        finished = {run: content for run in plan if (content := run.metrics(folder)) is not None}
        self.took: Mapping[tuple[str, str, int | None], list[tuple[float, float]]] = {
            (run.dataset, run.method, run.epochs): [
                (content["seconds"]["stage_one"], sum(content["seconds"]["discovery"]))
                for other, content in finished.items()
                if (other.dataset, other.method, other.epochs) == (run.dataset, run.method, run.epochs)
            ]
            for run in finished
        }

    @cached_property
    def rate(self) -> tuple[float, str]:
        """Operations a second here, and on what kind of device."""
        runtime = Runtime(self.device)
        return multiplication_rate(runtime), runtime.device.type

    def stages(self, run: Planned) -> tuple[float, float]:
        """Seconds of stage one and of all discoveries."""
        took = self.took.get((run.dataset, run.method, run.epochs))
        if took:
            return mean(one for one, _ in took), mean(rest for _, rest in took)
        config, load = run.config(), LOADS[run.dataset]
        size = config.image_size or 32
        sizes = parse_split(run.split, sum(map(int, run.split.split("-"))))
        each = load.images / load.known
        if run.stage_one not in self._stage_ones:
            first = Load(round(sizes[0] * each), sizes[0], sizes[1])
            self._stage_ones[run.stage_one] = config.fit.epochs * self._seconds(config, first, size, 0)
        one = self._stage_ones[run.stage_one]
        if config.method.supervised:
            seen = [sum(sizes[: step + 1]) for step in range(1, len(sizes))]
            return one, sum(one * classes / sizes[0] for classes in seen)
        if not config.method.active:
            return one, 0.0
        found = 0.0
        for step in range(1, len(sizes)):
            whole = Load(round(sizes[step] * each), sum(sizes[:step]), sizes[step])
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
        seconds = rest + (0 if run.stage_one in made else one)
        made.add(run.stage_one)
        return seconds
