"""``hoarfrost classes``: what a saved model can tell apart."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hoarfrost.cli import options
from hoarfrost.cli.table import align
from hoarfrost.printing import printable

SUMMARY = "list the classes of a model"
DESCRIPTION = (
    "List the classes of MODEL and those that were rejected. For each class: where it comes from (labels or a "
    "discovery), its former name, and the classes merged into it."
)
EXAMPLE = "example: hoarfrost classes model2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``classes``."""
    parser.add_argument("model", metavar="MODEL", help="a model folder")
    options.add_json(parser)


def main(args: argparse.Namespace) -> int:
    """Lists them."""
    from hoarfrost.models.description import read_classes

    table = read_classes(Path(args.model))
    stands_for, own = table.stands_for.tolist(), table.own_names
    made = range(len(table) - table.made, len(table))
    classes: list[dict[str, Any]] = [
        {
            "name": own[k],
            "discovery": None if k in made else table.rows[k].step or None,
            "found_as": table.rows[k].name if table.rows[k].name != own[k] else None,
            "merged": [own[j] for j, column in enumerate(stands_for) if column == k != j],
        }
        for k in table.present
    ]
    rejected = [own[k] for k, column in enumerate(stands_for) if column < 0]
    rows = [["class", "from", "former name", "merged into it"]]
    for k, row in zip(table.present, classes, strict=True):
        came = "your moves" if k in made else "labels" if row["discovery"] is None else f"discovery {row['discovery']}"
        merged = ", ".join(map(printable, row["merged"]))
        rows.append([printable(row["name"]), came, printable(row["found_as"] or ""), merged])
    shown = [k for k in range(4) if k < 2 or any(row[k] for row in rows[1:])]
    text = align([[row[k] for k in shown] for row in rows], text=range(4))
    if rejected:
        text += f"\n\nrejected: {', '.join(map(printable, rejected))}"
    return options.answer(args, {"model": str(args.model), "classes": classes, "rejected": rejected}, text)
