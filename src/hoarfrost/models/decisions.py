"""``decisions.jsonl`` of a model folder: what people decided of its classes and when, a line a decision; without torch.

``model.json`` alone says what the classes are now. A line is written and flushed before the table is, and names the
state of the table that it leads to: a line whose table was never written does not count, and the next one removes it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hoarfrost import store
from hoarfrost.forms import DECISION
from hoarfrost.models.classes import ClassTable, Edit
from hoarfrost.reading import open_own, read_json_lines

NAME = "decisions.jsonl"


def state_of(table: ClassTable) -> str:
    """A short text that is another one where the classes, or what was decided of them, are others.

    >>> table = ClassTable.of_steps(["ant", "new-1"], [1, 1])
    >>> state_of(table) == state_of(table.rename("new-1", "bee").undo()) != state_of(table.rename("new-1", "bee"))
    True
    """
    return hashlib.sha256(json.dumps(table.to_json(), sort_keys=True).encode()).hexdigest()[:16]


def in_words(table: ClassTable, edit: Edit) -> str:
    """A decision, given the table that it was made of.

    >>> table = ClassTable.of_steps(["ant", "new-1"], [1, 1])
    >>> in_words(table, Edit("merge", 1, into=0))
    'new-1 is now part of ant'
    """
    own = table.own_names
    if edit.verb == "merge" and edit.into is not None:
        return f"{own[edit.id]} is now part of {own[edit.into]}"
    if edit.images is not None:
        count = f"{len(edit.images)} image{'' if len(edit.images) == 1 else 's'}"
        verb = "is" if len(edit.images) == 1 else "are"
        if edit.verb == "split" and edit.into is not None:
            return f"{count} of {own[edit.into]} {verb} now the class {edit.name}"
        if edit.name is not None:
            return f"{count} {verb} now the class {edit.name}"
        return f"{count} {verb} moved to {own[edit.id]}"
    return f"{own[edit.id]} is rejected" if edit.verb == "reject" else f"{own[edit.id]} is now called {edit.name}"


def note(folder: Path, before: ClassTable, after: ClassTable) -> None:
    """Adds a line for a change of the table, if there is one. Nobody else may change the table meanwhile."""
    if before == after:
        return
    lines = _counting(folder, before)
    known = lines[-1]["state"] == state_of(before) if lines else not before.edits
    added = [] if known else [_line(before, "the classes were changed outside of this record", outside=True)]
    shared = _shared(before.edits, after.edits)
    undone, edits, words, table = before.edits[shared:][::-1], after.edits[shared:], [], before
    for edit in undone:
        table = table.before_last()
        words.append(f"undone: {in_words(table, edit)}")
    for edit in edits:
        words.append(in_words(table, edit))
        table = with_edit(table, edit)
    added.append(_line(after, "; ".join(words), undone=list(map(_content, undone)), edits=list(map(_content, edits))))
    _append(folder / NAME, len(lines), added)


def undone(folder: Path, table: ClassTable) -> list[Edit]:
    """The decisions that were undone since the last new one, of the table as it is; the last one is redone first."""
    lines, waiting = _counting(folder, table), list[Edit]()
    if not lines or lines[-1]["state"] != state_of(table):
        return []
    for line in lines:
        if line.get("outside", False):
            waiting.clear()
        waiting += map(Edit.of, line.get("undone", ()))
        for given in line.get("edits", ()):
            if waiting and waiting[-1] == Edit.of(given):
                waiting.pop()
            else:
                waiting.clear()
    return waiting


def with_edit(table: ClassTable, edit: Edit) -> ClassTable:
    """The table after one more decision, which is checked."""
    content = table.to_json()
    return ClassTable.from_json({**content, "edits": [*content["edits"], _content(edit)]})


def _content(edit: Edit) -> dict[str, Any]:
    return {key: value for key, value in edit.__dict__.items() if value is not None}


def _shared(before: Sequence[Edit], after: Sequence[Edit]) -> int:
    """How many decisions two tables begin with together."""
    count = 0
    while count < min(len(before), len(after)) and before[count] == after[count]:
        count += 1
    return count


def _line(table: ClassTable, words: str, **more: Any) -> dict[str, Any]:
    time = datetime.now(UTC).isoformat(timespec="seconds")
    return {"time": time, "words": words, **{key: value for key, value in more.items() if value}} | {
        "state": state_of(table)
    }


def _counting(folder: Path, table: ClassTable) -> list[dict[str, Any]]:
    """The lines up to the present table: the last one does not count if a kill came before its table was written."""
    lines: list[dict[str, Any]] = read_json_lines(folder / NAME, DECISION)
    state = state_of(table)
    was_cut = len(lines) > 1 and lines[-1]["state"] != state == lines[-2]["state"]
    was_first = len(lines) == 1 and lines[0]["state"] != state and not table.edits
    return lines[:-1] if was_cut or was_first else lines


def _append(path: Path, keep: int, lines: Sequence[dict[str, Any]]) -> None:
    """Adds lines behind the first ones, which stay, and flushes them to the disk."""
    is_new = not path.exists()
    with open_own(path) as file:
        end = 0
        for _ in range(keep):
            end += len(file.readline())
        file.truncate(end)
        file.write("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        store.flush(path.parent)
