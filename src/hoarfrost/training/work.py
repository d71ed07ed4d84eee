"""Work on a model folder: unfinished it stands beside its target, and takes its name at the end."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hoarfrost import store
from hoarfrost.computing.processes import Processes
from hoarfrost.errors import InputError
from hoarfrost.models.model import Model
from hoarfrost.reading import open_regular
from hoarfrost.training.observers import LogFile

CHECKPOINT = "checkpoint.safetensors"
WRITTEN = ("log.jsonl", "weights.safetensors", "prototypes.safetensors", "report.html", "model.json")
"""files that are written at the end, or while the work goes on"""


def unfinished_beside(out: Path) -> Path:
    """Where the work on ``out`` stands until it is done."""
    return out.with_name(f"{out.name}.unfinished")


def begins(out: Path, *, resume: bool) -> bool:
    """Whether nothing is at ``out`` or beside it yet. Refuses what nobody could go on with."""
    store.check_folder(out)
    if store.is_free(out):
        return not unfinished_beside(out).exists()
    if not (out / "model.json").is_file():
        raise InputError(f"{out} already holds something else: choose another --out")
    if not resume:
        raise InputError(f"{out} already holds a model: choose another --out")
    return False


def is_done(out: Path, content: dict[str, Any], *, resume: bool, processes: Processes) -> bool:
    """Whether ``out`` is that very model already. Refuses whatever else is there."""

    def look() -> bool:
        begins(out, resume=resume)
        if store.is_free(out):
            return resume and _is_complete(out, content)
        store.check_same(out, content)
        (out / CHECKPOINT).unlink(missing_ok=True)  # earlier versions left it, when they were killed at the end
        return True

    return processes.first(look)


def _is_complete(out: Path, content: dict[str, Any]) -> bool:
    """Whether all was written beside ``out`` when the process was killed; then it takes its name now."""
    unfinished = unfinished_beside(out)
    if not (unfinished / "model.json").is_file() or (unfinished / CHECKPOINT).exists():
        return False
    with store.at_work(unfinished, lambda: False):
        store.check_same(unfinished, content)
        Model.load(unfinished)  # refused under this name, if it is damaged
        log = LogFile(unfinished / "log.jsonl")
        log.adopt(log.entries())  # without a line that was cut short
        _put_in_place(unfinished, out)
    return True


def _put_in_place(unfinished: Path, out: Path) -> None:
    """Ends the work. Without a checkpoint, a folder with a ``model.json``, which is written last, is complete.

    It is flushed to the disk before the checkpoint goes and before it takes its name.
    """
    store.flush_folder(unfinished)
    (unfinished / CHECKPOINT).unlink(missing_ok=True)
    if out.exists():
        out.rmdir()  # is_done saw to it that it is empty
    unfinished.rename(out)
    store.flush(out.absolute().parent)


@contextmanager
def workspace(out: Path, content: dict[str, Any], *, resume: bool, processes: Processes) -> Iterator[Path]:
    """A folder beside ``out`` to work in, which takes its name when the block ends well.

    When the block fails, it is kept for ``--resume`` if an epoch is saved in it, and removed if not.
    """
    unfinished = unfinished_beside(out)
    checkpoint = unfinished / CHECKPOINT

    def begin() -> bool:
        """Whether it was made now."""
        if not unfinished.exists():
            with store.replaced_folder(unfinished) as new:
                store.write_json(new / "config.json", content)
            return True
        if not resume:
            raise InputError(f"{unfinished} holds unfinished work: continue it with --resume, or remove it")
        store.check_same(unfinished, content)
        for file in (unfinished / name for name in WRITTEN):
            if file.is_dir():  # said before hours of work that could not be kept
                raise InputError(f"{file} is a folder instead of a file: move it away")
        return False

    with ExitStack() as at_work:
        made_now = processes.first(lambda: at_work.enter_context(store.at_work(unfinished, begin)))
        try:
            yield unfinished
        except Exception:
            if made_now and processes.is_first and not checkpoint.exists():
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
        processes.first(lambda: _put_in_place(unfinished, out))


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
