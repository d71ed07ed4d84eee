"""A JSON export of Label Studio: which image was given which class; without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from hoarfrost.data.unsure import UNSURE
from hoarfrost.errors import InputError
from hoarfrost.reading import MOST_JSON, read_bytes


def read_export(path: Path, root: Path | None = None) -> tuple[list[Path], list[str]]:
    """The image files of an export, and the class of each; images without one, or with `unsure`, are left out.

    root: where the files are, by default the folder of the export. Addresses in an export name files of another
    place: a file is looked for by the end of its path there, with or without the mark that uploads have.
    """
    try:
        tasks = json.loads(read_bytes(path, MOST_JSON))
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON: choose JSON or JSON-MIN when you export from Label Studio") from None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise InputError(f"{path} is not a list of tasks: choose JSON or JSON-MIN when you export from Label Studio")
    paths, labels = list[Path](), list[str]()
    for number, task in enumerate(tasks, 1):
        found = _label(task)
        if found is None or found == UNSURE:
            continue
        paths.append(_file(task, root or path.parent, f"{path}: task {number}"))
        labels.append(found)
    if not paths:
        raise InputError(f"{path} has no image with a class: give images a choice in Label Studio, then export again")
    return paths, labels


def _label(task: dict[str, Any]) -> str | None:
    """The one choice of a task; None where it has none, or was skipped."""
    annotations = task.get("annotations", task.get("completions"))
    if isinstance(annotations, list):  # JSON
        done = [one for one in annotations if isinstance(one, dict) and not one.get("was_cancelled")]
        results = done[-1].get("result") if done else None
        for result in results if isinstance(results, list) else []:
            value = result.get("value") if isinstance(result, dict) else None
            choices = value.get("choices") if isinstance(value, dict) else None
            if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], str):
                return str(choices[0])
        return None
    for key in ("choice", "label", "class"):  # JSON-MIN
        if isinstance(task.get(key), str) and task[key]:
            return str(task[key])
    return None


def _file(task: dict[str, Any], root: Path, where: str) -> Path:
    """The image file of a task, below a folder."""
    data = task.get("data", task)
    given = data.get("image", data.get("img")) if isinstance(data, dict) else None
    if not isinstance(given, str):
        raise InputError(f"{where} has no 'image': use a project of Label Studio whose images are called image")
    address = urlsplit(given)
    local = parse_qs(address.query).get("d", [unquote(address.path)])[0]  # of Label Studio's local files
    parts = [part for part in Path(local.replace("\\", "/")).parts if part not in ("/", "..", ".")]
    for start in range(len(parts)):
        for name in (parts[-1], parts[-1].partition("-")[2]):  # uploads have a mark before their name
            found = root.joinpath(*parts[start:-1], name) if name else root
            if found.is_file():
                return found
    raise InputError(f"{where} names '{given}', which is not in {root}: give the folder of the images with --root")
