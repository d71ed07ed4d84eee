"""``hoarfrost move``: images that belong to another class."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoarfrost.cli import options
from hoarfrost.errors import InputError
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from hoarfrost.models.classes import ClassTable
    from hoarfrost.models.model import Model
    from hoarfrost.training.learner import Learner
    from hoarfrost.training.moving import Changes, Evidence

SUMMARY = "move images to another class of a model"
DESCRIPTION = (
    "Make image FILES evidence of CLASS, in place. A name that no class has makes a new class. The model learns from "
    "it at once, and needs no old image. An image is taken from the class that it was counted for. The files stay "
    "where they are. 'hoarfrost undo' takes it back."
)
EXAMPLE = "example: hoarfrost move model2 photos/unsorted/IMG_17.jpg rose"

NAMED = 6
"""ways from class to class that are printed"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``move``."""
    parser.add_argument("model", metavar="MODEL", help="the model folder to change")
    parser.add_argument("files", metavar="FILE", nargs="+", help="an image file, or a folder of images")
    parser.add_argument("to", metavar="CLASS", help="the class that they belong to, or the name of a new one")
    add_deciding(parser)


def add_deciding(parser: argparse.ArgumentParser) -> None:
    """Where other images are, and how to answer."""
    parser.add_argument(
        "--folder",
        type=options.place,
        metavar="DIR",
        help="count which other images of DIR change class (default: the folder of the last discovery)",
    )
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N (default: auto)")
    options.add_json(parser)


def main(args: argparse.Namespace) -> int:
    """Moves all of them or none."""
    learner = opened(args)
    for path in map(Path, args.files):
        if not path.exists():
            raise InputError(f"there is no file or folder {path}: check the path")
    paths: list[str | Path] = list(map(Path, args.files))
    given = learner.prepare(paths, compute=False) if any(map(Path.is_dir, map(Path, paths))) else paths
    evidence, before = learner.evidence(given), learner.model
    learner.move(evidence, args.to)
    count, name = len(evidence), printable(args.to)
    said = [f"{count} image{' is' if count == 1 else 's are'} moved to {name}{_origin(before, evidence)}"]
    if len(learner.model.classes) > len(before.classes):
        said.append(f"{name} is a new class")
    content, folder = {"moved": count, "to": args.to}, folder_of(args, learner)
    return decided(args, learner, before, lambda table: table.move(evidence.digests, args.to), said, content, folder)


def opened(args: argparse.Namespace) -> Learner:
    """The learner of the model that is to be changed."""
    from hoarfrost.training.learner import Learner
    from hoarfrost.training.moving import check_movable

    learner = Learner.load(args.model, args.device)
    check_movable(learner.model)
    learner.keep_features(options.features_of(args.model), add=False)
    return learner


def folder_of(args: argparse.Namespace, learner: Learner) -> Evidence | None:
    """The images among which others may change: those of --folder, or of the last discovery, if they are known."""
    from hoarfrost.cli.follow import Following

    if args.folder is None:
        return learner.last_folder()
    with Following() as progress:
        learner.follow(progress)
        return learner.evidence(learner.prepare(args.folder))


def decided(
    args: argparse.Namespace,
    learner: Learner,
    before: Model,
    decide: Callable[[ClassTable], ClassTable],
    said: list[str],
    content: dict[str, Any],
    folder: Evidence | None,
) -> int:
    """Writes what a learner has learned into its model folder, and says what else of a folder changed."""
    from hoarfrost.models import description
    from hoarfrost.models.counted import keep_moves

    model = learner.model
    changes = learner.changes(before, folder)

    def kept(table: ClassTable) -> ClassTable:
        after = decide(table)
        keep_moves(Path(args.model), table, after, model.counted)
        return after

    table = description.change_classes(Path(args.model), kept)
    content["classes"] = [table.own_names[class_id] for class_id in table.present]
    content["changed"] = None if changes is None else changes.count
    said += in_words(changes, model)
    return options.answer(args, {"model": str(args.model), **content}, "\n".join(said))


def in_words(changes: Changes | None, model: Model) -> list[str]:
    """How many other images changed class, and from which to which."""
    if changes is None:
        return ["add --folder DIR to see which other images change class"]
    names = (*model.class_names, "unsure")
    lines = [f"{changes.count} other image{'' if changes.count == 1 else 's'} changed class"]
    lines += [
        f"  {number} from {printable(names[a])} to {printable(names[b])}" for number, a, b in changes.ways[:NAMED]
    ]
    return lines


def _origin(model: Model, evidence: Evidence) -> str:
    """For which classes images were counted, in words."""
    from collections import Counter

    labels = model.settled.counted.labels_of(evidence.digests)
    found = Counter(model.class_names[own[0]] if own else None for own in labels)
    named = [f"{count} counted for {printable(name)}" for name, count in found.most_common(NAMED) if name is not None]
    return f" ({', '.join(named)} before)" if named else ""
