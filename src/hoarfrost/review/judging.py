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
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.errors import InputError, SkippedFiles
from hoarfrost.models import decisions, description
from hoarfrost.models.classes import ClassTable

if TYPE_CHECKING:
    from hoarfrost.data.images import ImageSet
    from hoarfrost.training.learner import Learner

IDLE = 120.0
"""seconds without a question until the other process ends"""


class Stale(Exception):
    """Something was decided elsewhere since the page was loaded."""


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
    like: NDArray[np.float32] | None = None
    """(N,): how like any class each image is, from 0 to 1; None where its probabilities add up to that"""

    @property
    def likeness(self) -> NDArray[np.float32]:
        """``like``, or the sums."""
        found: NDArray[np.float32] = self.probabilities.sum(axis=1) if self.like is None else self.like
        return found

    def of_table(self, table: ClassTable) -> Judgement:
        """The same as far as it follows at once: what is merged adds up, what is rejected has no probability.

        Exactly, the probabilities of other classes change a little where one is rejected; the model says how.
        """
        if table == self.table:
            return self
        stands_for, columns = table.stands_for, np.zeros((len(self.paths), len(table)), dtype=np.float32)
        for column, target in enumerate(stands_for[: self.probabilities.shape[1]].tolist()):
            if target >= 0:
                columns[:, target] += self.probabilities[:, column]
        return Judgement(table, self.paths, self.states, columns, self.left_out, self.likeness)

    def given(self, positions: NDArray[np.int64], class_id: int) -> Judgement:
        """The same after a person has given some images to a class."""
        probabilities, like = self.probabilities.copy(), self.likeness.copy()
        probabilities[positions], like[positions] = 0, 1
        probabilities[positions, class_id] = 1
        return replace(self, probabilities=probabilities, like=like)


def follow(learner: Learner, table: ClassTable) -> bool:
    """Has a learner in memory decide what a table has; False where that is of other classes, or of unknown images."""
    model = learner.model
    own, wanted = model.classes, table.rows[: len(table) - table.made]
    if own.rows[: len(own) - own.made] != wanted:
        return False
    try:
        model.counted.check(table.edits, model.network.decisive_width)
    except InputError:
        return False
    if own != table:
        learner.decide(table)
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
    from hoarfrost.training.learner import Learner
    from hoarfrost.training.observers import Observer

    class Telling(Observer):
        """Tells the server how far it is."""

        def images_seen(self, done: int, count: int) -> None:
            line.send(("seen", (done, count)))

    learner, images = Learner.load(model, device), None
    while line.poll(IDLE):
        asked = line.recv()
        learner.keep_features(features)
        learner.follow(Telling())
        if not follow(learner, description.read_classes(model)):
            learner = Learner.load(model, device)
            learner.keep_features(features)
            learner.follow(Telling())
        images = learner.prepare(folder) if images is None else images
        if images.paths is None or images.states is None:
            raise InputError(f"{folder} holds no image files: give a folder of images")
        if asked == "again":
            found = learner.judged(images)[1].astype(np.float32)
            told = learner.model.classes.to_json()
            line.send(("judged", (told, list(images.paths), images.states, found, images.left_out)))
            continue
        try:
            line.send(
                _groups(learner, images, *asked[1:])
                if asked[0] == "groups"
                else _decide(learner, model, images, *asked[1:])
            )
        except Stale:
            line.send(("stale", None))
        except InputError as error:
            line.send(("no", str(error)))


def _groups(learner: Learner, images: ImageSet, class_id: int, into: int) -> tuple[str, Any]:
    """The paths of the images of a class, in groups."""
    evidence = learner.evidence(images)
    place: dict[str, list[int]] = {}
    for position, name in enumerate(evidence.digests):
        place.setdefault(name, []).append(position)
    assert images.paths is not None
    names = learner.model.classes.own_names
    groups = learner.groups(names[class_id], evidence, into=into)
    return "groups", [[images.paths[place[name].pop()] for name in own.digests] for own in groups]


def _decide(
    learner: Learner, model: Path, images: ImageSet, version: str, verb: str, name: str, groups: list[list[str]]
) -> tuple[str, Any]:
    """Moves images, named by their paths, to a class, or splits them off; written unless the classes have changed."""
    from hoarfrost.models.counted import keep_moves

    assert images.paths is not None
    place = {path: position for position, path in enumerate(images.paths)}
    if any(path not in place for own in groups for path in own):
        raise InputError("some of these images are not there any more: open the review again")
    found = [learner.evidence(images.take(np.array([place[path] for path in own]))) for own in groups]
    digests = [own.digests for own in found]

    def decided(table: ClassTable) -> ClassTable:
        if decisions.state_of(table) != version:
            raise Stale
        after = table.move(digests[0], name) if verb == "move" else table.split(name, digests)
        learner.decide(after, found)
        keep_moves(model, table, after, learner.model.counted)
        return after

    return "decided", description.change_classes(model, decided).to_json()


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
        self._asked, self._closed, self._turn = threading.Event(), False, threading.Lock()
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

    def groups(self, class_id: int, into: int) -> list[list[str]]:
        """The paths of a class's images in groups, the largest first."""
        found: list[list[str]] = self._request(("groups", class_id, into))
        return found

    def decide(self, version: str, verb: str, name: str, groups: list[list[str]]) -> ClassTable:
        """Moves images to a class, or splits them off one; the table as it was written."""
        return ClassTable.from_json(self._request(("decide", version, verb, name, groups)))

    def _request(self, request: tuple[Any, ...]) -> Any:
        """What the other process answers."""
        try:
            kind, content = self._ask(request)
        except (EOFError, OSError):
            raise InputError("the process that asks the model was ended: try again") from None
        if kind == "stale":
            raise Stale
        if kind in ("no", "refused"):
            raise InputError(content)
        return content

    def _question(self) -> Judgement | None:
        """One judgement."""
        kind, content = self._ask("again")
        if kind != "judged":
            self.refused = content
            return None
        table, paths, states, found, left_out = content
        return Judgement(ClassTable.from_json(table), paths, states, found, left_out)

    def _ask(self, request: Any) -> tuple[str, Any]:
        """An answer by the other process that is there, or by a new one; one request after the other."""
        with self._turn:
            if self._process is not None and self._process.is_alive() and self._line is not None:
                with suppress(BrokenPipeError, OSError, EOFError):
                    self._line.send(request)
                    return self._heard(self._line)
            context = multiprocessing.get_context("spawn")
            self._line, other = context.Pipe()
            self._process = context.Process(target=answer, args=(*self.arguments, other), daemon=True)
            self._process.start()
            other.close()
            self._line.send(request)
            return self._heard(self._line)

    def _heard(self, line: Connection) -> tuple[str, Any]:
        while True:
            kind, content = line.recv()
            if kind != "seen":
                return kind, content
            self.progress = content if content[0] < content[1] else None
