"""Figures and tables as text."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence

from hoarfrost.errors import InputError
from hoarfrost.printing import format_score


def spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation, or the one value.

    >>> spread([1.0, 2.0, 3.0]), spread([5.25]), spread([None])
    ('2.0 ± 1.0', '5.2', '–')
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return format_score(known[0] if known else None)
    return f"{format_score(statistics.mean(known))} ± {format_score(statistics.stdev(known))}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column to the left, the others to the right."""
    lines = [f"| {' | '.join(header)} |", f"|---|{'--:|' * (len(header) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def slashed(values: Iterable[float | None]) -> str:
    """Published numbers in one cell."""
    return " / ".join(map(format_score, values))


def file_name(words: str) -> str:
    """Words as the name of a file.

    >>> file_name("CPU, 2 threads")
    'cpu-2-threads'
    """
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def renewed(page: str, made: str, *, begin: str, end: str = "<!-- end -->") -> str:
    """A page with what stands between two marks made anew. Numbers in a cell stay on one line.

    >>> renewed("a <!-- x --> b <!-- end --> c", "new", begin="<!-- x -->")
    'a <!-- x -->\\nnew\\n<!-- end --> c'
    >>> " " in renewed("x y", "2.0 ± 1.0", begin="x", end="y")
    False
    """
    made = re.sub(r"(?<=\d) ([±/]) (?=\d)", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", made)
    before, mark, rest = page.partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise InputError(f"the page has no part between {begin} and {end}")
    return f"{before}{begin}\n{made}\n{end}{after}"
