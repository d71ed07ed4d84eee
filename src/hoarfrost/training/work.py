"""Work on a model folder: unfinished it stands beside its target, and takes its name at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hoarfrost import store
from hoarfrost.errors import InputError

CHECKPOINT = "checkpoint.safetensors"


def unfinished_beside(out: Path) -> Path:
    """Where the work on ``out`` stands until it is done."""
    return out.with_name(f"{out.name}.unfinished")


def begin(out: Path, content: dict[str, Any], *, resume: bool) -> Path | None:
    """The folder to work in, or None if ``out`` is that very model already."""
    unfinished = unfinished_beside(out)
    if not store.is_free(out):
        if not (out / "model.json").is_file():
            raise InputError(f"{out} already holds something else: choose another --out")
        if not resume:
            raise InputError(f"{out} already holds a model: choose another --out")
        store.check_same(out, content)
        return None
    if unfinished.exists():
        if not resume:
            raise InputError(f"{unfinished} holds unfinished work: --resume goes on with it, or remove it")
        store.check_same(unfinished, content)
        return unfinished
    with store.replaced_folder(unfinished) as new:
        store.write_json(new / "config.json", content)
    return unfinished


def finish(unfinished: Path, out: Path, write: Callable[[Path], None]) -> None:
    """Completes the folder and gives it its name."""
    write(unfinished)
    (unfinished / CHECKPOINT).unlink(missing_ok=True)
    if out.exists():
        out.rmdir()  # begin saw to it that it is empty
    unfinished.rename(out)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
