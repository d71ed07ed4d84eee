"""``hoarfrost reject``: discovered classes of a saved model that are none."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hoarfrost.cli import options
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from hoarfrost.models.classes import ClassTable

SUMMARY = "have discovered classes of a model count as none"
DESCRIPTION = (
    "Take discovered classes of MODEL out of its predictions, in place: their images go to the class that suits them "
    "next, or are unsure. A later discovery may find such a class again; one that is given a name stays instead. "
    "'hoarfrost undo' takes the last one back."
)
EXAMPLE = "example: hoarfrost reject model2 new-4"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``reject``."""
    parser.add_argument("model", metavar="MODEL", help="the model folder to change")
    parser.add_argument("classes", metavar="CLASS", nargs="+", help="a discovered class")
    options.add_json(parser)


def main(args: argparse.Namespace) -> int:
    """Rejects all of them or none."""

    def decide(table: ClassTable) -> ClassTable:
        for name in args.classes:
            table = table.reject(name)
        return table

    onward = "its images go to what suits them next, or are unsure"
    said = [f"{printable(name)} is no class any more: {onward}" for name in args.classes]
    return options.change_classes(args, decide, said)
