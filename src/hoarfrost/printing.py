"""Names as they are shown: a class, a file or a folder may be called anything, and must not steer what shows it."""

from __future__ import annotations

import json
import re
from typing import Any

MISSING = "–"


def format_score(value: float | None) -> str:
    """A percentage with one decimal, an en dash where there is nothing to score.

    >>> format_score(93.64), format_score(None)
    ('93.6', '–')
    """
    return MISSING if value is None else f"{value:.1f}"


def in_a_hundred(share: float) -> str:
    """A share in words.

    >>> in_a_hundred(0.041), in_a_hundred(0.0)
    ('about 4 in 100', 'fewer than 1 in 100')
    """
    return f"about {100 * share:.0f} in 100" if share >= 0.005 else "fewer than 1 in 100"


STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")
"""what moves the cursor, ends a line, turns the direction of writing, or may not be in XML"""

FORMULA = re.compile("[=+@＝＋－＠-]")
"""what a cell begins with that a spreadsheet would compute"""


def printable(text: str) -> str:
    r"""The text on one line, with what would steer a terminal as an escape.

    >>> print(printable("a\x1b[2J\nb"))
    a\x1b[2J\nb
    """
    return STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """The same for text of several lines; names in it must be printable before."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(content: Any) -> str:
    """JSON for people and programs, on several lines; NaN is an error."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    return "\n".join(STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in text.split("\n"))


def cell(text: str) -> str:
    r"""A cell of a table that a spreadsheet takes for text: with an apostrophe where it would be a formula.

    >>> print(cell("=1+0.png"), cell("cat"), cell("a\rb"))
    '=1+0.png cat a\rb
    """
    shown = printable(text)
    return f"'{shown}" if FORMULA.match(text) else shown
