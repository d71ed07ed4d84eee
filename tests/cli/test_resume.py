"""Going on after an interruption."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from PIL import Image

from hoarfrost import Learner, store

from .place import DISCOVER, FINISHED, FIT, MAKING, RUN, Place, Words, contents, cut


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
        "hoarfrost: interrupted; continue with --resume"
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
def test_a_method_that_was_described_in_other_words_resumes(place: Place, verb: str) -> None:
    folder = Path(FINISHED[verb][-1])
    for file in filter(Path.is_file, (folder / "config.json", folder / "model.json")):
        content = json.loads(file.read_text())
        content["learner" if verb == "run" else "config"]["method"]["summary"] = "in other words"
        file.write_text(json.dumps(content))
    before = contents(place.folder)
    place.well(*FINISHED[verb], "--resume")
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


@pytest.mark.parametrize("at", ["unlink", "rename"])
@pytest.mark.parametrize("verb", ["fit", "discover"])
def test_a_kill_at_the_very_end_leaves_no_checkpoint(
    place: Place, monkeypatch: pytest.MonkeyPatch, verb: str, at: str
) -> None:
    original = getattr(Path, at)

    def kill(path: Path, *arguments: object, **options: object) -> object:
        if path.name == ("checkpoint.safetensors" if at == "unlink" else "made.unfinished"):
            raise KeyboardInterrupt
        return original(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, at, kill)
        assert place.call(*LONGER[verb]).code == 130
    place.refused(*LONGER[verb], "--resume", "--seed", "7", words=("seed", "0", "7"))
    place.well(*LONGER[verb], "--resume")
    assert not list(Path().rglob("checkpoint.safetensors"))
    assert {path.name for path in Path("made").iterdir()} == {path.name for path in Path(FINISHED[verb][-1]).iterdir()}
    assert not Path("made.unfinished").exists()
    Learner.load("made").save("made")


def test_a_checkpoint_that_an_earlier_version_left(place: Place) -> None:
    for folder in ("model", "model2"):
        Path(folder, "checkpoint.safetensors").write_bytes(b"left")
    Learner.load("model").save("model")
    assert not Path("model", "checkpoint.safetensors").exists()
    place.well(*FINISHED["discover"], "--resume")
    assert not Path("model2", "checkpoint.safetensors").exists()


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


def test_a_damaged_checkpoint_can_be_done_without(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.well(*LONGER["fit"], "--out", "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        assert place.call(*LONGER["fit"]).code == 130
    checkpoint = Path("made.unfinished", "checkpoint.safetensors")
    cut(checkpoint)
    place.refused(*LONGER["fit"], "--resume", words=("checkpoint.safetensors", "remove it", "train its stage again"))
    checkpoint.unlink()
    place.well(*LONGER["fit"], "--resume")
    assert Path("made/weights.safetensors").read_bytes() == Path("whole/weights.safetensors").read_bytes()


def test_a_reading_process_that_is_killed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system does it where memory is short; PyTorch hears of it wherever it is at that time."""
    save = store.CheckpointFile.save

    def save_and_kill(file: store.CheckpointFile, epochs: int, tensors: Mapping[str, torch.Tensor]) -> None:
        save(file, epochs, tensors)
        workers = torch.multiprocessing.active_children()
        assert workers
        os.kill(workers[0].pid or 0, signal.SIGKILL)
        workers[0].join()

    place.well(*LONGER["fit"], "--out", "whole", "--from-disk")
    with monkeypatch.context() as patch:
        patch.setattr(store.CheckpointFile, "save", save_and_kill)
        answer = place.call(*LONGER["fit"], "--from-disk")
    assert answer.code == 2
    assert [line for line in answer.err.splitlines() if "epoch " not in line or "--resume" in line] == [
        "hoarfrost: a process that reads images was killed, perhaps because memory ran out; continue with --resume"
    ]
    place.well(*LONGER["fit"], "--from-disk", "--resume")
    assert Path("made/weights.safetensors").read_bytes() == Path("whole/weights.safetensors").read_bytes()
