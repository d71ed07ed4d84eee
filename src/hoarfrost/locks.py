"""Locks between processes, which end with their process: by ``fcntl``, and by ``msvcrt`` on Windows.

On Windows no folder can be opened, and nothing that is open can be renamed. There a hidden file beside the folder is
locked in its place, and removed by whoever held it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType

PAUSE = 0.05
"""seconds between two tries, where the system cannot wait for a lock"""


def system() -> ModuleType:
    """The module that locks files here; an ``ImportError`` where there is none."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        return msvcrt
    return fcntl


class Lock:
    """The lock of a folder that exists; ``name`` is a file in it that is locked, or else the folder itself is.

    An ``OSError`` or an ``ImportError`` where there can be none.
    """

    def __init__(self, folder: Path, name: str = "") -> None:
        self.system, place = system(), folder / name
        self.beside: Path | None = None
        self.taken = False
        if hasattr(self.system, "flock"):
            self.handle = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # no pipe is waited for
            return
        place.stat()
        folder = folder.absolute()
        self.beside = folder.with_name(f".{folder.name}.lock.part")
        self.handle = os.open(self.beside, os.O_RDWR | os.O_CREAT)

    def take(self, *, wait: bool) -> bool:
        """Whether nobody else has it now; with ``wait`` that is so in the end."""
        if self.beside is None:
            try:
                self.system.flock(self.handle, self.system.LOCK_EX | (0 if wait else self.system.LOCK_NB))
            except BlockingIOError:
                return False
            return True
        while True:
            with suppress(PermissionError, BlockingIOError):
                self.system.locking(self.handle, self.system.LK_NBLCK, 1)
                self.taken = True
                return True
            if not wait:
                return False
            time.sleep(PAUSE)

    def close(self) -> None:
        """Gives it back."""
        os.close(self.handle)
        if self.beside is not None and self.taken:
            with suppress(OSError):  # Windows removes no file that another process has opened
                self.beside.unlink()
