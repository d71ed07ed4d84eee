"""README.md and the pages about use keep their word: their commands and their Python are carried out."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hoarfrost import Learner
from hoarfrost.cli import parse
from hoarfrost.methods import METHODS
from hoarfrost.paper import plan

from . import forked
from .pages import ROOT, carry_out, commands_of, load, python_of

PAGES = [
    path.relative_to(ROOT).as_posix()
    for place in (ROOT, ROOT / "docs", ROOT / ".github")
    for path in place.glob("*.md" if place == ROOT else "**/*.md")
]
REVIEW = "hoarfrost review model2 --folder photos/unsorted"
EVERYDAY = ["fit", "discover", "name", "merge", "reject", "sort", "predict", "evaluate"]
BRIEF = {"fit.epochs": 1, "fit.drops": [], "discover.epochs": 1, "discover.drops": []}


def inline(page: str, begin: str) -> list[str]:
    """Commands within the sentences of a page."""
    return re.findall(rf"`({begin}[^`]*)`", (ROOT / page).read_text())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in the folders of which the pages speak."""
    photos = tmp_path_factory.mktemp("place") / "photos"
    load("examples/photographs.py").draw_folders(photos, each=6)
    for kind in ("discs", "stars"):
        shutil.copytree(photos / "checked" / kind, photos / "today" / kind)
    return photos.parent


@pytest.fixture
def place(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(folders, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = python_of("README.md")
    assert len(code.splitlines()) == 10
    monkeypatch.chdir(tmp_path)
    exec(compile(code.replace("seed=0)", f"seed=0, settings={BRIEF})"), "README.md", "exec"), {})
    assert "('0', '1', '2', '3', '4', 'new-1'" in capsys.readouterr().out


def test_the_way_from_a_folder_to_named_classes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [line for line in commands_of("README.md") if line[0] == "hoarfrost"]
    everyday = words[1:9]
    assert [line[1] for line in everyday] == EVERYDAY
    for line in everyday:
        carry_out(line)
    names = [path.name for path in (place / "photos" / "sorted").iterdir() if path.is_dir()]
    assert {"bars", "hibiscus", "rose"} <= set(names)
    assert not {"new-3", "new-4"} & set(names)
    header, *rows = (place / "today.csv").read_text().splitlines()
    assert header == "path,class,probability,kind"
    assert len(rows) == 12
    assert "hibiscus" in capsys.readouterr().out
    move, undo, review = inline("README.md", "hoarfrost ")
    assert (undo, review) == ("hoarfrost undo model2", REVIEW)
    image = sorted((place / "photos" / "unsorted").iterdir())[0]
    carry_out(move.replace("FILE", str(image)).split())
    assert "moved" in capsys.readouterr().out
    carry_out(undo.split())
    capsys.readouterr()
    parse(REVIEW.split()[1:])  # tests/review carries it out
    carry_out(["hoarfrost", "undo", "model2"])
    assert capsys.readouterr().out == "new-4 is a class again\n"


def test_the_other_commands_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "subprocess", SimpleNamespace(Popen=forked.Forked, DEVNULL=subprocess.DEVNULL))
    lines = [line for line in commands_of("README.md") if line[0] == "hoarfrost"]
    demo, run, reproduce = (lines[0], *lines[9:])
    brief = ["--set", "fit.epochs=1", "--set", "image_size=8", "--device", "cpu"]
    carry_out([*demo, *brief, "--set", "discover.epochs=1"])
    carry_out([*run, *brief, "--epochs", "1"])
    carry_out([*reproduce, *brief, "--epochs", "1"])
    assert (tmp_path / "runs" / "demo" / "report.html").exists()
    assert (tmp_path / "runs" / "frost" / "metrics.json").exists()
    assert list((tmp_path / "runs" / "reproduce").glob("table4*.md"))
    (larger,) = inline("README.md", "--dataset")
    assert parse([*run[1:], *larger.split()]).dataset == "cifar100"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_knows_what_it_is_asked_for(page: str) -> None:
    named = {line[1] for line in commands_of(page) if line[0] == "make"}
    named |= {words.removeprefix("make ") for words in inline(page, "make ")}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {"test"} < named <= targets


def test_its_installation_is_what_continuous_integration_does() -> None:
    steps = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    first = [" ".join(line) for line in commands_of("README.md") if line[0] != "hoarfrost"]
    assert first == ["python3 -m venv .venv && . .venv/bin/activate", "pip install -c constraints.txt ."]
    assert all(line in steps for line in first)


def test_the_guide(place: Path) -> None:
    lines = [line for line in commands_of("docs/guide.md") if line[0] == "hoarfrost"]
    assert len(lines) == 16
    for line in lines:
        assert parse(line[1:]).verb == line[1]
    shutil.copytree(place / "photos" / "unsorted", place / "photos" / "next-month")
    exec(compile(python_of("docs/guide.md"), "guide.md", "exec"), {})
    names = Learner.load(place / "model2").class_names
    assert "hibiscus" in names
    assert "new-3" in names
    assert "new-2" not in names


def test_the_commands_of_experiments_are_commands() -> None:
    lines = commands_of("docs/experiments.md")
    assert len(lines) == 10
    for line in lines:
        words = line[line.index("hoarfrost") + 1 :]
        assert parse(words).verb == words[0]


def test_the_methods_are_all_listed() -> None:
    text = (ROOT / "docs" / "methods.md").read_text()
    listed, _, _ = text.partition("## What decides")
    assert all(f"`{name}`" in listed for name in METHODS)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
    for target in targets:
        if not target.startswith("http"):
            assert (ROOT / page).parent.joinpath(target).exists(), target


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = {
        name
        for cell in re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", cell)
    }
    package = ROOT / "src" / "hoarfrost"
    assert len(named) > 15
    for name in named:
        assert (package / name).exists() or list(package.rglob(name)), name
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py", "__main__.py", "errors.py"}
    assert modules <= named


def test_the_guide_to_a_method_of_ones_own_works() -> None:
    code = python_of("docs/add-a-method.md")
    assert "seed=0)" in code
    code = code.replace("seed=0)", f'seed=0, device="cpu", settings={BRIEF})')
    code += """
from hoarfrost.config import Config
from hoarfrost.settings import from_json, to_json
assert from_json(Config, to_json(learner.config)) == learner.config
print(*(term.kind for term in learner.config.method.active))
"""
    # In a process of its own: a term that is defined is known from then on.
    done = forked.run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-3:] == ["agreement", "steady", "balance"]
