"""That the tries would notice: each thing that must not happen, made to happen."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from . import children
from .children import Answer, Child, in_children
from .judge import Try, contents, judged
from .kills import different, left_in


def problems(work: Callable[[int], str], *, seconds: float = 20) -> dict[int, str]:
    return dict(in_children(work, range(4), seconds=seconds, batch=3))


def test_a_crash_is_noticed_and_the_others_go_on() -> None:
    def crash(case: int) -> str:
        if case == 1:
            faulthandler.disable()  # pytest's would show where
            os.kill(os.getpid(), signal.SIGSEGV)
        return "wrong" if case == 2 else ""

    assert problems(crash) == {0: "", 1: "ended by SIGSEGV", 2: "wrong", 3: ""}


def test_a_hang_is_noticed() -> None:
    def hang(case: int) -> str:
        time.sleep(60 * (case == 3))
        return ""

    assert problems(hang, seconds=1) == {0: "", 1: "", 2: "", 3: "it took more than 1 s"}


def test_long_work_is_noticed_whoever_waits() -> None:
    def work(case: int) -> str:
        until = time.process_time() + 1.2 * (case == 2)
        while time.process_time() < until:
            pass
        return ""

    found = dict(in_children(work, range(4), seconds=0.5, batch=3, patience=100))
    assert found == {0: "", 1: "", 2: "it took 1 s", 3: ""}


def test_memory_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MOST_MEMORY", 100 << 20)
    found = problems(lambda case: "x" * ((200 << 20) * (case == 1)) and "")
    took = re.fullmatch(r"it took (\d+) MiB of memory", found.pop(1))
    assert took is not None
    assert int(took[1]) > 150
    assert set(found.values()) == {""}


def test_a_child_ends_with_its_parent() -> None:
    """A program that was ended leaves no work behind, which would go on for hours."""

    def parent(told: int) -> None:
        child = Child(lambda _: time.sleep(60))
        os.write(told, b"%d\n" % child.number)
        time.sleep(60)

    made = Child(parent)
    grandchild = int(next(made.lines(20)))
    os.kill(made.number, signal.SIGKILL)
    assert made.end() == "ended by SIGKILL"
    end = time.monotonic() + 20
    while Path(f"/proc/{grandchild}/stat").exists() and " Z " not in Path(f"/proc/{grandchild}/stat").read_text():
        assert time.monotonic() < end, "it goes on"
        time.sleep(0.01)


def test_a_mistake_of_the_tries_themselves_is_no_finding() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        problems(lambda case: str(1 // case))


REFUSED = Try(("predict", "model", "images"), "a case", blamed=("images",))
LINE = b"hoarfrost: images is empty: check the path\n"
TABLE = b"path,class,probability,kind\nimages/1.png,cat,0.5,old\n"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(2, b"", LINE), ""),
        (Answer(2, b"", b"hoarfrost: warning: left out: 1 file\n" + LINE), ""),
        (Answer(0, TABLE, b""), ""),
        (Answer("KeyError: 'x' (at a.py:1)", b"", b""), "traceback"),
        (Answer(2, b"", b"Traceback (most recent call last):\n" + LINE), "traceback"),
        (Answer(1, b"", LINE), "exit code 1"),
        (Answer(2, b"", b""), "without a line"),
        (Answer(2, b"", b"libtiff: bad\n" + LINE), "more than one line"),
        (Answer(2, b"1\n", LINE), "yet an answer"),
        (Answer(2, b"", b"hoarfrost: it is empty\n"), "none of images"),
        (Answer(2, b"", b"hoarfrost: images/\x1b[2J is empty\n"), "raw '\\x1b'"),
        (Answer(2, b"", b"hoarfrost: images/\xff is empty\n"), "not UTF-8"),
        (Answer(2, b"", b"hoarfrost: images/.x.part is empty\n"), "never see"),
        (Answer(0, TABLE, b"libtiff: bad\n"), "not ours"),
        (Answer(0, TABLE.replace(b"0.5", b"nan"), b""), "a row is"),
        (Answer(0, TABLE.replace(b"cat", b"=1+0"), b""), "formula"),
    ],
)
def test_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    found = judged(REFUSED, answer, {}, {})
    assert words in found
    assert bool(words) == bool(found)


def test_what_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = contents(tmp_path)
    Path("made").mkdir()
    assert "made" in judged(REFUSED, Answer(2, b"", LINE), before, contents(tmp_path))
    Path("made/metrics.json").write_text('{"score": NaN}')
    assert "NaN is not JSON" in judged(REFUSED, Answer(0, TABLE, b""), before, contents(tmp_path))
    Path("made/metrics.json").write_text("{}")
    Path(".made.part").touch()
    assert "left '.made.part'" in judged(REFUSED, Answer(0, TABLE, b""), before, contents(tmp_path))


REPORT = "<dt>seed</dt><dd>31</dd><dt>time</dt><dd>1 s</dd>"


def test_what_a_killed_command_leaves(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"epoch": 0, "seconds": 1}\n')
    (tmp_path / "weights").write_bytes(b"1")
    whole = left_in(tmp_path)
    (tmp_path / "log.jsonl").write_text('{"epoch": 0, "seconds": 2}\n')
    assert different(whole, left_in(tmp_path)) == "", "time is no difference"
    (tmp_path / "log.jsonl").write_text('{"epoch": 0, "seconds": 1}\n')
    (tmp_path / "report.html").write_text(REPORT)
    whole = left_in(tmp_path)
    (tmp_path / "report.html").write_text(REPORT.replace("1 s", "12 s"))
    assert different(whole, left_in(tmp_path)) == "", "nor in the report"
    (tmp_path / "report.html").write_text(REPORT.replace("31", "32"))
    assert different(whole, left_in(tmp_path)) == "another content: report.html"
    (tmp_path / "report.html").write_text(REPORT)
    (tmp_path / "log.jsonl").write_text('{"epoch": 1, "seconds": 1}\n')
    assert different(whole, left_in(tmp_path)) == "another content: log.jsonl"
    (tmp_path / "weights").unlink()
    assert different(whole, left_in(tmp_path)) == "missing: weights"
    (tmp_path / ".weights.part").touch()
    assert different(whole, left_in(tmp_path)) == "left behind: .weights.part"
