"""Unfinished model folders."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import suppress
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from hoarfrost import store
from hoarfrost.computing.processes import Processes
from hoarfrost.errors import InputError
from hoarfrost.training.work import CHECKPOINT, WRITTEN, workspace


@pytest.mark.parametrize("resume", [True, False])
def test_nobody_else_works_on_a_model_that_somebody_is_at_work_on(resume: bool, tmp_path: Path) -> None:
    out, content = tmp_path / "model", {"format": store.FORMAT}
    with workspace(out, content, resume=False, processes=Processes()) as unfinished:
        (unfinished / "model.json").write_text("{}")
        with (
            pytest.raises(InputError, match=r"another command is at work in .*model\.unfinished"),
            workspace(out, content, resume=resume, processes=Processes()),
        ):
            pass
    assert (out / "model.json").exists()
    with workspace(tmp_path / "other", content, resume=resume, processes=Processes()):
        pass


@pytest.mark.parametrize("name", WRITTEN)
def test_a_folder_in_the_place_of_a_file_is_seen_before_the_work(name: str, tmp_path: Path) -> None:
    out, content = tmp_path / "model", {"format": store.FORMAT}
    with suppress(RuntimeError), workspace(out, content, resume=False, processes=Processes()) as unfinished:
        (unfinished / CHECKPOINT).write_bytes(b"an epoch")
        raise RuntimeError("killed")
    (unfinished / name).mkdir()
    with (
        pytest.raises(InputError, match=rf"{name} is a folder instead of a file: move it away"),
        workspace(out, content, resume=True, processes=Processes()),
    ):
        pytest.fail("nothing is begun")
    (unfinished / name).rmdir()
    with workspace(out, content, resume=True, processes=Processes()):
        pass


def live_on(there: Event) -> None:
    there.set()
    time.sleep(60)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_process_does_not_hold_on_to_a_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    there, content = context.Event(), {"format": store.FORMAT}
    lives_on = context.Process(target=live_on, args=(there,))
    try:
        with workspace(tmp_path / "model", content, resume=False, processes=Processes()):
            lives_on.start()
            assert there.wait(60)
        (tmp_path / "model").rename(tmp_path / "model.unfinished")  # the very folder that was worked in
        with workspace(tmp_path / "model", content, resume=True, processes=Processes()):
            pass
    finally:
        lives_on.kill()
        lives_on.join()
