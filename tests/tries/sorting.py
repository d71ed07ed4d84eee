"""What ``sort`` meets: changed notes, long and deep paths, and files that are swapped while it runs."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hoarfrost.cli import main

from .children import asked
from .hostile_values import NAMES, Random
from .judge import Try, Words
from .place import DISCOVER, FIT, PREDICT
from .written import changed_file

SORT: Words = ("sort", "model2", "unsorted", "--into", "into", "--device", "cpu")
AGAIN: Words = (*SORT, "--resume")
NOTE = Path("into/.sorted")
SECRET = b"of its owner alone"


def images_in(folder: Path) -> Counter[bytes]:
    """What people see there, and how often."""
    return Counter(path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".sorted" not in path.parts)


def _sorted_once(arguments: Words) -> object:
    """Sorts; where that ends well, each image has to be there once."""
    code = main(arguments)
    if not code and images_in(Path("into")) != images_in(Path("unsorted")):
        raise AssertionError("an image is doubled, lost or changed")
    return code


def notes(random: Random) -> Try:
    """A folder of sorted images whose note was changed."""
    answer = asked(lambda: main(SORT))
    if answer.code:
        raise RuntimeError(answer.err)
    images = NOTE / "images.jsonl"
    images.write_bytes(images.read_bytes().strip())
    what = random.choice(["list", "list", "classes", "waiting", "folder"])
    match what:
        case "list":
            what = f"images.jsonl, {changed_file(random, images)}"
        case "classes":
            what = f"config.json, {changed_file(random, NOTE / 'config.json')}"
        case "waiting":
            waiting = NOTE / "waiting"
            waiting.mkdir()
            for name in random.sample(NAMES, 3):
                if name.strip(".") and "/" not in name and "\0" not in name:
                    (waiting / name).write_bytes(SECRET)
            if random.random() < 0.5:
                (waiting / "nowhere").symlink_to("/dev/zero")
        case _:
            NOTE.rename("elsewhere")
            _in_the_place_of(random, NOTE)
    return Try(AGAIN, f"the note of a sorted folder: {what}", blamed=("into",), main=_sorted_once)


def _in_the_place_of(random: Random, folder: Path) -> None:
    match random.randrange(4):
        case 0:
            folder.symlink_to(random.choice(["../elsewhere", "nowhere", "/dev"]))
        case 1:
            folder.write_bytes(b"")
        case 2:
            os.mkfifo(folder)
        case _:
            folder.mkdir()


def paths(random: Random) -> Try:
    """Images with very long names, in very deep folders, or in folders that are called as images were."""
    images = sorted(Path("unsorted").iterdir())
    said = []
    for image in random.sample(images, 3):
        match random.randrange(4):
            case 0:
                longest = random.choice([249, 250, 251, 254, 255])
                letter = random.choice(["n", "é", "名"])
                stem = (letter * 255).encode()[: longest - len(image.suffix)].decode(errors="ignore")
                image.rename(image.with_name(f"{stem}{image.suffix}"))
                said.append(f"{longest} bytes")
            case 1:
                depth, name = random.choice([(120, "d"), (60, "e" * 50), (13, "f" * 250)])
                here = Path.cwd()
                os.chdir("unsorted")
                for _ in range(depth):
                    Path(name).mkdir(exist_ok=True)
                    os.chdir(name)
                shutil.move(here / image, image.name)
                os.chdir(here)
                said.append(f"{depth} folders")
            case 2 if "sorted before" not in said:
                answer = asked(lambda: main(SORT))
                if answer.code:
                    raise RuntimeError(answer.err)
                content = image.read_bytes()
                image.unlink()
                image.mkdir()
                (image / image.name).write_bytes(content + b"another")
                said.append("sorted before")
            case _:
                name = random.choice([name for name in NAMES if name.strip(".") and "/" not in name])
                (image.parent / name).mkdir(exist_ok=True)
                image.rename(image.parent / name / image.name)
                said.append(f"below {name!r}")
    if "sorted before" in said:
        return Try(AGAIN, f"images in paths: {', '.join(said)}", refused=False)
    return Try(AGAIN, f"images in paths: {', '.join(said)}", main=_sorted_once, codes=(0,))


_swap: list[Callable[[str], None]] = []
"""what is to be done when a file is opened; hooks cannot be taken out again"""


@cache
def _watch(process: int) -> None:
    """Once in this process, of which this is the number: two hooks would count each file twice."""

    def told(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and _swap and isinstance(given[0], str | bytes | os.PathLike):
            _swap[0](os.fsdecode(given[0]))

    sys.addaudithook(told)


READERS: tuple[tuple[str, Words], ...] = (
    *3 * [("unsorted", SORT)],
    ("known", FIT),
    ("unsorted", (*PREDICT, "--cache", "cache")),
    ("unsorted", DISCOVER),
)
"""commands whose images are swapped, and where those are"""


def swaps(random: Random) -> Try:
    """Files that become others while a command looks at them, or copies them."""
    Path("secret").write_bytes(SECRET * 20)
    folder, command = random.choice(READERS)
    images = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    some = random.choice(images)
    other = random.choice(images).read_bytes()
    kind = random.choice(["link", "link", "endless", "endless", "pipe", "folder", "bytes", "gone", "longer", "shorter"])
    left, itself = [random.choice([random.randrange(1, 24), random.randrange(15, 22)])], random.random() < 0.7
    allowed = {*images_in(Path("unsorted")), other}

    def swap(path: str) -> None:
        if folder not in Path(path).parts:
            return
        left[0] -= 1
        if left[0]:
            return
        _swap.clear()
        image = Path(path) if itself and Path(path).is_file() else some
        content = image.read_bytes()
        image.unlink()
        match kind:
            case "link":
                image.symlink_to("../secret")
            case "endless":
                image.symlink_to("/dev/zero")
            case "pipe":
                os.mkfifo(image)
            case "folder":
                image.mkdir()
            case "bytes":
                image.write_bytes(other)
            case "longer":
                image.write_bytes(content + bytes(1000))
                allowed.add(content + bytes(1000))
            case "shorter":
                image.write_bytes(content[:-1])
                allowed.add(content[:-1])

    def watched(arguments: Words) -> object:
        _watch(os.getpid())
        _swap[:] = [swap]
        try:
            code = main(arguments)
        finally:
            _swap.clear()
        if command[0] != "sort":
            return code
        if strange := [content for content in images_in(Path("into")) if content not in allowed]:
            raise AssertionError(f"what was never looked at was copied: {strange[0][:40]!r}")
        return code

    link = ("--link",) if random.random() < 0.2 and kind != "endless" and command[0] == "sort" else ()
    if link:
        allowed.add(SECRET * 20)
    what = f"{command[0]}, {kind} in the place of an image at the file {left[0]} that is opened"
    return Try((*command, *link), what, main=watched, may_leave=("into/", "into", "cache/", f"{folder}/", folder))
