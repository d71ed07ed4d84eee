"""Scores that people understand: by class, by cluster, in words; counted again here from the predictions."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import normalized_mutual_info_score, roc_auc_score

from hoarfrost import Learner
from hoarfrost.cli import evaluate as verb
from hoarfrost.data.datasets import load_dataset, read_images

from .place import EVALUATE, Place


def scored(place: Place, *more: str, model: str = "model2") -> dict[str, Any]:
    content: dict[str, Any] = json.loads(place.well("evaluate", model, "checked", *more, "--json").out)
    return content


def pairs(place: Place, model: str = "model2") -> list[tuple[str, str]]:
    """The true and the predicted class of each image."""
    rows = csv.DictReader(io.StringIO(place.well("predict", model, "checked").out))
    return [(Path(row["path"]).parent.name, row["class"]) for row in rows]


def check_counts(place: Place, content: dict[str, Any]) -> None:
    """Counts every field of the table by class again."""
    counts, rows = Counter(pairs(place)), content["classes"]
    stands_for = {row["called"]: row["class"] for row in rows if row["called"]}
    assert [row["accuracy"] for row in rows] == sorted(row["accuracy"] for row in rows)
    for row in rows:
        own = {predicted: count for (true, predicted), count in counts.items() if true == row["class"]}
        assert row["images"] == sum(own.values()) == 8
        assert row["right"] == own.pop(row["called"], 0)
        assert row["accuracy"] == pytest.approx(100 * row["right"] / 8)
        assert row["taken"] == max(own.values(), default=0)
        taken = [stands_for.get(name, name) for name, count in own.items() if count == row["taken"]]
        assert row["taken_for"] in (taken or [None])
    assert content["joint"]["all"] == pytest.approx(100 * sum(row["right"] for row in rows) / 40)
    for row in content["clusters"]:
        inside = {true: count for (true, predicted), count in counts.items() if predicted == row["cluster"]}
        assert row["images"] == sum(inside.values())
        if inside:
            assert row["purity"] == pytest.approx(100 * max(inside.values()) / row["images"])
            assert inside[row["mostly"]] == max(inside.values())
    most = sum(max(counts[true, k] for true in "01234") for k in {predicted for _, predicted in counts})
    assert content["clustering"]["all"]["purity"] == pytest.approx(100 * most / 40)
    true, predicted = zip(*pairs(place), strict=True)
    information = 100 * normalized_mutual_info_score(true, predicted)
    assert content["clustering"]["all"]["nmi"] == pytest.approx(information, abs=1e-5)


def test_every_figure_is_counted_again(place: Place) -> None:
    content = scored(place)
    check_counts(place, content)
    assert content["new_classes"] == {"found": 2, "true": 2, "error": 0}
    assert {row["known_by"] for row in content["classes"]} == {"label", "matching"}
    assert {row["class"] for row in content["clusters"]} == {"3", "4"}
    learner = Learner.load("model2", "cpu")
    images = read_images("checked", labelled=True, size=learner.config.image_size, channels=1)
    assert images.labels is not None
    scores = learner.outputs(images).scores
    newer = [max(row[3:]) - max(row[:3]) for row in scores]
    assert content["auroc_new"] == pytest.approx(100 * roc_auc_score(images.labels >= 3, newer), abs=1e-5)
    like_old = Learner.load("model", "cpu").outputs(images).scores.max(axis=1)
    assert scored(place, model="model")["auroc_new"] == pytest.approx(
        100 * roc_auc_score(images.labels >= 3, -like_old), abs=1e-5
    )
    sure = learner.predict_proba(images).max(axis=1)
    right = [row["right"] for row in content["classes"]]
    calibration = content["calibration"]
    assert calibration["probability"] == pytest.approx(100 * sure.mean(), abs=1e-5)
    assert calibration["sure"] == (sure >= 0.9).sum()
    assert calibration["error"] >= abs(sum(right) / 40 - sure.mean()) - 1e-6, "bins can only add to it"
    assert 0 < calibration["by_chance"] < 0.5
    parts = content["category_discovery"]
    assert parts["all"] == pytest.approx((3 * parts["old"] + 2 * parts["new"]) / 5)
    assert parts["all"] == pytest.approx(content["original_rt"]["all"]), "both match all classes on these images"


def test_a_class_that_was_named_stands_for_the_class_of_that_name(place: Place) -> None:
    """Also where matching would have it otherwise."""
    before = {row["class"]: row["called"] for row in scored(place)["classes"]}
    place.well("name", "model2", f"{before['3']}=4")
    content = scored(place)
    check_counts(place, content)
    rows = {row["class"]: row for row in content["classes"]}
    assert (rows["4"]["called"], rows["4"]["known_by"]) == ("4", "name")
    assert (rows["3"]["called"], rows["3"]["known_by"]) == (before["4"], "matching")
    last = place.well("evaluate", "model2", "checked").out.splitlines()[-1]
    assert last.startswith("in percent; classes that you named are matched by name; new classes matched on the scored")
    place.well("name", "model2", f"{before['4']}=3")
    assert place.well("evaluate", "model2", "checked").out.splitlines()[-1].endswith("matched by name")


def test_classes_that_were_merged_or_rejected(place: Place) -> None:
    place.well("merge", "model2", "0", "1")
    place.well("reject", "model2", "new-1")
    content = scored(place)
    assert content["new_classes"] == {"found": 1, "true": 2, "error": -1}
    rows = {row["class"]: row for row in content["classes"]}
    assert (rows["1"]["images"], rows["1"]["called"]) == (16, "1"), "both are one class now"
    counts = Counter(pairs(place))
    assert rows["1"]["right"] == counts["0", "1"] + counts["1", "1"]
    assert sorted(row["called"] or "" for row in rows.values() if row["kind"] == "new") == ["", "new-2"]
    assert [row["cluster"] for row in content["clusters"]] == ["new-2"]
    place.well("reject", "model2", "new-2")
    assert scored(place)["original_rt"] is None


def test_what_is_taken_for_a_known_class_does_not_say_what_a_cluster_stands_for(place: Place) -> None:
    """Three images are predicted as a discovered class; of six that suit it, too, a known class is more probable."""
    train, _ = load_dataset("digits", None)
    assert train.labels is not None
    known, new = (train.take(np.flatnonzero(np.isin(train.labels, digits))) for digits in ((0, 1, 2), (3, 4)))
    learner = Learner("kmeans", recipe="digits", device="cpu", settings={"fit.epochs": 3})
    learner.fit(known.pixels(slice(None)), known.labels).discover(new.pixels(slice(None)), 2, only_new=True).save(
        "model3"
    )
    pixels, outputs = train.pixels(slice(None)), learner.outputs(train)
    suits = outputs.novel_scores[0].argmax(axis=1) + 3
    inside = np.flatnonzero((outputs.predicted == 3) & (suits == 3))[:3]
    beside = np.flatnonzero((outputs.predicted < 3) & (suits == 3))[:6]
    assert (len(inside), len(beside)) == (3, 6)
    for name, images in (("inside", inside), ("beside", beside), ("third", beside[:1])):
        Path("checked", name).mkdir()
        for k in images:
            Image.fromarray(pixels[k, ..., 0]).save(f"checked/{name}/{k}.png")
    for name in "34":
        shutil.rmtree(f"checked/{name}")
    rows = {row["class"]: row for row in scored(place, model="model3")["classes"]}
    assert (rows["inside"]["called"], rows["inside"]["right"]) == ("new-1", 3)


def test_more_classes_than_were_found_are_scored(place: Place) -> None:
    content = scored(place, model="model")
    assert content["joint"]["new"] == 0
    assert content["new_classes"] == {"found": 0, "true": 2, "error": -2}
    assert content["auroc_new"] is not None
    out = place.well("evaluate", "model", "checked").out
    assert "not a class of the model, so 0 % correct: " in out
    assert out.splitlines()[-1] == "in percent", "nothing was matched"
    shutil.rmtree("checked/0")
    shutil.rmtree("checked/1")
    shutil.rmtree("checked/2")
    place.refused("evaluate", "model", "checked", words=("checked", "no class of this model"))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_names_have_the_room_that_there_is(place: Place, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    name = "a name of thirty-two characters."
    Path("checked/3").rename(f"checked/{name}")
    monkeypatch.setenv("COLUMNS", str(columns))
    table = place.well(*EVALUATE).out.partition("class  ")[2].split("\n\n")[0].splitlines()[1:]
    (line,) = (line for line in table if line.startswith("a name of"))
    assert len(line) <= columns or line.startswith(f"{name[:11]}…")
    assert line.startswith(name) == (columns >= 80), "cut only where it has to be"


def test_a_long_table_has_the_worst_classes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("checked/3").rename("checked/" + "long " * 30)
    whole = place.well(*EVALUATE).out
    assert max(map(len, whole.splitlines())) <= 100
    table = whole.partition("class  ")[2].split("\n\n")[0].splitlines()[1:]
    assert len(table) == 5
    monkeypatch.setattr(verb, "SHOWN", 2)
    short = place.well(*EVALUATE).out.partition("class  ")[2].split("\n\n")[0].splitlines()[1:]
    assert [line.split() for line in short[:2]] == [line.split() for line in table[:2]]
    assert short[2].startswith("and 3 more")
    assert len(scored(place)["classes"]) == 5
