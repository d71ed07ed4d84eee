from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hoarfrost.cli import main, options
from hoarfrost.review.server import Server
from hoarfrost.review.session import Session

from ..cli.place import save_digits
from .client import Client


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.02)


def session_in(folder: Path) -> Session:
    """Of the folder's model, with its images."""
    model = folder / "model2"
    return Session(model, folder / "unsorted", folder / "model2.thumbnails", options.features_of(model), "cpu")


@pytest.fixture(scope="session")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its images, and what the model says of them, made once. A class is called as no class should be."""
    folder = tmp_path_factory.mktemp("reviewed")
    save_digits(folder / "known", range(3))
    save_digits(folder / "unsorted", range(3, 5), flat=True)
    (folder / "unsorted" / "3-0.png").rename(folder / "unsorted" / '<img src=x onerror="document.title=1">.png')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", "known", "--out", "model", "--method", "kmeans", "--epochs", "10"]) == 0
        assert main(["discover", "model", "unsorted", "--out", "model2", "--novel", "2", "--epochs", "10"]) == 0
    with session_in(folder) as session:
        wait_for(lambda: session.groups is not None)
    wait_for((folder / "model2.thumbnails" / "judged.npz").exists)
    shutil.copy(folder / "model2" / "model.json", folder / "model.json")
    shutil.copy(folder / "model2.thumbnails" / "judged.npz", folder / "judged.npz")
    return folder


@pytest.fixture
def fresh(reviewed: Path) -> Path:
    """The same without any decision, and with what the model said of that."""
    shutil.copy(reviewed / "model.json", reviewed / "model2" / "model.json")
    shutil.copy(reviewed / "judged.npz", reviewed / "model2.thumbnails" / "judged.npz")
    (reviewed / "model2" / "decisions.jsonl").unlink(missing_ok=True)
    return reviewed


@pytest.fixture
def session(fresh: Path) -> Iterator[Session]:
    with session_in(fresh) as made:
        wait_for(lambda: made.groups is not None)
        yield made


@pytest.fixture
def server(session: Session) -> Iterator[Server]:
    with Server() as made:
        made.serve(session)
        yield made


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server)
