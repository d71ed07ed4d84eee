from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hoarfrost.cli import main

from ..drawn import draw_once
from .place import FINISHED, Place, save_digits


@pytest.fixture(scope="module", autouse=True)
def drawn() -> Iterator[None]:
    """Most commands here learn what others have learned before."""
    with pytest.MonkeyPatch.context() as patch:
        draw_once(patch)
        yield


@pytest.fixture(scope="session")
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
