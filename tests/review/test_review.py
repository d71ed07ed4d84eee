"""`hoarfrost review` on the command line: what it refuses, how it ends, and that nothing answered is lost."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hoarfrost.cli import main
from hoarfrost.models.description import read_classes
from hoarfrost.review.judging import follow
from hoarfrost.review.session import Session, remember_folder, remembered_folder

from .conftest import session_in, wait_for


@contextmanager
def running(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, and the address that it prints."""
    words = [sys.executable, "-m", "hoarfrost", "review", "model2", "--no-browser", *more]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]+/", process.stdout.readline())
            assert address is not None
            yield process, address[0]
        finally:
            process.kill()


def asked(address: str, decision: dict[str, Any] | None = None) -> Any:
    with urllib.request.urlopen(f"{address}state", timeout=30) as answer:
        state = json.load(answer)
    if decision is None:
        return state
    body = json.dumps({"version": state["version"], "decision": decision}).encode()
    origin = {"Origin": address.rsplit("/", 2)[0]}
    with urllib.request.urlopen(urllib.request.Request(f"{address}decide", body, origin), timeout=30) as answer:
        return json.load(answer)


def test_ctrl_c_ends_it_well(fresh: Path) -> None:
    with running(fresh, "--folder", "unsorted") as (process, address):
        assert asked(address, {"verb": "rename", "class": 3, "name": "rose"})["undo"] == "new-1 is now called rose"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert err == ""
    assert "1 of 2 new classes are decided" in out
    assert "Next: hoarfrost sort model2 unsorted --into DIR" in out
    with running(fresh) as (process, address):
        assert asked(address)["folder"] == str(fresh / "unsorted"), "it is known from the last time"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 143


def test_what_was_answered_is_there_after_a_kill(fresh: Path) -> None:
    names = random.Random(0)
    told: dict[str, Any] = {}
    for _ in range(3):
        with running(fresh, "--folder", "unsorted") as (process, address):
            for _ in range(names.randrange(1, 8)):
                told = asked(address, {"verb": "rename", "class": 3, "name": f"name-{names.random()}"})
            process.kill()
            process.wait()
        table = read_classes(fresh / "model2")
        assert table.own_names[3] == told["classes"][3]["name"]
        lines = (fresh / "model2" / "decisions.jsonl").read_text().splitlines()
        assert len(lines) == len(table.edits)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "no model folder nowhere"),
        (("unsorted",), "check the path"),
        (("model2", "--folder", "nowhere"), "nowhere"),
        (("model2", "--folder", "unsorted/4-0.png"), "unsorted/4-0.png"),
        (("model2", "--folder", ""), "does not name a folder"),
        (("model2", "--port", "80"), "from 1024 to 65535"),
        (("model2", "--port", "x"), "from 1024 to 65535"),
        (("model", "--no-browser"), "add --folder DIR"),
    ],
)
def test_what_is_refused(
    fresh: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(fresh)
    try:
        code: object = main(["review", *words])
    except SystemExit as end:
        code = end.code
    assert code == 2
    line = capsys.readouterr().err
    assert said in line
    assert line.count("\n") == 1


def test_the_second_time_the_model_need_not_be_asked(fresh: Path) -> None:
    with session_in(fresh) as session:
        assert session.groups is not None
        assert not session.judge.busy
        state = session.state()
    assert state["images"] == 16
    assert sum(row["images"] for row in state["classes"]) + state["unsure"] == 16


def test_an_image_that_came_since_is_shown(fresh: Path) -> None:
    new = fresh / "unsorted" / "new.png"
    new.write_bytes((fresh / "unsorted" / "4-2.png").read_bytes())
    try:
        with session_in(fresh) as session:
            assert session.groups is None, "what was judged before was of other images"
            wait_for(lambda: session.groups is not None)
            assert session.state()["images"] == 17
    finally:
        new.unlink()


@pytest.mark.parametrize("content", [b"", b"PK no", b"\x93NUMPY"])
def test_a_judgement_that_is_damaged_is_made_again(fresh: Path, content: bytes) -> None:
    kept = fresh / "model2.thumbnails" / "judged.npz"
    whole = kept.read_bytes()
    kept.write_bytes(content)
    try:
        assert session_in_parts(fresh) is None
    finally:
        kept.write_bytes(whole)
    assert session_in_parts(fresh) is not None


def session_in_parts(folder: Path) -> object:
    with session_in(folder) as session:
        return session._kept()


def test_images_are_in_their_class_with_the_most_doubtful_first(session: Session) -> None:
    groups = session.groups
    assert groups is not None
    seen = []
    for group in (-1, *session.table.present):
        told = session.images(group)
        assert told is not None
        assert told["sure"] == sorted(told["sure"])
        assert all((share < 0.5) == (group == -1) for share in told["sure"])
        assert all(other <= own + 1e-3 for own, other in zip(told["sure"], told["runner_up"], strict=True))
        seen += told["index"]
    assert sorted(seen) == list(range(16))
    assert session.images(99) is None
    queue = session.state()["queue"]
    sizes = [len(groups.members[k]) for k in queue if k >= 3]
    assert sizes == sorted(sizes, reverse=True)


def test_another_name_sorts_nothing_again(session: Session) -> None:
    before = session.groups
    session.decide(session.version, {"verb": "rename", "class": 3, "name": "rose"})
    state = session.state()
    assert (state["busy"], state["round"], state["classes"][3]["name"]) == (False, 1, "rose")
    session.decide(session.version, {"verb": "undo"})
    assert before is not None
    assert session.groups is not None
    assert session.groups.members is before.members


def test_the_folder_of_the_last_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "model.thumbnails"
    assert remembered_folder(cache) is None
    monkeypatch.chdir(tmp_path)
    remember_folder(cache, Path("photos"))
    assert remembered_folder(cache) == tmp_path / "photos"
    (cache / "folder.json").write_text("[]")
    assert remembered_folder(cache) is None


def test_a_learner_follows_a_table(fresh: Path) -> None:
    from hoarfrost import Learner

    learner = Learner.load(fresh / "model2", "cpu")
    table = learner.model.classes
    first = table.rename("new-1", "rose").merge("new-2", "rose")
    for wanted in (first, first.undo().reject("new-2"), table, first.rename("rose", "red")):
        assert follow(learner, wanted)
        assert learner.model.classes == wanted
    assert not follow(learner, table.with_discovered(1))
