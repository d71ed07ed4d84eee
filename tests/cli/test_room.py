"""No room on the disk, and nobody who reads."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from .place import FINISHED, FIT, MAKING, PREDICT, Place, contents


def fill_disk(patch: pytest.MonkeyPatch, room: int) -> None:
    """Lets no file grow beyond ``room`` bytes: what fits is written, then the disk is full."""
    write = Path.write_bytes

    def write_what_fits(path: Path, content: bytes) -> int:
        if len(content) <= room:
            return write(path, content)
        write(path, content[:room])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(Path, "write_bytes", write_what_fits)


@pytest.mark.parametrize("verb", MAKING)
def test_no_room_to_begin_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    fill_disk(monkeypatch, 10)
    place.refused(*MAKING[verb], words=("no room", "made", "free"))


@pytest.mark.parametrize("verb", FINISHED)
def test_no_room_for_the_weights_can_be_resumed(place: Place, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    command = (*FINISHED[verb], "--out", "made")
    before = contents(place.folder)
    with monkeypatch.context() as patch:
        fill_disk(patch, 20_000)
        answer = place.call(*command)
    assert answer.code == 2
    line = answer.err.splitlines()[-1]
    assert "no room" in line
    assert "--resume" in line
    assert before.items() <= contents(place.folder).items()
    assert not [name for name in contents(place.folder) if name.endswith((".part", ".new"))]
    place.well(*command, "--resume")
    model = "model/" if verb == "run" else ""
    expected = Path(FINISHED[verb][-1], f"{model}weights.safetensors")
    assert Path("made", f"{model}weights.safetensors").read_bytes() == expected.read_bytes()


def test_no_room_for_a_table(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_disk(monkeypatch, 100)
    line = place.refused(*PREDICT, "--out", "table.csv", words=("no room", "table.csv", "free"))
    assert "--resume" not in line, "predict has no such option"


def test_interrupting_a_prediction_does_not_speak_of_resume(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("hoarfrost.training.learner.Learner.predict_proba", interrupt)
    answer = place.call(*PREDICT)
    assert answer.code == 130
    assert answer.err.strip() == "hoarfrost: interrupted"


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """The real command, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hoarfrost", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_a_reader_that_leaves_early(place: Place) -> None:
    # More than a pipe holds, so that the command notices.
    np.savez("many.npz", images=np.zeros((9000, 8, 8), np.uint8))
    with start("predict", "model2", "many.npz") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"path,class,probability,kind\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, -signal.SIGPIPE)


def test_nobody_reads_the_progress(place: Place) -> None:
    with start(*FIT, "--epochs", "30") as process:
        assert process.stderr is not None
        assert b"epoch 1/30" in process.stderr.readline()
        process.stderr.close()
    assert process.returncode != 0 or Path("made", "model.json").is_file(), "it says that all is well"
