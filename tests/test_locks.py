"""Locks between processes, as Linux has them, and as Windows does."""

from __future__ import annotations

import errno
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from hoarfrost import locks, store
from hoarfrost.errors import InputError
from hoarfrost.locks import Lock

fcntl = pytest.importorskip("fcntl")


@pytest.fixture(params=["Linux", "Windows"])
def windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether locks are those of Windows, which are made of Linux's here."""
    if request.param == "Windows":

        def locking(handle: int, mode: int, count: int) -> None:
            assert (mode, count) == (2, 1)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PermissionError(errno.EACCES, "Permission denied") from None

        msvcrt = ModuleType("msvcrt")
        vars(msvcrt).update(locking=locking, LK_NBLCK=2)
        monkeypatch.setitem(sys.modules, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
        monkeypatch.setattr(locks, "PAUSE", 0.001)
    return bool(request.param == "Windows")


def test_only_one_has_it(tmp_path: Path, windows: bool) -> None:
    first, second = Lock(tmp_path), Lock(tmp_path)
    assert first.take(wait=False)
    assert not second.take(wait=False)
    waited = threading.Thread(target=lambda: second.take(wait=True))
    waited.start()
    waited.join(0.1)
    assert waited.is_alive()
    first.close()
    waited.join(10)
    assert not waited.is_alive()
    second.close()
    assert (first.beside is not None) == windows
    assert not list(tmp_path.parent.glob(".*.part")), "nothing is left"


def test_two_commands_in_one_folder(tmp_path: Path, windows: bool) -> None:
    folder = tmp_path / "made"

    def begin() -> bool:
        folder.mkdir(exist_ok=True)
        store.write_json(folder / "config.json", {"format": 1})
        return True

    with store.at_work(folder, begin):
        assert store.is_at_work(folder)
    with store.at_work(folder, begin):
        assert store.is_at_work(folder), "also where it was there before"
        with pytest.raises(InputError, match=r"another command is at work in .*made"), store.at_work(folder, begin):
            pass
        folder.rename(tmp_path / "done")  # as at the end of a work, while it is locked
    assert not store.is_at_work(tmp_path / "done")
    assert {path.name for path in tmp_path.iterdir()} == {"done"}
    assert {path.name for path in (tmp_path / "done").iterdir()} == {"config.json"}


def test_where_the_system_has_no_locks_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with store.alone(tmp_path) as certain:
        assert not certain
