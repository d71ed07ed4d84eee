"""Two processes on the CPU: one model, one set of files, and going on with another number of processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from hoarfrost import InputError, Learner, launch
from hoarfrost.cli import main
from hoarfrost.data.augment import Affine, Augment, Crop, ResizedCrop
from hoarfrost.data.images import ImageSet
from hoarfrost.data.sources import ImageSource, Normaliser, Share
from hoarfrost.launch import Launched

from ..cli.place import save_digits
from ..forked import Forked

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
CPU = torch.device("cpu")
SHORT = ("--fit-epochs", "2", "--epochs", "4", "--set", "image_size=8")
RUN = ("run", "--dataset", "folder", "--data", "few", "--split", "5-5", "--device", "cpu", "--json", *SHORT)


def free_port() -> int:
    """One at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(*arguments: str, more: Mapping[str, str] | None = None) -> list[Forked]:
    """Two processes with the environment that torchrun gives them, and ``more``."""
    port = free_port()
    told = {"TORCHELASTIC_RUN_ID": "test", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
    told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return [
        Forked(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **told, **(more or {}), "RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in ("0", "1")
    ]


def finished(processes: list[Forked], code: int = 0) -> tuple[str, str]:
    """What both printed, and what they said on standard error."""
    said = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [code, code], said
    return "".join(out for out, _ in said), "".join(error for _, error in said)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes wrote that fitted and discovered together."""
    folder = tmp_path_factory.mktemp("two")
    command = [*TORCHRUN, str(Path(__file__).with_name("two_processes.py")), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder with digits."""
    save_digits(tmp_path / "few", range(10), count=16)
    monkeypatch.chdir(tmp_path)


def both(left: Path, name: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return load_file(left / f"{name}-0.safetensors"), load_file(left / f"{name}-1.safetensors")


@pytest.mark.parametrize(
    "name",
    ["weights", "prototypes", "outputs", "gradients-shared", "restune", "ncl", "ncl-labelled", "dtc-te", "joint"],
)
def test_both_processes_hold_the_same(left: Path, name: str) -> None:
    first, second = both(left, name)
    assert first.keys() == second.keys()
    for key, tensor in first.items():
        assert torch.equal(tensor, second[key]), key


def test_a_shared_batch_has_the_gradients_of_the_whole(left: Path) -> None:
    shared, whole = (
        load_file(left / "gradients-shared-0.safetensors"),
        load_file(left / "gradients-whole-0.safetensors"),
    )
    assert shared.keys() == whole.keys()
    assert any("backbone" in key for key in whole)
    for key, gradient in whole.items():
        torch.testing.assert_close(shared[key], gradient, rtol=1e-4, atol=1e-6)


def test_what_two_processes_saved_is_what_one_loads(left: Path) -> None:
    learner = Learner.load(left / "model", device="cpu")
    images = np.random.default_rng(2).integers(0, 256, (7, 12, 12, 1), dtype=np.uint8)
    together, _ = both(left, "outputs")
    outputs = learner.outputs(ImageSet(images), features=True)
    np.testing.assert_allclose(outputs.scores, together["joint"].numpy(), rtol=1e-4, atol=1e-5)
    assert int(learner.model.statistics.count.sum()) == 45 + 37


def lines(folder: Path) -> list[tuple[int, int]]:
    path = folder / "log.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(entry["stage"], entry["epoch"]) for entry in entries]


EVERY_EPOCH = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]


def check_finished(folder: Path, printed: str) -> None:
    """Everything once, and as one process writes it."""
    assert lines(folder) == EVERY_EPOCH
    metrics = json.loads((folder / "metrics.json").read_text())
    assert json.loads(printed) == metrics
    assert 0 <= metrics["steps"][0]["joint"]["all"] <= 100
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "log.jsonl",
        "metrics.json",
        "model",
        "report.html",
    }


@pytest.mark.usefixtures("few")
def test_two_processes_go_on_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    processes = start("-m", "hoarfrost", *RUN, "--out", str(folder))
    deadline = time.monotonic() + 240
    while len(lines(folder)) < 4 and time.monotonic() < deadline and processes[0].poll() is None:
        time.sleep(0.02)
    for process in processes:
        process.kill()
    said = [process.communicate() for process in processes]
    assert (folder / "unfinished").is_dir(), said
    capsys.readouterr()
    assert main([*RUN, "--out", str(folder), "--resume"]) == 0
    told = capsys.readouterr()
    assert "epoch 1/2" not in told.err, "stage one was trained again"
    check_finished(folder, told.out)


@pytest.mark.usefixtures("few")
def test_one_process_goes_on_with_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hoarfrost.training.observers import LogFile

    def stop(log: LogFile, entry: dict[str, int], network: object) -> None:
        if (entry["stage"], entry["epoch"]) == (1, 2):
            raise KeyboardInterrupt
        write(log, entry, network)  # type: ignore[arg-type]

    folder, write = tmp_path / "run", LogFile.epoch_done
    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "epoch_done", stop)
        assert main([*RUN, "--out", str(folder)]) == 130
    printed, errors = finished(start("-m", "hoarfrost", *RUN, "--out", str(folder), "--resume"))
    told = [line for line in errors.splitlines() if " epoch " in line]
    assert told[0].startswith("discovering, step 1  epoch 3/4")
    check_finished(folder, printed)


@pytest.mark.usefixtures("few")
def test_a_refusal_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    printed, errors = finished(start("-m", "hoarfrost", *RUN, "--out", str(tmp_path / "taken")), code=2)
    assert printed == ""
    assert errors == f"hoarfrost: {tmp_path / 'taken'} already holds something else: choose another --out\n"


class TestShare:
    @pytest.mark.parametrize("augment", [Augment(), Crop(), Affine(), ResizedCrop()], ids=lambda a: a.kind)
    def test_parts_make_up_the_whole(self, augment: Augment) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (26, 12, 12, 3), dtype=np.uint8)
        images = ImageSet(pixels, np.arange(26, dtype=np.int64) % 2, ("a", "b"))

        def batches(share: Share) -> list[tuple[Tensor, Tensor]]:
            source = ImageSource(
                images,
                views=(augment, augment),
                batch_size=8,
                normaliser=Normaliser((0.5,) * 3, (0.2,) * 3, CPU),
                device=CPU,
                share=share,
            )
            found = []
            for batch in source.epoch(torch.Generator().manual_seed(3)):
                assert batch.labels is not None
                found.append((batch.images, batch.labels))
            return found

        parts = [batches(Share(rank, 2)) for rank in range(2)]
        for (whole, labels), (first, _), (second, same) in zip(batches(Share()), *parts, strict=True):
            views = [torch.cat(pair) for pair in zip(first.chunk(2), second.chunk(2), strict=True)]
            torch.testing.assert_close(torch.cat(views), whole)
            assert torch.equal(same, labels)

    def test_a_batch_is_rounded_to_what_can_be_shared(self) -> None:
        images = ImageSet(np.zeros((7, 8, 8, 1), dtype=np.uint8))
        normaliser = Normaliser((0.0,), (1.0,), CPU)
        source = ImageSource(
            images, views=(Augment(),), batch_size=8, normaliser=normaliser, device=CPU, share=Share(0, 2)
        )
        assert source.batch_size == 6
        with pytest.raises(InputError, match="7 images are too few for 8 processes"):
            ImageSource(images, views=(Augment(),), batch_size=8, normaliser=normaliser, device=CPU, share=Share(0, 8))


def test_the_first_process_speaks_and_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = list[float]()
    monkeypatch.setattr(time, "sleep", waited.append)
    for rank in range(3):
        Launched(rank, 3, 1).leave_it_to_the_first()
    assert waited == [launch.PATIENCE] * 2


class TestLaunched:
    @pytest.fixture(autouse=True)
    def bare(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in list(os.environ):
            if name.startswith(("SLURM_", "TORCHELASTIC_")):
                monkeypatch.delenv(name)

    def test_alone(self) -> None:
        assert Launched.detect() == Launched(0, 1, 1)

    def test_torchrun(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told = {"TORCHELASTIC_RUN_ID": "x", "RANK": "5", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8"}
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        launched = Launched.detect()
        assert (launched, launched.processes, launched.is_first) == (Launched(5, 4, 2), 8, False)

    def test_slurm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told = {"SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_PROCID": "0", "SLURM_JOB_NAME": "train"}
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        assert Launched.detect() == Launched(), "a script of sbatch is one process, whatever the job may start"
        monkeypatch.setenv("SLURM_STEP_ID", "0")
        monkeypatch.setenv("SLURM_PROCID", "3")
        assert Launched.detect() == Launched(3, 4, 2)
        monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
        monkeypatch.setenv("SLURM_STEP_NUM_NODES", "1")
        assert Launched.detect() == Launched(3, 2, 1), "a step may have fewer tasks than the job"
        monkeypatch.setenv("SLURM_JOB_NAME", "bash")
        assert Launched.detect() == Launched()
