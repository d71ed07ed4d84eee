"""Tries in parts and in several processes are the same tries."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .parts import Part, Tried, added_up, made_by, read, share

ROOT = Path(__file__).parents[2]


def kept(folder: Path, part: int, start: int, stop: int, *, tried: int | None = None, failed: int = 0) -> Path:
    versions = {"hoarfrost": "0.1.0", "python": "3.12.3", "torch": "2.11.0"}
    count = stop - start if tried is None else tried
    words = Tried(start, stop, count, [(start + k, "a traceback") for k in range(failed)])
    return Part(1, part, 9, versions, "0123456789abc", {"words": words}).write(folder)


def test_parts_hold_every_case_once() -> None:
    cases = [case for part in range(1, 8) for case in share(1000, part, 7)]
    assert cases == list(range(1000))


def test_parts_add_up(tmp_path: Path) -> None:
    kept(tmp_path, 1, 0, 5)
    kept(tmp_path, 2, 5, 10, failed=2)
    kept(tmp_path, 3, 10, 15, tried=4)
    assert added_up(read(tmp_path)) == {"words": (14, 3)}, "a case that was not tried has failed"
    assert made_by(read(tmp_path)) == "Tried at commit 0123456 (0.1.0)."


def test_a_part_that_is_tried_again_counts_once(tmp_path: Path) -> None:
    kept(tmp_path, 1, 0, 5, failed=1)
    kept(tmp_path, 1, 0, 5)
    assert added_up(read(tmp_path)) == {"words": (5, 0)}


def test_a_case_in_two_parts_is_refused(tmp_path: Path) -> None:
    kept(tmp_path, 1, 0, 5)
    kept(tmp_path, 2, 4, 9)
    with pytest.raises(ValueError, match="both hold case 4 of words"):
        read(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="limits and ends of processes as Linux has them")
def test_several_processes_try_each_case_of_a_part_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.tries", "--only", "words", "--inputs", "90", "--part", "2/3"]
    more = ["--jobs", "3", "--keep", "--results", str(tmp_path)]
    ended = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    content = json.loads((tmp_path / "seed-0-words-part-2-of-3.json").read_text())
    assert content["kinds"]["words"]["tried"] == 30
    assert (content["kinds"]["words"]["start"], content["kinds"]["words"]["stop"]) == (30, 60)
    assert content["commit"]
    assert content["versions"].keys() >= {"hoarfrost", "python", "torch"}


def test_the_queue_gives_each_number_once(tmp_path: Path) -> None:
    import os

    from .__main__ import NUMBER, _numbers
    from .children import Child

    taking = _numbers(2000)

    def take(told: int) -> None:
        while taken := os.read(taking, NUMBER):
            os.write(told, b"%d\n" % int.from_bytes(taken))

    children = [Child(take, limited=False) for _ in range(3)]
    found = Counter(int(line) for child in children for line in child.lines(60))
    os.close(taking)
    assert [child.end() for child in children] == ["", "", ""]
    assert found == Counter(range(2000))
