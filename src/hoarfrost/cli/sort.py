"""``hoarfrost sort``: image files into a folder for each class."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hoarfrost.cli import options
from hoarfrost.data.unsure import UNSURE, UNSURE_BELOW
from hoarfrost.errors import InputError
from hoarfrost.printing import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hoarfrost.models.model import Model

SUMMARY = "put the images of a folder into a folder for each class"
DESCRIPTION = (
    "Copy every image below DIR into a folder of --into that is named like its class, and those that MODEL is not sure "
    "of into its folder unsure. DIR stays as it is; nothing is ever overwritten. --resume adds to what was sorted "
    "before, month after month: images that were sorted there once are left where they are now."
)
EXAMPLE = "example: hoarfrost sort model2 photos/today --into photos/sorted"

NOTE, IMAGES = ".sorted", "images.jsonl"
"""a hidden folder that says what was sorted, and its file with the images; readers of images do not look into it"""

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
        "--resume", action="store_true", help="add to what --into holds: images that were not sorted there yet"
    )


def main(args: argparse.Namespace) -> int:
    """Predicts, and copies what was not sorted there yet."""
    import os
    from collections import Counter

    from hoarfrost import store
    from hoarfrost.cli.follow import Following
    from hoarfrost.training.learner import Learner

    images, into = Path(args.images), args.into
    _check(images, into)
    learner = Learner.load(args.model, args.device)
    learner.keep_features(options.features_of(args.model), add=False)
    target = SortedFolder.of(into, resume=args.resume).with_classes_of(learner.model)  # refused before the work is done
    with Following() as progress:
        learner.follow(progress)
        found = learner.predictions(images, threshold=args.threshold, keep=options.keeping(args))
    assert found.paths is not None
    ids, put = [-1, *learner.model.classes.present], 0

    def folder_of(class_id: int) -> str:
        return UNSURE if class_id < 0 else target.folders[learner.class_names[class_id]]

    def begin() -> bool:
        """Once more, now that nobody else is at work there."""
        nonlocal target
        target = SortedFolder.of(into, resume=args.resume).with_classes_of(learner.model)
        return target.write()

    if learner.runtime.processes.is_first:
        with store.at_work(into / NOTE, begin, option="--into"), target.record.open("a") as record:
            whole, there = images.resolve(), target.images()
            for path, class_id in zip(found.paths, found.ids.tolist(), strict=True):
                inside = os.path.relpath(path, images)
                image = _identity(whole / inside)
                if image not in there:
                    put += _put(Path(path), into / folder_of(class_id) / inside, link=args.link)
                    record.write(f"\n{json.dumps(image)}")
    counts = Counter(found.ids.tolist())
    told = [*ids[1:], *([-1] if counts[-1] else [])]
    # A labelled class may be called as images of no class are: then it has the name of its folder.
    called = {k: UNSURE if k < 0 else learner.class_names[k] for k in told}
    named = {
        folder_of(k) if k >= 0 and name == UNSURE else name: (folder_of(k), counts[k]) for k, name in called.items()
    }
    rest = "" if put == len(found) else f", {len(found) - put} more were sorted before"
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
        lines.append(f"what was sorted as {printable(before)} stays in {place}: it is {printable(now)} now")
    summary = {
        "into": str(into),
        "images": len(found),
        "added": put,
        "sorted": {name: {"folder": folder, "images": count} for name, (folder, count) in named.items()},
    }
    return options.answer(args, summary, "\n".join(lines))


Image = tuple[str, int, int]
"""path, size in bytes, and time of the last change: an image with another one of these is another image"""


@dataclass(frozen=True)
class SortedFolder:
    """What a folder of sorted images says of the classes in it."""

    into: Path
    folders: Mapping[str, str] = field(default_factory=dict)
    """the folder of each class, by the name of the class"""
    unnamed: Mapping[str, str] = field(default_factory=dict)
    """of discovered classes that nobody had named, what tells them from others that are called the same"""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """what such classes are called by the model now"""

    @classmethod
    def of(cls, into: Path, *, resume: bool) -> SortedFolder:
        """Of a place; refuses whatever else is there."""
        from hoarfrost import store

        note = into / NOTE / "config.json"
        if not note.is_file():
            if into.exists() and store.strangers(into, {NOTE}):
                raise InputError(f"{into} already holds something else: choose another --into")
            return cls(into)
        if not resume:
            raise InputError(f"{into} holds sorted images already: --resume adds to it, or choose another --into")
        content = store.read_json(note, "folder of sorted images")
        store.check_format(content, into)
        parts: list[dict[str, str]] = []
        for part in (content.get("folders"), content.get("unnamed")):
            if not isinstance(part, dict) or not all(isinstance(value, str) for value in part.values()):
                raise store.damaged(note, "it does not say which classes have which folders")
            parts.append(part)
        if not all(folder not in ("", "..") and Path(folder).name == folder for folder in parts[0].values()):
            raise store.damaged(note, "the folder of a class is none")
        return cls(into, *parts)

    def with_classes_of(self, model: Model) -> SortedFolder:
        """With folders for the classes of a model. Refuses one whose unnamed classes are others than those here."""
        import hashlib

        table = model.classes
        found = [k for k in table.present if table.rows[k].step]
        means = model.statistics.mean.cpu()
        digests = {model.class_names[k]: hashlib.sha256(means[k].numpy().tobytes()).hexdigest()[:16] for k in found}
        unnamed = {table.own_names[k] for k in found if table.own_names[k] == table.rows[k].name}
        for name in sorted(unnamed & self.unnamed.keys()):
            if digests[name] != self.unnamed[name]:
                advice = "give the classes of MODEL names, or choose another --into"
                raise InputError(f"{self.into} holds images of another class that was called '{name}': {advice}")
        names = [model.class_names[k] for k in table.present]
        own = [name for name in dict.fromkeys(names) if name not in self.folders]
        made = folder_names([UNSURE, *own], taken=self.folders.values())[1:]
        now = {digest: name for name, digest in digests.items()}
        return SortedFolder(
            self.into,
            {**self.folders, **dict(zip(own, made, strict=True))},
            {**self.unnamed, **{name: digests[name] for name in unnamed}},
            {old: now[digest] for old, digest in self.unnamed.items() if now.get(digest, old) != old},
        )

    def write(self) -> bool:
        """Keeps that; True, since it is written now."""
        from hoarfrost import store

        place = self.into / NOTE
        place.mkdir(parents=True, exist_ok=True)
        content = {"kind": "sort", "folders": dict(self.folders), "unnamed": dict(self.unnamed)}
        store.write_json(place / "config.json", {"format": store.FORMAT, **content})
        return True

    @property
    def record(self) -> Path:
        """The file with the images that were sorted, a line each."""
        return self.into / NOTE / IMAGES

    def images(self) -> set[Image]:
        """Those that were sorted; a line that was cut short is passed over, and its image sorted again."""
        there = set[Image]()
        for line in self.record.read_text(errors="replace").splitlines():
            with suppress(ValueError, TypeError):
                path, size, time = json.loads(line)
                there.add((path, size, time))
        return there


def _identity(path: Path) -> Image:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns


def folder_names(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Names of folders for classes of any name, each another one and none that is taken, on any file system.

    >>> folder_names(["unsure", "Rose", "rose", "../a/b", "", "unsure", ".hidden", "con "])
    ['unsure', 'Rose', 'rose-2', '_a_b', '_', 'unsure-2', 'hidden', 'con']
    """
    import re
    import unicodedata

    from hoarfrost.printing import STEERING

    made, keys = list[str](), {unicodedata.normalize("NFKC", folder).casefold() for folder in taken}
    for name in names:
        plain = STEERING.sub("_", re.sub(r'[/\\:*?"<>|]', "_", name)).strip(" .")
        plain = plain.encode()[:LONGEST].decode(errors="ignore").strip(" .") or "_"
        folder, number = plain, 1
        while (key := unicodedata.normalize("NFKC", folder).casefold()) in keys:
            number += 1
            folder = f"{plain}-{number}"
        keys.add(key)
        made.append(folder)
    return made


def _check(images: Path, into: Path) -> None:
    """Refuses places that images cannot be sorted from or into."""
    from hoarfrost import store
    from hoarfrost.data.folder import check_folder_of_images

    check_folder_of_images(images)
    store.check_folder(into, "--into")
    if images.resolve() == into.resolve():
        raise InputError(f"{into} holds the images that are to be sorted: choose another --into")
    if images.resolve() in into.resolve().parents:
        raise InputError(f"{into} is inside of {images}, whose images are sorted: choose another --into")


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
