"""Decisions on the page of ``review``, whose server is killed.

What is answered is decided, in the model and in its record, and nothing is half decided.
"""

from __future__ import annotations

import http.client
import json
import random
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hoarfrost.forms import DECISION
from hoarfrost.models.decisions import NAME, state_of
from hoarfrost.models.description import read_classes
from hoarfrost.reading import read_json_lines

from .children import Answer

NAMES = ("rose", "cat", "名前", "a b", "=1+0")


def litter_in(model: Path) -> list[str]:
    """What a model folder has that none needs."""
    return sorted(path.name for path in model.rglob("*") if path.name.startswith(".") or path.suffix == ".part")


def record_of(model: Path) -> list[dict[str, Any]]:
    """The lines of what was decided; each is whole."""
    lines: list[dict[str, Any]] = read_json_lines(model / NAME, DECISION)
    return lines


class Page:
    """The requests of the page of a review, by a line that the command prints."""

    def __init__(self, line: str) -> None:
        found = re.search(r"http://\S+", line)
        if found is None:
            raise RuntimeError(f"no address in {line!r}")
        parts = urlsplit(found[0])
        self.host, self.path = parts.netloc, parts.path

    def ask(self, path: str, told: object = None) -> tuple[int, Any]:
        """Status and content of an answer; an ``OSError`` or an ``HTTPException`` where there is none."""
        line = http.client.HTTPConnection(self.host, timeout=60)
        try:
            if told is None:
                line.request("GET", self.path + path)
            else:
                line.request("POST", self.path + path, json.dumps(told), {"Origin": f"http://{self.host}"})
            answer = line.getresponse()
            body = answer.read()
            return answer.status, json.loads(body) if body else None
        finally:
            line.close()

    def state(self) -> Any:
        """What the page shows."""
        return self.ask("state")[1]

    def decide(self, chance: random.Random, verbs: tuple[str, ...]) -> tuple[str, int, Any]:
        """Decides something at random; says what, and the answer."""
        shown = self.state()
        there = [row["id"] for row in shown["classes"] if row["id"] == row["stands_for"]]
        verb, given = chance.choice(verbs), dict[str, object]()
        if verb in ("rename", "merge", "reject"):
            given["class"] = chance.choice(there)
        if verb == "merge":
            given["into"] = chance.choice(there)
        if verb == "rename":
            given["name"] = f"{chance.choice(NAMES)} {chance.randrange(10**9)}"
        status, told = self.ask("decide", {"version": shown["version"], "decision": {"verb": verb, **given}})
        return verb, status, told


Gone = (OSError, http.client.HTTPException, ValueError)
"""what a client sees of a server that dies"""


def wrong_after(model: Path, versions: list[str]) -> str:
    """What is wrong with the record of a model that nobody else has changed, after these versions were answered.

    One decision more may be in it: it was written, and the answer never came.
    """
    table, states = read_classes(model), [line["state"] for line in record_of(model)]
    if states[: len(versions)] != versions or len(states) > len(versions) + 1:
        return f"the record is not what was answered: {states} for {versions}"
    if state_of(table) not in [*versions[-1:], *states[len(versions) :]] and (versions or table.edits):
        return "the model does not have the last answered decision"
    return ""


def gone_on_with(model: Path, versions: list[str], call: Callable[[tuple[str, ...]], tuple[Answer | None, str]]) -> str:
    """What is wrong where a command then decides something: the record ends with the model, and nothing is left."""
    table = read_classes(model)
    last = table.own_names[table.present[-1]]
    answer, ended = call(("name", model.name, f"{last}=after"))
    if answer is None or answer.code != 0:
        return f"going on, {ended or answer}"
    states = [line["state"] for line in record_of(model)]
    if states[: len(versions)] != versions or states[-1] != state_of(read_classes(model)):
        return "the record is not what was decided"
    return f"left behind: {left}" if (left := litter_in(model)) else ""


def reviewed(chance: random.Random, page: Page, count: int) -> list[str]:
    """Decides until the server is gone; the versions that were answered."""
    answered: list[str] = []
    with suppress(*Gone):
        for _ in range(count):
            _, status, told = page.decide(chance, ("rename", "rename", "merge", "reject", "undo", "redo"))
            if status == 200 and (not answered or told["version"] != answered[-1]):
                answered.append(told["version"])
    return answered
