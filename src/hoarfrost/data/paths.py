"""Paths of many files, in little memory."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

Indices: TypeAlias = NDArray[np.integer] | NDArray[np.bool_] | Sequence[int] | slice


class PathList(Sequence[str]):
    """Paths in one run of bytes and two arrays: eight bytes more than the text, where a tuple of strings takes sixty.

    A part of a list shares its bytes. File names that are not text in the system's encoding survive.

    >>> paths = PathList(["ant/1.png", "ant/2.png", "bee/1.png"])
    >>> paths.take([2, 0]) == ("bee/1.png", "ant/1.png")
    True
    """

    def __init__(self, paths: Iterable[str | os.PathLike[str]] = ()) -> None:
        text, edges = bytearray(), array("q", [0])
        for path in paths:
            text += os.fsencode(path)
            edges.append(len(text))
        self._text = bytes(text)
        numbers = np.frombuffer(edges, dtype=np.int64).astype(np.min_scalar_type(len(text)))
        self._starts, self._stops = numbers[:-1], numbers[1:]

    def take(self, indices: Indices) -> PathList:
        """The paths at `indices`."""
        part = PathList.__new__(PathList)
        part._text, part._starts, part._stops = self._text, self._starts[indices], self._stops[indices]
        return part

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> PathList: ...

    def __getitem__(self, index: int | slice) -> str | PathList:
        if isinstance(index, slice):
            return self.take(index)
        return os.fsdecode(self._text[self._starts[index] : self._stops[index]])

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"PathList([{shown}{', ...' if len(self) > 3 else ''}])"


@dataclass(frozen=True)
class FileList(Sequence[Path]):
    """Files by their names below one folder."""

    root: Path
    names: PathList

    @classmethod
    def of(cls, paths: Iterable[Path]) -> FileList:
        """Any files, as they are given."""
        return cls(Path(), PathList(paths))

    def take(self, indices: Indices) -> FileList:
        """The files at `indices`."""
        return replace(self, names=self.names.take(indices))

    def text(self, index: int) -> str:
        """A path as a string: some versions of Python never forget the parts of a Path."""
        return os.path.join(self.root, self.names[index])  # noqa: PTH118

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Path: ...

    @overload
    def __getitem__(self, index: slice) -> FileList: ...

    def __getitem__(self, index: int | slice) -> Path | FileList:
        return self.take(index) if isinstance(index, slice) else Path(self.text(index))
