"""The examples run as they are."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from . import forked
from .pages import ROOT, carry_out, load

NOTEBOOK = ROOT / "examples" / "from-fit-to-the-page.ipynb"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def drawing_few() -> ModuleType:
    """The example, with half as many pictures."""
    photographs = load("examples/photographs.py")
    draw_folders = photographs.draw_folders
    photographs.__dict__["draw_folders"] = lambda out: draw_folders(out, each=6)
    return photographs


def test_photographs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["photographs.py", "--out", "made"])
    photographs = drawing_few()
    photographs.main()
    found, *named, right = capsys.readouterr().out.splitlines()
    assert found == "found: new-1, new-2, new-3, new-4"
    assert [line.partition(":")[0] for line in named] == [*photographs.NEW]
    assert right.startswith("right: 60 of 60, for example {'path': 'made/checked/arrows/00.png', 'class': 'arrows'")
    assert Path("made/model/model.json").exists()


def test_a_method_of_ones_own(tmp_path: Path) -> None:
    # In a process of its own: a term that is defined is known from then on.
    script = str(ROOT / "examples" / "own_method.py")
    done = forked.run([sys.executable, script, "--out", "made", "--epochs", "1"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\nfrost: Old " in done.stdout
    assert "\nfrost-balanced: Old " in done.stdout
    last = json.loads(Path("made/frost-balanced/log.jsonl").read_text().splitlines()[-1])
    assert last["terms"]["balance"] < 0


def test_other_commands_know_that_method(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "own_method.py").read_text()
    (line,) = (line.split() for line in text.splitlines() if line.strip().startswith("HOARFROST_IMPORT="))
    name, _, file = line[0].partition("=")
    command = [sys.executable, "-m", *line[1:], "--epochs", "1", "--fit-epochs", "1", "--set", "image_size=8"]
    done = forked.run(command, cwd=tmp_path, env={**os.environ, name: str(ROOT / file)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("frost-balanced on digits")


def test_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell by cell, with a stand-in for the picture frame of Jupyter."""
    shown: list[str] = []
    display = ModuleType("IPython.display")
    monkeypatch.setattr(display, "IFrame", lambda page, **_: shown.append(page), raising=False)
    for module in (ModuleType("IPython"), display, drawing_few()):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    place: dict[str, object] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs"), "clear the outputs before a commit"
        source = "".join(cell["source"])
        if source.startswith("!"):
            carry_out(shlex.split(source[1:]))
        elif cell["cell_type"] == "code":
            exec(compile(source, NOTEBOOK.name, "exec"), place)
    assert shown == ["model2/report.html"]
    assert Path(shown[0]).exists()
