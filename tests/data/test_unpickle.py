"""Pickles from strangers."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from hoarfrost.data.unpickle import load_pickle
from hoarfrost.errors import InputError


def python2_pickle(array: bytes) -> bytes:
    """{"data": uint8 array (1, len)} as Python 2 and its numpy wrote it: protocol 2, byte strings, numpy.core."""
    count = len(array).to_bytes(1, "little")
    return (
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01K" + count + b"\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U" + count + array + b"tbs."
    )


def test_python2(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(python2_pickle(bytes([0, 127, 128, 255])))
    content = load_pickle(path)
    assert isinstance(content, dict)
    assert content["data"].dtype == np.uint8
    assert content["data"].tolist() == [[0, 127, 128, 255]]


def test_python3(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    array = np.arange(12, dtype=">i4").reshape(3, 4)
    path.write_bytes(
        pickle.dumps({"data": array, "labels": [1, 2], "nested": ({"a": None}, {3}, 2.5, "é")}, protocol=4)
    )
    content = load_pickle(path)
    assert isinstance(content, dict)
    np.testing.assert_array_equal(content["data"], array)
    assert content["labels"] == [1, 2]
    assert content["nested"] == ({"a": None}, {3}, 2.5, "é")


class Malicious:
    """Unpickling it would make a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_is_not_run(tmp_path: Path, protocol: int) -> None:
    path, target = tmp_path / "batch", tmp_path / "target"
    path.write_bytes(pickle.dumps({"data": Malicious(target)}, protocol=protocol))
    with pytest.raises(InputError, match=r"batch: it refers to posix\.mkdir"):
        load_pickle(path)
    assert not target.exists()
    pickle.loads(path.read_bytes())
    assert target.exists(), "the pickle of this test was harmless"


@pytest.mark.parametrize(
    "harmful",
    [b"cbuiltins\neval\n.", b"c__builtin__\neval\n.", b"cnumpy\nload\n.", b"ccopy_reg\n_reconstructor\n."],
)
def test_other_names_are_refused(tmp_path: Path, harmful: bytes) -> None:
    path = tmp_path / "batch"
    path.write_bytes(harmful)
    with pytest.raises(InputError, match=r"refused to load .*batch"):
        load_pickle(path)


def test_dotted_names_reach_nothing(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.")
    with pytest.raises(InputError, match=r"numpy\.ndarray\.__class__"):
        load_pickle(path)


def test_other_containers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(OrderedDict(a=1)))
    with pytest.raises(InputError, match=r"collections\.OrderedDict"):
        load_pickle(path)


@pytest.mark.parametrize("keep", range(0, 100, 7))
def test_truncated(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "batch"
    path.write_bytes(python2_pickle(b"\x00\x01\x02\x03")[:keep])
    with pytest.raises(InputError, match="batch is damaged or not a pickle"):
        load_pickle(path)


@pytest.mark.parametrize("seed", range(20))
def test_garbage(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "batch"
    path.write_bytes(b"\xff" + np.random.default_rng(seed).bytes(200))
    with pytest.raises(InputError, match="batch is damaged or not a pickle"):
        load_pickle(path)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*batch: No such file"):
        load_pickle(tmp_path / "batch")
