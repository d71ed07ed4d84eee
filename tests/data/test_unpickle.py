"""Pickles from strangers."""

from __future__ import annotations

import contextlib
import os
import pickle
import tracemalloc
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hoarfrost.data import unpickle
from hoarfrost.data.unpickle import ArrayRecord, TypeRecord, load_pickle
from hoarfrost.errors import InputError

from ..hostile import mutated


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
    with pytest.raises(InputError, match=r"batch: it uses posix\.mkdir"):
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


MADE = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
"""an array of which nothing is said yet"""


def array(kind: bytes = b"u1", order: bytes = b"|", *, shape: bytes = b"K\x04\x85", content: bytes = b"abcd") -> bytes:
    """An array with what a pickle says of it."""
    described = b"cnumpy\ndtype\nU" + bytes([len(kind)]) + kind + b"K\x00K\x01\x87R"
    described += b"(K\x03U\x01" + order + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    return MADE + b"(K\x01" + shape + described + b"\x89U" + bytes([len(content)]) + content + b"tb"


HOSTILE = {
    "an element of an array is set": b"\x80\x02" + array() + b"K\x00K\x07s.",
    "elements of an array are set": b"\x80\x02" + array() + b"(K\x00K\x07K\x01K\x08u.",
    "an array is made again": b"\x80\x02" + array() + array()[len(MADE) :] + b".",
    "the type of an array has fields": b"\x80\x02cnumpy\ndtype\nU\x02V8K\x00K\x01\x87R"
    b"(K\x03U\x01|NU\x01a\x85}U\x01acnumpy\ndtype\nU\x02i8K\x00K\x01\x87RM\xff\xff\x86sK\x08K\x01K\x00tb.",
    "the type has another length than its name": b"\x80\x02" + MADE + b"(K\x01K\x01\x85"
    b"cnumpy\ndtype\nU\x02S1K\x00K\x01\x87R(K\x03U\x01|NNNJ\x00\x00\x00\x40K\x01K\x00tb\x89U\x01atb.",
    "an array of objects": b"\x80\x02" + MADE + b"(K\x01K\x01\x85"
    b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb\x89]K\x01atb.",
    "an array of text": b"\x80\x02" + array(b"S4", shape=b"K\x01\x85") + b".",
    "an array without a content": b"\x80\x02cnumpy\nndarray\nK\x05\x85\x85R.",
    "an array of itself": b"\x80\x02cnumpy\nndarray\n\x81.",
    "a type that is given attributes": b"\x80\x02cnumpy\ndtype\nN}U\x08metadataK\x01s\x86b.",
    "a type alone, changed": b"\x80\x02cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
    b"(K\x03U\x01|NNNK\x09K\x09K\x00tb(K\x01K\x02u.",
    "a length below 0": b"\x80\x02" + array(shape=b"J\xff\xff\xff\xff\x85") + b".",
    "more bytes than elements": b"\x80\x02" + array(shape=b"K\x03\x85") + b".",
    "fewer bytes than elements": b"\x80\x02" + array(shape=b"J\xff\xff\xff\x7f\x85") + b".",
    "a product beyond 64 bits": b"\x80\x02"
    + array(shape=b"J\x00\x00\x00\x40J\x00\x00\x00\x40J\x10\x00\x00\x00\x87")
    + b".",
    "keys that take for ever": b"\x80\x02}K\x01\x85" + b"2\x86" * 64 + b"K\x01s.",
    "a place that nothing was put to": b"\x80\x02h\x07.",
    "a word of the extension registry": b"\x80\x02\x82\x01.",
    "a word of its own": b"\x80\x02U\x01aQ.",
    "an instance": b"(inumpy\ndtype\n.",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_does_more_than_data_is_refused(tmp_path: Path, case: str) -> None:
    path = tmp_path / "batch"
    path.write_bytes(HOSTILE[case])
    with pytest.raises(InputError, match="batch"):
        load_pickle(path)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x80\x02Nr\xff\xff\xff\x0f.", id="a large place"),
        pytest.param(b"\x80\x02Np1000000000\n.", id="a large place as text"),
        pytest.param(b"\x80\x04N\x8e\xff\xff\xff\xff\x00\x00\x00\x00.", id="long bytes"),
        pytest.param(b"\x80\x04\x95\xff\xff\xff\xff\x00\x00\x00\x00N.", id="a long frame"),
        pytest.param(b"\x80\x02T\xff\xff\xff\x7f.", id="a long string"),
        pytest.param(b"\x80\x02\x8b\xff\xff\xff\x7f.", id="a long number"),
    ],
)
def test_lengths_and_places_take_no_memory(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "batch"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with contextlib.suppress(InputError):
            assert load_pickle(path) is None
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "batch"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(InputError, match=r"batch is damaged .*more than 1024 MiB"):
        load_pickle(path)


def test_many_small_parts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "batch"
    monkeypatch.setattr(unpickle, "MOST_INSTRUCTIONS", 4_000)
    path.write_bytes(b"\x80\x02" + b"]" * 4_001 + b".")
    with pytest.raises(InputError, match="batch: it has more than 4,000 objects"):
        load_pickle(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "batch")
    with pytest.raises(InputError, match=r"cannot read .*batch: Not a regular file"):
        load_pickle(tmp_path / "batch")


PLAIN = (dict, list, tuple, set, str, bytes, int, float, bool, type(None), np.ndarray)


def parts_of(content: object) -> Iterator[object]:
    """Everything in it, each once."""
    waiting, seen = [content], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting += [*part.items()] if isinstance(part, dict) else []
            waiting += part if isinstance(part, list | tuple | set) else []


@pytest.mark.parametrize("seed", range(200))
def test_changed_at_random(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "batch"
    whole = (
        pickle.dumps({"data": np.arange(12, dtype=np.uint8), "labels": [1, 2]}, protocol=4)
        if seed % 2
        else (python2_pickle(b"abcd"))
    )
    path.write_bytes(mutated(whole, seed))
    try:
        content = load_pickle(path)
    except InputError:
        return
    for part in parts_of(content):
        assert isinstance(part, (*PLAIN, ArrayRecord, TypeRecord)) or type(part) is object, "it can do something"
        if isinstance(part, np.ndarray):
            assert part.dtype.kind in "iuf"
