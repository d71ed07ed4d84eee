"""Model folders that are missing, damaged or not one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hoarfrost import store

from .place import DISCOVER, EVALUATE, PREDICT, Build, Place, Words, cut


def change_model(**changes: Any) -> Build:
    """Changes keys of ``model.json``."""

    def change(model: Path) -> None:
        content = json.loads((model / "model.json").read_bytes())
        (model / "model.json").write_text(json.dumps(content | changes))

    return change


def change_config(**changes: Any) -> Build:
    def change(model: Path) -> None:
        content = json.loads((model / "model.json").read_bytes())
        content["config"] |= changes
        (model / "model.json").write_text(json.dumps(content))

    return change


def write_model(text: str) -> Build:
    return lambda model: (model / "model.json").write_text(text)


def take_from_first_model(name: str) -> Build:
    return lambda model: shutil.copy(Path("model") / name, model / name)


def a_file_instead(model: Path) -> None:
    shutil.rmtree(model)
    model.write_text("not a folder")


def an_empty_folder(model: Path) -> None:
    shutil.rmtree(model)
    model.mkdir()


BROKEN: dict[str, tuple[Build, Words]] = {
    "missing": (shutil.rmtree, ("no model folder",)),
    "empty": (an_empty_folder, ("not a model folder", "model.json")),
    "a file": (a_file_instead, ("model folder",)),
    "newer": (change_model(format=store.FORMAT + 1), (f"format {store.FORMAT + 1}", "update")),
    "no version": (change_model(format=None), ("format version",)),
    "model.json cut": (lambda model: cut(model / "model.json"), ("model.json", "damaged")),
    "model.json empty": (lambda model: cut(model / "model.json", 0), ("model.json", "damaged")),
    "model.json binary": (lambda model: (model / "model.json").write_bytes(b"\xff\x00\x81"), ("model.json", "damaged")),
    "model.json a list": (write_model("[1]"), ("model.json", "damaged")),
    "model.json bare": (write_model(json.dumps({"format": store.FORMAT})), ("damaged", "config")),
    "config empty": (change_model(config={}), ("damaged", "method")),
    "config null": (change_model(config=None), ("damaged", "null")),
    "config with more": (change_config(colour="red"), ("'colour'",)),
    "config without size": (change_config(image_size=None), ("damaged", "image_size")),
    "config without mean": (change_config(mean=None), ("damaged", "mean")),
    "config with a short std": (change_config(std=[]), ("damaged", "std")),
    "other backbone": (change_model(backbone="resnet18"), ("damaged",)),
    "unknown backbone": (change_model(backbone="resnet9"), ("'resnet9'",)),
    "other heads": (change_model(heads={"known": 4, "novel": [2]}), ("damaged",)),
    "heads a list": (change_model(heads=[]), ("damaged",)),
    "too few names": (change_model(class_names=["0"]), ("damaged", "class_names")),
    "names a number": (change_model(class_names=5), ("damaged",)),
    "a number for a name": (change_model(class_names=[0, 1, 2, 3, 4]), ("damaged", "class_names[0]", "text")),
    "a name that cannot be written": (change_model(class_names=["\ud800", *"1234"]), ("model2/model.json", "damaged")),
    "a number for a backbone": (change_model(backbone=18), ("damaged", "backbone")),
    "a list for a backbone": (change_model(backbone=["small"]), ("damaged", "backbone")),
    "NaN channels": (change_model(channels=float("nan")), ("model.json", "damaged")),
    "many channels": (change_model(channels=10**9), ("damaged", "channels")),
    "other channels": (change_model(channels=3), ("damaged", "channels")),
    "many classes": (change_model(heads={"known": 10**9, "novel": [2]}), ("damaged", "heads")),
    "no classes": (change_model(heads={"known": 5, "novel": [2, -2]}), ("damaged", "head")),
    "part of a class": (change_model(heads={"known": 3.5, "novel": [2]}), ("damaged", "heads.known")),
    "a huge number": (change_config(seed=10**300), ("damaged", "seed")),
    "a huge learning rate": (change_config(fit={"learning_rate": 10**400}), ("damaged", "learning_rate")),
    "a number for a term": (
        change_config(method={"name": "", "summary": "", "paper": "", "terms": {"replay": 3}}),
        ("damaged", "replay"),
    ),
    "a huge image size": (change_config(image_size=10**9), ("damaged", "image size")),
    "all classes rejected": (
        change_model(
            classes={
                "rows": [{"name": name, "step": 1} for name in ("0", "1", "2", "new-1", "new-2")],
                "edits": [{"verb": "reject", "id": index} for index in range(5)],
            }
        ),
        ("model.json", "damaged", "is empty"),
    ),
    "a labelled class rejected": (
        change_model(
            classes={
                "rows": [{"name": name, "step": 0} for name in ("0", "1", "2", "new-1", "new-2")],
                "edits": [{"verb": "reject", "id": 0}],
            }
        ),
        ("model.json", "damaged", "an edit"),
    ),
    "a class merged into itself": (
        change_model(
            classes={
                "rows": [{"name": name, "step": 0} for name in ("0", "1", "2", "new-1", "new-2")],
                "edits": [{"verb": "merge", "id": 3, "into": 3}],
            }
        ),
        ("model.json", "damaged", "an edit"),
    ),
    "a discovery of fewer images than none": (
        change_model(discovery={"images": 1, "known": 2, "unsure": -1, "new": [], "count": None}),
        ("model.json", "damaged", "do not add up"),
    ),
    "another backbone in its configuration": (change_config(backbone="resnet18"), ("damaged", "another backbone")),
    "weights missing": (lambda model: (model / "weights.safetensors").unlink(), ("weights.safetensors",)),
    "weights cut": (lambda model: cut(model / "weights.safetensors"), ("weights.safetensors", "damaged")),
    "weights empty": (lambda model: cut(model / "weights.safetensors", 0), ("weights.safetensors", "damaged")),
    "weights of another model": (take_from_first_model("weights.safetensors"), ("damaged",)),
    "prototypes missing": (lambda model: (model / "prototypes.safetensors").unlink(), ("prototypes.safetensors",)),
    "prototypes cut": (lambda model: cut(model / "prototypes.safetensors"), ("prototypes.safetensors", "damaged")),
    "prototypes of another model": (take_from_first_model("prototypes.safetensors"), ("damaged", "prototypes")),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_model_folder(place: Place, case: str) -> None:
    build, words = BROKEN[case]
    build(Path("model2"))
    line = place.refused(*PREDICT, words=("model2", *words))
    assert "state_dict" not in line


@pytest.mark.parametrize("verb", ["discover", "evaluate"])
@pytest.mark.parametrize("case", ["missing", "newer", "weights cut", "prototypes of another model"])
def test_other_verbs_refuse_it_too(place: Place, verb: str, case: str) -> None:
    build, words = BROKEN[case]
    build(Path("model2"))
    arguments = EVALUATE if verb == "evaluate" else (*DISCOVER[:1], "model2", *DISCOVER[2:])
    place.refused(*arguments, words=("model2", *words))


def test_a_run_folder_in_place_of_its_model(place: Place) -> None:
    place.refused("predict", "run", "unsorted", words=("run/model",))


def test_the_root_is_no_model_folder(place: Place) -> None:
    place.refused("predict", "/", "unsorted", words=("not a model folder",))


def test_a_model_that_cannot_tell_known_from_new(place: Place) -> None:
    path = place.folder / "model" / "model.json"
    content = json.loads(path.read_text())
    del content["calibration"]
    path.write_text(json.dumps(content))
    line = place.refused(*DISCOVER, words=("cannot tell known classes from new ones", "fit it again"))
    assert line.endswith("or say that all images are new (--only-new)")
