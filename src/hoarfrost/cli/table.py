"""The scores of a run as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def number(value: float | None) -> str:
    """One decimal, or a dash where there is nothing to score."""
    return "–" if value is None else f"{value:.1f}"


def align(rows: list[list[str]]) -> str:
    """Columns under each other, to the right but for the first.

    >>> print(align([["a", "b"], ["long", "7.0"]]))
    a       b
    long  7.0
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def numbers(values: Sequence[float | None]) -> str:
    """Several numbers in one cell.

    >>> numbers([51.25, None])
    '51.2 / –'
    """
    return " / ".join(number(value) for value in values)


def score_table(metrics: Mapping[str, Any]) -> str:
    """A row a discovery step: the joint head under class-iNCD, the novel heads, then the original protocol."""
    several = len(metrics["steps"]) > 1
    by_step = ["New by step"] if several else []
    rows = [["step", "classes", "Old", "New", "All", "HM", *by_step, "novel heads", "original: Old", "New", "All"]]
    for step in metrics["steps"]:
        joint, original = step["joint"], step["original_rt"]
        rows.append(
            [
                str(step["index"]),
                f"{step['known']}+{step['novel']}",
                *(number(joint[key]) for key in ("old", "new", "all", "hm")),
                *([numbers(step["new_by_step_joint"])] if several else []),
                numbers(step["new_by_step_novel"]),
                *(number(original[key]) for key in ("old", "new", "all")),
            ]
        )
    head = f"{metrics['method']} on {metrics['dataset']}, split {metrics['split']}, seed {metrics['seed']}"
    stage_one = f"stage one: {number(metrics['stage_one'])} on its classes; {metrics['seconds']['total']:.0f} s in all"
    foot = "Percent of the test images. Old, New, All and harmonic mean HM are of the joint head: docs/protocol.md."
    return f"{head}\n{stage_one}\n\n{align(rows)}\n\n{foot}"
