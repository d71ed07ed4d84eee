"""``hoarfrost predict``: a class for each image of a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from hoarfrost.cli import options
from hoarfrost.printing import cell, printable

SUMMARY = "say of each image in a folder which class it is"
DESCRIPTION = (
    "Print a CSV with the header path,class,probability,kind; kind is old for classes that had labels, new for "
    "discovered ones."
)
EXAMPLE = "example: hoarfrost predict model2 photos/today > today.csv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``predict``."""
    parser.add_argument("model", metavar="MODEL", help="a model folder")
    parser.add_argument("images", metavar="DIR", help="a folder of images, or an .npz file")
    parser.add_argument("--out", metavar="FILE", help="write the CSV there instead of printing it")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="names in the CSV as they are: no apostrophe before what a spreadsheet would compute, no escapes",
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
            raise InputError(f"there is no folder {Path(args.out).parent}: make it, or choose another --out")
    learner = Learner.load(args.model, args.device)
    with Following() as progress:
        learner.follow(progress)
        images = learner.prepare(Path(args.images), options.keeping(args))
        probabilities = learner.predict_proba(images)
    rows = []
    for index, class_id in enumerate(probabilities.argmax(axis=1).tolist()):
        path = str(index) if images.paths is None else str(Path(args.images) / images.paths[index])
        probability = round(float(probabilities[index, class_id]), 6)
        kind = "old" if class_id < learner.labelled_classes else "new"
        rows.append({"path": path, "class": learner.class_names[class_id], "probability": probability, "kind": kind})
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, ["path", "class", "probability", "kind"], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        names = {} if args.raw else {key: cell(str(row[key])) for key in ("path", "class")}
        writer.writerow({**row, **names})
    if args.out and learner.runtime.processes.is_first:
        store.write_bytes(Path(args.out), buffer.getvalue().encode(errors="surrogateescape"))
    text = f"{printable(args.out)}: {len(rows)} images" if args.out else buffer.getvalue().rstrip("\n")
    if args.raw and not args.out and not args.json:
        return options.print_raw(text)
    return options.answer(args, {"model": str(args.model), "predictions": rows}, text)
