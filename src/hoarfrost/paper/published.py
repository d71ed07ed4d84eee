"""The numbers that the paper prints."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


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
