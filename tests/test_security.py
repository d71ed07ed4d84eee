"""docs/security.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .tries import parts
from .tries.inputs import KINDS
from .tries.table import KILLS, counted

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text()
PROMISES, _, TRIED = PAGE.partition("## What was tried")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_every_test_is_there(file: str, test: str) -> None:
    assert re.search(rf"^ *def {test}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_every_sentence_of_a_table_has_a_test() -> None:
    rows = [line for line in PROMISES.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) > 15
    assert all("::test_" in row for row in rows)


def test_every_kind_was_tried_and_none_failed() -> None:
    counts = {kind: (int(tried), int(failed)) for kind, tried, failed in counted(TRIED)}
    assert counts.keys() == {*KINDS, KILLS}
    assert all(tried >= 1000 and failed == 0 for tried, failed in counts.values())


def test_the_table_has_what_the_kept_parts_add_up_to() -> None:
    added = parts.added_up(parts.read(parts.FOLDER))
    counts = {kind: (int(tried), int(failed)) for kind, tried, failed in counted(TRIED)}
    assert {kind: counts[kind] for kind in added} == added
