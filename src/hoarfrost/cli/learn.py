"""``hoarfrost learn``: a corrected folder, with a sub-folder for each class."""

from __future__ import annotations

import argparse
from pathlib import Path

from hoarfrost.cli import options
from hoarfrost.cli.move import NAMED, add_deciding, decided, folder_of, opened
from hoarfrost.cli.table import few
from hoarfrost.errors import InputError
from hoarfrost.printing import printable

SUMMARY = "learn from a corrected folder of class folders"
DESCRIPTION = (
    "Make the images of DIR evidence of the classes that they lie in, in place. DIR is a folder that 'sort' made, in "
    "which you moved files, or any folder with one sub-folder per class. A new name makes a new class. The folder "
    "unsure is left out. An image that MODEL has counted before is moved, and not counted twice. DIR may also be a "
    "JSON export of Label Studio. 'hoarfrost undo' takes all of it back."
)
EXAMPLE = "example: hoarfrost learn model2 photos/sorted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``learn``."""
    parser.add_argument("model", metavar="MODEL", help="the model folder to change")
    parser.add_argument("images", metavar="DIR", help="a folder with one sub-folder per class, or a JSON export")
    parser.add_argument(
        "--root", type=options.place, metavar="DIR", help="where the files of a JSON export are (default: beside it)"
    )
    add_deciding(parser)


def main(args: argparse.Namespace) -> int:
    """Learns from all of it, or nothing."""
    import numpy as np

    from hoarfrost.cli.follow import Following
    from hoarfrost.data.label_studio import read_export
    from hoarfrost.sorted_folder import class_names_of

    learner, source = opened(args), Path(args.images)
    if not source.exists():
        raise InputError(f"there is no file or folder {source}: check the path")
    with Following() as progress:
        learner.follow(progress)
        if source.is_dir():
            labelled = learner.labelled(source)
            names = class_names_of(source, labelled.class_names)
        else:
            paths, given = read_export(source, args.root)
            labelled = learner.labelled(paths, given)
            names = labelled.class_names
        evidence = learner.evidence(labelled)
    assert labelled.labels is not None
    before, labels = learner.model, labelled.labels
    groups = [(names[k], np.flatnonzero(labels == k)) for k in np.unique(labels).tolist()]
    learner.correct_by([(name, evidence.take(own)) for name, own in groups])
    own_labels = before.settled.counted.labels_of(evidence.digests)
    target = np.array([learner.model.classes.find(names[k]) for k in labels.tolist()])
    stands_for = before.classes.stands_for.tolist()
    same = [any(stands_for[k] == goal for k in own) for own, goal in zip(own_labels, target.tolist(), strict=True)]
    moved = sum(bool(own) and not there for own, there in zip(own_labels, same, strict=True))
    added = sum(not own for own in own_labels)
    made = list(learner.class_names[len(before.classes) :])
    said = [
        f"{len(evidence)} images of {len(groups)} class{'' if len(groups) == 1 else 'es'}: {added} more are counted, "
        f"{moved} moved from another class, {sum(same)} were counted so before"
    ]
    if made:
        said.append(f"new: {few([printable(name) for name in made], NAMED)}")
    content = {"images": len(evidence), "added": added, "moved": moved, "same": sum(same), "new": made}
    digests = [(name, evidence.take(own).digests) for name, own in groups]
    folder = folder_of(args, learner)
    return decided(args, learner, before, lambda table: table.corrected(digests), said, content, folder)
