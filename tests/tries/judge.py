"""What a command may answer to whatever it is given, and what not."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from .children import Answer

Words = tuple[str, ...]


@dataclass(frozen=True)
class Try:
    """A command in a folder that was made ready for it, and what is expected of it."""

    arguments: Words
    what: str
    """what is hostile about it, in words"""
    blamed: Words = ()
    """words of which one must be in the line of a refusal: the names of files that are to blame, and the answers of a
    command that read them well"""
    refused: bool = False
    """whether anything but a refusal is wrong"""
    codes: tuple[int, ...] = (0, 2)
    main: Callable[[Words], object] | None = None
    """what is called; the command line where it is None"""
    may_leave: Words = ()
    """folders that a refused command may have made; with a slash behind them, with all that is in them"""
    expected: bytes | None = None
    """what must be on standard output where the command ends well"""


CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
PROGRESS = re.compile(r"(learning labelled classes|discovering, step \d+)  |Downloading data from ")
FORMULA = re.compile(r"[=+\-@\t\r]")


def judged(tried: Try, answer: Answer, before: dict[str, object], after: dict[str, object]) -> str:
    """What is wrong with an answer; empty where nothing is."""
    code, out, err = answer.code, _text(answer.out), _text(answer.err)
    if isinstance(code, str):
        return f"traceback: {code}"
    if out is None or err is None:
        return "what it says is not UTF-8"
    if code not in tried.codes:
        return f"exit code {code}: {err[-300:]!r}"
    for said in (out, err):
        if found := CONTROL.search(said):
            return f"a raw {found[0]!r} is shown: {said[max(0, found.start() - 40) : found.end() + 40]!r}"
    if "Traceback" in err:
        return f"traceback: {err[-400:]!r}"
    if code == 2:
        return _refusal(tried, out, err, before, after)
    if tried.refused:
        return f"not refused: {(out + err)[-300:]!r}"
    strange = [
        line
        for line in err.split("\n")[:-1]
        if not re.match(r"(hoarfrost|tools\.results): ", line) and not PROGRESS.match(line)
    ]
    if strange and not (code == 130 and strange == [""]):
        return f"a line that is not ours: {strange[0]!r}"
    if code == 0 and tried.expected is not None and answer.out != tried.expected:
        return f"another answer than without it: {out[:300]!r}"
    return _result(tried, out) if code == 0 else ""


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _refusal(tried: Try, out: str, err: str, before: dict[str, object], after: dict[str, object]) -> str:
    lines = [line for line in err.split("\n")[:-1] if not PROGRESS.match(line)]
    *warnings, line = lines or [""]
    if out:
        return f"refused, and yet an answer: {out[:200]!r}"
    if not re.match(r"(hoarfrost( \w+)?|tools\.results): \S", line):
        return f"refused without a line of ours: {err[-300:]!r}"
    if strange := [warning for warning in warnings if not warning.startswith("hoarfrost: warning: ")]:
        return f"refused with more than one line: {strange[0]!r}, {line!r}"
    if len(line) > 8000:
        return f"refused with a line of {len(line)} characters: {line[:200]!r}"
    if ".part" in line:
        return f"it names a file that people never see: {line!r}"
    if tried.blamed and not any(word in line for word in tried.blamed):
        return f"none of {', '.join(tried.blamed)} is named: {line!r}"
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name, 0) != after.get(name, 0))
    if changed := [name for name in changed if not _is_in(name, tried.may_leave)]:
        return f"refused ({line!r}), and yet changed: {', '.join(changed[:5])!r}"
    return ""


def _is_in(name: str, folders: Words) -> bool:
    """Whether it is one of the folders, or in one of those with a slash behind them."""
    within = tuple(folder for folder in folders if folder.endswith("/"))
    return name in [folder.rstrip("/") for folder in folders] or name.startswith(within)


def _result(tried: Try, out: str) -> str:
    """What is wrong with what a command printed and wrote."""
    try:
        if "--json" in tried.arguments:
            strict_json(out)
        elif out.startswith("path,") and "--out" not in tried.arguments:
            check_table(out)
        for path in Path("made").rglob("*") if Path("made").is_dir() else ():
            if path.suffix == ".json":
                strict_json(path.read_text())
            elif path.suffix == ".jsonl":
                for line in path.read_text().splitlines():
                    strict_json(line)
            elif path.suffix == ".html":
                for drawing in re.findall(r"<svg.*?</svg>", path.read_text(), re.DOTALL):
                    xml.etree.ElementTree.fromstring(drawing)
    except (ValueError, RecursionError, xml.etree.ElementTree.ParseError) as error:
        return f"it ended well, but: {error}"
    left = [path.name for path in Path().iterdir() if re.search(r"\.(part|new|old|unfinished)$", path.name)]
    return f"it ended well, and left {left[0]!r}" if left else ""


def check_table(out: str) -> None:
    """That it is a table of predictions which a spreadsheet shows and does not compute."""
    header, *rows = csv.reader(io.StringIO(out))
    if header != ["path", "class", "probability", "kind"]:
        raise ValueError(f"the header is {header}")
    for row in rows:
        if len(row) != 4 or not 0 <= float(row[2]) <= 1 or row[3] not in ("old", "new"):
            raise ValueError(f"a row is {row}")
        if any(FORMULA.match(cell) for cell in row):
            raise ValueError(f"a cell is a formula: {row}")


def strict_json(text: str) -> Any:
    """JSON as the standard has it."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def contents(folder: Path) -> dict[str, object]:
    """Every file below a folder with its bytes, links with their targets, and everything else by its kind."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = _head(path), path.stat().st_size
        else:
            found[name] = path.is_dir()
    return found


def _head(path: Path) -> bytes:
    """What a file begins with; all of it, but for those that are made to be too large."""
    try:
        with path.open("rb") as file:
            return file.read(1 << 20)
    except PermissionError:
        return b""
