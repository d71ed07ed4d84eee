"""Runs that belong together: several at once, stage one trained once, what is finished not repeated."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from hoarfrost import store
from hoarfrost.config import DECIDED, Config
from hoarfrost.errors import InputError
from hoarfrost.forms import METRICS, misfit_of_steps
from hoarfrost.launch import end_with_parent
from hoarfrost.methods import get_method
from hoarfrost.reading import open_own, open_regular
from hoarfrost.recipes import get_recipe
from hoarfrost.settings import from_json, override, parse_setting


@dataclass(frozen=True)
class Planned:
    """One run: its place below the folder of all runs, and what it is."""

    name: str
    dataset: str
    split: str
    seed: int = 0
    method: str = "frost"
    variant: str = "code"
    settings: tuple[str, ...] = ()
    """as ``--set`` takes them"""
    epochs: int | None = None
    """of each discovery; None for the usual ones"""
    fit_epochs: int | None = None

    @property
    def stage_one(self) -> tuple[object, ...]:
        """Runs with the same have the same stage one."""
        own = tuple(setting for setting in self.settings if setting.startswith("fit"))
        return (self.dataset, self.split.split("-")[0], self.seed, self.variant, self.fit_epochs, own)

    def command(self, folder: Path, data: Path, more: Sequence[str] = ()) -> list[str]:
        """The command that carries it out, or goes on with it."""
        command = [sys.executable, "-m", "hoarfrost", "run", "--dataset", self.dataset, "--split", self.split]
        command += ["--method", self.method, "--variant", self.variant, "--seed", str(self.seed)]
        command += [
            "--data",
            str(data),
            "--resume",
            "--json",
            "--out",
            str(folder / self.name),
            "--share",
            str(shelf_of(folder)),
            *more,
        ]
        for option, value in (("--epochs", self.epochs), ("--fit-epochs", self.fit_epochs)):
            command += [] if value is None else [option, str(value)]
        for setting in self.settings:
            command += ["--set", setting]
        return command

    def config(self) -> Config:
        """What its learner is configured with, but for what the images decide."""
        config = get_recipe(self.dataset, self.variant, self.split).config(get_method(self.method), self.seed)
        config = config.with_epochs(fit=self.fit_epochs, discover=self.epochs)
        return override(config, dict(parse_setting(setting) for setting in self.settings))

    def metrics(self, folder: Path) -> dict[str, Any] | None:
        """What it reached, if it is finished and was made with these settings.

        What cannot be read is not finished: carried out again, it will say what is wrong.
        """
        place = folder / self.name
        if not (place / "metrics.json").exists():
            return None
        try:
            found = from_json(Config, store.read_json(place / "config.json", "run folder").get("learner"))
            content = store.read_json(place / "metrics.json", "run folder", METRICS)
        except (InputError, OSError):
            return None
        decided = {name: getattr(found, name) for name in DECIDED}
        if replace(self.config(), **decided) != found or content["split"] != self.split or misfit_of_steps(content):
            return None
        return content


class Job(Protocol):
    """A run that is being carried out."""

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""

    def terminate(self) -> None:
        """Asks it to end; what it has finished stays."""


Launch = Callable[[Planned], Job]

JOBS_ON_GPU = 4
"""runs at a time that a GPU gets where nobody says how many: the fastest of those that benchmarks/jobs.py measured"""

MEMORY_OF_A_RUN = 6 << 30
"""bytes of a GPU that a run can count on; a smaller GPU gets fewer at a time"""

MOST_LOG = 1 << 20
"""bytes at the end of a log that are looked at"""

PATIENCE = 4.0
"""seconds that runs get to end, after they were asked to; they end with this process in any case"""


def usual_jobs(devices: Sequence[str]) -> int:
    """Runs at a time on each of the devices, where nobody says how many."""
    from hoarfrost.computing.runtime import memory_of

    sizes = [memory_of(device) for device in devices]
    return min(1 if size is None else max(1, min(JOBS_ON_GPU, size // MEMORY_OF_A_RUN)) for size in sizes)


def launch_here(folder: Path, data: Path, more: Sequence[str] = (), *, devices: Sequence[str] = ()) -> Launch:
    """Starts runs as processes of this machine, which end when this one does; each on the least busy of the devices."""
    started: list[tuple[str, subprocess.Popen[bytes]]] = []

    def launch(run: Planned) -> Job:
        for place in (folder / run.name, log_of(folder, run)):
            place.parent.mkdir(parents=True, exist_ok=True)
        busy = [device for device, job in started if job.poll() is None]
        where = min(devices, key=busy.count, default="")
        with open_own(log_of(folder, run)) as log:
            job = subprocess.Popen(
                run.command(folder, data, [*more, *(["--device", where] if where else [])]),
                stdout=subprocess.DEVNULL,
                stderr=log,
                preexec_fn=end_with_parent,
            )
        started.append((where, job))
        return job

    return launch


def last_line(path: Path) -> str:
    """Of a log; nothing where there is none."""
    text = added_to(path, 0).strip()
    return text.splitlines()[-1] if text else ""


def size_of(path: Path) -> int:
    """Bytes; 0 where there is no such file."""
    return path.stat().st_size if path.is_file() else 0


def added_to(path: Path, start: int) -> str:
    """What stands in a log from a byte on. Runs of several commands may have written there, in any order."""
    if not path.is_file():
        return ""
    with open_regular(path) as file:
        file.seek(max(start, size_of(path) - MOST_LOG))
        return file.read(MOST_LOG).decode("utf-8", errors="replace")


def log_of(folder: Path, run: Planned) -> Path:
    """Where a run's words on standard error are."""
    return folder / "logs" / f"{run.name.replace('/', '-')}.log"


@contextmanager
def sharing_gpu(jobs: int) -> Iterator[bool]:
    """Within the block the kernels of several processes run side by side, where NVIDIA's MPS is there to be started.

    Gives whether it runs: somebody else may have started it.
    """
    control = shutil.which("nvidia-cuda-mps-control") if jobs > 1 else None
    if control is None:
        yield False
        return

    def succeeds(*options: str, said: bytes = b"") -> bool:
        """What it answers is for nobody: standard output may be kept for JSON. No pipe: the server would hold it."""
        nowhere = subprocess.DEVNULL
        done = subprocess.run([control, *options], input=said, stdout=nowhere, stderr=nowhere, check=False)
        return done.returncode == 0

    started = succeeds("-d")
    try:
        yield succeeds(said=b"get_server_list\n")
    finally:
        if started:
            succeeds(said=b"quit\n")


def stage_ones(plan: Sequence[Planned], folder: Path) -> set[tuple[object, ...]]:
    """The stage ones that finished runs have left on the shelf."""
    if not shelf_of(folder).is_dir():
        return set()
    return {run.stage_one for run in plan if run.metrics(folder) is not None}


def shelf_of(folder: Path) -> Path:
    """Where runs of one folder share their stage ones."""
    return folder / "shared"


def has_stage_one(folder: Path) -> bool:
    """Whether a run has its stage one behind it, and so on the shelf."""
    return (folder / "unfinished" / "stage-0").exists() or (folder / "metrics.json").exists()


def carry_out(
    plan: Sequence[Planned],
    launch: Launch,
    *,
    folder: Path,
    jobs: int,
    said: Callable[[Planned, str], None],
    made: Iterable[tuple[object, ...]] = (),
) -> list[Planned]:
    """Carries all out, ``jobs`` at a time, and gives those that failed; ``said`` hears what becomes of each.

    Runs that need a stage one wait for the run that makes it, unless it is ``made``. A run that another command is at
    work on is left to that one; if it is not finished there, it is carried out here.
    """
    waiting, running, failed = list(plan), dict[Planned, Job](), list[Planned]()
    made, elsewhere, logged = set(made), set[Planned](), dict[Planned, int]()
    try:
        while waiting or running:
            for run, job in list(running.items()):
                code = job.poll()
                if code is None:
                    continue
                del running[run]
                if code == 0:
                    made.add(run.stage_one)
                elif code == 2 and store.AT_WORK in added_to(log_of(folder, run), logged[run]):  # another was quicker
                    waiting.append(run)
                    elsewhere.add(run)
                    said(run, "is running in another command")
                    continue
                else:
                    failed.append(run)
                said(run, "done" if code == 0 else "failed" if code > 0 else f"was ended by {_signal(-code)}")
            made |= {run.stage_one for run in running if has_stage_one(folder / run.name)}
            busy = {run.stage_one for run in running} - made
            for run in list(waiting):
                if store.is_at_work(folder / run.name):
                    if run not in elsewhere:
                        elsewhere.add(run)
                        said(run, "is running in another command")
                    continue
                if run in elsewhere and run.metrics(folder) is not None:
                    waiting.remove(run)
                    made.add(run.stage_one)
                    said(run, "done")
                    continue
                if len(running) < jobs and run.stage_one not in busy:
                    waiting.remove(run)
                    logged[run] = size_of(log_of(folder, run))
                    try:
                        running[run] = launch(run)
                    except OSError as error:
                        failed.append(run)
                        said(run, f"could not be started: {error.strerror} for {error.filename}")
                        continue
                    said(run, "started")
                    busy |= {run.stage_one} - made
            time.sleep(0.2)
    finally:
        for job in running.values():
            job.terminate()
        until = time.monotonic() + PATIENCE
        while any(job.poll() is None for job in running.values()) and time.monotonic() < until:
            time.sleep(0.05)
    return failed


def _signal(number: int) -> str:
    """Its name; out of memory is mostly SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def shortened(config: Config, usual: Config, epochs: int | None) -> tuple[int | None, int | None]:
    """Epochs of discovery and of stage one where the data set's usual discovery is to have ``epochs``.

    A method with a course of its own is shortened alike, and so is stage one.
    """
    if epochs is None:
        return None, None
    scale = epochs / usual.discover.epochs
    return max(1, round(config.discover.epochs * scale)), max(1, round(config.fit.epochs * scale))
