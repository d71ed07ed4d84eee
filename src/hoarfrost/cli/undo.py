"""``hoarfrost undo``: takes the last decision on the classes of a saved model back."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hoarfrost.cli import options
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from hoarfrost.models.classes import ClassTable

SUMMARY = "undo the last decision on the classes of a model"
DESCRIPTION = (
    "Undo the last decision on MODEL, in place: 'name', 'merge' and 'reject' one class at a time, 'move', 'split' and "
    "'learn' as a whole. Repeat it to return to the classes as they were found."
)
EXAMPLE = "example: hoarfrost undo model2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``undo``."""
    parser.add_argument("model", metavar="MODEL", help="the model folder to change")
    options.add_json(parser)


def main(args: argparse.Namespace) -> int:
    """Undoes one."""
    from hoarfrost.models.decisions import in_words

    said = []

    def decide(table: ClassTable) -> ClassTable:
        earlier = table.undo()
        edit = table.edits[-1]
        while edit.images is not None and len(table.edits) > len(earlier.edits):
            before_it, edit = table.before_last(), table.edits[-1]
            said.append(printable(f"undone: {in_words(before_it, edit)}"))
            table = before_it
        if said:
            return earlier
        now, before = printable(table.own_names[edit.id]), printable(earlier.own_names[edit.id])
        said.append(f"{now} is called {before} again" if edit.verb == "rename" else f"{before} is a class again")
        return earlier

    return options.change_classes(args, decide, said)
