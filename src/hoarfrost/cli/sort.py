"""``hoarfrost sort``: image files into a folder for each class."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hoarfrost.cli import options
from hoarfrost.data.unsure import UNSURE, UNSURE_BELOW
from hoarfrost.errors import InputError
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

SUMMARY = "put the images of a folder into a folder for each class"
DESCRIPTION = (
    "Copy every image below DIR into a folder of --into that is named like its class, and those that MODEL is not sure "
    "of into its folder unsure. DIR stays as it is; nothing is ever overwritten. --resume adds to what was sorted "
    "before, month after month."
)
EXAMPLE = "example: hoarfrost sort model2 photos/today --into photos/sorted"

NOTE = ".sorted"
"""a hidden folder that tells what was sorted by; readers of images do not look into it"""

LONGEST = 100
"""bytes of a folder's name; file systems take 255"""


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
        help="the folder to fill; it must be new or empty, or one for --resume",
    )
    parser.add_argument("--link", action="store_true", help="make symbolic links to the images, no copies")
    options.add_threshold(parser, UNSURE_BELOW)
    options.add_reading(parser)
    options.add_running(parser, resume=False)
    parser.add_argument(
        "--resume", action="store_true", help="add to what --into holds: images that have come since, or another DIR's"
    )


def main(args: argparse.Namespace) -> int:
    """Predicts, and copies what is not there yet."""
    import os
    from collections import Counter

    from hoarfrost import store
    from hoarfrost.cli.follow import Following
    from hoarfrost.training.learner import Learner
    from hoarfrost.training.work import digest

    images, into = Path(args.images), args.into
    _check(images, into)
    learner = Learner.load(args.model, args.device)
    learner.keep_features(options.features_of(args.model), add=False)
    task = {
        "weights": digest(Path(args.model) / "weights.safetensors"),
        "classes": list(learner.class_names),
        "images": str(images.absolute()),
        "--threshold": args.threshold,
        "--link": args.link,
    }
    _begin(into, task, resume=args.resume, make=False)  # refused before the work is done
    with Following() as progress:
        learner.follow(progress)
        found = learner.predictions(images, threshold=args.threshold, keep=options.keeping(args))
    assert found.paths is not None
    ids = [-1, *learner.model.classes.present]
    folders = dict(zip(ids, folder_names([UNSURE, *(learner.class_names[k] for k in ids[1:])]), strict=True))
    put = 0
    if learner.runtime.processes.is_first:
        with store.at_work(into / NOTE, lambda: _begin(into, task, resume=args.resume, make=True)):
            for path, class_id in zip(found.paths, found.ids.tolist(), strict=True):
                put += _put(Path(path), into / folders[class_id] / os.path.relpath(path, images), link=args.link)
    counts = Counter(found.ids.tolist())
    told = [*ids[1:], *([-1] if counts[-1] else [])]
    # A labelled class may be called as images of no class are: then it has the name of its folder.
    called = {k: UNSURE if k < 0 else learner.class_names[k] for k in told}
    named = {folders[k] if k >= 0 and name == UNSURE else name: (folders[k], counts[k]) for k, name in called.items()}
    there = "" if put == len(found) else f", {len(found) - put} more were there"
    images_put = f"{put} image{'' if put == 1 else 's'} {'linked' if args.link else 'copied'}"
    lines = [f"{printable(str(into))}: {images_put}{there}"]
    for name, (folder, count) in named.items():
        if not count:
            continue
        other = "" if folder == name else f"  in the folder {folder}"
        lines.append(f"  {printable(name)}  {count} image{'' if count == 1 else 's'}{other}")
    summary = {
        "into": str(into),
        "images": len(found),
        "added": put,
        "sorted": {name: {"folder": folder, "images": count} for name, (folder, count) in named.items()},
    }
    return options.answer(args, summary, "\n".join(lines))


def folder_names(names: Sequence[str]) -> list[str]:
    """Names of folders for classes of any name, each another one, on any file system.

    >>> folder_names(["unsure", "Rose", "rose", "../a/b", "", "unsure", ".hidden", "con "])
    ['unsure', 'Rose', 'rose-2', '_a_b', '_', 'unsure-2', 'hidden', 'con']
    """
    import re
    import unicodedata

    from hoarfrost.printing import STEERING

    made, taken = [], set[str]()
    for name in names:
        plain = STEERING.sub("_", re.sub(r'[/\\:*?"<>|]', "_", name)).strip(" .")
        plain = plain.encode()[:LONGEST].decode(errors="ignore").strip(" .") or "_"
        folder, number = plain, 1
        while (key := unicodedata.normalize("NFKC", folder).casefold()) in taken:
            number += 1
            folder = f"{plain}-{number}"
        taken.add(key)
        made.append(folder)
    return made


def _check(images: Path, into: Path) -> None:
    """Refuses places that images cannot be sorted from or into."""
    from hoarfrost import store

    if not images.exists():
        raise InputError(f"there is no folder {images}: check the path")
    if not images.is_dir():
        raise InputError(f"{images} is no folder: give a folder of image files")
    store.check_folder(into, "--into")
    if images.resolve() == into.resolve():
        raise InputError(f"{into} holds the images that are to be sorted: choose another --into")
    if images.resolve() in into.resolve().parents:
        raise InputError(f"{into} is inside of {images}, whose images are sorted: choose another --into")


def _begin(into: Path, task: dict[str, object], *, resume: bool, make: bool) -> bool:
    """Whether the note was written now: it has a task for each folder of images. Refuses whatever else is there."""
    from hoarfrost import store

    note, tasks = into / NOTE / "config.json", list[dict[str, object]]()
    if note.is_file():
        if not resume:
            raise InputError(f"{into} holds sorted images already: --resume adds to it, or choose another --into")
        before = store.read_json(note, "folder of sorted images")
        store.check_format(before, into)
        tasks = before.get("tasks", [before])  # earlier versions kept one alone
        if not isinstance(tasks, list) or not all(isinstance(own, dict) for own in tasks):
            raise store.damaged(note, "its tasks are none")
        for same in (own for own in tasks if own.get("images") == task["images"]):
            if changed := [key for key, value in task.items() if same.get(key) != value]:
                said = f"these images were sorted into {into} with other {' and '.join(changed)}"
                raise InputError(f"{said}: choose another --into")
            return False
    elif into.exists() and store.strangers(into, {NOTE}):
        raise InputError(f"{into} already holds something else: choose another --into")
    if make:
        note.parent.mkdir(parents=True, exist_ok=True)
        store.write_json(note, {"format": store.FORMAT, "kind": "sort", "tasks": [*tasks, task]})
    return make


def _put(image: Path, target: Path, *, link: bool) -> bool:
    """A copy of an image, or a link to it, if it was not there; what else has the name of the target stays as it is."""
    import filecmp
    import shutil

    from hoarfrost import store

    target.parent.mkdir(parents=True, exist_ok=True)
    stem, number = target.stem, 1
    while target.exists() or target.is_symlink():
        if target.is_file() and filecmp.cmp(image, target, shallow=False):
            return False
        number += 1
        target = target.with_name(f"{stem}-{number}{target.suffix}")
    if link:
        target.symlink_to(image.absolute())
        return True
    with store.replaced_file(target) as part:
        shutil.copy2(image, part)
    return True
