"""Files that were written here and then damaged: one line with the file's name, for whatever reads them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hoarfrost import experiment
from hoarfrost.cli import main
from hoarfrost.forms import METRICS
from hoarfrost.paper.plan import Planned

from ..data.test_bounds import in_time
from ..hostile import mutated
from ..paper.finished import finished_metrics
from ..paper.test_plan import finish
from .place import FINISHED, PREDICT, Build, Place, Words, contents
from .test_resume import LONGER, stop_after

NOT_JSON = {
    "nested deeply": b"[" * 100_000,
    "nested deeply and whole": b'{"a":' * 300 + b"1" + b"}" * 300,
    "a number of 5,000 digits": b'{"format": ' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"format": "\xff"}',
    "NaN": b'{"format": NaN}',
    "half a character": b'{"format": "\\ud800"}',
    "too large": b" " * (65 << 20),
    "empty": b"",
}


@pytest.mark.parametrize("case", NOT_JSON)
@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        ("model2/model.json", PREDICT),
        ("model/config.json", (*FINISHED["fit"], "--resume")),
        ("run/config.json", (*FINISHED["run"], "--resume")),
        ("run/metrics.json", (*FINISHED["run"], "--resume")),
    ],
)
def test_what_is_not_json(place: Place, file: str, arguments: Words, case: str) -> None:
    Path(file).write_bytes(NOT_JSON[case])
    place.refused(*arguments, words=(file, "damaged"))


@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        ("model2/model.json", PREDICT),
        ("model2/weights.safetensors", PREDICT),
        ("run/metrics.json", (*FINISHED["run"], "--resume")),
    ],
)
def test_a_pipe_is_not_waited_for(place: Place, file: str, arguments: Words) -> None:
    Path(file).unlink()
    os.mkfifo(file)
    with in_time():
        code, _, err = place.call(*arguments)
    assert (code, err) == (2, f"hoarfrost: {file}: Not a regular file; check the path\n")


def without(content: Any, *path: str | int) -> Any:
    """A copy that lacks something."""
    copy = json.loads(json.dumps(content))
    *above, last = path
    for key in above:
        copy = copy[key]
    del copy[last]
    return copy


def paths_in(form: Any, before: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where something is expected."""
    if isinstance(form, list):
        return paths_in(form[0], (*before, 0))
    if not isinstance(form, dict):
        return []
    needed = {key: part for key, part in form.items() if not key.endswith("?")}
    return [path for key, part in needed.items() for path in [(*before, key), *paths_in(part, (*before, key))]]


def change(content: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """The content with something in another's place; without it where the value is ``...``."""
    copy = json.loads(json.dumps(content))
    place, (*above, last) = copy, path
    for key in above:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return copy


@pytest.mark.parametrize("path", paths_in(METRICS), ids=str)
@pytest.mark.parametrize("value", [..., [[]], {"a": 1}, True], ids=["missing", "a list", "an object", "true"])
def test_the_scores_of_a_finished_run(place: Place, path: tuple[str | int, ...], value: Any) -> None:
    file = Path("run/metrics.json")
    file.write_text(json.dumps(change(json.loads(file.read_text()), path, value)))
    place.refused(*FINISHED["run"], "--resume", words=("run/metrics.json", "damaged", str(path[-1])))


@pytest.mark.parametrize("path", paths_in(METRICS), ids=str)
def test_reproduce_does_a_run_again_whose_scores_are_damaged(path: tuple[str | int, ...], tmp_path: Path) -> None:
    run = Planned("a", "digits", "5-5")
    finish(tmp_path, run, run.config())
    assert run.metrics(tmp_path) is not None
    (tmp_path / "a" / "metrics.json").write_text(json.dumps(change(finished_metrics(), path, ...)))
    assert run.metrics(tmp_path) is None


MISFITS: list[tuple[tuple[str | int, ...], Any]] = [
    (("trained",), [[]]),
    (("trained",), [{"networks": 1}]),
    (("split",), "5"),
    (("split",), "5-3-2"),
    (("steps",), []),
    (("steps", 0, "calibrated"), 3),
    (("steps", 0, "new_by_step_novel"), []),
    (("steps", 0, "new_by_step_joint"), [1.0, 2.0]),
    (("steps", 0, "confusion"), [3]),
    (("steps", 0, "weight_norms"), {}),
]


@pytest.mark.parametrize(("path", "value"), MISFITS, ids=str)
def test_scores_that_do_not_belong_together(
    path: tuple[str | int, ...], value: Any, place: Place, tmp_path: Path
) -> None:
    run = Planned("a", "digits", "5-5")
    finish(tmp_path, run, run.config())
    (tmp_path / "a" / "metrics.json").write_text(json.dumps(change(finished_metrics(), path, value)))
    assert run.metrics(tmp_path) is None
    file = Path("run/metrics.json")
    file.write_text(json.dumps(change(json.loads(file.read_text()), path, value)))
    place.refused(*FINISHED["run"], "--resume", words=("run/metrics.json", "damaged", str(path[0])))


@pytest.mark.parametrize("case", NOT_JSON)
@pytest.mark.parametrize("name", ["config.json", "metrics.json"])
def test_reproduce_does_a_run_again_whose_files_are_no_json(name: str, case: str, tmp_path: Path) -> None:
    run = Planned("a", "digits", "5-5")
    finish(tmp_path, run, run.config())
    (tmp_path / "a" / name).write_bytes(NOT_JSON[case])
    assert run.metrics(tmp_path) is None


@pytest.fixture(scope="module")
def unfinished(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What such a run leaves, made once."""
    folder = tmp_path_factory.mktemp("unfinished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(finished)
        stop_after(patch, 2)
        assert main((*LONGER["run"], "--out", str(folder / "made"))) == 130
    return folder / "made"


@pytest.fixture
def interrupted(unfinished: Path, place: Place) -> Place:
    """A run with its stage one and an epoch of its discovery done."""
    shutil.copytree(unfinished, "made")
    return place


@pytest.mark.parametrize(
    "line",
    [b"{}", b"5", b"[]", b"\xff", b'{"stage": 0}', b"[" * 100_000, b"9" * 5000, b'{"stage": NaN}', b""],
    ids=lambda line: line[:20].decode("latin1"),
)
def test_a_line_of_the_log(interrupted: Place, line: bytes) -> None:
    log = Path("made/log.jsonl")
    first, *rest = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(first + line + b"\n" + b"".join(rest))
    interrupted.refused(*LONGER["run"], "--resume", words=("made/log.jsonl", "damaged", "line 2"))


def test_a_last_line_that_a_kill_cut_short_does_not_matter(interrupted: Place) -> None:
    log = Path("made/log.jsonl")
    log.write_bytes(log.read_bytes()[:-20])
    interrupted.well(*LONGER["run"], "--resume")
    assert [json.loads(line)["epoch"] for line in log.open()] == [0, 1], "that of the epoch that was cut is gone"


def test_how_a_stage_was_computed(place: Place) -> None:
    file = Path("run/metrics.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"trained": [[], {}]}))
    place.refused(*FINISHED["run"], "--resume", words=("run/metrics.json", "damaged", "trained[0]"))


def test_a_log_that_lost_its_end_after_the_last_stage(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a loss of power leaves it: the stages are flushed to the disk, the log is not."""
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert place.call(*LONGER["run"]).code == 130
    log = Path("made/log.jsonl")
    log.write_bytes(log.read_bytes()[:-20])
    answer = place.well(*LONGER["run"], "--resume")
    assert "made/log.jsonl lacks 1 of 2 epochs of stage 1" in answer.err
    assert [json.loads(line)["epoch"] for line in log.open()] == [0, 0]


def test_the_log_of_a_method_that_fits_again_has_the_epochs_of_stage_one(place: Place) -> None:
    answer = place.well(*LONGER["run"], "--method", "supervised", "--fit-epochs", "3")
    assert "lacks" not in answer.err
    assert [json.loads(line)["stage"] for line in Path("made/log.jsonl").read_text().splitlines()] == [0, 0, 0, 1, 1, 1]


RECORDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "without seconds": lambda record: without(record, "seconds"),
    "without a score": lambda record: without(record, "stage_one"),
    "seconds are text": lambda record: {**record, "seconds": "long"},
    "nothing": lambda _: {},
}


@pytest.mark.parametrize("case", RECORDS)
def test_the_record_of_a_stage(interrupted: Place, case: str) -> None:
    file = Path("made/unfinished/stage-0/record.json")
    file.write_text(json.dumps(RECORDS[case](json.loads(file.read_text()))))
    interrupted.refused(*LONGER["run"], "--resume", words=(str(file), "damaged"))


def test_the_assignment_in_the_record_of_a_stage(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hoarfrost.experiment.report_data", kill)
        assert place.call(*LONGER["run"], "--device", "cpu").code == 130
    file = Path("made/unfinished/stage-1/record.json")
    record = json.loads(file.read_text())
    for assignment in ([0, 0], [0, 5], [0], [0, 1, 2], [-1, 0]):
        file.write_text(json.dumps({**record, "assignment": assignment}))
        place.refused(*LONGER["run"], "--resume", words=(str(file), "damaged", "assignment"))
    file.write_text(json.dumps(record))
    place.well(*LONGER["run"], "--resume")


def change_tensors(name: str, **changes: Callable[[Any], Any]) -> Build:
    def apply(model: Path) -> None:
        tensors = load_file(model / name)
        for key, function in changes.items():
            found = next(found for found in tensors if found == key or found.endswith(key))
            tensors[found] = np.ascontiguousarray(function(tensors[found]))
        save_file(tensors, model / name)

    return apply


def with_nan(array: Any) -> Any:
    array.flat[0] = np.nan
    return array


WEIGHTS, PROTOTYPES = "weights.safetensors", "prototypes.safetensors"
TENSORS: dict[str, tuple[Build, Words]] = {
    "NaN weights": (change_tensors(WEIGHTS, **{"joint.weight": with_nan}), (WEIGHTS, "NaN or infinite")),
    "infinite weights": (change_tensors(WEIGHTS, **{"joint.bias": lambda b: b + np.inf}), (WEIGHTS, "NaN or infinite")),
    "a NaN of the backbone": (change_tensors(WEIGHTS, **{"running_var": with_nan}), (WEIGHTS, "NaN or infinite")),
    "weights of another type": (
        change_tensors(WEIGHTS, **{"joint.weight": lambda w: w.astype(np.float64)}),
        (WEIGHTS, "joint.weight"),
    ),
    "NaN means": (change_tensors(PROTOTYPES, mean=with_nan), (PROTOTYPES, "NaN or infinite")),
    "a variance below 0": (change_tensors(PROTOTYPES, variance=lambda v: v - 1e6), (PROTOTYPES, "below 0")),
    "variances of another shape": (change_tensors(PROTOTYPES, variance=lambda v: v[:, :3]), ("prototypes",)),
    "counts of another shape": (change_tensors(PROTOTYPES, count=lambda c: c[:2]), ("prototypes",)),
    "counts in another number of axes": (change_tensors(PROTOTYPES, count=lambda c: c[:, None]), ("prototypes",)),
}


@pytest.mark.parametrize("case", TENSORS)
@pytest.mark.parametrize("verb", ["predict", "discover"])
def test_tensors_of_a_model(place: Place, verb: str, case: str) -> None:
    build, words = TENSORS[case]
    build(Path("model2"))
    arguments = PREDICT if verb == "predict" else ("discover", "model2", "unsorted", "--novel", "2", "--out", "made")
    place.refused(*arguments, words=("model2", "damaged", *words))


def test_weights_that_are_numbers_and_give_none(place: Place) -> None:
    change_tensors(WEIGHTS, **{"joint.weight": lambda w: w * 0 + 3e38})(Path("model2"))
    place.refused(*PREDICT, words=("model2", "NaN or infinite scores", "again"))


@pytest.mark.parametrize("case", ["cut", "more epochs", "no epochs", "NaN", "other names", "other shapes"])
def test_the_state_of_a_stage(interrupted: Place, case: str) -> None:
    file = Path("made/unfinished/stage-1.safetensors")
    tensors, epochs = load_file(file), {"more epochs": "99", "no epochs": "-1"}.get(case, "1")
    first = next(name for name in tensors if name.startswith("network.joint"))
    if case == "NaN":
        tensors[first] = with_nan(tensors[first])
    elif case == "other names":
        tensors[f"{first}-other"] = tensors.pop(first)
    elif case == "other shapes":
        tensors[first] = np.zeros((1, 1), np.float32)
    save_file(tensors, file, {"epochs": epochs, "format": "1"})
    if case == "cut":
        file.write_bytes(file.read_bytes()[:-9])
    interrupted.refused(*LONGER["run"], "--resume", words=(str(file), "damaged", "remove it"))


FUZZED = {
    "model2/model.json": PREDICT,
    "model2/weights.safetensors": PREDICT,
    "model2/prototypes.safetensors": PREDICT,
    "run/metrics.json": (*FINISHED["run"], "--resume"),
    "run/config.json": (*FINISHED["run"], "--resume"),
    "model/config.json": (*FINISHED["fit"], "--resume"),
}


@pytest.mark.parametrize("file", FUZZED)
def test_changed_at_random(place: Place, file: str) -> None:
    """A changed file is refused in one line, or is still one that can be read."""
    whole = Path(file).read_bytes()
    for seed in range(34):
        Path(file).write_bytes(mutated(whole, seed))
        before = contents(place.folder)
        code, _, err = place.call(*FUZZED[file])
        assert code in (0, 2), f"seed {seed}: {err}"
        if code == 2:
            assert err.startswith("hoarfrost: "), f"seed {seed}: {err}"
            assert err.count("\n") == 1, f"seed {seed}: {err}"
        assert contents(place.folder) == before, f"seed {seed}"


def test_a_shelf_that_is_damaged(place: Place) -> None:
    place.well(*FINISHED["run"], "--out", "first", "--share", "shelf")
    (model,) = Path("shelf").iterdir()
    shutil.copy(model / "record.json", "record")
    for content in (b"[" * 100_000, b'{"stage_one": "good", "seconds": 1}', b'{"stage_one": 1}'):
        (model / "record.json").write_bytes(content)
        place.refused(*FINISHED["run"], "--out", "made", "--share", "shelf", words=(model.name, "damaged", "remove"))
    shutil.copy("record", model / "record.json")
    log = (model / "log.jsonl").read_bytes()
    (model / "log.jsonl").write_text("5\n")
    place.refused(*FINISHED["run"], "--out", "made", "--share", "shelf", words=(model.name, "damaged", "remove"))
    (model / "log.jsonl").write_bytes(log)
    content = json.loads((model / "model.json").read_text())
    content["config"]["backbone"] = "resnet18"
    (model / "model.json").write_text(json.dumps(content))
    place.refused(*FINISHED["run"], "--out", "made", "--share", "shelf", words=(model.name, "damaged", "remove"))


@pytest.mark.parametrize(("verb", "file"), [("fit", "made.unfinished/config.json"), ("run", "made/config.json")])
def test_a_pipe_where_the_configuration_was(
    place: Place, monkeypatch: pytest.MonkeyPatch, verb: str, file: str
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        assert place.call(*LONGER[verb]).code == 130
    Path(file).unlink()
    os.mkfifo(file)
    with in_time():
        code, _, err = place.call(*LONGER[verb], "--resume")
    assert code == 2
    assert file.partition("/")[0] in err
