"""Folders of models and runs: whole or absent, with a format version, and without pickle.

A folder is filled beside its place and renamed into it, so that a process killed at any moment leaves the old state or
the new one. Tensors are safetensors files, everything else is JSON.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoarfrost.errors import InputError
from hoarfrost.locks import Lock
from hoarfrost.reading import damaged as damaged
from hoarfrost.reading import open_regular
from hoarfrost.reading import read_json as read_json

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1

MOST_NAME = 200
"""bytes of a name that is chosen for a folder; file systems take 255, and work on it needs a name that is longer"""


def flush(path: Path) -> None:
    """Has the system write a file, or the names in a folder, to the disk, so that a loss of power leaves them."""
    if os.name == "nt" and path.is_dir():  # Windows opens no folders, and keeps their names itself
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(folder: Path) -> None:
    """Flushes a folder with all that is in it."""
    for path in (*folder.rglob("*"), folder):
        if path.is_file() or path.is_dir():
            flush(path)


@contextmanager
def replaced_file(path: Path, mark: str = "", *, lasting: bool = False) -> Iterator[Path]:
    """A place beside ``path`` to write to, which takes its name when the block ends well and vanishes when not.

    ``mark`` keeps apart processes that may make the same file at once. What is ``lasting`` is flushed to the disk.
    """
    part = path.with_name(f".{path.name}{mark}.part")
    part.unlink(missing_ok=True)  # a link that somebody put there would be written through
    try:
        yield part
        if lasting:
            flush(part)
        part.replace(path)
        if lasting:
            flush(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes, *, lasting: bool = False) -> None:
    """Writes a file as a whole: it holds the old content or the new one, never a part."""
    with replaced_file(path, lasting=lasting) as part:
        part.write_bytes(content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON as a whole, indented for people, and flushes it to the disk."""
    write_bytes(path, (indented(content) + "\n").encode(), lasting=True)


_NUMBERS = re.compile(r"\[\n\s*[-+.\deE]+(?:,\n\s*[-+.\deE]+)*\n\s*\]")
_LISTS_OF_NUMBERS = re.compile(r"\[\n\s*\[[-+.\deE, ]+\](?:,\n\s*\[[-+.\deE, ]+\])*\n\s*\]")


def indented(content: Any) -> str:
    """JSON for people: a list of numbers is one line, and so is a list of such lists.

    >>> print(indented({"drops": [30, 60], "rows": [[[0, 3], [2, 1]], [], [[1, 2]]]}))
    {
      "drops": [30, 60],
      "rows": [
        [[0, 3], [2, 1]],
        [],
        [[1, 2]]
      ]
    }
    """
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    # A string has no line break of its own in JSON, so that none of its parts can match.
    for lists in (_NUMBERS, _LISTS_OF_NUMBERS):
        text = lists.sub(lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
    return text


def check_format(content: Mapping[str, Any], path: Path) -> None:
    """Refuses a folder that a newer hoarfrost wrote."""
    version = content.get("format")
    if not isinstance(version, int) or version < 1:
        raise InputError(f"{path} has no format version, so hoarfrost did not write it: check the path")
    if version > FORMAT:
        raise InputError(f"{path} has format {version}; this hoarfrost reads up to {FORMAT}: update hoarfrost")


ADDED = {"variant": "code"}
"""what a ``config.json`` of an earlier version does not say, and what it means there"""


def check_same(folder: Path, content: Mapping[str, Any]) -> None:
    """Refuses to go on in a folder whose ``config.json`` says something else, and names what."""
    from hoarfrost.settings import filled

    before = read_json(folder / "config.json", "folder to resume")
    check_format(before, folder)
    before = {**{key: value for key, value in ADDED.items() if key in content}, **before}
    before |= {key: filled(before[key]) for key in ("learner", "config") if key in before}
    if found := differences(before, dict(content)):
        found = ["the images have changed" if f.startswith("images") else f for f in found]
        found = list(dict.fromkeys(found))
        found.sort(key=lambda line: line.split(" ")[0].count("."))  # the broad ones first
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        raise InputError(
            f"{folder} was started with another configuration: {'; '.join(found[:3])}{more}: choose another --out"
        )


def differences(before: Any, after: Any, where: str = "") -> list[str]:
    """What differs between two JSON contents, a line each.

    >>> differences({"seed": 0, "fit": {"epochs": 3}}, {"seed": 1, "fit": {"epochs": 3}})
    ['seed changed from 0 to 1']
    """
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(before.keys() | after.keys())
        found = []
        for key in keys:
            found += differences(before.get(key), after.get(key), f"{where}.{key}" if where else key)
        return found
    return [] if before == after else [f"{where} changed from {json.dumps(before)} to {json.dumps(after)}"]


def check_place(path: Path, option: str = "--out") -> None:
    """Refuses a place below which no folder can be made."""
    if not str(path) or path == Path():
        raise InputError(f"{option} does not name a folder: choose a name")
    if len(os.fsencode(path.name)) > MOST_NAME:
        raise InputError(f"the name '{path.name[:40]}…' is too long for {option}: use at most {MOST_NAME} bytes")
    for parent in path.absolute().parents:
        if parent.exists():
            if not parent.is_dir():
                raise InputError(f"{path} cannot be created, since {parent} is not a folder: choose another {option}")
            return


def check_folder(path: Path, option: str = "--out") -> None:
    """Refuses a place that is no folder, and where none can be made."""
    check_place(path, option)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file: choose another {option}")


def strangers(folder: Path, known: Container[str]) -> list[Path]:
    """What is in a folder beside the known names and the remains of a write that was cut short."""
    return [path for path in folder.iterdir() if path.name not in known and path.suffix != ".part"]


def is_free(path: Path) -> bool:
    """Whether nothing is there, or an empty folder."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None, *, lasting: bool = False
) -> None:
    """Writes a safetensors file as a whole; what is ``lasting`` is flushed to the disk."""
    from safetensors.torch import save

    content = save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, dict(metadata or {}))
    write_bytes(path, content, lasting=lasting)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        open_regular(path).close()  # what may not be read, or is no file, is not damaged
    except (FileNotFoundError, IsADirectoryError):
        raise damaged(path.parent, f"it has no {path.name}") from None
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise damaged(path, str(error)) from None


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """A new folder to fill, which takes the place of ``target`` when the block ends well and vanishes when not.

    It is flushed to the disk before it takes that place.
    """
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    new, old = _beside(target, "new"), _beside(target, "old")
    shutil.rmtree(new, ignore_errors=True)
    recover_folder(target)
    new.mkdir()
    try:
        yield new
        flush_folder(new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    new.rename(target)
    flush(target.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Makes ``folder``; within the block other processes that ask for the same wait, if it says that the system can."""
    folder.mkdir(parents=True, exist_ok=True)
    locked = False
    with ExitStack() as held:
        with suppress(ImportError, OSError):
            lock = Lock(folder)
            held.callback(lock.close)
            locked = lock.take(wait=True)
        yield locked


AT_WORK = "another command is at work"


@contextmanager
def at_work(folder: Path, begin: Callable[[], bool], option: str = "--out") -> Iterator[bool]:
    """Within the block no other process works in a folder with a ``config.json``: it would be refused here.

    ``begin`` finds the folder or makes it, and says which; so does the block. Two processes in one folder would mix
    their epochs. Where the system has no locks, nothing is refused.
    """
    with ExitStack() as held:
        with alone(folder.absolute().parent):
            recover_folder(folder)
            stays = _claim(folder, held, option)
            if (made := begin()) and not stays:
                _claim(folder, held, option)
        yield made


def _claim(folder: Path, held: ExitStack, option: str) -> bool:
    """Takes the lock of a folder, if it is there; whether that lock is still its own when its files are replaced."""
    with suppress(ImportError, OSError):
        lock = Lock(folder, "config.json")
        _claims.add(lock.handle)
        held.callback(lock.close)
        held.callback(_claims.discard, lock.handle)
        for patience in (*[0.05] * 10, None):  # one that only asks whether somebody is at work holds it for a moment
            if lock.take(wait=False):
                return lock.beside is not None
            if patience is not None:
                time.sleep(patience)
        raise InputError(f"{AT_WORK} in {folder}: wait for it, or choose another {option}")
    return False


_claims: set[int] = set()


def _leave_claims() -> None:
    """In a process that was forked, to read images say: it may live a little longer than the one that is at work."""
    for handle in _claims:
        os.close(handle)
    _claims.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_claims)


def is_at_work(folder: Path) -> bool:
    """Whether another process works in a folder with a ``config.json``."""
    with suppress(ImportError, OSError):
        lock = Lock(folder, "config.json")
        try:
            return not lock.take(wait=False)
        finally:
            lock.close()
    return False


def recover_folder(target: Path) -> None:
    """Puts the earlier folder back where a process was killed between the two renames of a replacement."""
    target = target.absolute()
    if not target.name:
        return
    old = _beside(target, "old")
    if old.exists() and not target.exists():
        old.rename(target)


def _beside(target: Path, role: str) -> Path:
    return target.with_name(f".{target.name}.{role}")


class CheckpointFile:
    """The state after the last finished epoch of one stage: one safetensors file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[int, dict[str, Tensor]] | None:
        """The number of finished epochs and the tensors, or None."""
        if not self.path.exists():
            return None
        try:
            tensors, metadata = read_tensors(self.path)
            return int(metadata["epochs"]), tensors
        except (InputError, KeyError, ValueError):
            raise self.damaged() from None

    def damaged(self) -> InputError:
        """The error for a state that is not what was saved."""
        return InputError(f"{self.path} is damaged: remove it to train its stage again")

    def save(self, epochs: int, tensors: Mapping[str, Tensor]) -> None:
        """Replaces the state."""
        write_tensors(self.path, tensors, {"epochs": str(epochs), "format": str(FORMAT)})
