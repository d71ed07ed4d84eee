"""A file that may not be read is not a missing one, and not a damaged one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hoarfrost import Learner
from hoarfrost.data.datasets import load_dataset, read_npz
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError

from .conftest import TINY
from .data.test_datasets import write_cifar10, write_tiny_imagenet

NOBODY = 65534


@contextmanager
def without_rights() -> Iterator[None]:
    """To the superuser no file is closed: within the block this process is nobody."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everyone may enter, unlike those of pytest."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def write_npz(folder: Path) -> None:
    np.savez(folder / "some.npz", images=np.zeros((4, 8, 8), np.uint8))


FILES: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "some.npz": (write_npz, lambda folder: read_npz(folder / "some.npz")),
    "cifar-10-batches-py/batches.meta": (write_cifar10, lambda folder: load_dataset("cifar10", folder)),
    "tiny-imagenet-200/wnids.txt": (write_tiny_imagenet, lambda folder: load_dataset("tiny-imagenet", folder)),
    "tiny-imagenet-200/val/val_annotations.txt": (
        write_tiny_imagenet,
        lambda folder: load_dataset("tiny-imagenet", folder),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_data(folder: Path, name: str) -> None:
    write, read = FILES[name]
    write(folder)
    read(folder)
    (folder / name).chmod(0)
    with without_rights(), pytest.raises(InputError, match=rf"cannot read .*{name}: Permission denied"):
        read(folder)


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors", "prototypes.safetensors"])
def test_a_model(folder: Path, digits: tuple[ImageSet, ImageSet], name: str) -> None:
    learner = Learner(backbone="small", device="cpu", settings={**TINY, "fit.epochs": 1})
    learner.fit(digits[0]).save(folder / "model")
    Learner.load(folder / "model")
    (folder / "model" / name).chmod(0)
    with without_rights(), pytest.raises(PermissionError, match=name):
        Learner.load(folder / "model")
