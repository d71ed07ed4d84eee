"""``hoarfrost sort``: image files into a folder for each class."""

from __future__ import annotations

import argparse
from pathlib import Path

from hoarfrost.cli import options
from hoarfrost.data.unsure import UNSURE, UNSURE_BELOW
from hoarfrost.errors import InputError
from hoarfrost.printing import printable

SUMMARY = "copy images into a folder for each class"
DESCRIPTION = (
    "Copy the images of DIR and its sub-folders into --into, in one folder per class. Unsure images go into the folder "
    "unsure. DIR does not change, and no file is overwritten. --resume adds the images that an earlier --into lacks; "
    "the others stay where they are."
)
EXAMPLE = "example: hoarfrost sort model2 photos/today --into photos/sorted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``sort``."""
    parser.add_argument("model", metavar="MODEL", help="a model folder")
    parser.add_argument("images", metavar="DIR", help="a folder of images")
    parser.add_argument(
        "--into",
        "--out",
        required=True,
        type=options.place,
        metavar="DIR2",
        help="the folder to fill: new or empty, or an earlier one with --resume",
    )
    parser.add_argument("--link", action="store_true", help="make symbolic links instead of copies")
    options.add_threshold(parser, UNSURE_BELOW)
    options.add_reading(parser)
    options.add_running(parser, resume=False)
    parser.add_argument("--resume", action="store_true", help="add images that --into does not hold yet")


def main(args: argparse.Namespace) -> int:
    """Predicts, and copies what was not sorted there yet."""
    from collections import Counter

    from hoarfrost import store
    from hoarfrost.cli.follow import Following
    from hoarfrost.sorted_folder import SortedFolder
    from hoarfrost.sorted_images import SeenFiles, check_note, put_images
    from hoarfrost.training.learner import Learner

    images, into = Path(args.images), args.into
    _check(images, into)
    learner = Learner.load(args.model, args.device)
    learner.keep_features(options.features_of(args.model), add=False)
    target = SortedFolder.of(into, resume=args.resume).with_classes_of(learner.model)
    check_note(into)  # both are refused before the work is done
    with Following() as progress:
        learner.follow(progress)
        prepared = learner.prepare(images, options.keeping(args))
        found = learner.predictions(prepared, threshold=args.threshold)
    assert prepared.paths is not None
    assert prepared.states is not None
    ids, put = [-1, *learner.model.classes.present], 0

    def folder_of(class_id: int) -> str:
        return UNSURE if class_id < 0 else target.folders[learner.model.class_names[class_id]]

    def begin() -> bool:
        """Once more, now that nobody else is at work there."""
        nonlocal target
        target = SortedFolder.of(into, resume=args.resume).with_classes_of(learner.model)
        return target.write()

    if learner.runtime.processes.is_first:
        with store.at_work(target.note.parent, begin, option="--into"):
            looked_at = SeenFiles(images, prepared.paths, prepared.states)
            put = put_images(into, looked_at, map(folder_of, found.ids.tolist()), link=args.link)
    counts = Counter(found.ids.tolist())
    told = [*ids[1:], *([-1] if counts[-1] else [])]
    # A labelled class may be called as images of no class are: then it has the name of its folder.
    called = {k: UNSURE if k < 0 else learner.model.class_names[k] for k in told}
    named = {
        folder_of(k) if k >= 0 and name == UNSURE else name: (folder_of(k), counts[k]) for k, name in called.items()
    }
    rest = "" if put == len(found) else f", {len(found) - put} were sorted before"
    lines = [
        f"{printable(str(into))}: {put} image{'' if put == 1 else 's'} {'linked' if args.link else 'copied'}{rest}",
    ]
    for name, (folder, count) in named.items():
        if not count:
            continue
        other = "" if folder == name else f"  in the folder {folder}"
        lines.append(f"  {printable(name)}  {count} image{'' if count == 1 else 's'}{other}")
    for before, now in target.renamed.items():
        place = printable(target.folders[before])
        lines.append(f"{printable(before)} is now called {printable(now)}; its images stay in the folder {place}")
    summary = {
        "into": str(into),
        "images": len(found),
        "added": put,
        "sorted": {name: {"folder": folder, "images": count} for name, (folder, count) in named.items()},
    }
    return options.answer(args, summary, "\n".join(lines))


def _check(images: Path, into: Path) -> None:
    """Refuses places that images cannot be sorted from or into."""
    from hoarfrost import store
    from hoarfrost.data.folder import check_folder_of_images

    check_folder_of_images(images)
    store.check_folder(into, "--into")
    if images.resolve() == into.resolve():
        raise InputError(f"{into} is the folder of the images to sort: choose another --into")
    if images.resolve() in into.resolve().parents:
        raise InputError(f"{into} is inside {images}, the folder of the images to sort: choose another --into")
