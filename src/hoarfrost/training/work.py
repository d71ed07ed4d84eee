"""Work on a model folder: unfinished it stands beside its target, and takes its name at the end."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hoarfrost import store
from hoarfrost.errors import InputError

CHECKPOINT = "checkpoint.safetensors"


def unfinished_beside(out: Path) -> Path:
    """Where the work on ``out`` stands until it is done."""
    return out.with_name(f"{out.name}.unfinished")


def is_done(out: Path, content: dict[str, Any], *, resume: bool) -> bool:
    """Whether ``out`` is that very model already. Refuses whatever else is there."""
    store.check_place(out)
    if store.is_free(out):
        return False
    if not (out / "model.json").is_file():
        raise InputError(f"{out} already holds something else: choose another --out")
    if not resume:
        raise InputError(f"{out} already holds a model: choose another --out")
    store.check_same(out, content)
    return True


@contextmanager
def workspace(out: Path, content: dict[str, Any], *, resume: bool) -> Iterator[Path]:
    """A folder beside ``out`` to work in, which takes its name when the block ends well.

    When the block fails, it is kept for ``--resume`` if an epoch is saved in it, and removed if not.
    """
    unfinished = unfinished_beside(out)
    made_now = not unfinished.exists()
    if not made_now:
        if not resume:
            raise InputError(f"{unfinished} holds unfinished work: --resume goes on with it, or remove it")
        store.check_same(unfinished, content)
    else:
        with store.replaced_folder(unfinished) as new:
            store.write_json(new / "config.json", content)
    checkpoint = unfinished / CHECKPOINT
    try:
        yield unfinished
    except Exception:
        if made_now and not checkpoint.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
        raise
    if out.exists():
        out.rmdir()  # is_done saw to it that it is empty
    unfinished.rename(out)
    # Only now: until the folder has its name, the last epoch is what a resumed command goes on from.
    (out / CHECKPOINT).unlink(missing_ok=True)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
