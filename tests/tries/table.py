"""The program in a process of its own, which forks: the tests' process has threads, and those do not go with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def tried(*arguments: str) -> dict[str, tuple[int, int]]:
    """How many were tried of each kind, and how many failed; what failed is shown where a test does."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.tries", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    print(ended.stderr)
    return {kind: (int(count), int(failed)) for kind, count, failed in counted(ended.stdout)}


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
