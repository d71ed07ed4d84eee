"""A package from outside brings a method with a term of its own, and is used as if it were part of this one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hoarfrost import plugins

from . import forked

THEIRS = """
from dataclasses import dataclass, replace
from typing import ClassVar

from hoarfrost.losses.terms import Term
from hoarfrost.methods import FROST


@dataclass(frozen=True, kw_only=True)
class Shorter(Term):
    kind: ClassVar[str] = "shorter-features"
    strength: float = 2.0

    def loss(self, inputs):
        return self.strength * inputs.features().square().mean()


THEIRS = replace(FROST, name="theirs", summary="FRoST with shorter features", paper="a paper of theirs",
                 terms=(*FROST.terms, Shorter(weight=0.01)))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the package as pip would leave it."""
    site = tmp_path / "site"
    package, info = site / "their_package", site / "their_package-1.0.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text(THEIRS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("their_package\n")
    (info / "entry_points.txt").write_text("[hoarfrost.methods]\ntheirs = their_package:THEIRS\n")
    return site


def hoarfrost(
    *arguments: str, site: Path | None, folder: Path, own: str | None = None
) -> subprocess.CompletedProcess[str]:
    paths = [str(site)] if site is not None else []
    paths += [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment |= {} if own is None else {plugins.OWN_FILES: own}
    command = [sys.executable, "-m", "hoarfrost", *arguments]
    return forked.run(command, cwd=folder, env=environment)


RUN = ("run", "--dataset", "digits", "--method", "theirs", "--epochs", "1", "--fit-epochs", "1", "--device", "cpu")


def test_a_method_from_outside_runs_is_saved_and_predicts(installed: Path, tmp_path: Path) -> None:
    listed = hoarfrost("methods", site=installed, folder=tmp_path)
    assert "a paper of theirs\n  theirs" in listed.stdout
    done = hoarfrost(*RUN, "--out", "run", "--json", site=installed, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["method"] == "theirs"
    assert "shorter-features" in done.stderr, "its loss is followed"
    images = tmp_path / "images"
    images.mkdir()
    write_image(images / "a.png")
    model = str(Path("run", "model"))
    predicted = hoarfrost("predict", model, "images", "--device", "cpu", site=installed, folder=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    assert predicted.stdout.startswith("path,class,probability,kind\n")

    without = hoarfrost("predict", model, "images", "--device", "cpu", site=None, folder=tmp_path)
    assert without.returncode == 2
    (line,) = without.stderr.splitlines()
    assert "shorter-features" in line
    assert "install their-package" in line
    assert "damaged" not in line


def test_a_file_of_ones_own_needs_no_package(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"{THEIRS}\nfrom hoarfrost.methods import METHODS\nMETHODS['theirs'] = THEIRS\n"
        "from hoarfrost import Learner\nLearner('theirs')\n"
    )
    listed = hoarfrost("methods", site=None, folder=tmp_path, own="mine.py")
    assert "a paper of theirs\n  theirs" in listed.stdout
    done = hoarfrost(*RUN, "--out", "run", site=None, folder=tmp_path, own="mine.py")
    assert done.returncode == 0, done.stderr
    write_image(tmp_path / "a.png")
    predict = ("predict", str(Path("run", "model")), "a.png", "--device", "cpu")
    assert hoarfrost(*predict, site=None, folder=tmp_path, own="mine.py").returncode == 0
    without = hoarfrost(*predict, site=None, folder=tmp_path)
    assert without.returncode == 2
    assert without.stderr.endswith("install mine, or set HOARFROST_IMPORT to its file\n")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("gone.py", None, "is not a Python file"),
        ("mine.py", "raise RuntimeError('no such thing')", "cannot be imported (line 1: no such thing)"),
        ("mine.py", "import os\nos.stat('/gone')", "cannot be imported (line 2: [Errno 2] No such file"),
        ("mine.py", "\n\nx = (", "cannot be imported (line 3: '(' was never closed"),
        ("random.py", "", "has the same name as a loaded module"),
    ],
)
def test_a_file_that_does_not_work_is_named(tmp_path: Path, name: str, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / name).write_text(content)
    done = hoarfrost(*RUN, "--out", "run", site=None, folder=tmp_path, own=str(Path("own", name)))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert name in line
    assert words in line


def write_image(path: Path) -> None:
    from PIL import Image

    Image.new("L", (16, 16), 128).save(path)


def test_without_the_package_its_method_is_unknown(tmp_path: Path) -> None:
    done = hoarfrost(*RUN, "--out", "run", site=None, folder=tmp_path)
    assert done.returncode == 2
    assert "unknown method 'theirs'" in done.stderr
    assert "HOARFROST_IMPORT=FILE" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("raise RuntimeError('no such thing')", "'theirs' of their-package cannot be imported (no such thing)"),
        ("THEIRS = 5", "provides no Method of that name"),
    ],
)
def test_a_package_that_does_not_work_is_named(installed: Path, tmp_path: Path, content: str, words: str) -> None:
    (installed / "their_package" / "__init__.py").write_text(content)
    done = hoarfrost(*RUN, "--out", "run", site=installed, folder=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert words in line
    assert hoarfrost("demo", "--help", site=installed, folder=tmp_path).returncode == 0, "others go on"


def test_what_is_installed_later_is_found(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = tmp_path / "later"
    later.mkdir()
    monkeypatch.syspath_prepend(later)
    assert "theirs" not in plugins.found(plugins.METHODS)
    shutil.copytree(installed, later, dirs_exist_ok=True)
    assert plugins.found(plugins.METHODS)["theirs"].value == "their_package:THEIRS"
    shutil.rmtree(later / "their_package-1.0.dist-info")
    assert "theirs" not in plugins.found(plugins.METHODS)
