"""What has to hold of a model folder after many decisions of several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hoarfrost.models.classes import ClassTable, Edit
from hoarfrost.models.decisions import state_of, with_edit
from hoarfrost.models.description import read_classes

from ..tries.deciding import record_of
from ..tries.sorting import images_in

DECIDING = ("name", "merge", "reject", "undo")


def wrong_in(folder: Path, before: ClassTable, told: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What is wrong, in words. ``told``: what each process was answered."""
    yield from wrong_record(folder / "model2", before, told)
    yield from wrong_images(folder, told)
    remains = (".part", ".new", ".old", ".unfinished")
    if left := sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name.endswith(remains)):
        yield f"left behind: {left}"


def wrong_record(model: Path, before: ClassTable, told: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The record has each answered decision, and nothing else; carried out again, it gives the model."""
    lines, table = record_of(model), before
    for number, line in enumerate(lines, start=1):
        for undone in line.get("undone", ()):
            if not table.edits or table.edits[-1] != Edit(**undone):
                yield f"line {number} undoes what was not the last decision"
                return
            table = table.undo()
        for edit in line.get("edits", ()):
            table = with_edit(table, Edit(**edit))
        if state_of(table) != line["state"]:
            yield f"line {number} leads to another state than it says"
    if table != read_classes(model):
        yield "the model does not have what its record says"
    names = Counter(edit.get("name") for line in lines for edit in line.get("edits", ()) if edit["verb"] == "rename")
    states = Counter(line["state"] for line in lines)
    done = [one for one in told if one["code"] in (0, 200) and (one["did"] in DECIDING or "version" in one)]
    for one in done:
        if one["did"] == "name" and not names[one["name"]]:
            yield f"answered, and not in the record: {one['name']}"
        if "version" in one and not states[one["version"]]:
            yield f"answered on the page, and not in the record: {one['version']}"
    if len(done) != len(lines):
        yield f"{len(done)} decisions were answered, and the record has {len(lines)}"


def wrong_images(folder: Path, told: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Sorted images are there once each, all of them where one command said so."""
    if not any(one["did"] == "sort" and one["code"] == 0 for one in told):
        return
    made, given = images_in(folder / "sorted"), images_in(folder / "unsorted")
    if made != given:
        yield f"sorted images doubled: {sum((made - given).values())}, lost: {sum((given - made).values())}"
    note = sorted(path.name for path in (folder / "sorted" / ".sorted").iterdir())
    if note != ["config.json", "images.jsonl"]:
        yield f"left behind in the note of sorted images: {note}"
