"""Figures that are drawn once: many tests learn the same from the same images, and drawing takes longer than that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from hoarfrost.report import html
from hoarfrost.report.data import ReportData

DRAWN: dict[str, Any] = {}
"""by what they show"""


def draw_once(patch: pytest.MonkeyPatch, *, usual: bool = False) -> None:
    """From now on a report has the curves and the matrix that were drawn before, where they show the same.

    ``usual``: curves of usual losses are all taken for the same, where nobody looks at them.
    """
    of_curves = _of_usual_curves if usual else _of_curves
    for name, shown in (("_curves", of_curves), ("_confusion", _of_confusion)):
        patch.setattr(html, name, _remembering(name, getattr(html, name), shown))


def _remembering(name: str, draw: Callable[[Any], Any], shown: Callable[[Any], object]) -> Callable[[Any], Any]:
    def drawn(given: Any) -> Any:
        key = json.dumps([name, shown(given)])
        if key not in DRAWN:
            DRAWN[key] = draw(given)
        return DRAWN[key]

    return drawn


def _of_curves(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in log]


def _of_usual_curves(log: Sequence[Mapping[str, Any]]) -> object:
    def seen(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: seen(part) for name, part in value.items()}
        return "usual" if isinstance(value, float) and 1e-9 < value < 100 else value

    return [seen(entry) for entry in _of_curves(log)]


def _of_confusion(data: ReportData) -> object:
    matrix = None if data.confusion is None else data.confusion.tolist()
    return [matrix, data.known, list(data.class_names), list(data.novel_per_step)]
