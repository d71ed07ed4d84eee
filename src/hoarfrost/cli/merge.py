"""``hoarfrost merge``: classes of a saved model that are one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hoarfrost.cli import options
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from hoarfrost.models.classes import ClassTable

SUMMARY = "merge classes of a model into one"
DESCRIPTION = (
    "Merge each CLASS of MODEL into INTO, in place. Images of CLASS are then predicted as INTO. 'hoarfrost undo' takes "
    "back the last merge, one class at a time."
)
EXAMPLE = "example: hoarfrost merge model2 new-3 new-1    (new-3 becomes part of new-1)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``merge``."""
    parser.add_argument("model", metavar="MODEL", help="the model folder to change")
    parser.add_argument("classes", metavar="CLASS", nargs="+", help="a class to merge into INTO")
    parser.add_argument("into", metavar="INTO", help="the class to keep")
    options.add_json(parser)


def main(args: argparse.Namespace) -> int:
    """Merges all of them or none."""

    def decide(table: ClassTable) -> ClassTable:
        for name in args.classes:
            table = table.merge(name, args.into)
        return table

    said = [f"{printable(name)} is now part of {printable(args.into)}" for name in args.classes]
    return options.change_classes(args, decide, said)
