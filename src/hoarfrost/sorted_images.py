"""Images put into a folder for each class: each once, whatever ends the command, and whatever people do in between.

A copy first waits in a hidden folder. Then the note says that it is sorted, and where it belongs. Last it takes its
place. So what waits and is noted still has to be placed; what is noted and does not wait was placed, wherever it is
now; and what waits without being noted is copied anew. The note is on the disk before any copy takes its place.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

from hoarfrost.data.arrays import Ids
from hoarfrost.data.images import check_state, unreadable
from hoarfrost.errors import InputError
from hoarfrost.reading import check_own_folder, damaged, open_own, open_regular
from hoarfrost.sorted_folder import LONGEST, NOTE

IMAGES, WAITING = "images.jsonl", "waiting"
"""the note, a line an image; and the folder of copies that wait"""

MOST_LINE = 1 << 16
"""bytes of a line of the note; the longest path that a system has takes less than half of it"""

AT_ONCE, BYTES_AT_ONCE = 32, 64 << 20
"""images, and their bytes, that are noted together: the disk is waited for once"""

LONGEST_NAME = 255
"""bytes of a file's name on most file systems"""

PIECE = 1 << 20
"""bytes copied at once"""


@dataclass(frozen=True)
class SeenFiles:
    """Image files that were looked at."""

    root: Path
    names: Sequence[str]
    """below the root"""
    states: Ids
    """`state_of` each when it was looked at"""


@dataclass(frozen=True)
class Seen:
    """One of them."""

    path: Path
    whole_path: str
    """from the root of the system, which is too long to be opened where folders are very deep"""
    state: int
    place: str
    """where it belongs, below the sorted folder"""


@dataclass(frozen=True)
class Line:
    """What the note says of an image."""

    path: str
    size: int
    time: int
    """of the last change; an image with another path, size or time is another image"""
    place: str = ""
    """where it belongs, below the sorted folder; empty in notes of earlier versions, where nothing waits"""

    @property
    def key(self) -> str:
        """What tells the image from others, as a short file name."""
        return hashlib.sha256(json.dumps([self.path, self.size, self.time]).encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return f"\n{json.dumps([self.path, self.size, self.time, self.place])}"


def check_note(into: Path) -> None:
    """Refuses a note that cannot be read, or is no file of its own."""
    check_own_folder(into / NOTE)
    check_own_folder(into / NOTE / WAITING)
    if os.path.lexists(into / NOTE / IMAGES):
        with open_own(into / NOTE / IMAGES) as note:
            for _ in _lines(note, into):
                pass


def put_images(into: Path, seen: SeenFiles, folders: Iterable[str], *, link: bool) -> int:
    """Copies images, or makes links to them, into the folders of their classes; gives how many.

    Those that were sorted before are left out, wherever they are now. An image that is no longer what was looked at is
    refused.
    """
    check_note(into)
    waiting, root, put = into / NOTE / WAITING, seen.root.resolve(), 0
    links = seen.root.absolute() if link else None
    waiting.mkdir(parents=True, exist_ok=True)
    with open_own(into / NOTE / IMAGES) as note:
        there = _finished(note, into, waiting)
        batch, size = list[Line](), 0
        try:
            for name, state, folder in zip(seen.names, seen.states.tolist(), folders, strict=True):
                image = Seen(seen.root / name, str(root / name), state, f"{folder}/{name}")
                line = _waiting(image, waiting, there, link=links and links / name)
                if line is None:
                    continue
                batch.append(line)
                size += line.size
                if len(batch) == AT_ONCE or size >= BYTES_AT_ONCE:
                    there |= {line.key for line in batch}
                    batch, ready, size = [], batch, 0
                    put += _commit(note, ready, into, waiting)
        except BaseException:
            for line in batch:
                (waiting / line.key).unlink(missing_ok=True)
            raise
        put += _commit(note, batch, into, waiting)
    with suppress(OSError):
        waiting.rmdir()
    return put


def _waiting(image: Seen, waiting: Path, there: set[str], *, link: Path | None) -> Line | None:
    """Has a copy wait, or a link to a path; None where the image was sorted before."""
    try:
        file = open_regular(image.path)
    except OSError:
        raise unreadable(str(image.path)) from None
    with file:
        check_state(file, image.state, image.path)
        status = os.fstat(file.fileno())
        line = Line(image.whole_path, status.st_size, status.st_mtime_ns, image.place)
        if line.key in there:
            return None
        part = waiting / line.key
        try:
            if link:
                part.symlink_to(link)
            else:
                _copy(file, status, part)
                check_state(file, image.state, image.path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    return line


def _copy(file: BinaryIO, status: os.stat_result, part: Path) -> None:
    """Of an open file, with its rights and its time; flushed to the disk. What is added meanwhile is not waited for."""
    with open_own(part, private=True) as copy:
        left = status.st_size
        while left and (piece := file.read(min(left, PIECE))):
            copy.write(piece)
            left -= len(piece)
        copy.flush()
        os.fsync(copy.fileno())
    part.chmod(status.st_mode & 0o777)
    os.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))


def _commit(note: BinaryIO, lines: Sequence[Line], into: Path, waiting: Path) -> int:
    """Notes images that wait, and gives them their places; gives how many were not there."""
    _add(note, "".join(map(str, lines)).encode(), [waiting / line.key for line in lines])
    return sum([_placed(waiting / line.key, into, line.place) for line in lines])


def _add(note: BinaryIO, text: bytes, parts: Sequence[Path]) -> None:
    """Adds to the note, on the disk. Where there is no room, nothing is added, and nothing waits."""
    handle, end = note.fileno(), os.fstat(note.fileno()).st_size
    try:
        view = memoryview(text)
        while len(view):
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, end)
        for part in parts:
            part.unlink(missing_ok=True)
        raise


def _finished(note: BinaryIO, into: Path, waiting: Path) -> set[str]:
    """Places what an ended command had noted and not placed; gives the keys of all that is sorted."""
    left, there = {path.name for path in waiting.iterdir()}, set[str]()
    for line in _lines(note, into):
        there.add(line.key)
        if line.key in left:
            left.remove(line.key)
            _placed(waiting / line.key, into, line.place)
    for name in left:
        (waiting / name).unlink()
    return there


def _lines(note: BinaryIO, into: Path) -> Iterator[Line]:
    """What the note says. A line that was cut short is passed over: its image was not placed."""
    path = into / NOTE / IMAGES
    note.seek(0)
    for number in count(1):
        text = note.readline(MOST_LINE + 1)
        if not text:
            return
        if len(text) > MOST_LINE:
            raise damaged(path, f"line {number} is too long")
        try:
            line = _line(json.loads(text))
        except RecursionError:
            raise damaged(path, f"line {number} is nested too deeply") from None
        except ValueError:
            continue
        if Path(line.place).is_absolute() or ".." in Path(line.place).parts:
            raise damaged(path, f"line {number} leads out of the folder")
        yield line


def _line(content: object) -> Line:
    """A line's content; a ``ValueError`` for any other."""
    match content:
        case [str(path), int(size), int(time)]:
            return Line(path, size, time)
        case [str(path), int(size), int(time), str(place)]:
            return Line(path, size, time, place)
    raise ValueError("it does not describe an image")


# ---------------------------------------------------------------------------------------------------------------------
# Places
# ---------------------------------------------------------------------------------------------------------------------


def _placed(part: Path, into: Path, place: str) -> bool:
    """Gives what waits its place; False where the very same is there already. Nothing is overwritten.

    Where the place has too long a path for the system, it is one in the folder of the class, with a shorter name.
    """
    try:
        return _placed_at(part, into, Path(place))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    own = Path(place)
    return _placed_at(part, into, Path(own.parts[0], numbered(own.name, 1, LONGEST)))


def _placed_at(part: Path, into: Path, place: Path) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):
        (into / place).lstat()  # a path that is too long is refused here, before any folder is made
    folder = _folder(into, place.parent)
    for number in count(1):
        target = folder / numbered(place.name, number)
        if not os.path.lexists(target):
            part.rename(target)
            return True
        if _same(part, target):
            part.unlink()
            return False
    raise AssertionError


def _folder(into: Path, inside: Path) -> Path:
    """A folder below another, made where it is missing; where a file has its name, it has a number behind it."""
    folder = into / inside
    if not folder.is_dir():
        folder = into
        for name in inside.parts:
            for number in count(1):
                below = folder / numbered(name, number)
                if not os.path.lexists(below):
                    below.mkdir()
                if below.is_dir():
                    break
            folder = below
            if folder.is_symlink():  # others lead nowhere, and looking at each would take minutes far down
                _check_inside(into, folder)
    _check_inside(into, folder)
    return folder


def _check_inside(into: Path, folder: Path) -> None:
    if not folder.resolve().is_relative_to(into.resolve()):
        raise InputError(f"{folder} leads out of {into}: remove that link, or choose another --into")


def _same(part: Path, target: Path) -> bool:
    """Whether two files have the same bytes."""
    with suppress(OSError), open_regular(part) as one, open_regular(target) as other:
        if os.fstat(one.fileno()).st_size == os.fstat(other.fileno()).st_size:
            while piece := one.read(PIECE):
                if piece != other.read(PIECE):
                    return False
            return True
    return False


def numbered(name: str, number: int, longest: int = LONGEST_NAME) -> str:
    """A file's name with a number before its ending, cut to so many bytes; number 1 is not written.

    >>> numbered("a.png", 1), numbered("a.png", 2), numbered("name.jpeg", 12, longest=10)
    ('a.png', 'a-2.png', 'na-12.jpeg')
    """
    end = "" if number == 1 else f"-{number}"
    if not end and len(os.fsencode(name)) <= longest:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not stem or len(os.fsencode(suffix)) > 20:
        stem, dot, suffix = name, "", ""
    end += dot + suffix
    return os.fsencode(stem)[: longest - len(os.fsencode(end))].decode(errors="ignore") + end
