"""Rows that come when they are asked for: features in a file, and what is computed of them, where memory is too dear.

A file is read, not mapped: the pages of a mapped file count as memory of every process that has touched them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.arrays import CHUNK, Ids
from hoarfrost.data.paths import Indices

Floats = NDArray[np.floating[Any]]


class Handle:
    """An open file of which nobody knows when it is needed last: it is closed when nobody has it any more."""

    def __init__(self, file: BinaryIO) -> None:
        self.number = os.dup(file.fileno())

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.number)


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """Features ``(N, D)`` in an open file: indexing gives others of its kind, and ``np.asarray`` reads."""

    file: Handle
    start: int
    """bytes before the first row"""
    width: int
    rows: Ids
    """(N,): where in the file each row is, counted in rows"""
    kept_as: str = ""
    """the name of the file, where it is kept for others"""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)"""
        return len(self.rows), self.width

    def __getitem__(self, rows: Indices) -> FeatureFile:
        return replace(self, rows=self.rows[rows])

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> NDArray[Any]:
        features = np.empty(self.shape, dtype=np.float32)
        for run in runs(self.rows):
            at = self.start + int(self.rows[run[0]]) * features.itemsize * self.width
            fill(features[run[0] : run[-1] + 1].data.cast("B"), self.file.number, at)
        return features if dtype is None else features.astype(dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (np.asarray(self),)  # an open file cannot be sent to another process


Features: TypeAlias = NDArray[np.float32] | FeatureFile


@dataclass(frozen=True, eq=False)
class Mapped:
    """What a function makes of rows, computed when it is asked for: indexing gives others, ``np.asarray`` computes."""

    source: Rows
    function: Callable[[Floats], Floats]

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: Indices) -> Mapped:
        return replace(self, source=self.source[rows])

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> NDArray[Any]:
        parts = [self.function(np.asarray(part)) for part in chunks(self.source)]
        made = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return made if dtype is None else made.astype(dtype, copy=False)


Rows: TypeAlias = Floats | FeatureFile | Mapped
"""``(N, D)``"""


def mapped(rows: Rows, function: Callable[[Floats], Floats]) -> Rows:
    """What a function makes of each row: at once where there are few, else when it is asked for."""
    return function(np.asarray(rows)) if len(rows) <= CHUNK else Mapped(rows, function)


def chunks(rows: Rows) -> Iterator[Floats]:
    """The rows, some at a time."""
    for start in range(0, max(1, len(rows)), CHUNK):
        yield np.asarray(rows[start : start + CHUNK])


def runs(rows: Ids) -> list[Ids]:
    """Positions in `rows` of those that follow each other in the file as they do in `rows`; the file's order first."""
    if len(rows) == 0:
        return []
    order = np.argsort(rows, kind="stable").astype(np.int64)
    apart = (np.diff(rows[order]) != 1) | (np.diff(order) != 1)
    return np.split(order, np.flatnonzero(apart) + 1)


_SEEKING = threading.Lock()


def fill(view: memoryview, file: int, at: int) -> None:
    """Reads from a place in an open file until `view` is full; other threads may read it too."""
    while len(view):
        if hasattr(os, "preadv"):
            count = os.preadv(file, [view], at)
        else:  # Windows
            with _SEEKING:
                os.lseek(file, at, os.SEEK_SET)
                piece = os.read(file, len(view))
            count = len(piece)
            view[:count] = piece
        if not count:
            raise EOFError("its end is missing")
        view, at = view[count:], at + count
