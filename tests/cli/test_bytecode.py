"""Where bytecode is kept: asked of a Python that is started for it, with a torch that is one line long."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hoarfrost
from hoarfrost.cli import bytecode

ASK = """
import sys
from hoarfrost.cli.bytecode import keep_bytecode
keep_bytecode()
import subprocess, torch
child = "import sys, torch; print(sys.pycache_prefix, sys.dont_write_bytecode)"
import os
print(sys.pycache_prefix, sys.dont_write_bytecode, *([torch.version] if "ALSO" in os.environ else []))
sys.stdout.flush()
subprocess.run([sys.executable, "-c", child], check=True)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages."""
    (tmp_path / "site" / "torch").mkdir(parents=True)
    (tmp_path / "site" / "torch" / "__init__.py").write_text("version = 1\n")
    return tmp_path / "site"


def answer(site: Path, **environment: str) -> list[str]:
    """What the process and one that it starts say of where bytecode goes."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    source = Path(hoarfrost.__file__).parents[1]
    told = {"PYTHONPATH": f"{site}:{source}", "XDG_CACHE_HOME": str(site.parent / "cache"), **environment}
    done = subprocess.run([sys.executable, "-c", ASK], env={**inherited, **told}, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().splitlines()


def test_bytecode_is_kept_where_there_is_none_and_none_may_be_written(site: Path) -> None:
    said = answer(site, PYTHONDONTWRITEBYTECODE="1")
    (kept,) = (site.parent / "cache" / "hoarfrost" / "bytecode").iterdir()
    assert said == [f"{kept} False"] * 2
    assert [path.name.partition(".")[0] for path in kept.rglob("torch/*.pyc")] == ["__init__"]
    assert not (site / "torch" / "__pycache__").exists()


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is no other core")
def test_other_cores_compile_ahead_the_first_time(site: Path) -> None:
    for name in ("later.py", "tests/never.py"):
        (site / "torch" / name).parent.mkdir(exist_ok=True)
        (site / "torch" / name).write_text("version = 2\n")
    cache = site.parent / "cache" / "hoarfrost" / "bytecode"

    def kept() -> set[str]:
        return {path.name.partition(".")[0] for path in cache.rglob("torch/**/*.pyc")}

    answer(site, PYTHONDONTWRITEBYTECODE="1")
    until = time.monotonic() + 30
    while kept() != {"__init__", "later"} and time.monotonic() < until:
        time.sleep(0.05)
    assert kept() == {"__init__", "later"}
    (site / "torch" / "newer.py").write_text("version = 3\n")
    answer(site, PYTHONDONTWRITEBYTECODE="1")
    time.sleep(1)
    assert kept() == {"__init__", "later"}, "once is enough"


def test_python_is_left_alone_where_it_keeps_bytecode_itself(site: Path) -> None:
    assert answer(site) == ["None False"] * 2
    assert (site / "torch" / "__pycache__").exists()
    assert answer(site, PYTHONDONTWRITEBYTECODE="1") == ["None True"] * 2, "there is some"
    assert not (site.parent / "cache").exists()


def test_a_place_of_ones_own_stays(site: Path) -> None:
    own = str(site.parent / "own")
    assert answer(site, PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX=own) == [f"{own} True"] * 2


def test_a_read_only_installation(site: Path) -> None:
    (site / "torch").chmod(0o555)
    try:
        if os.access(site / "torch", os.W_OK):
            pytest.skip("nothing is read-only to this user")
        assert all(line.endswith("False") and "hoarfrost" in line for line in answer(site))
    finally:
        (site / "torch").chmod(0o755)


def test_no_place_to_keep_it_is_no_harm(site: Path) -> None:
    (site.parent / "file").touch()
    none = ["None True"] * 2
    assert answer(site, PYTHONDONTWRITEBYTECODE="1", XDG_CACHE_HOME=str(site.parent / "file")) == none
    assert answer(site, PYTHONDONTWRITEBYTECODE="1", XDG_CACHE_HOME="", HOME="~") == none


def test_other_versions_have_a_place_of_their_own(site: Path) -> None:
    source = site / "torch" / "__init__.py"
    for version in ("2.11", "2.13"):
        source.write_text(f"version = '{version}'\n")
        os.utime(source, (1, 1))  # as where every file of an image has one time
        (site / f"torch-{version}.dist-info").mkdir()
        said = answer(site, PYTHONDONTWRITEBYTECODE="1", ALSO="1")
        assert said[0].endswith(version)
        (site / f"torch-{version}.dist-info").rmdir()
    assert len(list((site.parent / "cache" / "hoarfrost" / "bytecode").iterdir())) == 2


def test_of_several_that_start_at_once_one_compiles_ahead(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(site.parent / "cache"))
    with ThreadPoolExecutor(8) as several:
        found = list(several.map(bytecode._cache, [site] * 8))
    assert len({place for place, _ in found}) == 1
    assert sum(first for _, first in found) == 1
