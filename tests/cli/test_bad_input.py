"""What people get wrong: one clear line, exit code 2, and every file around as it was."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from hoarfrost import store
from hoarfrost.cli import main, parse

Words = tuple[str, ...]
Build = Callable[[Path], object]

# Later options replace earlier ones, so that a case adds its own to these.
FIT = ("fit", "known", "--out", "made", "--epochs", "1")
DISCOVER = ("discover", "model", "unsorted", "--novel", "2", "--out", "made", "--epochs", "1")
PREDICT = ("predict", "model2", "unsorted")
EVALUATE = ("evaluate", "model2", "checked")
SHORT = ("--epochs", "1", "--fit-epochs", "1")
RUN = ("run", "--dataset", "folder", "--data", "checked", "--split", "3-2", "--out", "made", *SHORT)
DEMO = ("demo", "--out", "made", "--set", "fit.epochs=1", "--set", "discover.epochs=1")

FINISHED = {
    "fit": (*FIT, "--out", "model"),
    "discover": (*DISCOVER, "--out", "model2"),
    "run": (*RUN, "--out", "run"),
}

ADVICE = re.compile(
    r"\b(choose|give|check|did you mean|use|free|update|remove|fetch|see hoarfrost|restore|again|add|put|must"
    r"|needs?|needed|of the form|but the data set has|has nothing below|nor a|it is not a \.npz|not a folder|name"
    r"|required|lower|leave|discover them|there and .* now)\b|--resume"
)
"""Words of which one says what to do, or what the rule is."""


# ---------------------------------------------------------------------------------------------------------------------
# A place with images, models and a run; what a command says; what is there
# ---------------------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Place:
    """The current folder of one test."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def call(self, *arguments: str) -> Answer:
        self.capsys.readouterr()
        try:
            code: Any = main(arguments)
        except SystemExit as end:
            code = end.code
        return Answer(code, *self.capsys.readouterr())

    def well(self, *arguments: str) -> Answer:
        answer = self.call(*arguments)
        assert answer.code == 0, answer.err
        return answer

    def refused(self, *arguments: str, words: Words, kept: bool = True) -> str:
        """The one line with which the command is refused; ``kept``: and no file has changed."""
        before = contents(self.folder)
        code, out, err = self.call(*arguments)
        *warnings, line = err.splitlines() or [""]
        assert code == 2, f"{code}: {err}"
        assert out == ""
        assert all(warning.startswith("hoarfrost: warning: ") for warning in warnings), err
        assert re.match(r"hoarfrost( \w+)?: \S", line)
        assert "Traceback" not in err
        assert ".part" not in line, "a file that people never see"
        for word in words:
            assert word in line, f"'{word}' is not in: {line}"
        assert ADVICE.search(line), f"nothing to do in: {line}"
        if kept:
            assert contents(self.folder) == before
        return line


def named(cases: list[tuple[Words, Words]]) -> list[Any]:
    """The cases with the verb and the last arguments as their names."""
    return [pytest.param(*case, id=" ".join(dict.fromkeys((case[0][0], *case[0][-2:])))) for case in cases]


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, and every folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def digit_images(digit: int, first: int, count: int) -> list[Image.Image]:
    digits = load_digits()
    chosen = np.flatnonzero(digits.target == digit)[first : first + count]
    return [Image.fromarray(np.round(digits.images[index] * (255 / 16)).astype(np.uint8)) for index in chosen]


def save_digits(folder: Path, digits: range, *, first: int = 0, count: int = 8, flat: bool = False) -> None:
    for digit in digits:
        for index, image in enumerate(digit_images(digit, first, count)):
            path = folder / (f"{digit}-{index}.png" if flat else f"{digit}/{index}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images, two models and a run, made once."""
    folder = tmp_path_factory.mktemp("finished")
    save_digits(folder / "known", range(3))
    save_digits(folder / "unsorted", range(3, 5), flat=True)
    save_digits(folder / "checked", range(5), first=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for arguments in FINISHED.values():
            assert main(arguments) == 0
    return folder


@pytest.fixture
def place(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Place:
    folder = tmp_path / "place"
    shutil.copytree(finished, folder)
    monkeypatch.chdir(folder)
    return Place(folder, capsys)


# ---------------------------------------------------------------------------------------------------------------------
# Images
# ---------------------------------------------------------------------------------------------------------------------


def cut(path: Path, size: int | None = None) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 if size is None else size])


def no_images(folder: Path) -> None:
    for name in ("a/notes.txt", "b/table.csv", "b/empty.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("" if "empty" in name else "not an image")


def cut_images(folder: Path) -> None:
    save_digits(folder, range(2), count=2)
    for path in folder.glob("*/*.png"):
        cut(path)


def small_images(folder: Path) -> None:
    save_digits(folder, range(2), count=4)
    Image.new("L", (5, 9)).save(folder / "1" / "little.png")


def one_class(folder: Path) -> None:
    save_digits(folder, range(1))


def one_readable_class(folder: Path) -> None:
    one_class(folder)
    (folder / "second").mkdir()
    (folder / "second" / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")


WITH_IMAGES = {
    "fit": (*FIT[:1], "bad", *FIT[2:]),
    "discover": (*DISCOVER[:2], "bad", *DISCOVER[3:]),
    "predict": (*PREDICT[:2], "bad"),
    "evaluate": (*EVALUATE[:2], "bad"),
    "evaluate --match": (*EVALUATE, "--match", "bad"),
    "run": (*RUN, "--data", "bad"),
}


@pytest.mark.parametrize("verb", WITH_IMAGES)
@pytest.mark.parametrize(
    ("build", "words"),
    [
        pytest.param(lambda _: None, ("there is no", "bad"), id="missing"),
        pytest.param(Path.mkdir, ("bad",), id="empty"),
        pytest.param(lambda bad: bad.write_text("text"), ("bad",), id="a file"),
        pytest.param(no_images, ("bad", "3 files", "a/notes.txt", "b/empty.png"), id="no images"),
        pytest.param(cut_images, ("bad", "4 files", "0/0.png"), id="cut images"),
        pytest.param(small_images, ("little.png", "5x9"), id="too small"),
    ],
)
def test_images_that_cannot_be_used(place: Place, verb: str, build: Build, words: Words) -> None:
    build(place.folder / "bad")
    place.refused(*WITH_IMAGES[verb], words=words)


@pytest.mark.parametrize("verb", ["fit", "run"])
@pytest.mark.parametrize("build", [one_class, one_readable_class])
def test_one_class_is_not_enough(place: Place, verb: str, build: Build) -> None:
    build(place.folder / "bad")
    place.refused(*WITH_IMAGES[verb], words=("bad", "one class", "'0'", "two"))


def test_images_without_class_folders(place: Place) -> None:
    place.refused("fit", "unsorted", *FIT[2:], words=("unsorted", "sub-folder"))


@pytest.mark.parametrize("verb", ["fit", "predict"])
def test_some_unreadable_files_are_named_counted_and_left_out(place: Place, verb: str) -> None:
    save_digits(place.folder / "bad", range(3))
    cut(place.folder / "bad" / "1" / "3.png")
    (place.folder / "bad" / "2" / "notes.txt").write_text("not an image")
    answer = place.well(*WITH_IMAGES[verb], "--json")
    (warning,) = (line for line in answer.err.splitlines() if "epoch" not in line)
    assert warning.startswith("hoarfrost: warning: ")
    for word in ("bad", "2 files", "1/3.png", "2/notes.txt"):
        assert word in warning
    content = json.loads(answer.out)
    assert (content["images"] if verb == "fit" else len(content["predictions"])) == 3 * 8 - 1


@pytest.mark.parametrize("verb", WITH_IMAGES)
@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        pytest.param(None, ("bad.npz", "not a .npz file"), id="garbage"),
        pytest.param({"other": np.zeros(3)}, ("bad.npz", "other", "'images'"), id="no images"),
        pytest.param({"images": np.zeros((4, 9, 9)), "labels": np.arange(4)}, ("bad.npz", "uint8"), id="floats"),
        pytest.param(
            {"images": np.zeros((4, 5, 9), np.uint8), "labels": np.arange(4)}, ("bad.npz", "9x5"), id="too small"
        ),
    ],
)
def test_arrays_that_cannot_be_used(place: Place, verb: str, arrays: Mapping[str, Any] | None, words: Words) -> None:
    if arrays is None:
        Path("bad.npz").write_bytes(b"PK\x03\x04 and then nothing of use")
    else:
        np.savez("bad.npz", **arrays)
    place.refused(*(f"{word}.npz" if word == "bad" else word for word in WITH_IMAGES[verb]), words=words)


def test_a_missing_data_set_names_a_command_that_works(place: Place) -> None:
    line = place.refused("run", "--dataset", "cifar10", "--data", "my data", "--out", "made", words=("cifar10",))
    (command,) = re.findall(r"hoarfrost (run .*--download.*)", line)
    parsed = parse([word.strip("'") for word in re.findall(r"'[^']*'|\S+", command)])
    assert (parsed.dataset, parsed.data, parsed.download) == ("cifar10", "my data", True)


# ---------------------------------------------------------------------------------------------------------------------
# Arguments
# ---------------------------------------------------------------------------------------------------------------------


ARGUMENTS: list[tuple[Words, Words]] = [
    (("discovr", "model"), ("'discovr'", "'discover'")),
    (("--versin",), ("'--versin'", "'--version'")),
    (("fit",), ("DIR", "--out")),
    (("predict", "model2"), ("DIR",)),
    ((*PREDICT, "more"), ("'more'",)),
    ((*PREDICT, "--jsn"), ("'--jsn'", "'--json'")),
    ((*RUN, "--epoch", "3"), ("'--epoch'", "'--epochs'")),
    (("run", "--datset", "digits", "--out", "made"), ("--dataset",)),
    ((*FIT, "--method", "frots"), ("method", "'frots'", "'frost'")),
    ((*RUN, "--method", "zzz"), ("method", "'zzz'", "frost", "choose from")),
    ((*RUN, "--dataset", "cifar-10"), ("data set", "'cifar-10'", "'cifar10'")),
    ((*RUN, "--dataset", "mnist"), ("data set", "'mnist'", "digits", "choose from")),
    ((*FIT, "--device", "cdua"), ("device", "'cdua'", "'cuda'")),
    ((*PREDICT, "--device", "tpu:0:1"), ("device", "'tpu:0:1'")),
    ((*FIT, "--backbone", "resnet81"), ("backbone", "'resnet81'", "'resnet18'")),
    ((*RUN, "--class-order", "natrual"), ("class order", "'natrual'", "'natural'")),
    ((*RUN, "--split", "3-3"), ("'3-3'", "6", "5")),
    ((*RUN, "--split", "5"), ("'5'", "5-5")),
    ((*RUN, "--split", "1-4"), ("'1-4'", "2")),
    ((*RUN, "--split", "5-0"), ("'5-0'", "1")),
    ((*RUN, "--split", "3--2"), ("'3--2'", "5-5")),
    ((*RUN, "--split", "3-x"), ("'3-x'", "5-5")),
    ((*RUN, "--split=-3-8"), ("'-3-8'", "5-5")),
    ((*RUN[:5], *RUN[7:]), ("--split",)),
    ((*FIT, "--epochs", "0"), ("epochs", "0")),
    ((*DISCOVER, "--epochs", "-2"), ("epochs", "-2")),
    ((*RUN, "--fit-epochs", "0"), ("epochs", "0")),
    ((*RUN, "--epochs", "many"), ("--epochs", "'many'")),
    ((*FIT, "--seed", "x"), ("--seed", "'x'")),
    ((*RUN, "--seed", "-1", "--class-order", "seeded"), ("seed", "-1")),
    ((*FIT, "--image-size", "4"), ("image size", "4", "8")),
    ((*FIT, "--image-size", "-4"), ("image size", "-4", "8")),
    ((*DISCOVER[:3], *DISCOVER[5:]), ("--novel",)),
    ((*DISCOVER, "--novel", "0"), ("new classes", "0")),
    ((*DISCOVER, "--novel", "-1"), ("new classes", "-1")),
    ((*DISCOVER, "--novel", "two"), ("--novel", "'two'")),
    ((*DISCOVER, "--novel", "17"), ("16 images", "17 new classes")),
    (("evaluate", "model", "checked"), ("checked", "2 classes", "3, 4")),
]


@pytest.mark.parametrize(("arguments", "words"), named(ARGUMENTS))
def test_arguments_that_cannot_be_used(place: Place, arguments: Words, words: Words) -> None:
    place.refused(*arguments, words=words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_gpu_that_is_not_there(place: Place, device: str) -> None:
    place.refused(*FIT, "--device", device, words=(f"'{device}'", "no GPU", "--device cpu"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("fit.epochs", ("'fit.epochs'", "key=value")),
        ("=3", ("'=3'", "key=value")),
        ("fit.epoch=3", ("'fit.epoch'", "'fit.epochs'")),
        ("method.terms.reply.weight=1", ("'method.terms.reply'", "'method.terms.replay'")),
        ("learning_rate=3", ("'learning_rate'", "choose from")),
        ("fit.epochs.x=3", ("fit.epochs",)),
        ("fit.epochs=1.5", ("fit.epochs", "int", "1.5")),
        ("fit.epochs=", ("fit.epochs", "int")),
        ("fit.epochs=true", ("fit.epochs", "int", "true")),
        ("fit.epochs=0", ("epochs", "0")),
        ("fit.batch_size=-1", ("batch_size", "-1")),
        ("fit.learning_rate=fast", ("fit.learning_rate", "float", "fast")),
        ("fit.learning_rate=NaN", ("learning_rate",)),
        ("fit.learning_rate=Infinity", ("learning_rate",)),
        ("fit.momentum=-1", ("momentum", "-1")),
        ("fit.weight_decay=-1", ("weight_decay", "-1")),
        ("fit.drops=5", ("fit.drops", "list")),
        ("fit=3", ("fit", "object")),
        ("method=frost", ("method", "object")),
        ("views=both", ("views", "'both'", "'together'")),
        ("fit_augment.rotate=NaN", ("rotate",)),
        ('fit_augment={"kind": "corp"}', ("'corp'", "'crop'")),
        ('fit_augment={"kind": "crop", "pad": -3}', ("pad", "-3")),
        ("image_size=-5", ("image size", "-5")),
        ("backbone=resnet", ("backbone", "'resnet'", "'resnet18'")),
        ('method.frozen=["stage7"]', ("'stage7'",)),
    ],
)
@pytest.mark.parametrize("command", [FIT, RUN], ids=["fit", "run"])
def test_settings_that_cannot_be_used(place: Place, command: Words, setting: str, words: Words) -> None:
    place.refused(*command, "--set", setting, words=words)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("backbone=resnet18", ("backbone",)),
        ("image_size=null", ("image_size",)),
        ("mean=null", ("mean",)),
        ("mean=[0.5, 0.5, 0.5]", ("mean",)),
        ("method.terms.replay.per_class=-1", ("per_class", "-1")),
        ("method.terms.replay.per_class=0", ("per_class", "0")),
        ("method.terms.pairwise.weight=NaN", ("weight",)),
        ("method.terms={}", ("terms",)),
        ('method.frozen=["stage7"]', ("'stage7'",)),
    ],
)
def test_settings_that_do_not_suit_the_model(place: Place, setting: str, words: Words) -> None:
    place.refused(*DISCOVER, "--set", setting, words=words)


# ---------------------------------------------------------------------------------------------------------------------
# Model folders
# ---------------------------------------------------------------------------------------------------------------------


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
    "empty": (an_empty_folder, ("no model folder", "model.json")),
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
    place.refused("predict", "/", "unsorted", words=("no model folder",))


# ---------------------------------------------------------------------------------------------------------------------
# Where the result goes
# ---------------------------------------------------------------------------------------------------------------------


def foreign_file(out: Path) -> None:
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")


MAKING = {"fit": FIT, "discover": DISCOVER, "run": RUN, "demo": DEMO}


@pytest.mark.parametrize("verb", MAKING)
@pytest.mark.parametrize("resume", [False, True], ids=["", "--resume"])
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda out: out.write_text("years of work"), id="a file"),
        pytest.param(foreign_file, id="a foreign file"),
    ],
)
def test_out_holds_something_else(place: Place, verb: str, resume: bool, build: Build) -> None:
    build(Path("made"))
    place.refused(*MAKING[verb], *(["--resume"] if resume else []), words=("made", "holds something else", "--out"))


@pytest.mark.parametrize("verb", FINISHED)
def test_out_holds_a_finished_one(place: Place, verb: str) -> None:
    arguments = FINISHED[verb]
    place.refused(*arguments, words=(arguments[-1], "already holds", "--out"))


PLACES: list[tuple[Words, Words]] = [
    ((*FIT, "--out", "run"), ("run", "something else")),
    ((*DISCOVER, "--out", "model"), ("model",)),
    ((*RUN, "--out", "model"), ("model", "something else")),
    ((*DEMO, "--out", "model"), ("model", "something else")),
    ((*DEMO, "--out", "run"), ("run",)),
    ((*PREDICT, "--out", "model"), ("model", "exists")),
    ((*PREDICT, "--out", "known/0/0.png"), ("known/0/0.png", "exists")),
    ((*PREDICT, "--out", "nowhere/table.csv"), ("nowhere",)),
    ((*PREDICT, "--out", "known/0/0.png/table.csv"), ("known/0/0.png",)),
    ((*FIT, "--out", "known/0/0.png/made"), ("known/0/0.png", "not a folder")),
    ((*DISCOVER, "--out", "known/0/0.png/made"), ("known/0/0.png", "not a folder")),
    ((*RUN, "--out", "known/0/0.png/made"), ("known/0/0.png", "not a folder")),
    ((*FIT, "--out", "."), ("--out",)),
    ((*FIT, "--out", ""), ("--out",)),
    ((*DISCOVER, "--out", "/"), ("--out",)),
    ((*RUN, "--out", "."), ("--out",)),
]


@pytest.mark.parametrize(("arguments", "words"), named(PLACES))
def test_out_is_no_place_for_it(place: Place, arguments: Words, words: Words) -> None:
    place.refused(*arguments, words=words)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("command", [FIT, DISCOVER, RUN, PREDICT], ids=lambda command: command[0])
def test_out_in_a_read_only_folder(place: Place, command: Words) -> None:
    Path("locked").mkdir(mode=0o555)
    place.refused(*command, "--out", "locked/made", words=("locked",))


@pytest.mark.parametrize("command", [FIT, RUN], ids=["fit", "run"])
def test_out_in_folders_that_are_made(place: Place, command: Words) -> None:
    place.well(*command, "--out", "deep/er/made")
    assert Path("deep/er/made/config.json").is_file()
    assert {path.name for path in Path("deep/er").iterdir()} == {"made"}


def test_a_refused_demo_keeps_the_last_one(place: Place) -> None:
    place.well(*DEMO)
    place.refused(*DEMO, "--method", "frots", words=("'frots'", "'frost'"))
    place.refused(*DEMO, "--resume", "--seed", "1", words=("made", "seed", "0", "1"))


def test_the_demo_does_not_replace_a_run_of_people(place: Place) -> None:
    place.well("run", "--dataset", "digits", "--split", "5-5", "--out", "made", *SHORT)
    place.refused(*DEMO, words=("made", "holds", "--out"))


def test_a_run_with_tensorboard(place: Place) -> None:
    pytest.importorskip("tensorboard")
    place.well(*RUN, "--tensorboard")
    assert any(Path("made/tensorboard").iterdir())
    place.refused(*RUN, "--tensorboard", words=("made", "already holds"))


# ---------------------------------------------------------------------------------------------------------------------
# Going on
# ---------------------------------------------------------------------------------------------------------------------


def stop_after(patch: pytest.MonkeyPatch, stage_epochs: int) -> None:
    """Presses Ctrl-C when that many epochs are done."""
    save, calls = store.CheckpointFile.save, iter(range(1, 1000))

    def save_and_stop(file: store.CheckpointFile, epochs: int, tensors: Mapping[str, torch.Tensor]) -> None:
        save(file, epochs, tensors)
        if next(calls) == stage_epochs:
            raise KeyboardInterrupt

    patch.setattr(store.CheckpointFile, "save", save_and_stop)


LONGER = {
    "fit": (*FIT, "--epochs", "3"),
    "discover": (*DISCOVER, "--epochs", "3"),
    "run": (*RUN, "--fit-epochs", "1", "--epochs", "2"),
}


@pytest.mark.parametrize("verb", LONGER)
def test_interrupted_work_waits_for_resume(place: Place, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    place.well(*LONGER[verb], "--out", "whole")
    before = contents(place.folder)
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        answer = place.call(*LONGER[verb])
    assert answer.code == 130
    assert [line for line in answer.err.splitlines() if line and "epoch " not in line] == [
        "hoarfrost: interrupted; --resume goes on from the last finished epoch"
    ]
    assert before.items() <= contents(place.folder).items()
    place.refused(*LONGER[verb], words=("made", "--resume"))
    place.refused(*LONGER[verb], "--resume", "--seed", "7", words=("made", "seed", "0", "7"))
    answer = place.well(*LONGER[verb], "--resume")
    model = "model/" if verb == "run" else ""
    for name in ("weights", "prototypes"):
        file = f"{model}{name}.safetensors"
        assert Path("made", file).read_bytes() == Path("whole", file).read_bytes()
    left = contents(place.folder).keys() - before.keys()
    assert {name.replace("made", "whole") for name in left} <= before.keys()


OTHER: dict[str, list[tuple[Words, Words]]] = {
    "fit": [
        (("--seed", "3"), ("seed", "0", "3")),
        (("--epochs", "2"), ("epochs", "1", "2")),
        (("--method", "frost-without-fd"), ("method",)),
        (("--set", "fit.momentum=0.5"), ("fit.momentum", "0.9", "0.5")),
    ],
    "discover": [
        (("--seed", "3"), ("seed", "0", "3")),
        (("--epochs", "2"), ("epochs", "1", "2")),
        (("--novel", "3"), ("novel", "2", "3")),
    ],
    "run": [
        (("--seed", "3"), ("seed", "0", "3")),
        (("--epochs", "2"), ("epochs", "1", "2")),
        (("--fit-epochs", "2"), ("fit.epochs", "1", "2")),
        (("--method", "frost-without-st"), ("method",)),
        (("--split", "2-3"), ("split", "3-2", "2-3")),
        (("--class-order", "seeded"), ("class_order", "natural", "seeded")),
    ],
}


@pytest.mark.parametrize(
    ("verb", "changes", "words"),
    [pytest.param(verb, *case, id=f"{verb} {' '.join(case[0])}") for verb, cases in OTHER.items() for case in cases],
)
def test_resume_refuses_another_configuration(place: Place, verb: str, changes: Words, words: Words) -> None:
    place.refused(*FINISHED[verb], *changes, "--resume", words=("another configuration", *words))


@pytest.mark.parametrize(
    ("verb", "image"), [("fit", "known/0/0"), ("discover", "unsorted/3-0"), ("run", "checked/4/0")], ids=list(FINISHED)
)
def test_resume_refuses_other_images(place: Place, verb: str, image: str) -> None:
    Image.new("L", (8, 8), 77).save(f"{image}.png")
    place.refused(*FINISHED[verb], "--resume", words=("images",))


def test_resume_refuses_another_model(place: Place) -> None:
    shutil.copytree("model", "elsewhere")
    place.well("discover", "elsewhere", *FINISHED["discover"][2:], "--resume")
    place.refused("discover", "model2", *FINISHED["discover"][2:], "--resume", words=("model",))


@pytest.mark.parametrize("verb", FINISHED)
def test_resume_of_what_is_finished_changes_nothing(place: Place, verb: str) -> None:
    before = contents(place.folder)
    answer = place.well(*FINISHED[verb], "--resume")
    assert answer.out
    assert answer.err == ""
    assert contents(place.folder) == before


@pytest.mark.parametrize("verb", FINISHED)
def test_resume_starts_where_there_is_nothing(place: Place, verb: str) -> None:
    place.well(*FINISHED[verb], "--out", "made", "--resume")
    finished = FINISHED[verb][-1]
    assert {path.name for path in Path("made").iterdir()} == {path.name for path in Path(finished).iterdir()}


def test_resume_after_the_last_epoch_trains_nothing_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def stop(path: Path, target: Path) -> Path:
        if path.name == "made.unfinished":
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stop)
        assert place.call(*LONGER["fit"]).code == 130
    assert place.well(*LONGER["fit"], "--resume").err == ""


@pytest.mark.parametrize("verb", MAKING)
def test_resume_after_a_kill_at_the_very_beginning(place: Place, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    def kill(part: Path, target: Path) -> NoReturn:
        raise SystemExit(f"{part} is written and not yet {target}")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", kill)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a kill leaves no time to tidy up
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        assert "config.json" in str(place.call(*MAKING[verb]).code)
    place.well(*MAKING[verb], "--resume")
    assert not [name for name in contents(place.folder) if name.endswith((".part", ".new", "unfinished"))]


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "config.json"])
def test_resume_of_damaged_work(place: Place, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        assert place.call(*LONGER["fit"]).code == 130
    cut(Path("made.unfinished", name))
    place.refused(*LONGER["fit"], "--resume", words=("made.unfinished", name, "damaged"))


# ---------------------------------------------------------------------------------------------------------------------
# No room, no reader
# ---------------------------------------------------------------------------------------------------------------------


def fill_disk(patch: pytest.MonkeyPatch, room: int) -> None:
    """Lets no file grow beyond ``room`` bytes: what fits is written, then the disk is full."""
    write = Path.write_bytes

    def write_what_fits(path: Path, content: bytes) -> int:
        if len(content) <= room:
            return write(path, content)
        write(path, content[:room])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(Path, "write_bytes", write_what_fits)


@pytest.mark.parametrize("verb", MAKING)
def test_no_room_to_begin_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    fill_disk(monkeypatch, 10)
    place.refused(*MAKING[verb], words=("no room", "made", "free"))


@pytest.mark.parametrize("verb", FINISHED)
def test_no_room_for_the_weights_can_be_resumed(place: Place, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    command = (*FINISHED[verb], "--out", "made")
    before = contents(place.folder)
    with monkeypatch.context() as patch:
        fill_disk(patch, 20_000)
        answer = place.call(*command)
    assert answer.code == 2
    line = answer.err.splitlines()[-1]
    assert "no room" in line
    assert "--resume" in line
    assert before.items() <= contents(place.folder).items()
    assert not [name for name in contents(place.folder) if name.endswith((".part", ".new"))]
    place.well(*command, "--resume")
    model = "model/" if verb == "run" else ""
    expected = Path(FINISHED[verb][-1], f"{model}weights.safetensors")
    assert Path("made", f"{model}weights.safetensors").read_bytes() == expected.read_bytes()


def test_no_room_for_a_table(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_disk(monkeypatch, 100)
    line = place.refused(*PREDICT, "--out", "table.csv", words=("no room", "table.csv", "free"))
    assert "--resume" not in line, "predict has no such option"


def test_interrupting_a_prediction_does_not_speak_of_resume(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("hoarfrost.training.learner.Learner.predict_proba", interrupt)
    answer = place.call(*PREDICT)
    assert answer.code == 130
    assert answer.err.strip() == "hoarfrost: interrupted"


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """The real command, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hoarfrost", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_a_reader_that_leaves_early(place: Place) -> None:
    # More than a pipe holds, so that the command notices.
    np.savez("many.npz", images=np.zeros((9000, 8, 8), np.uint8))
    with start("predict", "model2", "many.npz") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"path,class,probability,kind\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, -signal.SIGPIPE)


def test_nobody_reads_the_progress(place: Place) -> None:
    with start(*FIT, "--epochs", "30") as process:
        assert process.stderr is not None
        assert b"epoch 1/30" in process.stderr.readline()
        process.stderr.close()
    assert process.returncode != 0 or Path("made", "model.json").is_file(), "it says that all is well"


# ---------------------------------------------------------------------------------------------------------------------
# What must not be refused
# ---------------------------------------------------------------------------------------------------------------------


def only_json(text: str) -> dict[str, Any]:
    """The text as one JSON object without NaN."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(constant)

    content: dict[str, Any] = json.loads(text, parse_constant=refuse)
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        (FIT, {"model", "images", "classes", "backbone"}),
        (DISCOVER, {"model", "images", "new", "old"}),
        (PREDICT, {"model", "predictions"}),
        (EVALUATE, {"images", "joint", "original_rt"}),
        (RUN, {"method", "dataset", "split", "seed", "hardware", "seconds", "stage_one", "steps"}),
        (DEMO, {"method", "dataset", "split", "seed", "hardware", "seconds", "stage_one", "steps"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_json_is_one_object_and_nothing_else(place: Place, command: Words, keys: set[str]) -> None:
    content = only_json(place.well(*command, "--json").out)
    assert keys <= content.keys()
    if command in (RUN, DEMO):
        assert content == only_json(Path("made/metrics.json").read_text())


@pytest.mark.parametrize("out", [None, "table.csv"])
def test_predictions_are_a_table(place: Place, out: str | None) -> None:
    answer = place.well(*PREDICT, *([] if out is None else ["--out", out]))
    text = answer.out if out is None else Path(out).read_text()
    assert text.splitlines()[0] == "path,class,probability,kind"
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["path"] for row in rows] == sorted(str(path) for path in Path("unsorted").iterdir())
    assert all(1 / 5 <= float(row["probability"]) <= 1 for row in rows)
    assert all(row["kind"] == ("new" if row["class"].startswith("new-") else "old") for row in rows)


NAMES = ("a, b", 'the "best" one', "猫 und Kätzchen", " spaces ", "it's", "50% off; $HOME", "<b>")


def test_names_of_any_kind(place: Place) -> None:
    for digit, name in enumerate(NAMES):
        shutil.copytree("checked/" + str(digit % 5), Path("any where", name))
    place.well("fit", "any where", "--out", "mo del", "--epochs", "1")
    assert json.loads(Path("mo del/model.json").read_text())["class_names"] == sorted(NAMES)
    rows = list(csv.DictReader(io.StringIO(place.well("predict", "mo del", "any where").out)))
    assert {Path(row["path"]).parent.name for row in rows} == set(NAMES)
    assert {row["class"] for row in rows} <= set(NAMES)
    assert place.well("evaluate", "mo del", "any where").out
    place.well("discover", "mo del", *DISCOVER[2:])


@pytest.mark.parametrize("inside", ["a class", "its images"])
def test_names_that_are_no_text(place: Place, inside: str) -> None:
    """Old archives bring names in other encodings."""
    name = os.fsdecode(b"caf\xe9")
    try:
        if inside == "a class":
            Path("known/0").rename(Path("known", name))
        else:
            Path("known/0/0.png").rename(Path("known/0", f"{name}.png"))
    except OSError:
        pytest.skip("this file system takes no such names")
    assert place.call(*FIT).code in (0, 2)
    answer = place.call("predict", "model2", "known", "--out", "table.csv")
    assert answer.code in (0, 2)
    assert Path("table.csv").exists() == (answer.code == 0)
    assert len(answer.err.splitlines()) <= 1


def test_images_of_all_kinds(place: Place) -> None:
    for digit in range(2):
        digits = digit_images(digit, 0, 8)
        folder = Path("mixed", str(digit))
        folder.mkdir(parents=True)
        digits[0].convert("RGBA").save(folder / "alpha.png")
        digits[1].convert("LA").save(folder / "gray-alpha.png")
        digits[2].convert("P").save(folder / "palette.gif")
        digits[3].convert("1").save(folder / "bilevel.png")
        digits[4].resize((31, 17)).convert("CMYK").save(folder / "print.jpg")
        digits[5].resize((9, 40)).save(folder / "tall.bmp")
        digits[6].resize((100, 100)).convert("RGB").save(folder / "large.webp")
        Image.fromarray(np.asarray(digits[7]).astype(np.uint16) * 257).save(folder / "sixteen-bit.png")
    answer = place.well("fit", "mixed", *FIT[2:])
    assert "warning" not in answer.err
    predictions = only_json(place.well("predict", "made", "mixed", "--json").out)["predictions"]
    assert len(predictions) == 16
    assert all(0 <= row["probability"] <= 1 for row in predictions)
    place.well("discover", "made", "mixed", "--novel", "2", "--epochs", "1", "--out", "made2")


def test_arrays_from_start_to_end(place: Place) -> None:
    images = np.stack([np.asarray(image) for digit in range(5) for image in digit_images(digit, 0, 8)])
    labels = np.repeat(np.arange(5), 8)
    np.savez("labelled.npz", images=images[labels < 3], labels=labels[labels < 3])
    np.savez("unlabelled.npz", images=images[labels >= 3])
    np.savez("all.npz", images=images, labels=labels)
    place.well("fit", "labelled.npz", "--out", "made", "--epochs", "1")
    place.well("discover", "made", "unlabelled.npz", "--novel", "2", "--epochs", "1", "--out", "made2")
    rows = only_json(place.well("predict", "made2", "all.npz", "--json").out)["predictions"]
    assert [row["path"] for row in rows] == [str(index) for index in range(40)]
    assert only_json(place.well("evaluate", "made2", "all.npz", "--json").out)["images"] == 40
    place.refused("fit", "unlabelled.npz", "--out", "other", words=("unlabelled.npz", "labels"))


def test_a_model_never_holds_what_is_no_number(place: Place) -> None:
    answer = place.call(*FIT, "--set", "fit.learning_rate=1e30")
    assert answer.code == 2
    assert "learning rate" in answer.err.splitlines()[-1]
    assert not Path("made").exists()
