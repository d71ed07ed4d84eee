"""The program in a process of its own, which forks: the tests' process has threads, and those do not go with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .inputs import KINDS

KILLS = "kills"

HEADER = (f"| {'kind':10} | {'what':34} | {'tried':>6} | {'failed':>6} |", "|---|---|--:|--:|")


def tried(*arguments: str) -> dict[str, tuple[int, int]]:
    """How many were tried of each kind, and how many failed; what failed is shown where a test does."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.tries", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    print(ended.stderr)
    return {kind: (int(count), int(failed)) for kind, count, failed in counted(ended.stdout)}


def rows(counts: Mapping[str, tuple[int, int]]) -> list[str]:
    """A row a kind, with how many were tried and how many failed."""
    found = []
    for kind, (count, failed) in counts.items():
        what = KINDS[kind].summary if kind in KINDS else "killed, and gone on with"
        found.append(f"| {kind:10} | {what:34} | {count:>6} | {failed:>6} |")
    return found


def counted(text: str) -> list[tuple[str, str, str]]:
    """Kind, how many were tried and how many failed, of each row of the table."""
    return re.findall(r"^\| (\w+) +\|.*\| +(\d+) \| +(\d+) \|$", text, re.MULTILINE)


def with_rows(page: str, rows: list[str]) -> str:
    """The page with these rows of its table, each in the place of the one of its kind or at the end.

    >>> with_rows("| a | it | 1 | 0 |", ["| b | it | 2 | 0 |", "| a | it | 3 | 0 |"])
    '| a | it | 3 | 0 |\\n| b | it | 2 | 0 |'
    """
    for row in rows:
        kind = re.escape(row.split("|")[1].strip())
        if re.search(rf"^\| {kind} +\|.*$", page, re.MULTILINE):
            page = re.sub(rf"^\| {kind} +\|.*$", lambda _, row=row: row, page, count=1, flags=re.MULTILINE)  # type: ignore
        else:
            *_, last = re.finditer(r"^\|.*\|$", page, re.MULTILINE)
            page = f"{page[: last.end()]}\n{row}{page[last.end() :]}"
    return page


def with_sentence(page: str, sentence: str) -> str:
    """The page with the sentence on commits, in the place of the former one or at the end.

    >>> with_sentence(with_sentence("| a |", "Tried at commit 1 (0.1)."), "Tried at commit 2 (0.1).")
    '| a |\\n\\nTried at commit 2 (0.1).\\n'
    """
    page = re.sub(r"\n+Tried at .*\n*\Z", "", page)
    return f"{page.rstrip()}\n\n{sentence}\n"
