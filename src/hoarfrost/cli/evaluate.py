"""``hoarfrost evaluate``: scores of a model on labelled images."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from hoarfrost.cli import options
from hoarfrost.cli.table import align, few, short
from hoarfrost.printing import MISSING, format_score, printable

SUMMARY = "score a model on a labelled folder"
DESCRIPTION = (
    "Score MODEL on DIR, which has one sub-folder per class. A sub-folder with the name of a labelled class is an old "
    "class; any other is a new class. New classes are matched to discovered classes by their images. --match names "
    "other images to match by; the paper uses those of the discovery."
)
EXAMPLE = "example: hoarfrost evaluate model2 photos/checked --match photos/truth"


SHOWN = 20
"""classes in the table; JSON has all"""

IN_A_FILE = 100
"""characters of a line, where no terminal says how many it has"""

MOST_OF_A_NAME, LEAST_OF_A_NAME = 60, 12
"""characters of a name in the table: as many as there is room for, from the second to the first"""

SCORES = ("old", "new", "all", "hm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``evaluate``."""
    parser.add_argument("model", metavar="MODEL", help="a model folder")
    parser.add_argument("images", metavar="DIR", help="a folder with one sub-folder per class, or an .npz file")
    parser.add_argument(
        "--match",
        metavar="DIR",
        help="labelled images on which new classes are matched to discovered ones (default: DIR)",
    )
    options.add_reading(parser)
    options.add_running(parser, resume=False)


def main(args: argparse.Namespace) -> int:
    """Scores and prints."""
    from hoarfrost.cli.follow import Following
    from hoarfrost.evaluation import score_folder
    from hoarfrost.training.learner import Learner

    learner = Learner.load(args.model, args.device)
    learner.keep_features(options.features_of(args.model), add=False)
    match = None if args.match is None else Path(args.match)
    with Following() as progress:
        learner.follow(progress)
        content = score_folder(learner, Path(args.images), match, options.keeping(args))
    first = f"{printable(args.model)} on {content['images']} images of {printable(args.images)}: {_right(content)}"
    parts = first, _by_class(content), _in_words(content), _scores(content), _matching(content, args.match)
    return options.answer(args, {"model": str(args.model), **content}, "\n\n".join(parts))


def _right(content: dict[str, Any]) -> str:
    """The share of the images that are right, in words."""
    scores = content["joint"]
    parts = {"old classes": scores["old"], "new classes": scores["new"]}
    known = ", ".join(f"{score:.1f} % of {name}" for name, score in parts.items() if score is not None)
    return f"{scores['all']:.1f} % correct ({known})"


def _scores(content: dict[str, Any]) -> str:
    """A row a protocol."""
    rows = [["protocol", "Old", "New", "All", "HM"]]
    for name, key in (
        ("class-iNCD", "joint"),
        ("original", "original_rt"),
        ("category discovery", "category_discovery"),
    ):
        if (scores := content[key]) is not None:
            rows.append([name, *(format_score(scores[part]) if part in scores else "" for part in SCORES)])
    return align(rows)


def _matching(content: dict[str, Any], match: str | None) -> str:
    """Which class of the model each new class of the folder was taken for, in words."""
    known_by, text = {row["known_by"] for row in content["classes"]}, "in percent"
    if "name" in known_by:
        text += "; classes that you named are matched by name"
    if match is not None:
        text += f"; new classes matched on {printable(match)}"
    elif "matching" in known_by:
        text += "; new classes matched on the scored images themselves, which is optimistic: see --match"
    return text


def _by_class(content: dict[str, Any]) -> str:
    """A row a class, the worst first; the best are left out where there are many."""
    titles, classes = ["class", "images", "correct", "%", "match", "mistaken for"], content["classes"]

    def cells(row: dict[str, Any], room: int) -> list[str]:
        taken = "" if row["taken_for"] is None else f"{short(row['taken_for'], room)} ({row['taken']})"
        called = MISSING if row["called"] is None else short(row["called"], room)
        counts = [str(row["images"]), str(row["right"]), format_score(row["accuracy"])]
        return [short(row["class"], room), *counts, called, taken]

    def table(room: int) -> str:
        return align([titles, *(cells(row, room) for row in classes[:SHOWN])], text=(0, 4, 5))

    columns, room = shutil.get_terminal_size(fallback=(IN_A_FILE, 0)).columns, MOST_OF_A_NAME
    while room > LEAST_OF_A_NAME and max(map(len, table(room).splitlines())) > columns:
        room -= 1
    left = classes[SHOWN:]
    if not left:
        return table(room)
    least, best = (format_score(row["accuracy"]) for row in (left[0], left[-1]))
    more = f"and {len(left)} more with {least} %{'' if least == best else ' or more'}"
    return f"{table(room)}\n{more}; --json lists all"


def _in_words(content: dict[str, Any]) -> str:
    """What the numbers of clusters and images say, a line each."""
    lines, count = [], content["new_classes"]
    if unknown := [short(row["class"]) for row in content["classes"] if row["called"] is None]:
        lines.append(f"not a class of the model, so 0 % correct: {few(unknown)}")
    if spare := [f"{short(row['cluster'])} ({row['images']})" for row in content["clusters"] if row["class"] is None]:
        lines.append(f"discovered classes without a match (and their images): {few(spare)}")
    if count["found"] or count["true"]:
        lines.append(f"new classes: {count['found']} discovered, {count['true']} true")
    for name, of in (("new", "images of new classes"), ("all", "all images")):
        scores = content["clustering"][name]
        if scores["purity"] is not None:
            lines.append(f"clustering of {of}: purity {scores['purity']:.1f}, NMI {scores['nmi']:.1f}")
    sure, right = content["calibration"], content["joint"]["all"]
    among = f"; {sure['sure_accuracy']:.1f} % of the {sure['sure']} images at 90 % or more" if sure["sure"] else ""
    lines.append(f"probabilities: {sure['probability']:.1f} % on average, {right:.1f} % of the images correct{among}")
    lines.append(f"calibration error: {sure['error']:.3f} (at least about {sure['by_chance']:.3f} by chance alone)")
    if content["auroc_new"] is not None:
        lines.append(f"new classes against old ones: AUROC {content['auroc_new']:.1f} (50 is chance)")
    return "\n".join(lines)
