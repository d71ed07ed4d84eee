"""Results that are kept: a JSON file a run, with the fields of ``metrics.json`` and the configuration behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from hoarfrost import store
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

    @property
    def settings(self) -> dict[str, Any]:
        """What the learner was configured with, but for the seed."""
        learner: dict[str, Any] = self.content["config"]["learner"]
        return {key: value for key, value in learner.items() if key != "seed"}


def collect(run: Path, to: Path, name: str | None = None) -> Path:
    """Keeps a finished run folder's figures as ``to/NAME.json``."""
    metrics = store.read_json(run / "metrics.json", "finished run folder")
    config = store.read_json(run / "config.json", "run folder")
    if name is None:
        name = "-".join([metrics["dataset"], metrics["split"], metrics["method"], f"seed{metrics['seed']}"])
    to.mkdir(parents=True, exist_ok=True)
    path = to / f"{name}.json"
    store.write_json(path, {**metrics, "config": config})
    return path


def read_results(folder: Path) -> list[Result]:
    """All results right in a folder, in the order of their names."""
    return [Result(path.stem, store.read_json(path, "folder of results")) for path in sorted(folder.glob("*.json"))]


def grouped(results: list[Result]) -> dict[tuple[str, str, str], list[Result]]:
    """Results that differ in nothing but their seeds, together; refuses a group with different settings."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        group = groups.setdefault(result.group, [])
        if group and (found := store.differences(group[0].settings, result.settings)):
            raise InputError(f"{result.name} and {group[0].name} are not of one kind: {found[0]}; remove one of them")
        group.append(result)
    return groups


def published() -> list[dict[str, Any]]:
    """The paper's numbers, a row a method, data set and split."""
    text = files("hoarfrost.paper").joinpath("published.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


def published_row(dataset: str, split: str, method: str) -> dict[str, Any] | None:
    """The paper's numbers for a group, if it has any."""
    for row in published():
        if (row["dataset"], row["split"], row["method"]) == (dataset, split, method):
            return row
    return None
