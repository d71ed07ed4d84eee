"""Hostile inputs of every kind, each made from a seed and a number."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hoarfrost.cli import main

from .arrays import arrays
from .children import asked, in_children, writing_little
from .judge import Try, Words, contents, judged
from .kept import features, numbers, plugins, tables
from .pickles import pickles
from .pictures import folders, pictures
from .place import copied
from .sorting import notes, paths, swaps
from .sources import archives, lists
from .words import command_lines
from .written import caches, json_files, tensors

Placing = Callable[[Words], None]


@dataclass(frozen=True)
class Kind:
    """A kind of hostile input."""

    summary: str
    make: Callable[[random.Random, Placing], Try]


def _with(make: Callable[[random.Random], Try], *parts: str) -> Callable[[random.Random, Placing], Try]:
    """A maker that always has the same parts of the place."""

    def made(random: random.Random, place: Placing) -> Try:
        place(parts)
        return make(random)

    return made


KINDS = {
    "pickles": Kind("CIFAR's files", _with(pickles, "cifar-10-batches-py", "cifar-100-python")),
    "arrays": Kind(".npz files", _with(arrays, "model2")),
    "pictures": Kind("image files", _with(pictures, "model2", "unsorted")),
    "folders": Kind("image folders", _with(folders, "model2", "checked")),
    "lists": Kind("Tiny-ImageNet's lists", _with(lists, "tiny-imagenet-200")),
    "archives": Kind("archives that are fetched", _with(archives, "cifar-10-batches-py", "tiny-imagenet-200")),
    "json": Kind("JSON and logs written here", json_files),
    "tensors": Kind("weights, prototypes, checkpoints", tensors),
    "caches": Kind("kept pixels", _with(caches, "model2", "unsorted")),
    "notes": Kind("notes of sorted folders", _with(notes, "model2", "unsorted")),
    "paths": Kind("long and deep paths", _with(paths, "model2", "unsorted")),
    "swaps": Kind("files swapped while they are read", _with(swaps, "model", "model2", "known", "unsorted")),
    "tables": Kind("tables of classes", _with(tables, "model2", "unsorted", "checked")),
    "numbers": Kind("numbers of a model", _with(numbers, "model2", "unsorted", "checked")),
    "features": Kind("kept features", _with(features, "model2", "unsorted")),
    "plugins": Kind("files of one's own, imported", _with(plugins, "known")),
    "words": Kind("command lines", _with(command_lines, "model", "model2", "known", "checked", "unsorted")),
}

SECONDS = 30.0
"""of a processor, within which a command must answer"""

PATIENCE = 10.0
"""times as long a command is waited for, where others use the processor too"""

BATCH = 40
"""cases in one child"""


def make(seed: int, kind: str, case: int, base: Path) -> Try:
    """Fills the current folder for a case."""
    return KINDS[kind].make(random.Random(f"{seed} {kind} {case}"), lambda parts: copied(base, parts, Path()))


def tried(
    seed: int, kind: str, case: int, *, base: Path, scratch: Path, say: Callable[[object], None] | None = None
) -> str:
    """Tries one case in this process; what is wrong, or nothing. ``say`` hears of all that is given and answered."""
    folder = scratch / f"{kind}-{case}"
    folder.mkdir()
    os.chdir(folder)
    try:
        given = make(seed, kind, case, base)
        if say is not None:
            say(given)
        before = contents(folder)
        with writing_little():
            answer = asked(lambda: (given.main or main)(given.arguments))
        if say is not None:
            say(answer)
        problem = judged(given, answer, before, contents(folder))
        return f"{given.what}: {problem}" if problem else ""
    finally:
        os.chdir(scratch)
        shutil.rmtree(folder, ignore_errors=True)


def try_all(seed: int, kind: str, cases: Sequence[int], *, base: Path, scratch: Path) -> Iterator[tuple[int, str]]:
    """The cases with what is wrong with each."""
    yield from in_children(
        lambda case: tried(seed, kind, case, base=base, scratch=scratch),
        cases,
        seconds=SECONDS,
        batch=BATCH,
        patience=PATIENCE,
    )
