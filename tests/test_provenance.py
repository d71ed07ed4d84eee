"""A result says what made it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from hoarfrost import provenance


def test_versions() -> None:
    assert provenance.describe()["versions"]["torch"] == torch.__version__


def test_the_commit_is_that_of_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HOARFROST_COMMIT", raising=False)
    home = tmp_path / "src" / "hoarfrost"
    home.mkdir(parents=True)
    module = home / "provenance.py"
    module.write_text("x = 1\n")
    monkeypatch.setattr(provenance, "__file__", str(module))
    assert provenance.commit() is None, "there is no repository"

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    assert provenance.commit() == git("rev-parse", "HEAD")
    module.write_text("x = 2\n")
    assert provenance.commit() == git("rev-parse", "HEAD") + "+"


def test_a_copy_without_a_repository_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOARFROST_COMMIT", "abc")
    assert provenance.commit() == "abc"
