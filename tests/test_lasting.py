"""What is promised after a loss of power: what is finished was flushed to the disk before it took its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hoarfrost import store
from hoarfrost.cli import main

from .cli.place import save_digits


class Disk:
    """Notes what is flushed and what is renamed, in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str]] = []
        real_sync, real_rename, real_replace = os.fsync, Path.rename, Path.replace

        def sync(handle: int) -> None:
            self.events.append(("flushed", Path(f"/proc/self/fd/{handle}").readlink().name))
            real_sync(handle)

        def rename(path: Path, target: Path) -> Path:
            self.events.append(("renamed", Path(target).name))
            return real_rename(path, target)

        def replace(path: Path, target: Path) -> Path:
            self.events.append(("renamed", Path(target).name))
            return real_replace(path, target)

        patch.setattr(os, "fsync", sync)
        patch.setattr(Path, "rename", rename)
        patch.setattr(Path, "replace", replace)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    if not Path("/proc/self/fd").exists():
        pytest.skip("the names of open files are read from /proc")
    return Disk(monkeypatch)


def test_json_is_flushed_before_it_takes_its_name_and_its_folder_after(tmp_path: Path, disk: Disk) -> None:
    store.write_json(tmp_path / "metrics.json", {"a": 1})
    assert disk.events == [
        ("flushed", ".metrics.json.part"),
        ("renamed", "metrics.json"),
        ("flushed", tmp_path.name),
    ]


def test_a_folder_is_flushed_with_all_that_is_in_it_before_it_takes_its_name(tmp_path: Path, disk: Disk) -> None:
    with store.replaced_folder(tmp_path / "model") as new:
        (new / "weights").write_bytes(b"1")
        (new / "more").mkdir()
        (new / "more" / "names").write_bytes(b"2")
    place = disk.events.index(("renamed", "model"))
    flushed = {name for what, name in disk.events[:place] if what == "flushed"}
    assert {"weights", "names", "more", ".model.new"} <= flushed
    assert disk.events[place + 1 :] == [("flushed", tmp_path.name)]


def test_the_state_after_an_epoch_is_not_flushed(tmp_path: Path, disk: Disk) -> None:
    """It would cost time in every epoch, and what is lost of it is trained again."""
    import torch

    store.CheckpointFile(tmp_path / "stage-1.safetensors").save(3, {"a": torch.zeros(2)})
    assert disk.events == [("renamed", "stage-1.safetensors")]


def test_a_model_of_fit_is_flushed_before_it_takes_its_name(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_digits(tmp_path / "known", range(2), count=2)
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "known", "--out", "model", "--epochs", "1"]) == 0
    place = disk.events.index(("renamed", "model"))
    flushed = {name for what, name in disk.events[:place] if what == "flushed"}
    assert {"weights.safetensors", "prototypes.safetensors", "log.jsonl", "model.unfinished"} <= flushed
    assert ("flushed", tmp_path.name) in disk.events[place:]
