"""``hoarfrost evaluate``: scores of a model on labelled images."""

from __future__ import annotations

import argparse
from pathlib import Path

from hoarfrost.cli import options
from hoarfrost.printing import format_score, printable

SUMMARY = "score a model on a labelled folder"
DESCRIPTION = (
    "Score MODEL on DIR, which has one sub-folder per class. Sub-folders named like a class of stage one are old "
    "classes, all others new ones, which are matched to the discovered classes: on the images of --match, as the paper "
    "does with the images that were discovered in, or else on DIR itself."
)
EXAMPLE = "example: hoarfrost evaluate model2 photos/checked --match photos/unsorted-with-truth"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``evaluate``."""
    parser.add_argument("model", metavar="MODEL", help="a model folder")
    parser.add_argument("images", metavar="DIR", help="a folder with one sub-folder per class, or an .npz file")
    parser.add_argument("--match", metavar="DIR", help="labelled images on which new classes are matched to clusters")
    options.add_reading(parser)
    options.add_running(parser, resume=False)


def main(args: argparse.Namespace) -> int:
    """Scores and prints."""
    from hoarfrost.cli.table import align
    from hoarfrost.evaluation import score_folder
    from hoarfrost.training.learner import Learner

    learner = Learner.load(args.model, args.device)
    match = None if args.match is None else Path(args.match)
    content = score_folder(learner, Path(args.images), match, options.keeping(args))
    joint, original = content["joint"], content["original_rt"]
    rows = [["protocol", "Old", "New", "All", "HM"]]
    rows.append(["class-iNCD", *(format_score(joint[key]) for key in ("old", "new", "all", "hm"))])
    if original is not None:
        rows.append(["original", *(format_score(original[key]) for key in ("old", "new", "all")), ""])
    text = f"{printable(args.model)} on {content['images']} images of {printable(args.images)}\n\n{align(rows)}"
    if args.match is not None:
        text += f"\n\nin percent; new classes matched on {printable(args.match)}"
    elif content["matched_on"] is not None:
        text += "\n\nin percent; new classes matched on the scored images themselves, which is kinder than --match"
    return options.answer(args, {"model": str(args.model), **content}, text)
