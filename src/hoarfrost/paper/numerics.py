"""How runs were computed, and that no mean is taken over runs that were computed differently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hoarfrost.errors import InputError

ARITHMETIC = ("networks", "heads", "tf32")
"""of a stage's record in ``trained``: what decides how exactly numbers are computed"""

AROUND = ("compiled", "torch", "driver")
"""what may change the last digits, and so the course of a training, but not what is computed"""


def numerics(content: Mapping[str, Any], names: Iterable[str] = (*ARITHMETIC, *AROUND)) -> tuple[str, ...]:
    """How a run's stages were computed, each way once, in words.

    >>> numerics({"trained": [{"networks": "bf16", "tf32": False}] * 2}, ["networks", "tf32"])
    ('networks bf16, tf32 False',)
    """
    stages = content.get("trained") or [None]
    said = ["not recorded" if stage is None else ", ".join(f"{n} {stage.get(n)}" for n in names) for stage in stages]
    return tuple(dict.fromkeys(said))


def check_numerics(runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuses to take the mean over runs, by their names, that were not computed with the same precision."""
    ways: dict[tuple[str, ...], str] = {}
    for name, content in runs.items():
        ways.setdefault(numerics(content, ARITHMETIC), name)
    if len(ways) > 1:
        (one, first), (other, second) = list(ways.items())[:2]
        raise InputError(
            f"{second} and {first} were computed differently ({'; '.join(other)} and {'; '.join(one)}): remove "
            "one of them, since a mean would mix both"
        )
