"""What people make of discovered classes, in a saved model."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hoarfrost import Learner

from .. import forked
from .place import DISCOVER, PREDICT, Place, Words, contents, named


def classes() -> list[str]:
    names: list[str] = json.loads(Path("model2/model.json").read_text())["class_names"]
    return names


def predicted(place: Place) -> list[str]:
    return [row["class"] for row in csv.DictReader(io.StringIO(place.well(*PREDICT).out))]


def test_a_name_is_in_predictions_and_stays_in_later_discoveries(place: Place) -> None:
    before, others = predicted(place), contents(Path("model2"))
    answer = place.well("name", "model2", "new-1=hibiscus", "new-2=a=b")
    assert answer.out.splitlines() == ["new-1 is now called hibiscus", "new-2 is now called a=b"]
    renamed = {"new-1": "hibiscus", "new-2": "a=b"}
    assert predicted(place) == [renamed.get(name, name) for name in before]
    after = contents(Path("model2"))
    changed = {name for name in after if after[name] != others.get(name)}
    assert changed == {"model.json", "decisions.jsonl"}, "all else stays, as the report"
    place.well("discover", "model2", *DISCOVER[2:])
    assert json.loads(Path("made/model.json").read_text())["class_names"][3:] == ["hibiscus", "a=b", "new-3", "new-4"]
    assert json.loads(place.well("name", "model2", "a=b=c", "--json").out)["classes"][3:] == ["hibiscus", "c"]


def test_merge_reject_and_undo(place: Place) -> None:
    found = classes()
    assert place.well("merge", "model2", "new-2", "new-1").out == "new-2 is now part of new-1\n"
    assert classes() == [*found[:3], "new-1", "new-1"]
    assert "new-2" not in predicted(place)
    assert place.well("undo", "model2").out == "new-2 is a class again\n"
    assert place.well("reject", "model2", "new-1").out.startswith("new-1 is rejected")
    assert "new-1" not in predicted(place)
    place.well("name", "model2", "new-2=seven")
    assert place.well("undo", "model2").out == "seven is called new-2 again\n"
    assert place.well("undo", "model2").out == "new-1 is a class again\n"
    assert classes() == found
    merged = place.well("merge", "model2", "new-1", "new-2", found[0], "--json")
    assert json.loads(merged.out) == {"model": "model2", "classes": found[:3]}


def test_decisions_are_recorded_line_by_line_and_undo_shares_them(place: Place) -> None:
    place.well("name", "model2", "new-1=rose", "new-2=tulip")
    place.well("undo", "model2")
    place.refused("merge", "model2", "new-9", "rose", words=("new-9",))
    lines = [json.loads(line) for line in Path("model2/decisions.jsonl").read_text().splitlines()]
    assert [line["words"] for line in lines] == [
        "new-1 is now called rose; new-2 is now called tulip",
        "undone: new-2 is now called tulip",
    ]
    Learner.load("model2", "cpu").rename("rose", "red").save("model2")
    place.well("undo", "model2")
    assert classes()[3:] == ["rose", "new-2"]
    assert len(Path("model2/decisions.jsonl").read_text().splitlines()) == 4, "what Python saved is noted"
    Path("model2/decisions.jsonl").write_text("{}\n")
    place.refused("undo", "model2", words=("model2/decisions.jsonl", "damaged", "restore"))


def test_saving_a_model_again_keeps_its_page_unless_it_is_another(place: Place) -> None:
    before = contents(Path("model2"))
    learner = Learner.load("model2", "cpu")
    learner.rename("new-1", "rose")
    learner.save("model2")
    after = contents(Path("model2"))
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {"model.json"}
    found = learner.model.discovery
    assert found is not None
    learner._model = replace(learner.model, discovery=replace(found, images=found.images + 1))
    learner.save("model2")
    assert "report.html" not in contents(Path("model2")), "its page is of another discovery"
    learner.discover("unsorted", 2, only_new=True)
    learner.save("model2")
    assert contents(Path("model2")).keys() == {"model.json", "weights.safetensors", "prototypes.safetensors"}


def test_the_classes_of_a_model_are_listed_with_what_became_of_them(place: Place) -> None:
    found = classes()
    listed = place.well("classes", "model2").out.splitlines()
    assert [line.split() for line in listed] == [
        ["class", "from"],
        *([name, "labels"] for name in found[:3]),
        *([name, "discovery", "1"] for name in found[3:]),
    ]
    place.well("merge", "model2", "new-2", found[0])
    place.well("name", "model2", "new-1=hibiscus")
    assert json.loads(place.well("classes", "model2", "--json").out) == {
        "model": "model2",
        "classes": [
            {"name": found[0], "discovery": None, "found_as": None, "merged": ["new-2"]},
            *({"name": name, "discovery": None, "found_as": None, "merged": []} for name in found[1:3]),
            {"name": "hibiscus", "discovery": 1, "found_as": "new-1", "merged": []},
        ],
        "rejected": [],
    }
    place.well("reject", "model2", "hibiscus")
    assert place.well("classes", "model2").out.splitlines()[-1] == "rejected: hibiscus"
    place.refused("classes", "nowhere", words=("nowhere",))


REFUSED: list[tuple[Words, Words]] = [
    (("name", "model2", "nwe-1=rose"), ("'nwe-1'", "did you mean 'new-1'?")),
    (("name", "model2", "new-1=rose", "new-9=tulip"), ("'new-9'", "choose from new-1, new-2, 0, 1, 2")),
    (("name", "model2", "new-1=rose", "new-2=rose"), ("two classes", "'rose'")),
    (("name", "model2", "new-1=rose", "new-1=tulip"), ("'new-1'", "two names")),
    (("name", "model2", "new-1=unsure"), ("'unsure'", "without a class")),
    (("name", "model2", "new-1=red", "rose"), ("'rose'", "quotes")),
    (("name", "model2", "new-1"), ("'new-1'", "CLASS=NAME")),
    (("name", "model2", "=rose"), ("'=rose'", "CLASS=NAME")),
    (("name", "model2", "new-1="), ("new name of 'new-1' is empty",)),
    (("name", "model2", "new-1=0"), ("'0'", "already", "merge")),
    (("name", "model2"), ("CLASS=NAME",)),
    (("name", "nowhere", "new-1=rose"), ("no model folder nowhere",)),
    (("name", "run", "new-1=rose"), ("run/model",)),
    (("merge", "model2", "new-3", "new-1"), ("'new-3'", "choose from new-1, new-2, 0, 1, 2")),
    (("merge", "model2", "0", "new-1"), ("'0'", "has labels", "other order")),
    (("merge", "model2", "new-1"), ("INTO",)),
    (("merge", "model2", "new-1", "new-1"), ("itself",)),
    (("reject", "model2", "0"), ("'0'", "has labels")),
    (("undo", "model2"), ("nothing to undo",)),
    (("undo", "known"), ("known",)),
]


@pytest.mark.parametrize(("arguments", "words"), named(REFUSED))
def test_what_is_refused_changes_nothing(place: Place, arguments: Words, words: Words) -> None:
    place.refused(*arguments, words=words)


def test_what_has_become_of_a_class_is_said(place: Place) -> None:
    place.well("name", "model2", "new-1=rose")
    place.refused("reject", "model2", "new-1", words=("'new-1' is now called 'rose'",))
    place.well("merge", "model2", "new-2", "rose")
    place.refused("reject", "model2", "new-2", words=("'new-2' was merged into 'rose'",))
    place.well("undo", "model2")
    place.well("reject", "model2", "new-2")
    place.refused("name", "model2", "new-2=tulip", words=("'new-2' was rejected", "undo"))


def test_a_table_that_is_damaged(place: Place) -> None:
    path = Path("model2/model.json")
    content = json.loads(path.read_text())
    content["classes"]["edits"] = [{"verb": "merge", "id": 99, "into": 0}]
    path.write_text(json.dumps(content))
    place.refused("name", "model2", "new-1=rose", words=("model2/model.json", "damaged"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be killed")
def test_a_kill_leaves_the_names_before_or_after(place: Place) -> None:
    """Killed at the moment when the new table takes its place, and just before."""
    kill = f"os.kill(os.getpid(), {int(signal.SIGKILL)})"
    for when in (f"lambda *_: {kill}", f"lambda *a: (replace(*a), {kill})"):
        code = (
            "import os, pathlib\nfrom hoarfrost.cli import main\nreplace = pathlib.Path.replace\n"
            f"pathlib.Path.replace = {when}\nmain(['name', 'model2', 'new-1=rose'])"
        )
        assert forked.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
        assert classes()[3:] in (["new-1", "new-2"], ["rose", "new-2"])
    assert classes()[3:] == ["rose", "new-2"]
    place.well("undo", "model2")
