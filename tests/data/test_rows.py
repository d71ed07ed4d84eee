"""Rows in a file, and what is computed of them when they are asked for."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from hoarfrost.data import rows as rows_module
from hoarfrost.data.rows import FeatureFile, Handle, Mapped, chunks, mapped

WHOLE = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)


@pytest.fixture(params=[True, False], ids=["at a place", "by seeking"])
def stored(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureFile:
    if not request.param:
        monkeypatch.delattr(os, "preadv", raising=False)
    path = tmp_path / "features"
    path.write_bytes(b"12345" + WHOLE.tobytes())
    with path.open("rb") as file:
        return FeatureFile(Handle(file), 5, 3, np.arange(50))


@pytest.mark.parametrize(
    "chosen",
    [
        slice(None),
        slice(3, 17),
        slice(0, 0),
        np.array([4, 4, 3, 40, 41, 42, 0]),
        np.arange(50) % 7 == 0,
        np.array([], dtype=np.int64),
    ],
    ids=str,
)
def test_rows_in_a_file_are_those_of_the_array(stored: FeatureFile, chosen: slice) -> None:
    assert stored.shape == (50, 3)
    some = stored[chosen]
    assert isinstance(some, FeatureFile)
    assert len(some) == len(WHOLE[chosen])
    np.testing.assert_array_equal(np.asarray(some), WHOLE[chosen])
    np.testing.assert_array_equal(np.asarray(some[::-2]), WHOLE[chosen][::-2])
    assert np.asarray(some, dtype=np.float64).dtype == np.float64


def test_they_go_to_another_process_as_an_array(stored: FeatureFile) -> None:
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(stored[5:9])), WHOLE[5:9])


def test_a_file_that_ends_too_early_is_no_end_without_words(tmp_path: Path) -> None:
    path = tmp_path / "features"
    path.write_bytes(WHOLE.tobytes()[:-1])
    with path.open("rb") as file:
        stored = FeatureFile(Handle(file), 0, 3, np.arange(50))
    np.testing.assert_array_equal(np.asarray(stored[:49]), WHOLE[:49])
    with pytest.raises(EOFError):
        np.asarray(stored)


def test_what_is_computed_of_many_rows_is_computed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "CHUNK", 16)
    seen: list[int] = []

    def doubled(rows: np.ndarray) -> np.ndarray:
        seen.append(len(rows))
        return 2 * rows

    few, many = mapped(WHOLE[:16], doubled), mapped(WHOLE, doubled)
    assert isinstance(few, np.ndarray)
    assert isinstance(many, Mapped)
    assert seen == [16]
    np.testing.assert_array_equal(np.asarray(many), 2 * WHOLE)
    assert seen == [16, 16, 16, 16, 2]
    np.testing.assert_array_equal(np.asarray(many[np.array([9, 2])]), 2 * WHOLE[[9, 2]])
    assert [len(part) for part in chunks(many)] == [16, 16, 16, 2]
    assert [len(part) for part in chunks(WHOLE[:0])] == [0]
    assert np.asarray(mapped(many, np.square), dtype=np.float64).dtype == np.float64
