"""``hoarfrost demo``: the embedded digits, from labelled images to a report."""

from __future__ import annotations

import argparse
from pathlib import Path

from hoarfrost.cli import options, run

SUMMARY = "try it on the embedded digits: learn 0-4, discover 5-9, write a report"
DESCRIPTION = (
    "Learn the digits 0 to 4 with labels, discover 5 to 9 without labels, score both, and write a report. "
    "It takes less than a minute."
)
EXAMPLE = "example: hoarfrost demo --seed 1 --out runs/demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``demo``."""
    parser.add_argument(
        "--out",
        default="runs/demo",
        metavar="DIR",
        help="the run folder; an earlier demo there is replaced (default: runs/demo)",
    )
    options.add_method(parser)
    options.add_learning(parser)
    options.add_running(parser)
    parser.set_defaults(
        dataset="digits",
        data="data",
        download=False,
        split="5-5",
        class_order="natural",
        epochs=None,
        fit_epochs=None,
        compile="auto",
    )


def main(args: argparse.Namespace) -> int:
    """Runs it and prints the table."""
    out = Path(args.out)
    content = run.execute(args, out, kind="demo")
    return options.answer(args, content, run.describe(content, out))
