"""Reading files that may be damaged or made by strangers: regular ones only, within bounds, checked before use."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from hoarfrost.errors import InputError

MOST_JSON = 64 << 20
"""bytes of a JSON file or a log; what is written here is far smaller"""

Form = Any
"""What is expected of JSON content: a type, for which ``object`` is any; a tuple of forms, of which one; ``[form]``, a
list of such; ``{"key": form, "other?": form}``, an object with at least these keys, but for those with a question mark;
``{str: form}``, an object of such. An int will do for a float."""

DEEPEST = 50
"""levels of JSON; what is written here has a handful"""


def open_regular(path: str | Path) -> BufferedReader:
    """Opens a file to read bytes from it; anything but a regular file is an ``OSError``. A pipe is not waited for."""
    return os.fdopen(_regular(path, os.O_RDONLY), "rb")


def open_own(path: Path, *, private: bool = False) -> BufferedRandom:
    """Opens a file of ours to read it and to add to its end, and makes it where it is missing. A link is refused.

    private: it must be missing.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (os.O_EXCL if private else 0)
    return os.fdopen(_regular(path, flags | getattr(os, "O_NOFOLLOW", 0)), "r+b")


def check_own_folder(folder: Path) -> None:
    """Refuses what stands in the place of a folder of ours and is none: a link may lead anywhere."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise damaged(folder, "it is a link or a file, not a folder")


def _regular(path: str | Path, flags: int) -> int:
    """A handle of a regular file."""
    try:
        handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "A link instead of a file", str(path)) from None
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return handle
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most so many bytes; a larger one is an ``InputError``."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= most:
            return file.read(size)  # what is added meanwhile is not waited for
    raise damaged(path, f"it has more than {most >> 20} MiB")


def read_json(path: Path, what: str, form: Form = dict) -> dict[str, Any]:
    """Reads a JSON object of a form; ``what`` names the folder that holds it in the error."""
    try:
        content = _parsed(read_bytes(path, MOST_JSON))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path.parent} is not a {what}: it has no {path.name}; check the path") from None
    except InputError:
        raise
    except (ValueError, IsADirectoryError):
        raise damaged(path, "it is not JSON") from None
    if not isinstance(content, dict):
        raise damaged(path, "it is not a JSON object")
    if problem := misfit(content, form):
        raise damaged(path, problem)
    return content


def read_json_lines(path: Path, form: Form) -> list[Any]:
    """The lines of a file, each JSON of a form; none where there is no file. A last line that was cut short is left
    out."""
    try:
        *lines, last = read_bytes(path, MOST_JSON).split(b"\n")
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate([*lines, last], start=1):
        try:
            content = _parsed(line)
        except ValueError:
            if number > len(lines):
                break
            raise damaged(path, f"line {number} is not JSON") from None
        if problem := misfit(content, form):
            raise damaged(path, f"line {number}: {problem}")
        found.append(content)
    return found


def _parsed(content: bytes) -> Any:
    """JSON as the standard has it; a ``ValueError`` for anything else, whatever is wrong with it."""
    try:
        found = json.loads(content, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [found]
    for _ in range(DEEPEST):
        level = [part for whole in level for part in _inside(whole)]
    if level:
        raise ValueError("it is nested too deeply")
    if b"\\u" in content:  # half a character, which cannot be written again, is a ValueError too
        json.dumps(found, ensure_ascii=False).encode()
    return found


def numbers_in(content: Any) -> Iterator[float]:
    """All numbers within JSON content.

    >>> list(numbers_in({"a": [1, {"b": 2.5}], "c": None, "d": True}))
    [1, 2.5]
    """
    if isinstance(content, int | float) and not isinstance(content, bool):
        yield content
    for item in _inside(content):
        yield from numbers_in(item)


def _inside(whole: Any) -> Iterable[Any]:
    return whole.values() if isinstance(whole, dict) else whole if isinstance(whole, list) else ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def misfit(content: Any, form: Form, where: str = "") -> str:
    """What is wrong with JSON content, in words; empty where it has the form.

    >>> misfit({"seconds": 3, "steps": [{"novel": "five"}]}, {"seconds": float, "steps": [{"novel": int}]})
    'steps[0].novel is not a whole number'
    """
    if isinstance(form, list):
        if not isinstance(content, list):
            return f"{where or 'it'} is not a list"
        return _first(misfit(item, form[0], f"{where}[{index}]") for index, item in enumerate(content))
    if isinstance(form, Mapping):
        if not isinstance(content, dict):
            return f"{where or 'it'} is not an object"
        inside = f"{where}." if where else ""
        if str in form:
            return _first(misfit(item, form[str], f"{inside}{key}") for key, item in content.items())
        lacking = _first(f"it lacks '{inside}{key}'" for key in form if not key.endswith("?") and key not in content)
        parts = {key.rstrip("?"): part for key, part in form.items()}
        return lacking or _first(misfit(content[k], parts[k], f"{inside}{k}") for k in parts if k in content)
    kinds = form if isinstance(form, tuple) else (form,)
    if not all(isinstance(kind, type) for kind in kinds):
        problems = [misfit(content, kind, where) for kind in kinds]
        return "" if "" in problems else problems[-1]
    if any(_is(content, kind) for kind in kinds):
        return ""
    return f"{where or 'it'} is not {' or '.join(_WORDS[kind] for kind in kinds)}"


_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    type(None): "null",
}


def _is(content: Any, kind: type) -> bool:
    if kind is object:
        return True
    if isinstance(content, bool):
        return kind is bool
    if isinstance(content, int):
        return kind in (int, float) and abs(content) < 2**63
    if isinstance(content, float):
        return kind is float and math.isfinite(content)
    if isinstance(content, str):
        return kind is str and _is_text(content)
    return isinstance(content, kind)


def _is_text(content: str) -> bool:
    """Whether it can be written again."""
    try:
        content.encode()
    except UnicodeEncodeError:
        return False
    return True


def _first(problems: Iterable[str]) -> str:
    return next(filter(None, problems), "")


def damaged(path: Path, reason: str) -> InputError:
    """The error for a file or a folder that is not what was written there."""
    told = " ".join(reason.split())
    return InputError(f"{path} is damaged ({told}): restore it from a copy, or make it again")
