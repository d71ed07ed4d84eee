"""``hoarfrost reproduce`` with real runs, as short as can be."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hoarfrost.cli import main
from hoarfrost.config import Config
from hoarfrost.methods import METHODS
from hoarfrost.paper import plan
from hoarfrost.paper.plan import JOBS_ON_GPU, MEMORY_OF_A_RUN
from hoarfrost.recipes import RECIPES
from hoarfrost.settings import to_json

from ..forked import Forked


def short(name: str) -> Config:
    return RECIPES["digits"].config(METHODS[name], 0).with_epochs(discover=1)


SET = ["--set", "fit.epochs=1", "--set", "image_size=8"]
SHORT = ["--dataset", "digits", "--epochs", "1", *SET, "--device", "cpu"]
CALLED = "fit-epochs-1-image-size-8"
BRIEF = f"{CALLED}-epochs1"
"""how files and folders call that"""


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are begun as processes that import nothing anew."""
    monkeypatch.setattr(plan, "subprocess", SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL))


@pytest.mark.usefixtures("forking")
def test_a_table_is_made_and_what_is_there_is_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "all"
    command = ["reproduce", "tableA3", *SHORT, "--out", str(out), "--json"]
    assert main([*command, "--jobs", "2"]) == 0
    said = capsys.readouterr()
    content = json.loads(said.out)
    assert [row["method"] for row in content["rows"]] == ["restune", "frost"]
    assert all(len(row["scores"]["All, RT"]["ours"]) == 1 for row in content["rows"])
    assert "[2/2]" in said.err
    assert "failed" not in said.err
    for ending in ("md", "csv", "tex"):
        assert (out / f"tableA3-digits-{BRIEF}.{ending}").read_text()
    assert len(list((out / "shared").iterdir())) == 1
    before = {path: path.stat().st_mtime_ns for path in (out / "digits-5-5").rglob("*")}

    assert main(command) == 0
    again = capsys.readouterr()
    assert again.err == ""
    assert json.loads(again.out) == content
    assert {path: path.stat().st_mtime_ns for path in (out / "digits-5-5").rglob("*")} == before

    assert main([*command[:-1], "--dry-run"]) == 0
    listed = capsys.readouterr().out
    assert listed.count("finished") == 2
    assert listed.endswith("2 runs, about 0 s if run one after the other\n")

    for name in ("frost-without-fd-fr", "frost-without-st"):  # finished ones, under another name
        shutil.copytree(out / "digits-5-5" / f"frost-{BRIEF}-seed0", out / "digits-5-5" / f"{name}-{BRIEF}-seed0")
        config = out / "digits-5-5" / f"{name}-{BRIEF}-seed0" / "config.json"
        content = json.loads(config.read_text())
        content["learner"]["method"] = to_json(METHODS[name]) | {"terms": to_json(short(name).method.terms)}
        config.write_text(json.dumps(content))
    assert main(["reproduce", "figure4", *SHORT, "--out", str(out)]) == 0
    assert f"figure4-digits-{BRIEF}.png" in capsys.readouterr().out
    drawn = (out / f"figure4-digits-{BRIEF}.png").read_bytes()
    assert drawn.startswith(b"\x89PNG")
    assert (out / f"figure4-digits-{BRIEF}.pdf").read_bytes().startswith(b"%PDF")
    (out / f"figure4-digits-{BRIEF}.png").unlink()
    assert main(["reproduce", "figure-norms", *SHORT, "--out", str(out)]) == 0, "what it was called before"
    capsys.readouterr()
    assert (out / f"figure4-digits-{BRIEF}.png").read_bytes() == drawn

    assert main(["reproduce", "tableA3", "figure4", *SHORT, "--out", str(out), "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert [table["table"] for table in both["tables"]] == ["tableA3", "figure4"]
    assert both["failed"] == []
    assert main(["reproduce", "tableA3", "figure4", *SHORT, "--out", str(out), "--dry-run", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 4, "a run that is in both is one run"

    older = out / "digits-5-5" / f"frost-without-st-{BRIEF}-seed0" / "metrics.json"
    content = json.loads(older.read_text())
    del content["steps"][0]["weight_norms"]
    older.write_text(json.dumps(content))
    (out / f"figure4-digits-{BRIEF}.png").unlink()
    assert main(["reproduce", "figure4", "tableA3", *SHORT, "--out", str(out), "--json"]) == 1
    said = capsys.readouterr()
    assert f"frost-without-st-{BRIEF}-seed0 cannot be drawn: " in said.err
    both = json.loads(said.out)
    assert both["failed"] == [f"digits-5-5/frost-without-st-{BRIEF}-seed0"]
    assert [len(table["files"]) for table in both["tables"]] == [2, 3], "the others are drawn, and the table is printed"
    assert (out / f"figure4-digits-{BRIEF}.png").exists()

    assert main(["reproduce", "figureA1", "figureA2", "figureA3", *SHORT, "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "1 of 3 runs to do" in said.err, "only the one of two steps is not there yet"
    for name in ("figureA1", "figureA2", "figureA3"):
        assert (out / f"{name}-digits-{BRIEF}.png").read_bytes().startswith(b"\x89PNG")


def test_what_will_be_done_is_listed_and_not_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "table1", "--dataset", "digits", "--seeds", "2", "--device", "cpu"]
    assert main([*command, "--out", str(tmp_path / "out"), "--dry-run", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert len(content["runs"]) == 12
    assert content["seconds"] > 20
    first, second = (run["seconds"] for run in content["runs"][:2])
    assert first > second, "stage one is counted once"
    assert not (tmp_path / "out").exists()

    assert main(["reproduce", "figure5", *command[2:], "--out", str(tmp_path), "--dry-run", "--json"]) == 0
    names = [run["run"] for run in json.loads(capsys.readouterr().out)["runs"]]
    assert names, "figures have runs"
    assert all(name.endswith("seed0") for name in names), "a figure shows one seed"


@pytest.mark.usefixtures("forking")
def test_a_failed_run_leaves_the_others_their_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "all"
    place = out / "digits-5-5" / f"restune-{BRIEF}-seed0"
    place.mkdir(parents=True)
    (place / "letter.txt").write_text("somebody's own")
    assert main(["reproduce", "tableA3", *SHORT, "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert f"restune-{BRIEF}-seed0 failed, see" in said.err
    assert "a run failed; fix the cause, then run the same command again" in said.err
    assert (place / "letter.txt").exists()
    rows = [line for line in said.out.splitlines() if line.startswith(("ResTune", "FRoST"))]
    assert "–" in rows[0]
    assert "–" not in rows[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table1", "table9"], "unknown table or figure 'table9'"),
        (["table1", "--dataset", "cifar"], "did you mean 'cifar10'"),
        (["table1", "--seeds", "0"], "expected a whole number above 0"),
        (["table1", "--dataset", "cifar10", "--data", "nowhere"], "nowhere"),
        (["table1", "--device", "gpu"], "did you mean 'cuda'"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(["reproduce", *arguments])
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr().err
    assert code == 2
    assert message in said
    assert len(said.strip().splitlines()) == 1


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Ray cluster on this machine, started as people start one; it asks for no token, also where there is one."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray = Path(sys.executable).with_name("ray")
    if not ray.exists():
        pytest.skip("Ray is not installed")
    command = [str(ray), "start", "--head", "--block", "--port", "0", "--num-cpus", "2", "--num-gpus", "0"]
    said = tmp_path / "said.txt"
    with said.open("w") as file:  # no pipe: what it starts would hold it open
        head = subprocess.Popen([*command, "--include-dashboard", "false"], stdout=file, stderr=file)
    try:
        yield address_in(said, head)
    finally:  # this one, and no other on this machine
        head.terminate()
        head.wait(60)


def address_in(said: Path, head: subprocess.Popen[bytes]) -> str:
    """Where the cluster is, once it says so."""
    until = time.monotonic() + 120
    while time.monotonic() < until and head.poll() is None:
        if "To terminate" in said.read_text() and (found := re.search(r"--address='([^']+)'", said.read_text())):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(said.read_text())


def test_runs_go_to_a_cluster(cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "all"
    command = ["reproduce", "tableA3", *SHORT, "--out", str(out), "--ray", cluster, "--jobs", "2", "--json"]
    assert main(command) == 0
    content = json.loads(capsys.readouterr().out)
    assert [row["seeds"] for row in content["rows"]] == [[0], [0]]
    assert sorted(path.name for path in (out / "logs").iterdir()) == [
        f"digits-5-5-frost-{BRIEF}-seed0.log",
        f"digits-5-5-restune-{BRIEF}-seed0.log",
    ]


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    command = ["reproduce", "tableA3", *SHORT, "--out", str(tmp_path / "all"), "--ray", "127.0.0.1:1"]
    assert main(command) == 2
    assert "there is no Ray cluster at '127.0.0.1:1'" in capsys.readouterr().err.splitlines()[-1]


def test_help_names_the_usual_number_of_runs_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"default: {JOBS_ON_GPU} on a GPU, fewer below {JOBS_ON_GPU * MEMORY_OF_A_RUN >> 30} GiB" in said


@pytest.mark.usefixtures("forking")
def test_a_table_in_the_papers_variant_and_with_other_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = ["--variant", "paper", "--set", "discover.learning_rate=0.05"]
    command = ["reproduce", "tableA3", *SHORT, *changed, "--out", str(tmp_path), "--json"]
    assert main(command) == 0
    content = json.loads(capsys.readouterr().out)
    assert Path(content["files"][0]).name == f"tableA3-digits-paper-{CALLED}-discover-learning-rate-0-05-epochs1.md"
    (folder,) = tmp_path.glob("digits-5-5/frost-*")
    assert folder.name == f"frost-paper-{CALLED}-discover-learning-rate-0-05-epochs1-seed0"
    written = json.loads((folder / "config.json").read_text())
    assert written["variant"] == json.loads((folder / "metrics.json").read_text())["variant"] == "paper"
    assert written["learner"]["discover"]["learning_rate"] == 0.05
    assert written["learner"]["method"]["terms"]["pairwise"]["similarity"] == "logistic"
    assert main([*command, "--dry-run"]) == 0
    assert [run["finished"] for run in json.loads(capsys.readouterr().out)["runs"]] == [True, True]
    for wrong, word in (("--variant=papr", "did you mean 'paper'"), ("--set=discover.rate=1", "discover.rate")):
        assert main([*command[:2], *SHORT, wrong, "--out", str(tmp_path / "new")]) == 2
        assert word in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


FORKING = """
import subprocess, sys, types
from hoarfrost.cli import main
from hoarfrost.paper import plan
from tests.forked import Forked
plan.subprocess = types.SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL)
sys.exit(main(sys.argv[1:]))
"""
"""a command whose runs are begun as above"""


def test_two_commands_in_one_folder_share_the_runs_and_both_end_well(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, "reproduce", "tableA3", *SHORT, "--out", str(tmp_path), "--json"]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    both = [Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) for _ in range(2)]
    said = [process.communicate(timeout=400) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    tables = [json.loads(out) for out, _ in said]
    assert tables[0]["rows"] == tables[1]["rows"]
    assert all(len(row["scores"]["All"]["ours"]) == 1 for row in tables[0]["rows"])
    assert any("is running in another command" in err for _, err in said)
    starts = sum(err.count(" started") for _, err in said)
    assert starts <= 4, "a run that another command is at work on is waited for, not tried again and again"
