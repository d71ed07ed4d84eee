"""A folder with all that commands read: images, data sets, models, runs, work that was stopped; made once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from PIL import Image

from hoarfrost import cli
from hoarfrost.cli import main
from hoarfrost.config import Config
from hoarfrost.paper.tables import get_table, planned
from hoarfrost.settings import from_json, to_json
from tools.results.kept import collect

from ..cli.place import save_digits
from ..data.test_datasets import write_cifar10, write_cifar100, write_tiny_imagenet
from ..drawn import draw_once
from ..few_draws import draw_few
from .children import Answer, Child, asked
from .judge import Words

FIT: Words = ("fit", "known", "--out", "made", "--epochs", "2")
FIT_FEW: Words = ("fit", "few", *FIT[2:], "--set", "image_size=8")
DISCOVER: Words = ("discover", "model", "unsorted", "--novel", "2", "--out", "made", "--epochs", "2")
SHORT: Words = ("--fit-epochs", "1", "--epochs", "2")
RUN: Words = ("run", "--dataset", "folder", "--data", "checked", "--split", "3-2", "--out", "made", *SHORT)
PREDICT: Words = ("predict", "model2", "unsorted")
EVALUATE: Words = ("evaluate", "model2", "checked")
REPRODUCE: Words = ("reproduce", "tableA3", "--dataset", "digits", "--epochs", "1", "--out", "all", "--device", "cpu")


WARM = (
    *("pooch", "requests", "starlette.routing", "uvicorn", "hoarfrost.bench", "hoarfrost.paper.estimate"),
    *("hoarfrost.review.server", "hoarfrost.review.session", "hoarfrost.sorted_folder", "hoarfrost.sorted_images"),
)
"""what commands import late, so that no child has to"""


def build(folder: Path) -> None:
    """Makes all of it."""
    for name in WARM:
        import_module(name)
    folder.mkdir()
    patch = pytest.MonkeyPatch()
    draw_once(patch, usual=True)
    draw_few(patch)
    parser = cli.build_parser()  # which no input changes
    patch.setattr(cli, "build_parser", lambda _verb=None: parser)
    with chdir(folder):
        for name, digits, count in (("known", 3, 4), ("checked", 5, 4), ("few", 3, 2)):
            save_digits(Path(name), range(digits), count=count)
        save_digits(Path("unsorted"), range(3, 5), first=8, count=3, flat=True)
        Image.effect_noise((40, 30), 80).convert("RGB").save("unsorted/noise.jpg")
        write_cifar10(Path())
        write_cifar100(Path())
        write_tiny_imagenet(Path())
        _well(*FIT, "--out", "model")
        _well(*FIT_FEW, "--out", "model-of-few")  # its curves are drawn then
        _well(*DISCOVER, "--out", "model2")
        _well(*RUN, "--out", "run", "--share", "shelf")
        _stopped("stopped-fit", (*FIT, "--epochs", "3"), lambda path: path == "made.unfinished/checkpoint.safetensors")
        _stopped("stopped-at-the-end", (*FIT, "--out", "whole"), lambda path: path == "whole.unfinished")
        _stopped("stopped-run", RUN, lambda path: path.endswith(".model.new"))
        shutil.copytree("model2", "model3")
        _well("name", "model3", "new-1=rose")
        _reproduced(Path("all"))
        collect(Path("run"), Path("kept"))


def in_memory() -> str | None:
    """A place where files cost no disk, if there is one with room."""
    place = "/dev/shm"
    if os.access(place, os.W_OK) and shutil.disk_usage(place).free > 2 << 30:
        return place
    return None


def _well(*arguments: str) -> None:
    answers: list[Answer] = []
    saved = os.dup(1), os.dup(2)
    try:
        answers.append(asked(lambda: main(arguments)))
    finally:
        for number, handle in enumerate(saved, start=1):
            os.dup2(handle, number)
            os.close(handle)
    if answers[0].code != 0:
        raise RuntimeError(f"{arguments}: {answers[0]}")


def _stopped(name: str, arguments: Words, at: Callable[[str], bool]) -> None:
    """A folder of its own with what a command leaves that dies where it would rename or make such a path."""
    from .kills import PATHS_OF, install

    Path(name).mkdir()
    for part in ("known", "checked"):
        shutil.copytree(part, f"{name}/{part}")

    def work(told: int) -> None:
        os.chdir(name)

        def die(event: str, given: tuple[object, ...]) -> None:
            if event in PATHS_OF and event != "open" and at(os.path.relpath(str(given[0]))):
                os._exit(9)

        install(die)
        asked(lambda: main(arguments))

    child = Child(work)
    for _ in child.lines(60):
        pass
    if child.end() != "ended with 9":
        raise RuntimeError(f"{arguments} was not stopped")


def _reproduced(folder: Path) -> None:
    """What ``reproduce tableA3 --dataset digits --epochs 1`` leaves, with the figures of another run."""
    for run in planned(get_table("tableA3"), ("digits",), 1, 1):
        shutil.copytree("run", folder / run.name)
        path = folder / run.name / "config.json"
        content = json.loads(path.read_text())
        found = from_json(Config, content["learner"])
        decided = {name: getattr(found, name) for name in ("backbone", "image_size", "mean", "std")}
        path.write_text(json.dumps(content | {"learner": to_json(replace(run.config(), **decided))}))


def copied(base: Path, parts: Words, target: Path) -> None:
    """A new folder with some parts of the whole; of ``stopped-…`` all that is in it."""
    target.mkdir(exist_ok=True)
    for part in parts:
        if part.startswith("stopped"):
            shutil.copytree(base / part, target, dirs_exist_ok=True)
        else:
            shutil.copytree(base / part, target / part)


def files_below(*folders: str) -> Iterator[Path]:
    """The files of folders, in a fixed order."""
    for folder in folders:
        yield from sorted(path for path in Path(folder).rglob("*") if path.is_file())
