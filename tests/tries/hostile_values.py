"""Values that nobody expects."""

from __future__ import annotations

import random

Random = random.Random

NAMES = (
    "\x1b[2J\x1b[31mred",
    "a\nb",
    "a\rb",
    "x\x01",
    "=1+0",
    "@SUM(1)",
    "+1",
    "-1",
    "\tx",
    "<script>alert(1)</script>",
    "]]>",
    "&amp;",
    '"quoted", and more',
    "'",
    "..",
    "a/b",
    "",
    " ",
    "名前",
    "\u202egnp.exe",
    "\u2028",
    "\x9b31m",
    "e\u0301",
    "\ufeff",
    "\uffff",
    "\U0001f9ca",
    "%s%n{0}",
    "--out",
    "nan",
    "con",
    "x" * 200,
)

NUMBERS = (
    *(0, -1, 1, 2, 3, 7, 255, 256, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**18, 10**30, 10**400, -(2**63)),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, 1e38, 4e38, float("nan"), float("inf"), float("-inf")),
)


def value(random: Random, depth: int = 0) -> object:
    """Something of any kind that Python has a literal for."""
    kind = random.randrange(12 if depth < 3 else 8)
    if kind < 3:
        return random.choice(NUMBERS)
    if kind < 5:
        return random.choice(NAMES)
    if kind < 8:
        return random.choice([None, True, False, [], {}, "", [[]], [None], "\ud800"])
    if kind < 10:
        return [value(random, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(NAMES): value(random, depth + 1) for _ in range(random.randrange(3))}
