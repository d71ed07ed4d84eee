"""The scores of a run as a table for a terminal."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from hoarfrost.printing import format_score, printable


def align(rows: list[list[str]], text: Container[int] = (0,)) -> str:
    """Columns under each other, to the right but for those of ``text``.

    >>> print(align([["a", "b"], ["long", "7.0"]]))
    a       b
    long  7.0
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        lines.append("  ".join(c.ljust(width) if k in text else c.rjust(width) for k, (c, width) in cells).rstrip())
    return "\n".join(lines)


def short(name: str, width: int = 20) -> str:
    """A name for a column of a table.

    >>> short("garden rose"), short("garden rose", 8)
    ('garden rose', 'garden …')
    """
    shown = printable(name)
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"


def few(names: Sequence[str], count: int = 3) -> str:
    """The first of some names, and how many more there are.

    >>> few(["a", "b"]), few(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


def numbers(values: Sequence[float | None]) -> str:
    """Several numbers in one cell.

    >>> numbers([51.25, None])
    '51.2 / –'
    """
    return " / ".join(format_score(value) for value in values)


MATCHINGS = {"test_matching": "test", "training_matching": "training"}
"""on which images the matchings of continual category discovery are made"""


def continual_table(metrics: Mapping[str, Any]) -> str:
    """A row a stage of continual category discovery by each matching, then forgetting and discovery."""
    rows = [["stage", *(f"{key}, {words}" for words in MATCHINGS.values() for key in ("All", "Old", "New"))]]
    for step in metrics["steps"]:
        scores = [format_score(step["continual"][name][key]) for name in MATCHINGS for key in ("all", "old", "new")]
        rows.append([str(step["index"]), *scores])
    summary = [
        f"matched on {words} images: forgetting {format_score(metrics['continual'][name]['forgetting'])},"
        f" discovery {format_score(metrics['continual'][name]['discovery'])}"
        for name, words in MATCHINGS.items()
    ]
    return "\n".join(["continual category discovery:", align(rows), *summary])


def score_table(metrics: Mapping[str, Any]) -> str:
    """A row a discovery step: the joint head and the novel heads under class-iNCD; then the original protocol."""
    rows = [["step", "classes", "Old", "New", "All", "HM", "New by step", "novel heads"]]
    originals = [["step", "Old", "New", "All"]]
    for step in metrics["steps"]:
        joint = [format_score(step["joint"][key]) for key in ("old", "new", "all", "hm")]
        by_step = [numbers(step["new_by_step_joint"]), numbers(step["new_by_step_novel"])]
        rows.append([str(step["index"]), f"{step['known']}+{step['novel']}", *joint, *by_step])
        originals.append(
            [str(step["index"]), *(format_score(step["original_rt"][key]) for key in ("old", "new", "all"))]
        )
    found = [
        f"step {step['index']}: {step['found']} new classes found, {step['novel']} true; AUROC of old against new"
        f" {format_score(step['auroc_new'])}; category discovery on test images: Old / New / All"
        f" {numbers([step['category_discovery'][key] for key in ('old', 'new', 'all')])}"
        for step in metrics["steps"]
        if "found" in step
    ]
    order = "" if metrics["class_order"] == "natural" else f", {metrics['class_order']} class order"
    lines = [
        f"{metrics['method']} on {metrics['dataset']}, split {metrics['split']}{order}, seed {metrics['seed']}",
        f"stage one: {format_score(metrics['stage_one'])} on the labelled classes",
        f"{metrics['seconds']['total']:.0f} s of training and scoring",
        "",
        align(rows),
        "",
        *(found or ["Original ResTune protocol:", align(originals)]),
        *(["", continual_table(metrics)] if "continual" in metrics else []),
        "",
        "Percent of the test images; docs/protocol.md explains each column.",
    ]
    return "\n".join(lines)
