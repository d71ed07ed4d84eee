"""Results that are kept: a JSON file a run, with the fields of ``metrics.json`` and the configuration behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from hoarfrost import store
from hoarfrost.config import filled
from hoarfrost.errors import InputError


@dataclass(frozen=True)
class Result:
    """A kept run."""

    name: str
    """of its file, without the ending"""
    content: Mapping[str, Any]

    @property
    def group(self) -> tuple[str, str, str]:
        """Runs of one group differ in their seed."""
        return (self.content["dataset"], self.content["split"], self.content["method"])

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What the run was configured with, images and all, but for the seed. Newer settings have their defaults."""
        config: dict[str, Any] = dict(self.content["config"])
        settings = {**filled(config.pop("learner")), **config}
        return {key: value for key, value in settings.items() if key != "seed"}


def collect(run: Path, to: Path, name: str | None = None) -> Path:
    """Keeps a finished run folder's figures as ``to/NAME.json``."""
    metrics = store.read_json(run / "metrics.json", "finished run folder")
    content = checked({**metrics, "config": store.read_json(run / "config.json", "run folder")}, run)
    if name is None:
        name = "-".join([metrics["dataset"], metrics["split"], metrics["method"], f"seed{metrics['seed']}"])
    path = to / f"{name}.json"
    there = Result(name, store.read_json(path, "folder of results")) if path.exists() else None
    new = Result(name, content)
    if there is not None and (there.settings, there.content["seed"]) != (new.settings, content["seed"]):
        raise InputError(f"{path} is of another run than {run}: remove it, or use --folder-names or another --to")
    to.mkdir(parents=True, exist_ok=True)
    store.write_json(path, content)
    return path


FIELDS = frozenset({"dataset", "split", "method", "seed", "hardware", "versions", "commit", "seconds", "steps"})
"""what the page shows of a run"""


def checked(content: dict[str, Any], place: Path) -> dict[str, Any]:
    """The content of a result, if that is what it is."""
    config = content.get("config")
    if content.keys() >= FIELDS and isinstance(config, dict) and "learner" in config:
        return content
    raise InputError(f"{place} does not hold a run's results: remove it")


def read_results(folder: Path) -> list[Result]:
    """All results right in a folder, in the order of their names."""
    paths = sorted(folder.glob("*.json"))
    return [Result(path.stem, checked(store.read_json(path, "folder of results"), path)) for path in paths]


def grouped(results: list[Result]) -> dict[tuple[str, str, str], list[Result]]:
    """Results that differ in nothing but their seeds, together; refuses a group with different settings."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        group = groups.setdefault(result.group, [])
        if group and (found := store.differences(group[0].settings, result.settings)):
            raise InputError(f"{result.name} and {group[0].name} are not of one kind: {found[0]}; remove one of them")
        if any(result.content["seed"] == other.content["seed"] for other in group):
            raise InputError(f"{result.name} has a seed that another run of its kind has: remove one of them")
        group.append(result)
    return groups


@cache
def _published() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(files("hoarfrost.paper").joinpath("published.json").read_text("utf-8"))
    return content


def published() -> list[dict[str, Any]]:
    """The paper's numbers, a row a table, method, data set and split."""
    rows: list[dict[str, Any]] = _published()["rows"]
    return rows


def published_row(dataset: str, split: str, method: str, table: str | None = None) -> dict[str, Any] | None:
    """The paper's numbers for a group, if it has any; of the main comparison, unless a table is named."""
    for row in published():
        if (row["dataset"], row["split"], row["method"]) == (dataset, split, method) and table in (None, row["table"]):
            return row
    return None


def published_average(table: str, method: str) -> dict[str, Any] | None:
    """Old, New and All over a table's data sets, as printed, if they are; and what is odd about them."""
    for row in _published()["averages"]:
        if (row["table"], row["method"]) == (table, method):
            return dict(row)
    return None
