"""``hoarfrost reject``: discovered classes of a saved model that are none."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hoarfrost.cli import options
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from hoarfrost.models.classes import ClassTable

SUMMARY = "discard discovered classes that are not real"
DESCRIPTION = (
    "Discard discovered classes of MODEL, in place. Their images go to the next most probable class, or become unsure. "
    "A later discovery may find a rejected class again. To prevent this, name the class instead. 'hoarfrost undo' "
    "takes back the last rejection."
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

    onward = "its images go to the next most probable class, or become unsure"
    said = [f"{printable(name)} is rejected: {onward}" for name in args.classes]
    return options.change_classes(args, decide, said)
