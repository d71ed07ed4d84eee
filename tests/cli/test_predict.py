"""One image, several, folders and lists of them; how sure a prediction is; the same in Python."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hoarfrost import InputError, Learner

from .place import PREDICT, Place, Words, cut, named


def table(text: str) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_paths_of_all_kinds_give_the_rows_that_the_folder_gives(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = place.well(*PREDICT).out.splitlines()
    header, rows = whole[0], {line.split(",")[0]: line for line in whole[1:]}
    some = ["unsorted/4-1.png", "unsorted/3-0.png"]
    expected = [header, *(rows[path] for path in some)]
    assert place.well("predict", "model2", some[0]).out.splitlines() == expected[:2]
    assert place.well("predict", "model2", some[0], "--device", "cpu", some[1]).out.splitlines() == expected
    Path("list.txt").write_text("\n".join(some) + "\n\n")
    assert place.well("predict", "model2", "--list", "list.txt").out.splitlines() == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{some[1]}\n".encode())))
    assert place.well("predict", "model2", some[0], "--list", "-").out.splitlines() == expected
    both = place.well("predict", "model2", "unsorted", "checked/0").out.splitlines()
    assert both[: len(whole)] == whole
    assert both[len(whole)].startswith("checked/0/0.png,")


def test_a_broken_one_among_several_is_named_and_left_out(place: Place) -> None:
    cut(Path("unsorted/3-0.png"))
    answer = place.well("predict", "model2", "unsorted/3-0.png", "unsorted/3-1.png")
    assert "1 unreadable file (unsorted/3-0.png)" in answer.err
    assert [row["path"] for row in table(answer.out)] == ["unsorted/3-1.png"]


def test_the_most_probable_classes(place: Place) -> None:
    answer = place.well(*PREDICT, "--top", "9")
    rows = table(answer.out)
    assert answer.out.splitlines()[0].endswith(
        ",kind,class_1,probability_1,class_2,probability_2"
        + "".join(f",class_{rank},probability_{rank}" for rank in (3, 4, 5))
    )
    for row in rows:
        ranked = [float(row[f"probability_{rank}"]) for rank in range(1, 6)]
        assert (row["class"], float(row["probability"])) == (row["class_1"], ranked[0])
        assert ranked == sorted(ranked, reverse=True)
        assert sum(ranked) == pytest.approx(1, abs=1e-4)
        assert len({row[f"class_{rank}"] for rank in range(1, 6)}) == 5
    content = json.loads(place.well(*PREDICT, "--top", "2", "--json").out)["predictions"]
    assert [row["top"][1]["class"] for row in content] == [row["class_2"] for row in rows]


def test_what_is_not_probable_enough_is_unsure(place: Place) -> None:
    sure = table(place.well(*PREDICT).out)
    middle = float(np.mean(sorted(float(row["probability"]) for row in sure)[len(sure) // 2 - 1 :][:2]))
    rows = table(place.well(*PREDICT, "--threshold", str(middle)).out)
    assert {"unsure"} < {row["class"] for row in rows}
    for row, before in zip(rows, sure, strict=True):
        assert row == (before if float(before["probability"]) >= middle else {**row, "class": "unsure"})
        assert (row["kind"] == "unsure") == (row["class"] == "unsure")


REFUSED: list[tuple[Words, Words]] = [
    (("predict", "model2"), ("DIR", "--list")),
    (("predict", "model2", "unsorted/3-0.png", "nowhere.png"), ("'nowhere.png'", "no file or folder")),
    (("predict", "model2", "--list", "nowhere.txt"), ("nowhere.txt",)),
    (("predict", "model2", "model2/model.json"), ("no images", "model2/model.json")),
    ((*PREDICT, "--threshold", "1.5"), ("--threshold", "'1.5'")),
    ((*PREDICT, "--threshold", "nan"), ("--threshold", "'nan'")),
    ((*PREDICT, "--top", "0"), ("--top", "'0'")),
]


@pytest.mark.parametrize(("arguments", "words"), named(REFUSED))
def test_what_is_refused(place: Place, arguments: Words, words: Words) -> None:
    place.refused(*arguments, words=words)


def test_predictions_in_python(place: Place) -> None:
    learner = Learner.load("model2", "cpu")
    assert repr(learner) == "Learner(frost, small: 3 labelled classes, 2 discovered in 1 step)"
    found = learner.predictions("unsorted")
    assert found.paths == sorted(str(path) for path in Path("unsorted").iterdir())
    assert found.labels.tolist() == list(found.names) == learner.predict("unsorted").tolist()
    assert found.names == tuple(learner.class_names[class_id] for class_id in found.ids)
    assert [row["class"] for row in table(place.well(*PREDICT).out)] == list(found.names)
    files = [Path("unsorted/4-1.png"), Path("unsorted/3-0.png")]
    assert learner.predict(files).tolist() == [found.names[found.paths.index(str(path))] for path in files]
    np.testing.assert_allclose(learner.predictions(files).probabilities, learner.predict_proba(files))
    assert set(learner.predictions("unsorted", threshold=1.0).ids) == {-1}
    cut(files[1])
    with pytest.raises(InputError, match=r"unsorted/3-0\.png is not a readable image"):
        learner.predict(files)
    with pytest.warns(UserWarning, match=r"3-0\.png"):
        assert learner.predictions(files).paths == ["unsorted/4-1.png"]


def test_a_list_of_files_with_labels_is_learned_from(place: Place) -> None:
    files = sorted(str(path) for path in Path("known").rglob("*.png"))
    learner = Learner("frost", "small", device="cpu", settings={"fit.epochs": 1, "fit.drops": []})
    assert repr(learner) == "Learner(frost, small: nothing learned yet)"
    learner.fit(files, [Path(file).parent.name for file in files])
    other = Learner("frost", "small", device="cpu", settings={"fit.epochs": 1, "fit.drops": []}).fit("known")
    assert repr(learner) == "Learner(frost, small: 3 labelled classes)"
    assert learner.predict(files).tolist() == other.predict("known").tolist()
