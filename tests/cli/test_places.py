"""Where the result goes: nothing in its place is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .place import DEMO, DISCOVER, FINISHED, FIT, MAKING, PREDICT, RUN, SHORT, Build, Place, Words, contents, named


def foreign_file(out: Path) -> None:
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")


@pytest.mark.parametrize("verb", MAKING)
@pytest.mark.parametrize("resume", [False, True], ids=["", "--resume"])
@pytest.mark.parametrize(
    ("build", "words"),
    [
        pytest.param(lambda out: out.write_text("years of work"), "made is a file", id="a file"),
        pytest.param(foreign_file, "made already holds something else", id="a foreign file"),
    ],
)
def test_out_holds_something_else(place: Place, verb: str, resume: bool, build: Build, words: str) -> None:
    build(Path("made"))
    place.refused(*MAKING[verb], *(["--resume"] if resume else []), words=(words, "--out"))


@pytest.mark.parametrize("verb", FINISHED)
def test_out_holds_a_finished_one(place: Place, verb: str) -> None:
    arguments = FINISHED[verb]
    place.refused(*arguments, words=(arguments[-1], "already holds", "--out"))


PLACES: list[tuple[Words, Words]] = [
    ((*FIT, "--out", "run"), ("run", "something else")),
    ((*DISCOVER, "--out", "model"), ("model",)),
    ((*RUN, "--out", "model"), ("model", "something else")),
    ((*DEMO, "--out", "model"), ("model", "something else")),
    ((*DEMO, "--out", "run"), ("run",)),
    ((*PREDICT, "--out", "model"), ("model", "exists")),
    ((*PREDICT, "--out", "known/0/0.png"), ("known/0/0.png", "exists")),
    ((*PREDICT, "--out", "nowhere/table.csv"), ("nowhere",)),
    ((*PREDICT, "--out", "known/0/0.png/table.csv"), ("known/0/0.png",)),
    ((*FIT, "--out", "known/0/0.png/made"), ("known/0/0.png", "not a folder")),
    ((*DISCOVER, "--out", "known/0/0.png/made"), ("known/0/0.png", "not a folder")),
    ((*RUN, "--out", "known/0/0.png/made"), ("known/0/0.png", "not a folder")),
    ((*FIT, "--out", "."), ("--out",)),
    ((*FIT, "--out", ""), ("--out",)),
    ((*DISCOVER, "--out", "/"), ("--out",)),
    ((*RUN, "--out", "."), ("--out",)),
    ((*FIT, "--cache", ""), ("--cache", "does not name a folder")),
    ((*RUN, "--share", ""), ("--share", "does not name a folder")),
]


@pytest.mark.parametrize(("arguments", "words"), named(PLACES))
def test_out_is_no_place_for_it(place: Place, arguments: Words, words: Words) -> None:
    place.refused(*arguments, words=words)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("command", [FIT, DISCOVER, RUN, PREDICT], ids=lambda command: command[0])
def test_out_in_a_read_only_folder(place: Place, command: Words) -> None:
    Path("locked").mkdir(mode=0o555)
    place.refused(*command, "--out", "locked/made", words=("locked",))


@pytest.mark.parametrize("command", [FIT, RUN], ids=["fit", "run"])
def test_out_in_folders_that_are_made(place: Place, command: Words) -> None:
    place.well(*command, "--out", "deep/er/made")
    assert Path("deep/er/made/config.json").is_file()
    assert {path.name for path in Path("deep/er").iterdir()} == {"made"}


def test_a_refused_demo_keeps_the_last_one(place: Place) -> None:
    place.well(*DEMO)
    place.refused(*DEMO, "--method", "frots", words=("'frots'", "'frost'"))
    place.refused(*DEMO, "--resume", "--seed", "1", words=("made", "seed", "0", "1"))


def test_the_demo_does_not_replace_a_run_of_people(place: Place) -> None:
    place.well("run", "--dataset", "digits", "--split", "5-5", "--out", "made", *SHORT)
    place.refused(*DEMO, words=("made", "holds", "--out"))


def test_a_run_with_tensorboard(place: Place) -> None:
    pytest.importorskip("tensorboard")
    place.well(*RUN, "--tensorboard")
    assert any(Path("made/tensorboard").iterdir())
    place.refused(*RUN, "--tensorboard", words=("made", "already holds"))


def test_nothing_is_written_elsewhere(place: Place, tmp_path: Path) -> None:
    """All that a command and its packages could write into is a folder of its own."""
    home = tmp_path / "home"
    places = {"HOME": home, "XDG_CACHE_HOME": home / "cache", "TMPDIR": home / "tmp", "MPLCONFIGDIR": home / "fonts"}
    for folder in places.values():
        folder.mkdir(parents=True)
    environment = {**os.environ, **{name: str(folder) for name, folder in places.items()}}
    before = set(contents(place.folder))
    for command in ((*FIT, "--out", "written"), ("predict", "model2", "unsorted", "--out", "written.csv")):
        subprocess.run([sys.executable, "-m", "hoarfrost", *command], env=environment, check=True, capture_output=True)
    new = {name.split("/")[0] for name in set(contents(place.folder)) - before if not name.startswith("home")}
    assert new == {"written", "written.csv"}
    kept = [path for path in home.rglob("*") if path.is_file() and home / "fonts" not in path.parents]
    assert kept == []
