"""What follows a training: told of stages, batches and epochs, it may look and must not touch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hoarfrost import store
from hoarfrost.forms import LOG_ENTRY
from hoarfrost.models.network import Network
from hoarfrost.reading import open_own, read_json_lines

Entry = dict[str, Any]
"""a line of ``log.jsonl``: stage, epoch, loss, terms, learning_rate, seconds, and what observers add"""


class Observer:
    """What wants to follow a training: progress bars, logs, scores. This one does nothing."""

    def stage_started(self, stage: int, *, epochs: int, batches: int, done: int) -> None:
        """A stage begins, or goes on after ``done`` epochs."""

    def images_seen(self, done: int, count: int) -> None:
        """A network has looked at so many of the images without learning; 0 at the beginning."""

    def held_back(self, done: int, count: int) -> None:
        """Known classes were held back so many times, to see how they are found as new ones; 0 at the beginning."""

    def sorting(self, images: int, *, done: bool) -> None:
        """So many images are about to be told apart by class, which may take a while; or that is ``done``."""

    def compiling(self) -> None:
        """The stage's first step is about to be compiled, which takes a while; then come batches."""

    def batch_done(self) -> None:
        """One step of the optimiser; called often, must not wait for the device."""

    def epoch_done(self, entry: Entry, network: Network) -> None:
        """An epoch has ended. ``network`` is the student, to look at and not to touch; ``entry`` may be added to."""


class Observers(Observer):
    """Several observers, told one after the other."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = tuple(observers)

    def stage_started(self, stage: int, *, epochs: int, batches: int, done: int) -> None:
        """Passes it on."""
        for observer in self.observers:
            observer.stage_started(stage, epochs=epochs, batches=batches, done=done)

    def images_seen(self, done: int, count: int) -> None:
        """Passes it on."""
        for observer in self.observers:
            observer.images_seen(done, count)

    def held_back(self, done: int, count: int) -> None:
        """Passes it on."""
        for observer in self.observers:
            observer.held_back(done, count)

    def sorting(self, images: int, *, done: bool) -> None:
        """Passes it on."""
        for observer in self.observers:
            observer.sorting(images, done=done)

    def compiling(self) -> None:
        """Passes it on."""
        for observer in self.observers:
            observer.compiling()

    def batch_done(self) -> None:
        """Passes it on."""
        for observer in self.observers:
            observer.batch_done()

    def epoch_done(self, entry: Entry, network: Network) -> None:
        """Passes it on; what one adds to the entry the next ones see."""
        for observer in self.observers:
            observer.epoch_done(entry, network)


class LogFile(Observer):
    """``log.jsonl``: a line an epoch. Lines of epochs that are trained again are dropped first."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def stage_started(self, stage: int, *, epochs: int, batches: int, done: int) -> None:
        """Keeps the lines up to where training goes on."""
        kept = [line for line in self.entries() if (line["stage"], line["epoch"]) < (stage, done)]
        self.adopt(kept)

    def epoch_done(self, entry: Entry, network: Network) -> None:
        """Adds a line."""
        with open_own(self.path) as file:
            file.write((json.dumps(entry) + "\n").encode())

    def adopt(self, entries: Sequence[Entry]) -> None:
        """Begins with lines of another log."""
        store.write_bytes(self.path, "".join(json.dumps(line) + "\n" for line in entries).encode())

    def entries(self) -> list[Entry]:
        """The lines so far; one that a kill cut short is left out."""
        return read_json_lines(self.path, LOG_ENTRY)
