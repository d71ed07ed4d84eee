"""What a model says of the images of a folder, asked in a process of its own.

The server so needs no PyTorch: it starts at once and stays small. The other process ends when it was not asked for a
while, and gives its memory back; it is started again when somebody decides something that changes predictions.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.errors import InputError, SkippedFiles
from hoarfrost.models.classes import ClassTable

if TYPE_CHECKING:
    from hoarfrost.training.learner import Learner

IDLE = 120.0
"""seconds without a question until the other process ends"""


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a model says of N images, of the classes as a table has them."""

    table: ClassTable
    paths: Sequence[str]
    """(N,), relative to the folder"""
    states: NDArray[np.int64]
    """(N,), `hoarfrost.data.images.state_of` each file"""
    probabilities: NDArray[np.float32]
    """(N, C), columns by class id; what is merged or rejected has none"""
    left_out: str = ""
    """what lay beside the images and was not read, in words"""

    def of_table(self, table: ClassTable) -> Judgement:
        """The same as far as it follows at once: what is merged adds up, what is rejected has no probability.

        Exactly, the probabilities of other classes change a little where one is rejected; the model says how.
        """
        if table == self.table:
            return self
        stands_for, columns = table.stands_for, np.zeros_like(self.probabilities)
        for column, target in enumerate(stands_for.tolist()):
            if target >= 0:
                columns[:, target] += self.probabilities[:, column]
        return Judgement(table, self.paths, self.states, columns, self.left_out)


def follow(learner: Learner, table: ClassTable) -> bool:
    """Has a learner in memory decide what a table has; False where that is of other classes."""
    if learner.model.classes.rows != table.rows:
        return False
    own = learner.model.classes.edits
    shared = next((k for k, (a, b) in enumerate(zip(own, table.edits, strict=False)) if a != b), None)
    shared = min(len(own), len(table.edits)) if shared is None else shared
    for _ in own[shared:]:
        learner.undo()
    for edit in table.edits[shared:]:
        names = learner.model.classes.own_names
        if edit.verb == "merge" and edit.into is not None:
            learner.merge(names[edit.id], names[edit.into])
        elif edit.verb == "reject":
            learner.reject(names[edit.id])
        elif edit.name is not None:
            learner.rename(names[edit.id], edit.name)
    return True


def answer(model: str, folder: str, device: str, features: str, line: Connection) -> None:
    """The other process: reads the folder once, then says what the model says whenever it is asked."""
    for name in ("SIGINT", "SIGHUP"):  # the server ends it
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    warnings.simplefilter("ignore", SkippedFiles)  # the judgement has the words
    try:
        with suppress(EOFError, BrokenPipeError):
            _answer(Path(model), Path(folder), device, features, line)
    except InputError as error:
        line.send(("refused", str(error)))
    except MemoryError:
        line.send(("refused", "out of memory: close other programs"))


def _answer(model: Path, folder: Path, device: str, features: str, line: Connection) -> None:
    from hoarfrost.models.description import read_classes
    from hoarfrost.training.learner import Learner
    from hoarfrost.training.observers import Observer

    class Telling(Observer):
        """Tells the server how far it is."""

        def images_seen(self, done: int, count: int) -> None:
            line.send(("seen", (done, count)))

    learner, images = Learner.load(model, device), None
    while True:
        learner.keep_features(features)
        learner.follow(Telling())
        table = read_classes(model)
        if not follow(learner, table):
            learner = Learner.load(model, device)
            continue
        images = learner.prepare(folder) if images is None else images
        if images.paths is None or images.states is None:
            raise InputError(f"{folder} holds no image files: give a folder of images")
        found = learner.predictions(images).probabilities.astype(np.float32)
        line.send(("judged", (table.to_json(), list(images.paths), images.states, found, images.left_out)))
        if not line.poll(IDLE):
            return
        line.recv()


class Judge:
    """Asks the model in the background, one question after the other; the last one counts.

    tell: called with what was judged.
    """

    def __init__(
        self, model: Path, folder: Path, features: str, tell: Callable[[Judgement], None], device: str = "auto"
    ) -> None:
        self.arguments = (str(model), str(folder), device, features)
        self.tell = tell
        self.progress: tuple[int, int] | None = None
        """images that a network has looked at, and of how many"""
        self.refused: str | None = None
        """why there is no judgement, in words"""
        self._asked, self._closed = threading.Event(), False
        self._process: Any = None
        self._line: Connection | None = None
        self.busy = False
        threading.Thread(target=self._work, daemon=True).start()

    def ask(self) -> None:
        """Has the images judged with the classes as they are now."""
        self.busy = True
        self._asked.set()

    def close(self) -> None:
        """Ends the other process."""
        self._closed = True
        self._asked.set()
        if self._process is not None and self._process.is_alive():
            self._process.terminate()
            self._process.join(2)

    def _work(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._closed:
                return
            try:
                judged = self._question()
            except (EOFError, OSError):
                if self._closed:
                    return
                judged, self.refused = None, "the process that asks the model was ended: try again"
            if judged is not None:
                self.refused = None
                self.tell(judged)
            self.busy = self._asked.is_set()

    def _question(self) -> Judgement | None:
        """One judgement, by the other process that is there or by a new one."""
        if self._process is not None and self._process.is_alive() and self._line is not None:
            with suppress(BrokenPipeError, OSError, EOFError):
                self._line.send("again")
                return self._heard(self._line)
        context = multiprocessing.get_context("spawn")
        self._line, other = context.Pipe()
        self._process = context.Process(target=answer, args=(*self.arguments, other), daemon=True)
        self._process.start()
        other.close()
        return self._heard(self._line)

    def _heard(self, line: Connection) -> Judgement | None:
        while True:
            kind, content = line.recv()
            if kind == "seen":
                self.progress = content if content[0] < content[1] else None
            elif kind == "refused":
                self.refused = content
                return None
            else:
                table, paths, states, found, left_out = content
                return Judgement(ClassTable.from_json(table), paths, states, found, left_out)
