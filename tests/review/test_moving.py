"""Images are moved and classes are split on the page: the same as on the command line, and as careful."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hoarfrost.cli import main
from hoarfrost.models.model import Model
from hoarfrost.review.judging import Judgement
from hoarfrost.review.session import POSSIBLY_NEW, UNSURE_GROUP, Groups, Session

from .client import Client
from .conftest import wait_for


def counts(folder: Path) -> list[int]:
    found: list[int] = Model.load(folder / "model2").settled.statistics.count.tolist()
    return found


def settled(session: Session, client: Client) -> dict[str, object]:
    """What is shown once the model has looked at all images again."""
    wait_for(lambda: not client.state["busy"] and client.state["changed"] is not None)
    found: dict[str, object] = client.state
    return found


@pytest.fixture(autouse=True)
def clean(fresh: Path) -> None:
    (fresh / "model2" / "moved.safetensors").unlink(missing_ok=True)


def test_images_are_moved_at_once_and_the_model_learns(fresh: Path, session: Session, client: Client) -> None:
    before, generation = counts(fresh), client.state["generation"]
    first = max((3, 4), key=lambda k: client.state["classes"][k]["images"])
    moved = client.get(f"images/{first}").told["index"][:2]
    answer = client.decide("move", class_=7 - first, images=moved, generation=generation)
    assert answer.status == 200, answer.body
    assert set(moved) <= set(client.get(f"images/{7 - first}").told["index"]), "at once"
    state = settled(session, client)
    assert set(moved) <= set(client.get(f"images/{7 - first}").told["index"]), "and as the model says"
    assert isinstance(state["changed"], int)
    assert sum(counts(fresh)) >= sum(before)
    assert counts(fresh) != before
    after = counts(fresh)
    assert client.decide("undo").status == 200
    assert counts(fresh) == before
    assert client.decide("redo").status == 200
    assert counts(fresh) == after, "what is needed for that is kept"
    assert main(["undo", str(fresh / "model2")]) == 0
    assert counts(fresh) == before


def test_a_new_name_is_a_new_class(fresh: Path, session: Session, client: Client) -> None:
    moved = client.get(f"images/{client.state['queue'][0]}").told["index"][:3]
    generation = client.state["generation"]
    assert client.decide("move", name="seven", images=moved, generation=generation).status == 200
    state = client.state
    assert [row["name"] for row in state["classes"]][5:] == ["seven"]
    assert state["classes"][5]["images"] >= 3
    settled(session, client)
    assert set(moved) <= set(client.get("images/5").told["index"])
    lines = (fresh / "model2" / "decisions.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["words"] == "3 images are now the class seven"


def test_a_class_is_split_as_its_groups_are_shown(fresh: Path, session: Session, client: Client) -> None:
    first = max((3, 4), key=lambda k: client.state["classes"][k]["images"])
    shown = client.get(f"split/{first}?into=2").told
    assert shown["generation"] == client.state["generation"]
    stays, goes = shown["groups"]
    assert len(stays) >= len(goes)
    assert {*stays, *goes} == set(client.get(f"images/{first}").told["index"])
    across, rest = goes[0], [*goes[1:], stays[0]]  # dragged across
    answer = client.decide("split", class_=first, groups=[rest], generation=shown["generation"])
    assert answer.status == 200, answer.body
    found = set(client.get("images/5").told["index"])
    assert set(rest) <= found
    assert across not in found
    assert client.state["classes"][5]["to_decide"]
    settled(session, client)
    assert counts(fresh)[5] == len(rest)
    client.decide("undo")
    assert len(client.state["classes"]) == 5


def test_what_cannot_be_moved(fresh: Path, session: Session, client: Client) -> None:
    generation, before = client.state["generation"], counts(fresh)
    refused: list[dict[str, Any]] = [
        {"class_": 4, "images": []},
        {"class_": 4, "images": [0, 0]},
        {"class_": 4, "images": [99999]},
        {"class_": 4, "images": [-1]},
        {"class_": 17, "images": [0]},
        {"name": "unsure", "images": [0]},
        {"name": "", "images": [0]},
        {"name": "x" * 201, "images": [0]},
    ]
    for decision in refused:
        answer = client.decide("move", generation=generation, **decision)
        assert (answer.status, "refused" in answer.told) == (422, True), decision
    assert client.decide("split", groups=[[0]], generation=generation).status == 422
    assert client.decide("move", class_=4, images=[0], generation=generation + 1).status == 409, "another list"
    assert client.decide("move", "0" * 16, class_=4, images=[0], generation=generation).status == 409
    assert client.decide("move", class_=4, images=["0"], generation=generation).status == 400
    assert client.get("split/17").status == 422
    assert client.get("split/3?into=9").status == 404
    assert counts(fresh) == before
    assert not (fresh / "model2" / "decisions.jsonl").exists()


def test_images_unlike_all_classes_are_possibly_new() -> None:
    from hoarfrost.models.classes import ClassTable

    table = ClassTable.of_steps(["ant", "new-1"], [1, 1])
    found = np.array([[0.9, 0.1], [0.3, 0.4], [0.1, 0.1], [0.05, 0.9]], dtype=np.float32)
    judged = Judgement(table, list("abcd"), np.zeros(4, dtype=np.int64), found)
    groups = Groups.of(judged)
    assert groups.members[POSSIBLY_NEW].tolist() == [2]
    assert groups.members[UNSURE_GROUP].tolist() == [1]
    rejected = Groups.of(judged.of_table(table.reject("new-1")))
    assert rejected.members[POSSIBLY_NEW].tolist() == [2], "what was of a class that is none is unsure"
