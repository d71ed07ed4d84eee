"""``hoarfrost merge``: classes of a saved model that are one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hoarfrost.cli import options
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from hoarfrost.models.classes import ClassTable

SUMMARY = "make classes of a model part of another one"
DESCRIPTION = (
    "Make each CLASS of MODEL part of INTO, the last one named, in place: its images are predicted as that one from "
    "then on. 'hoarfrost undo' takes the last one back."
)
EXAMPLE = "example: hoarfrost merge model2 new-3 new-1    (what was new-3 is new-1 now)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``merge``."""
    parser.add_argument("model", metavar="MODEL", help="the model folder to change")
    parser.add_argument("classes", metavar="CLASS", nargs="+", help="what becomes part of INTO")
    parser.add_argument("into", metavar="INTO", help="the class that stays")
    options.add_json(parser)


def main(args: argparse.Namespace) -> int:
    """Merges all of them or none."""

    def decide(table: ClassTable) -> ClassTable:
        for name in args.classes:
            table = table.merge(name, args.into)
        return table

    said = [f"{printable(name)} is now part of {printable(args.into)}" for name in args.classes]
    return options.change_classes(args, decide, said)
