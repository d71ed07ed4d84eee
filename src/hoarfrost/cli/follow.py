"""Following a training: bars on a terminal, a line an epoch elsewhere, TensorBoard on request."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from hoarfrost.errors import InputError
from hoarfrost.launch import Launched
from hoarfrost.training.observers import Entry, Observer

if TYPE_CHECKING:
    from hoarfrost.models.network import Network


WIDE = 190
"""columns from which a bar has room for every term"""

SOON, OFTEN = 2.0, 10.0
"""seconds until something is said of images that are looked at, and from then on between two lines"""
MANY = 250
"""images from which on it takes seconds to tell them apart, and is said"""
QUICK = 1.0
"""seconds: of epochs that take less not each has a line"""

LOOKING, HOLDING_BACK = "reading images", "calibrating on hidden known classes"
SORTING = "sorting {} images"
"""what takes a while beside the training"""


def stage_name(stage: int) -> str:
    """A stage in words."""
    return "learning labelled classes" if stage == 0 else f"discovering, step {stage}"


class Lines(Observer):
    """One line an epoch, or a second where epochs are quick, with the time left in the stage."""

    def __init__(self, stream: TextIO) -> None:
        self.stream: TextIO | None = stream
        self.stage = self.epochs = self.first = self.counted = self.seen = 0
        self.started = self.looked = self.speaks = self.said = 0.0

    def images_seen(self, done: int, count: int) -> None:
        """Prints how many, and the time left, where it takes a while."""
        self._count(LOOKING, done, count)

    def held_back(self, done: int, count: int) -> None:
        """The same."""
        self._count(HOLDING_BACK, done, count)

    def _count(self, what: str, done: int, count: int) -> None:
        """The first ones take longer than the others."""
        now = time.perf_counter()
        if done == 0:
            self.seen, self.speaks = 0, now + SOON
        elif self.seen == 0:
            self.seen, self.looked = done, now
        elif now >= self.speaks:
            left = (now - self.looked) / (done - self.seen) * (count - done)
            self._say(f"{what}  {done}/{count}  {left:.0f} s left")
            self.speaks = now + OFTEN

    def sorting(self, images: int, *, done: bool) -> None:
        """Says why nothing happens, where it takes a while."""
        if images >= MANY and not done:
            self._say(SORTING.format(images))

    def stage_started(self, stage: int, *, epochs: int, batches: int, done: int) -> None:
        """Notes where the stage begins."""
        self.stage, self.epochs, self.first, self.counted = stage, epochs, done, done
        self.started = time.perf_counter()

    def compiling(self) -> None:
        """Says why nothing happens."""
        self._say(f"{stage_name(self.stage)}  compiling the training step")

    def epoch_done(self, entry: Entry, network: Network) -> None:
        """Prints the losses. What the first epoch took longer, as for compiling, the others will not take."""
        now, done = time.perf_counter(), entry["epoch"] + 1
        left = f"{(now - self.started) / (done - self.counted) * (self.epochs - done):.0f} s left"
        if done == self.first + 1 < self.epochs:
            self.counted, self.started, left = done, now, f"at most {left}"
        elif done < self.epochs and now < self.said + QUICK:
            return
        self.said, parts = now, {"loss": entry["loss"], **(entry["terms"] if len(entry["terms"]) > 1 else {})}
        losses = "  ".join(f"{name} {value:.3f}" for name, value in parts.items())
        self._say(f"{stage_name(entry['stage'])}  epoch {done}/{self.epochs}  {losses}  {left}")

    def _say(self, line: str) -> None:
        try:
            if self.stream is not None:
                print(line, file=self.stream, flush=True)
        except OSError:  # nobody reads it any more, which is no reason to stop
            self.stream = None


class Bars(Observer):
    """A progress bar a stage, with the loss and the time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[epoch]}"),
            TextColumn("{task.fields[loss]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
        )
        self.task: Any = None
        self.look: Any = None
        self.sorts: Any = None
        self.epochs = 0
        self.waits = False
        self.looked = 0.0

    def images_seen(self, done: int, count: int) -> None:
        """A bar of images, where it takes a while; it goes when they are all done."""
        self._count(LOOKING, done, count)

    def held_back(self, done: int, count: int) -> None:
        """The same."""
        self._count(HOLDING_BACK, done, count)

    def _count(self, what: str, done: int, count: int) -> None:
        now = time.perf_counter()
        if done == 0:
            self.looked = now
        elif self.look is None and now >= self.looked + SOON:
            self.look = self.progress.add_task(what, total=count, epoch="", loss="", left="left")
        if self.look is not None:
            self.progress.update(self.look, completed=done, epoch=f"{done}/{count}")
            if done in (0, count):
                self.progress.remove_task(self.look)
                self.look = None

    def sorting(self, images: int, *, done: bool) -> None:
        """A bar that does not say how far it is, where it takes a while; it goes at the end."""
        if images >= MANY and not done:
            self.sorts = self.progress.add_task(SORTING.format(images), total=None, epoch="", loss="", left="")
        elif self.sorts is not None:
            self.progress.remove_task(self.sorts)
            self.sorts = None

    def stage_started(self, stage: int, *, epochs: int, batches: int, done: int) -> None:
        """A new bar."""
        self.epochs, self.waits = epochs, False
        self.task = self.progress.add_task(
            stage_name(stage),
            total=epochs * batches,
            completed=done * batches,
            epoch=f"{done}/{epochs}",
            loss="",
            left="left",
        )

    def compiling(self) -> None:
        """Says why nothing happens."""
        self.waits = True
        self.progress.update(self.task, loss="compiling")

    def batch_done(self) -> None:
        """A little further."""
        if self.waits:
            self.waits = False
            self.progress.update(self.task, loss="")
        self.progress.advance(self.task)

    def epoch_done(self, entry: Entry, network: Network) -> None:
        """The losses of the epoch."""
        loss = f"loss {entry['loss']:.3f}"
        if self.progress.console.width >= WIDE and len(entry["terms"]) > 1:
            loss += " = " + " ".join(f"{name} {value:.2f}" for name, value in entry["terms"].items())
        self.progress.update(self.task, epoch=f"{entry['epoch'] + 1}/{self.epochs}", loss=loss)


class Following:
    """Bars or lines on standard error, for the length of a ``with`` block; silent but in the first process."""

    def __init__(self) -> None:
        first = Launched.detect().is_first
        self.bars = Bars() if first and sys.stderr.isatty() else None
        self.observer: Observer = self.bars or (Lines(sys.stderr) if first else Observer())

    def __enter__(self) -> Observer:
        if self.bars is not None:
            self.bars.progress.start()
        return self.observer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bars is not None:
            self.bars.progress.stop()


def quiet_without_room(thread: threading.ExceptHookArgs) -> None:
    """For a thread that writes in the background: of a full disk whoever gave it the work hears too, and says so."""
    if not isinstance(thread.exc_value, OSError):
        threading.__excepthook__(thread)


class TensorBoard(Observer):
    """Losses and accuracies as TensorBoard reads them. Where they cannot be written, the run goes on without."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError("--tensorboard needs TensorBoard: pip install 'hoarfrost[tensorboard]'") from None
        self.folder, self.kind = folder, SummaryWriter
        self.writer: Any = None
        self.over = False

    def stage_started(self, stage: int, *, epochs: int, batches: int, done: int) -> None:
        """Begins to write: not before, since the run folder is not there yet."""
        threading.excepthook = quiet_without_room
        if self.writer is None:
            self._try(lambda: setattr(self, "writer", self.kind(str(self.folder))))

    def epoch_done(self, entry: Entry, network: Network) -> None:
        """One point a curve."""
        self._try(lambda: self._write(entry))

    def _try(self, work: Callable[[], None]) -> None:
        try:
            if not self.over:
                work()
        except OSError as error:
            self.over = True
            warnings.warn(f"the TensorBoard log stops here, the run continues: {error.strerror or error}", stacklevel=2)

    def _write(self, entry: Entry) -> None:
        prefix, epoch = f"stage-{entry['stage']}", entry["epoch"]
        scalars = {"loss": entry["loss"], "learning_rate": entry["learning_rate"], **entry["terms"]}
        scalars |= {f"accuracy/{k}": v for k, v in entry.get("accuracy", {}).items() if v is not None}
        for name, value in scalars.items():
            self.writer.add_scalar(f"{prefix}/{name}", value, epoch)
        self.writer.flush()
