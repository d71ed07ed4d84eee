"""The README keeps its word."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hoarfrost.cli import parse
from hoarfrost.methods import METHODS

from . import forked

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    short = 'seed=0, settings={"fit.epochs": 1, "fit.drops": [], "discover.epochs": 1, "discover.drops": []})'
    exec(compile(code.replace("seed=0)", short), "README.md", "exec"), {})
    assert "('0', '1', '2', '3', '4', 'new-1'" in capsys.readouterr().out
    assert (tmp_path / "model" / "model.json").exists()


def test_its_commands_are_commands() -> None:
    commands = re.findall(r"^(?:torchrun .* -m )?hoarfrost (.*?)(?: {3,}.*| > .*)?$", README, flags=re.MULTILINE)
    assert len(commands) == 16
    for command in commands:
        assert parse(command.split()).verb in command


def test_it_names_every_method() -> None:
    assert all(f"`{name}`" in README for name in METHODS)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
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
    text = (ROOT / "docs" / "add-a-method.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    settings = {"fit.epochs": 1, "fit.drops": [], "discover.epochs": 1, "discover.drops": []}
    assert "seed=0)" in code
    code = code.replace("seed=0)", f'seed=0, device="cpu", settings={settings})')
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
