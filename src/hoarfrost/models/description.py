"""``model.json`` of a model folder: read and checked, and its table of classes changed in place; without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hoarfrost import store
from hoarfrost.errors import InputError, require
from hoarfrost.forms import MODEL
from hoarfrost.models import decisions
from hoarfrost.models.classes import ClassTable
from hoarfrost.reading import misfit


def read_description(folder: Path) -> dict[str, Any]:
    """The content of a model folder's ``model.json``."""
    store.recover_folder(folder)
    if not folder.exists():
        raise InputError(f"there is no model folder {folder}: check the path")
    if not (folder / "model.json").exists() and (folder / "model" / "model.json").exists():
        raise InputError(f"{folder} is a run folder, not a model folder: give its model, {folder / 'model'}")
    content: dict[str, Any] = store.read_json(folder / "model.json", "model folder")
    store.check_format(content, folder)
    if problem := misfit(content, MODEL) or _misfit(content):
        raise store.damaged(folder / "model.json", problem)
    return content


def _misfit(content: Mapping[str, Any]) -> str:
    """What does not belong together in a ``model.json``, in words; empty where all does."""
    heads = content["heads"]
    sizes = [heads["known"], *heads["novel"]]
    try:
        table = class_table(content)
    except (InputError, TypeError) as error:
        return str(error)
    found = content.get("discovery")
    counts = [] if found is None else [found["known"], found["unsure"], *found["new"]]
    problems = {
        "images have 1 or 3 channels": content["channels"] not in (1, 3),
        "a head has no classes": min(sizes) < 1,
        "class_names do not fit the heads": sum(sizes) != len(table) - table.made,
        "labels do not fit its labelled classes": "labels" in content
        and not len({*content["labels"]}) == len(content["labels"]) == heads["known"],
        "the images of its discovery do not add up": found is not None
        and (min(counts) < 0 or sum(counts) != found["images"]),
    }
    return next((problem for problem, found in problems.items() if found), "")


def class_table(content: Mapping[str, Any]) -> ClassTable:
    """Of the content of ``model.json``; an earlier version had names alone."""
    if "classes" in content:
        table = ClassTable.from_json(content["classes"])
        require(list(table.names) == content["class_names"], "class_names do not fit its table of classes")
        return table
    return ClassTable.of_steps(content["class_names"], [content["heads"]["known"], *content["heads"]["novel"]])


def read_classes(folder: Path) -> ClassTable:
    """The table of classes of a saved model."""
    return class_table(read_description(folder))


def change_classes(folder: Path, decide: Callable[[ClassTable], ClassTable]) -> ClassTable:
    """Writes what people decide of the classes into a saved model: all of it, or nothing.

    A line for it goes into its ``decisions.jsonl``; nothing else is changed.
    """
    read_description(folder)  # a place that holds no model is refused before anything waits for it
    with store.alone(folder):
        content = read_description(folder)
        before = class_table(content)
        table = decide(before)
        decisions.note(folder, before, table)
        content |= {"class_names": list(table.names), "classes": table.to_json()}
        store.write_json(folder / "model.json", content)
    return table
