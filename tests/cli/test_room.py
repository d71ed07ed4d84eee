"""No room on the disk, and nobody who reads."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch

from .. import forked
from ..forked import Forked
from .place import FINISHED, FIT, MAKING, PREDICT, Place, Words, contents


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
    place.refused(*MAKING[verb], words=("no space left", "made", "free"))


@pytest.mark.parametrize("verb", FINISHED)
def test_no_room_for_the_weights_can_be_resumed(place: Place, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    command = (*FINISHED[verb], "--out", "made")
    before = contents(place.folder)
    with monkeypatch.context() as patch:
        fill_disk(patch, 20_000)
        answer = place.call(*command)
    assert answer.code == 2
    line = answer.err.splitlines()[-1]
    assert "no space left" in line
    assert "--resume" in line
    assert before.items() <= contents(place.folder).items()
    assert not [name for name in contents(place.folder) if name.endswith((".part", ".new"))]
    place.well(*command, "--resume")
    model = "model/" if verb == "run" else ""
    expected = Path(FINISHED[verb][-1], f"{model}weights.safetensors")
    assert Path("made", f"{model}weights.safetensors").read_bytes() == expected.read_bytes()


def test_no_room_for_a_table(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_disk(monkeypatch, 100)
    line = place.refused(*PREDICT, "--out", "table.csv", words=("no space left", "table.csv", "free"))
    assert "--resume" not in line, "predict has no such option"


def test_interrupting_a_prediction_does_not_speak_of_resume(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("hoarfrost.training.learner.Learner.outputs", interrupt)
    answer = place.call(*PREDICT)
    assert answer.code == 130
    assert answer.err.strip() == "hoarfrost: interrupted"


LIMITED = """
import resource, sys
import torch
from hoarfrost.cli import main

kind, room = sys.argv[1], int(sys.argv[2])
if kind == "RLIMIT_AS":  # beyond what the process has already
    room += int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(getattr(resource, kind), (room, room))
sys.exit(main(sys.argv[3:]))
"""


def limited(kind: str, room: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The real command in a process that may have no more than so many bytes of something."""
    program = [sys.executable, "-c", LIMITED, kind, str(room), *arguments]
    one_thread = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
    }  # OpenMP ends the process where it finds no space left for another
    return forked.run(program, env=one_thread)


@pytest.mark.parametrize("room", [10, 100, 400])
@pytest.mark.parametrize("command", [FIT, PREDICT], ids=["fit", "predict"])
def test_memory_that_runs_out_is_one_line(place: Place, command: Words, room: int) -> None:
    if command is PREDICT:
        change_image_size(Path("model2"), 2048)
    else:
        command = (*command, "--image-size", "2048")
    before = contents(place.folder)
    done = limited("RLIMIT_AS", room << 20, *command)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("hoarfrost: out of memory: close other programs, or use smaller images or batches")
    assert contents(place.folder) == before


def change_image_size(model: Path, size: int) -> None:
    content = json.loads((model / "model.json").read_bytes())
    content["config"]["image_size"] = size
    (model / "model.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:113] data. DefaultCPUAllocator: not enough memory: you tried"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    ],
    ids=["numpy", "torch on a GPU", "a library on a GPU", "torch", "torch on ARM", "the system"],
)
def test_every_word_for_memory_that_runs_out(place: Place, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr("hoarfrost.training.learner.Learner.outputs", fail)
    place.refused(*PREDICT, words=("out of memory", "use smaller"))


def test_a_limit_of_size_is_not_a_permission(place: Place) -> None:
    done = limited("RLIMIT_FSIZE", 20_000, *FIT)
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert "made" in line
    assert "the limit on file size is too small" in line
    assert "ulimit -f" in line
    assert "permission" not in line
    assert line.endswith("then continue with --resume")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "check the permissions"),
        (errno.EROFS, "choose another place"),
        (errno.EMFILE, "raise the limit"),
        (errno.EIO, "check the disk"),
        (errno.ELOOP, "check the path"),
    ],
)
def test_what_helps_depends_on_what_is_wrong(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number), "somewhere")

    monkeypatch.setattr("hoarfrost.training.learner.Learner.outputs", fail)
    code, _, err = place.call(*PREDICT)
    assert (code, err) == (2, f"hoarfrost: somewhere: {os.strerror(number)}; {words}{err.partition(words)[2]}")


def start(*arguments: str) -> Forked:
    """The real command, in a process of its own."""
    return Forked([sys.executable, "-m", "hoarfrost", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


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
