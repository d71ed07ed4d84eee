"""The record of what people decided: a line each, shared by all commands, and never a second truth."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hoarfrost.errors import InputError
from hoarfrost.models import decisions
from hoarfrost.models.classes import ClassTable, Edit

TABLE = ClassTable.of_steps(["ant", "bee", "new-1", "new-2", "new-3"], [2, 3])


def change(folder: Path, before: ClassTable, *steps: Callable[[ClassTable], ClassTable]) -> ClassTable:
    for step in steps:
        after = step(before)
        decisions.note(folder, before, after)
        before = after
    return before


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / decisions.NAME).read_text().splitlines()]


def test_a_line_says_what_was_decided(tmp_path: Path) -> None:
    change(
        tmp_path,
        TABLE,
        lambda t: t.rename("new-1", "cat"),
        lambda t: t.merge("new-2", "cat").reject("new-3"),
        lambda t: t.undo(),
    )
    first, second, third = lines(tmp_path)
    assert first["words"] == "new-1 is now called cat"
    assert first["edits"] == [{"verb": "rename", "id": 2, "name": "cat"}]
    assert second["words"] == "new-2 is now part of cat; new-3 is rejected"
    assert third["words"] == "undone: new-3 is rejected"
    assert third["undone"] == [{"verb": "reject", "id": 4}]


def test_what_was_undone_can_be_redone_until_something_else_is_decided(tmp_path: Path) -> None:
    table = change(
        tmp_path,
        TABLE,
        lambda t: t.rename("new-1", "cat"),
        lambda t: t.merge("new-2", "cat"),
        lambda t: t.undo(),
        lambda t: t.undo(),
    )
    assert decisions.undone(tmp_path, table) == [Edit("merge", 3, into=2), Edit("rename", 2, name="cat")]
    table = change(tmp_path, table, lambda t: decisions.with_edit(t, Edit("rename", 2, name="cat")))
    assert decisions.undone(tmp_path, table) == [Edit("merge", 3, into=2)]
    table = change(tmp_path, table, lambda t: t.reject("new-3"))
    assert decisions.undone(tmp_path, table) == []


def test_a_line_whose_table_was_never_written_does_not_count(tmp_path: Path) -> None:
    named = change(tmp_path, TABLE, lambda t: t.rename("new-1", "cat"))
    change(tmp_path, named, lambda t: t.undo())
    assert decisions.undone(tmp_path, named) == [], "a kill came before the table without the name was there"
    change(tmp_path, named, lambda t: t.reject("new-3"))
    assert [line["words"] for line in lines(tmp_path)] == ["new-1 is now called cat", "new-3 is rejected"]


def test_the_first_line_may_not_count_either(tmp_path: Path) -> None:
    change(tmp_path, TABLE, lambda t: t.rename("new-1", "cat"))
    change(tmp_path, TABLE, lambda t: t.rename("new-1", "dog"))
    assert [line["words"] for line in lines(tmp_path)] == ["new-1 is now called dog"]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_that_was_cut_short_is_removed(tmp_path: Path, cut: int) -> None:
    named = change(tmp_path, TABLE, lambda t: t.rename("new-1", "cät"))
    whole = (tmp_path / decisions.NAME).read_bytes()
    change(tmp_path, named, lambda t: t.reject("new-3"))
    (tmp_path / decisions.NAME).write_bytes((tmp_path / decisions.NAME).read_bytes()[: len(whole) + cut])
    change(tmp_path, named, lambda t: t.merge("new-2", "cät"))
    assert [line["words"] for line in lines(tmp_path)] == ["new-1 is now called cät", "new-2 is now part of cät"]


def test_classes_that_were_changed_elsewhere_are_noted(tmp_path: Path) -> None:
    table = change(tmp_path, TABLE, lambda t: t.rename("new-1", "cat"), lambda t: t.undo())
    elsewhere = table.reject("new-2")
    assert decisions.undone(tmp_path, elsewhere) == []
    table = change(tmp_path, elsewhere, lambda t: t.undo())
    assert [line.get("outside", False) for line in lines(tmp_path)] == [False, False, True, False]
    assert decisions.undone(tmp_path, table) == [Edit("reject", 3)]


def test_a_record_that_is_removed_takes_nothing_but_the_history(tmp_path: Path) -> None:
    table = change(tmp_path, TABLE, lambda t: t.rename("new-1", "cat"))
    (tmp_path / decisions.NAME).unlink()
    assert decisions.undone(tmp_path, table) == []
    table = change(tmp_path, table, lambda t: t.undo())
    assert table == TABLE
    assert decisions.undone(tmp_path, table) == [Edit("rename", 2, name="cat")]


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / decisions.NAME).write_text("no json\n{}\n")
    with pytest.raises(InputError, match="line 1 is not JSON"):
        decisions.undone(tmp_path, TABLE)
