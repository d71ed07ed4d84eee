"""``hoarfrost undo``: takes the last decision on the classes of a saved model back."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hoarfrost.cli import options
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from hoarfrost.models.classes import ClassTable

SUMMARY = "undo the last name, merge or reject"
DESCRIPTION = (
    "Undo the last 'name', 'merge' or 'reject' of MODEL, in place, one class at a time. Repeat it to return to the "
    "classes as they were found."
)
EXAMPLE = "example: hoarfrost undo model2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``undo``."""
    parser.add_argument("model", metavar="MODEL", help="the model folder to change")
    options.add_json(parser)


def main(args: argparse.Namespace) -> int:
    """Undoes one."""
    said = []

    def decide(table: ClassTable) -> ClassTable:
        earlier = table.undo()
        edit = table.edits[-1]
        now, before = printable(table.own_names[edit.id]), printable(earlier.own_names[edit.id])
        said.append(f"{now} is called {before} again" if edit.verb == "rename" else f"{before} is a class again")
        return earlier

    return options.change_classes(args, decide, said)
