"""What people see of a training."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest

from hoarfrost import Learner
from hoarfrost.cli.follow import MANY, Bars, Lines
from hoarfrost.computing.runtime import Compile
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Network
from hoarfrost.scenario import Scenario
from hoarfrost.training import step
from hoarfrost.training.observers import Entry, Observer, Observers

from .. import forked
from ..conftest import TINY


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, for tests to set."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def network() -> Network:
    """Something to hand on; nobody here looks at it."""
    return Network(build_backbone("small", 1), 5)


def entry(epoch: int) -> Entry:
    return {"stage": 1, "epoch": epoch, "loss": 0.5, "terms": {"pairwise": 0.25, "consistency": 0.25}}


@pytest.mark.parametrize("done", [0, 3])
def test_the_first_epoch_does_not_count_for_the_time_left(done: int, clock: list[float], network: Network) -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    lines.stage_started(1, epochs=done + 5, batches=2, done=done)
    lines.compiling()
    for epoch, seconds in enumerate((31.0, 1.0, 3.0, 2.0, 2.0)):
        clock[0] += seconds
        lines.epoch_done(entry(done + epoch), network)
    said = stream.getvalue().splitlines()
    assert said[0] == "discovering, step 1  compiling the training step"
    losses = "loss 0.500  pairwise 0.250  consistency 0.250"
    assert said[1] == f"discovering, step 1  epoch {done + 1}/{done + 5}  {losses}  at most 124 s left"
    assert [line.split(f"{losses}  ")[1] for line in said[2:]] == ["3 s left", "4 s left", "2 s left", "0 s left"]


def test_of_quick_epochs_not_each_has_a_line_and_a_loss_of_one_term_is_said_once(
    clock: list[float], network: Network
) -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    lines.stage_started(0, epochs=30, batches=2, done=0)
    for epoch in range(30):
        clock[0] += 0.1
        lines.epoch_done({"stage": 0, "epoch": epoch, "loss": 0.5, "terms": {"cross-entropy": 0.5}}, network)
    said = stream.getvalue().splitlines()
    assert said[0] == "learning labelled classes  epoch 1/30  loss 0.500  at most 3 s left"
    assert said[-1] == "learning labelled classes  epoch 30/30  loss 0.500  0 s left"
    assert 3 <= len(said) <= 5


def test_images_that_are_looked_at_are_told_of_where_it_takes_a_while(clock: list[float]) -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    for seconds, done in ((0.0, 0), (1.9, 4), (0.5, 8), (4.5, 44), (4.5, 80), (1.5, 92)):
        clock[0] += seconds
        lines.images_seen(done, 100)
    assert stream.getvalue().splitlines() == [
        "reading images  8/100  12 s left",
        "reading images  92/100  1 s left",
    ]
    lines.images_seen(0, 4)
    lines.images_seen(4, 4)
    assert stream.getvalue().count("\n") == 2, "what is quick is not worth a line"
    for seconds, done in ((0.0, 0), (1.0, 1), (1.5, 2)):
        clock[0] += seconds
        lines.held_back(done, 32)
    assert stream.getvalue().splitlines()[2:] == ["calibrating on hidden known classes  2/32  45 s left"]


def test_a_bar_of_images_comes_where_it_takes_a_while_and_goes(clock: list[float]) -> None:
    bars = Bars()
    told = Observers([bars])
    told.images_seen(0, 100)
    told.images_seen(4, 100)
    assert bars.progress.tasks == []
    clock[0] += 3
    told.images_seen(8, 100)
    (task,) = bars.progress.tasks
    assert (task.completed, task.fields["epoch"]) == (8, "8/100")
    told.images_seen(100, 100)
    assert bars.progress.tasks == []
    told.held_back(0, 32)
    clock[0] += 3
    told.held_back(1, 32)
    (task,) = bars.progress.tasks
    assert task.description == "calibrating on hidden known classes"


def test_many_images_that_are_told_apart_are_told_of() -> None:
    stream, bars = io.StringIO(), Bars()
    told = Observers([Lines(stream), bars])
    told.sorting(MANY - 1, done=False)
    assert (stream.getvalue(), bars.progress.tasks) == ("", [])
    told.sorting(1200, done=False)
    assert stream.getvalue() == "sorting 1200 images\n"
    assert [task.description for task in bars.progress.tasks] == ["sorting 1200 images"]
    told.sorting(1200, done=True)
    assert (stream.getvalue().count("\n"), bars.progress.tasks) == (1, [])


def test_one_epoch_has_nothing_left(clock: list[float], network: Network) -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    lines.stage_started(0, epochs=1, batches=2, done=0)
    lines.epoch_done({**entry(0), "stage": 0}, network)
    assert stream.getvalue().endswith("  0 s left\n")


def test_a_bar_says_why_it_stands_still(network: Network) -> None:
    bars = Bars()
    bars.stage_started(0, epochs=2, batches=2, done=0)
    (task,) = bars.progress.tasks
    assert task.fields["loss"] == ""
    bars.compiling()
    assert task.fields["loss"] == "compiling"
    bars.batch_done()
    assert (task.fields["loss"], task.completed) == ("", 1)
    bars.epoch_done(entry(0), network)
    bars.batch_done()
    assert (task.fields["loss"], task.fields["epoch"]) == ("loss 0.500", "1/2")


class Told(Observer):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def stage_started(self, stage: int, *, epochs: int, batches: int, done: int) -> None:
        self.words.append(f"stage {stage}")

    def compiling(self) -> None:
        self.words.append("compiling")

    def epoch_done(self, entry: Entry, network: Network) -> None:
        self.words.append(f"epoch {entry['epoch']}")


@pytest.mark.parametrize("compiled", ["on", "off"])
def test_a_stage_that_is_compiled_says_so_once(
    compiled: Compile, three_steps: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "compiled", lambda function, **_: function)
    told = Told()
    learner = Learner(recipe="digits", device="cpu", compiled=compiled, settings=TINY)
    learned, found = three_steps.steps[:2]
    learner.fit(learned.images, observer=Observers([told]))
    learner.discover(found.images, found.novel, observer=told, only_new=True)
    begins = ["compiling"] if compiled == "on" else []
    assert told.words == [word for k in range(2) for word in (f"stage {k}", *begins, "epoch 0", "epoch 1")]


def test_a_full_disk_ends_tensorboards_log_and_not_the_run(tmp_path: Path) -> None:
    script = tmp_path / "full.py"
    script.write_text(
        "import resource, signal\n"
        "from pathlib import Path\n"
        "from hoarfrost.cli.follow import TensorBoard\n"
        "board = TensorBoard(Path('board'))\n"
        "board.stage_started(0, epochs=9, batches=1, done=0)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "for epoch in range(9):\n"
        "    terms = {f'a term with a long name {k}': 1.0 for k in range(9)}\n"
        "    board.epoch_done({'stage': 0, 'epoch': epoch, 'loss': 1, 'learning_rate': 1, 'terms': terms}, None)\n"
        "print('all epochs')\n"
    )
    done = forked.run([sys.executable, str(script)], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "all epochs\n")
    assert done.stderr.count("the TensorBoard log stops here, the run continues: File too large") == 1
    assert "Traceback" not in done.stderr
