"""``hoarfrost name``: names for the classes of a saved model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hoarfrost.cli import options
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from hoarfrost.models.classes import ClassTable

SUMMARY = "rename classes of a model"
DESCRIPTION = (
    "Rename classes of MODEL, in place. Predictions and later discoveries use the new names. 'hoarfrost undo' takes "
    "back the last name."
)
EXAMPLE = "example: hoarfrost name model2 new-1=hibiscus new-2='garden rose'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``name``."""
    parser.add_argument("model", metavar="MODEL", help="the model folder to change")
    parser.add_argument("names", metavar="CLASS=NAME", nargs="+", help="the present name of a class, and its new name")
    options.add_json(parser)


def main(args: argparse.Namespace) -> int:
    """Renames all of them or none."""
    from hoarfrost.errors import require

    for text in args.names:
        form = "write it as in new-1=hibiscus, with quotes around a name with spaces"
        require("=" in text[1:], f"'{text}' is not of the form CLASS=NAME: {form}")
    said = []

    def decide(table: ClassTable) -> ClassTable:
        here = {table.own_names[class_id] for class_id in table.present}
        chosen: list[tuple[str, str]] = []
        for text in args.names:
            # A class may have an equals sign in its name.
            pairs = [(text[:place], text[place + 1 :]) for place in range(1, len(text)) if text[place] == "="]
            before, after = next((pair for pair in pairs if pair[0] in here), pairs[0])
            table.find(before)  # refused with the names that are there, and not with those of this command
            require(before not in dict(chosen), f"'{before}' is given two names: choose one")
            taken = after in dict(chosen).values()
            require(not taken, f"two classes cannot both be called '{after}': choose another name")
            chosen.append((before, after))
        for before, after in chosen:
            table = table.rename(before, after)
            said.append(f"{printable(before)} is now called {printable(after)}")
        return table

    return options.change_classes(args, decide, said)
