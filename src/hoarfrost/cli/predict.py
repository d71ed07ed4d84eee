"""``hoarfrost predict``: a class for each image."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hoarfrost.cli import options
from hoarfrost.printing import cell, printable

SUMMARY = "predict the class of each image"
DESCRIPTION = (
    "Print a CSV with the header path,class,probability,kind. kind is old for a class with labels and new for a "
    "discovered one."
)
EXAMPLE = "example: hoarfrost predict model2 photos/today > today.csv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``predict``."""
    parser.add_argument("model", metavar="MODEL", help="a model folder")
    parser.add_argument("paths", metavar="DIR", nargs="*", help="folders of images, image files, or an .npz file")
    parser.add_argument("--list", metavar="FILE", help="a file with more paths, one per line; - reads standard input")
    parser.add_argument(
        "--top", type=options.positive, metavar="N", help="add the N most probable classes with their probabilities"
    )
    options.add_threshold(parser, None)
    parser.add_argument("--out", metavar="FILE", help="write the CSV to FILE instead of printing it")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="write names unchanged; otherwise cells that look like formulas get a leading apostrophe, and control "
        "characters are escaped",
    )
    options.add_reading(parser)
    options.add_running(parser, resume=False)


def main(args: argparse.Namespace) -> int:
    """Predicts and prints."""
    import csv
    import io

    from hoarfrost import store
    from hoarfrost.cli.follow import Following
    from hoarfrost.errors import InputError
    from hoarfrost.training.learner import Learner

    if args.out is not None:
        store.check_place(Path(args.out))
        if Path(args.out).exists():
            raise InputError(f"{args.out} already exists: choose another --out")
        if not Path(args.out).parent.is_dir():
            raise InputError(f"there is no folder {Path(args.out).parent}: create it, or choose another --out")
    paths = [*args.paths, *(_listed(args.list) if args.list is not None else ())]
    if not paths:
        raise InputError("there is nothing to predict: give DIR (folders, image files or an .npz file) or --list FILE")
    learner = Learner.load(args.model, args.device)
    learner.keep_features(options.features_of(args.model), add=False)
    given: Path | list[str] = Path(paths[0]) if len(paths) == 1 else paths
    with Following() as progress:
        learner.follow(progress)
        found = learner.predictions(given, threshold=args.threshold, keep=options.keeping(args))
    top = min(args.top or 0, len(learner.model.classes.present))
    rows = found.rows(top)
    buffer = io.StringIO()
    ranks = [f"{key}_{rank}" for rank in range(1, top + 1) for key in ("class", "probability")]
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["path", "class", "probability", "kind", *ranks])
    for row in rows:
        writer.writerow(_cells(row, raw=args.raw))
    if args.out and learner.runtime.processes.is_first:
        store.write_bytes(Path(args.out), buffer.getvalue().encode(errors="surrogateescape"))
    text = f"{printable(args.out)}: {len(rows)} images" if args.out else buffer.getvalue().rstrip("\n")
    if args.raw and not args.out and not args.json:
        return options.print_raw(text)
    return options.answer(args, {"model": str(args.model), "predictions": rows}, text)


def _cells(row: dict[str, Any], *, raw: bool) -> list[Any]:
    """A row of the CSV; names so that no spreadsheet computes them, unless ``raw``."""
    shown = str if raw else cell
    cells = [shown(row["path"]), shown(row["class"]), row["probability"], row["kind"]]
    for one in row.get("top", ()):
        cells += [shown(one["class"]), one["probability"]]
    return cells


def _listed(file: str) -> list[str]:
    """The lines of a file, or of standard input, that are not empty."""
    import os
    import sys

    from hoarfrost.reading import read_bytes

    content = sys.stdin.buffer.read() if file == "-" else read_bytes(Path(file), most=1 << 30)
    return [os.fsdecode(line) for line in content.splitlines() if line]
