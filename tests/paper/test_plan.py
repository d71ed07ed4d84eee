"""Runs that belong together: which wait for which, and what becomes of those that fail."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hoarfrost.computing import runtime
from hoarfrost.config import Config
from hoarfrost.methods import METHODS
from hoarfrost.paper.plan import Job, Planned, carry_out, launch_here, log_of, sharing_gpu, shortened, usual_jobs
from hoarfrost.recipes import RECIPES
from hoarfrost.settings import to_json
from hoarfrost.store import AT_WORK

from .finished import finished_metrics


@dataclass
class Ends:
    """A job that ends after so many looks."""

    looks: int
    code: int = 0
    ended: bool = False

    def poll(self) -> int | None:
        self.looks -= 1
        return self.code if self.looks < 0 else None

    def terminate(self) -> None:
        self.ended = True


@dataclass
class Watched:
    """Launches such jobs, and notes how many ran at a time and what was said."""

    folder: Path
    codes: dict[str, int] = field(default_factory=dict)
    running: dict[str, Ends] = field(default_factory=dict)
    most: int = 0
    said: list[tuple[str, str]] = field(default_factory=list)

    def launch(self, run: Planned) -> Job:
        self.running[run.name] = Ends(2, self.codes.get(run.name, 0))
        self.most = max(self.most, len(self.running))
        return self.running[run.name]

    def hear(self, run: Planned, what: str) -> None:
        self.said.append((run.name, what))
        if what != "started":
            del self.running[run.name]

    def carry_out(self, plan: list[Planned], jobs: int) -> list[Planned]:
        return carry_out(plan, self.launch, folder=self.folder, jobs=jobs, said=self.hear)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr("hoarfrost.paper.plan.time.sleep", lambda _: None)
    return Watched(tmp_path)


def runs(*names: str, seeds: int = 1) -> list[Planned]:
    return [Planned(f"{name}{seed}", "digits", "5-5", seed) for seed in range(seeds) for name in names]


def test_no_more_run_at_a_time_than_asked_for(watched: Watched) -> None:
    assert watched.carry_out(runs("a", "b", seeds=4), jobs=3) == []
    assert watched.most == 3
    assert len(watched.said) == 16


def test_the_first_of_a_stage_one_goes_ahead_and_the_others_wait(watched: Watched) -> None:
    watched.carry_out(runs("a", "b", "c"), jobs=3)
    assert watched.said[:3] == [("a0", "started"), ("a0", "done"), ("b0", "started")]
    assert watched.most == 2


def test_the_others_need_not_wait_for_its_discovery(watched: Watched) -> None:
    (watched.folder / "a0" / "unfinished" / "stage-0").mkdir(parents=True)
    watched.carry_out(runs("a", "b", "c"), jobs=3)
    assert watched.most == 3


def test_nobody_waits_for_a_stage_one_that_is_made(watched: Watched) -> None:
    plan = runs("a", "b", seeds=2)
    made = {run.stage_one for run in plan if run.seed == 1}
    carry_out(plan, watched.launch, folder=watched.folder, jobs=4, said=watched.hear, made=made)
    assert watched.said[:3] == [("a0", "started"), ("a1", "started"), ("b1", "started")]


MPS = """#!/bin/sh
case "$1" in
-d) sleep 20 & echo "started" ;;
*) read word; echo "$word"; echo "$word" >> "$0.heard"; [ ! -e "$0.fails" ] ;;
esac
"""


def test_runs_share_a_gpu_quietly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """NVIDIA's server is not there: what stands in for it talks, and leaves a process behind, as that does."""
    control = tmp_path / "nvidia-cuda-mps-control"
    with monkeypatch.context() as bare:
        bare.setenv("PATH", str(tmp_path))  # a machine with a GPU may have it
        with sharing_gpu(2) as runs_beside:
            assert not runs_beside
    control.write_text(MPS)
    control.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with sharing_gpu(1) as runs_beside:
        assert not runs_beside
    assert not Path(f"{control}.heard").exists()
    began = time.monotonic()
    with sharing_gpu(2) as runs_beside:
        assert runs_beside
    assert time.monotonic() - began < 10, "it does not wait for the server to end"
    assert Path(f"{control}.heard").read_text().split() == ["get_server_list", "quit"]
    Path(f"{control}.fails").touch()
    with sharing_gpu(2) as runs_beside:
        assert not runs_beside
    assert capfd.readouterr() == ("", "")


def test_a_failed_run_is_told_and_the_others_go_on(watched: Watched) -> None:
    watched.codes = {"a0": 2, "b1": 1}
    failed = watched.carry_out(runs("a", "b", seeds=2), jobs=2)
    assert [run.name for run in failed] == ["a0", "b1"]
    assert {name for name, what in watched.said if what == "done"} == {"b0", "a1"}


@pytest.mark.parametrize("earlier", ["", "hoarfrost: an error of yesterday\n"])
def test_a_run_that_another_command_took_is_no_failure_whoever_wrote_last(watched: Watched, earlier: str) -> None:
    """Both commands write into one log: the one that took the run may go on speaking after the other was refused."""
    (run,) = runs("a")
    log, codes = log_of(watched.folder, run), [2, 0]
    log.parent.mkdir(parents=True)
    log.write_text(earlier)

    def launch(_: Planned) -> Job:
        with log.open("a") as file:
            file.write(f"hoarfrost: {AT_WORK}\nepoch 1 of 1\n" if len(codes) == 2 else "epoch 1 of 1\n")
        return Ends(1, codes.pop(0))

    said: list[str] = []
    assert carry_out([run], launch, folder=watched.folder, jobs=1, said=lambda _, what: said.append(what)) == []
    assert said == ["started", "is running in another command", "started", "done"]


def test_a_refusal_of_an_earlier_command_excuses_no_failure(watched: Watched) -> None:
    (run,) = runs("a")
    log = log_of(watched.folder, run)
    log.parent.mkdir(parents=True)
    log.write_text(f"hoarfrost: {AT_WORK}\n")
    watched.codes = {"a0": 2}
    assert watched.carry_out([run], jobs=1) == [run]


def test_an_interruption_ends_what_runs(watched: Watched) -> None:
    started: list[Ends] = []

    def launch(run: Planned) -> Job:
        started.append(Ends(100))
        if len(started) == 2:
            raise KeyboardInterrupt
        return started[-1]

    with pytest.raises(KeyboardInterrupt):
        carry_out(runs("a", seeds=3), launch, folder=watched.folder, jobs=3, said=lambda _run, _what: None)
    assert [job.ended for job in started] == [True, False]


def test_runs_share_a_stage_one_where_nothing_of_it_differs() -> None:
    run = Planned("a", "cifar100", "80-20", method="dtc", settings=("discover.batch_size=64",))
    assert run.stage_one == Planned("b", "cifar100", "80-10-10").stage_one
    assert run.stage_one != replace(run, seed=1).stage_one
    assert run.stage_one != replace(run, settings=("fit.learning_rate=0.05",)).stage_one
    assert run.stage_one != replace(run, fit_epochs=3).stage_one


FINISHED = finished_metrics()


def finish(folder: Path, run: Planned, config: Config) -> None:
    place = folder / run.name
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps({"learner": to_json(config)}))
    (place / "metrics.json").write_text(json.dumps(FINISHED))


def test_a_run_is_finished_where_it_was_made_with_these_settings(tmp_path: Path) -> None:
    run = Planned("a", "digits", "5-5", epochs=3, settings=("discover.batch_size=16",))
    assert run.metrics(tmp_path) is None
    assert (run.config().discover.epochs, run.config().discover.batch_size) == (3, 16)
    finish(tmp_path, run, replace(run.config(), mean=(0.3,), std=(0.2,)))  # from the images
    assert run.metrics(tmp_path) == FINISHED
    assert replace(run, epochs=4).metrics(tmp_path) is None
    assert replace(run, method="ncl").metrics(tmp_path) is None
    assert replace(run, settings=()).metrics(tmp_path) is None


@pytest.mark.parametrize("name", ["config.json", "metrics.json"])
@pytest.mark.parametrize("text", ["", "{}", "[]", '{"learner": {}}', '{"steps": [], "seconds": {}}'])
def test_what_cannot_be_read_is_not_finished(name: str, text: str, tmp_path: Path) -> None:
    run = Planned("a", "digits", "5-5")
    finish(tmp_path, run, run.config())
    assert run.metrics(tmp_path) is not None
    (tmp_path / "a" / name).write_text(text)
    assert run.metrics(tmp_path) is None


class Silent(Planned):
    """A run that ends at once."""

    def command(self, folder: Path, data: Path, more: Sequence[str] = ()) -> list[str]:
        return [sys.executable, "-c", ""]


def test_a_run_that_cannot_be_started_leaves_the_others_their_places(tmp_path: Path) -> None:
    first, second, said = Silent("a", "digits", "5-5"), Silent("b", "digits", "5-5"), []
    (tmp_path / "logs" / "a.log").mkdir(parents=True)
    failed = carry_out(
        [first, second],
        launch_here(tmp_path, tmp_path),
        folder=tmp_path,
        jobs=1,
        said=lambda run, what: said.append((run.name, what)),
    )
    assert failed == [first]
    assert said[0] == ("a", f"could not be started: Is a directory for {tmp_path / 'logs' / 'a.log'}")
    assert said[1:] == [("b", "started"), ("b", "done")]


def test_a_signal_that_ended_a_run_is_named(watched: Watched) -> None:
    watched.codes = {"a0": -9, "b0": -99}
    watched.carry_out(runs("a", "b"), jobs=1)
    assert [what for _, what in watched.said if what.startswith("was")] == [
        "was ended by SIGKILL",
        "was ended by signal 99",
    ]


def test_a_shorter_course_is_shorter_for_every_method_alike() -> None:
    usual = RECIPES["cifar10"].config(METHODS["frost"], 0)
    assert shortened(usual, usual, None) == (None, None)
    assert shortened(usual, usual, 20) == (20, 10)
    assert shortened(RECIPES["cifar10"].config(METHODS["restune"], 0), usual, 20) == (10, 10)
    assert shortened(usual, usual, 1) == (1, 1)


def test_a_process_that_fails_is_heard_of(tmp_path: Path) -> None:
    run, said = Planned("here/a", "digits", "5-6"), []
    failed = carry_out(
        [run], launch_here(tmp_path, tmp_path), folder=tmp_path, jobs=1, said=lambda _run, what: said.append(what)
    )
    assert failed == [run]
    assert said == ["started", "failed"]
    assert "split '5-6' adds up to 11 classes" in (tmp_path / "logs" / "here-a.log").read_text()


@dataclass(frozen=True)
class Placed(Planned):
    """A run that says where it is, and stays there until another one has said it, if one is named."""

    stays: str = ""

    def command(self, folder: Path, data: Path, more: Sequence[str] = ()) -> list[str]:
        code = """
import pathlib, sys, time
log, *words = sys.argv[1:]
print(*words, file=sys.stderr, flush=True)
until = time.monotonic() + 60
while log and "\\n" not in pathlib.Path(log).read_text() and time.monotonic() < until:
    time.sleep(0.02)
"""
        log = folder / "logs" / f"{self.stays}.log"
        log.parent.mkdir(exist_ok=True)
        if self.stays:
            log.touch()
        return [sys.executable, "-c", code, str(log) if self.stays else "", *more]


def test_runs_go_to_the_least_busy_device(tmp_path: Path) -> None:
    plan = [Placed(name, "digits", "5-5", stays="d" if name == "b" else "") for name in "abcd"]
    launch = launch_here(tmp_path, tmp_path, ["--json"], devices=["cuda:0", "cuda:1"])
    assert (
        carry_out(plan, launch, folder=tmp_path, jobs=2, said=lambda _run, _what: None, made={plan[0].stage_one}) == []
    )
    places = {name: (tmp_path / "logs" / f"{name}.log").read_text().strip() for name in "abcd"}
    assert places == {name: f"--json --device cuda:{1 if name == 'b' else 0}" for name in "abcd"}


@pytest.mark.parametrize(
    ("gib", "jobs"), [([None], 1), ([139], 4), ([24], 4), ([23], 3), ([12], 2), ([8], 1), ([4], 1), ([139, 16], 2)]
)
def test_a_small_gpu_gets_fewer_runs_at_a_time(
    gib: list[int | None], jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {f"cuda:{index}": None if size is None else size << 30 for index, size in enumerate(gib)}
    monkeypatch.setattr(runtime, "memory_of", sizes.__getitem__)
    assert usual_jobs(list(sizes)) == jobs
