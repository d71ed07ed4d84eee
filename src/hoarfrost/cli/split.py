"""``hoarfrost split``: a class that is two or three."""

from __future__ import annotations

import argparse

from hoarfrost.cli.move import add_deciding, decided, folder_of, opened
from hoarfrost.printing import printable

SUMMARY = "split a class of a model into two or three"
DESCRIPTION = (
    "Split CLASS of MODEL by k-means of the features of its images, in place. The largest group keeps the name, and "
    "each other group becomes a new class. Look at the classes and name them then. 'hoarfrost undo' takes it back."
)
EXAMPLE = "example: hoarfrost split model2 new-1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``split``."""
    parser.add_argument("model", metavar="MODEL", help="the model folder to change")
    parser.add_argument("name", metavar="CLASS", help="the class to split")
    parser.add_argument(
        "--into", type=int, choices=(2, 3), default=2, metavar="N", help="number of groups, 2 or 3 (default: 2)"
    )
    add_deciding(parser)


def main(args: argparse.Namespace) -> int:
    """Splits it, or nothing."""
    learner = opened(args)
    learner.model.classes.find(args.name)
    before, folder = learner.model, folder_of(args, learner)
    groups = learner.groups(args.name, folder, into=args.into)
    digests = [group.digests for group in groups[1:]]
    learner.split(args.name, folder, into=args.into)
    made = learner.model.class_names[len(before.class_names) :]
    name = printable(args.name)
    said = [f"{name} is split: {len(groups[0])} images keep its name"]
    said += [f"{printable(new)} is a new class of {len(group)}" for new, group in zip(made, groups[1:], strict=True)]
    content = {"split": args.name, "groups": dict(zip([args.name, *made], map(len, groups), strict=True))}
    return decided(args, learner, before, lambda table: table.split(args.name, digests), said, content, folder)
