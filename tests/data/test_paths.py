"""Paths in little memory."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoarfrost.data.paths import PathList

ODD_NAMES = ("a/1.png", "b/ü 漢.png", os.fsdecode(b"c/\xff\xfe.png"), "", "b/ü 漢.png")


@given(st.lists(st.binary(max_size=12)))
def test_any_names_survive(encoded: list[bytes]) -> None:
    names = [os.fsdecode(name) for name in encoded]
    paths = PathList(names)
    assert list(paths) == names
    assert [os.fsencode(path) for path in paths] == encoded
    assert paths == names
    assert pickle.loads(pickle.dumps(paths)) == paths


@given(st.lists(st.text("abc", max_size=3), min_size=1), st.data())
def test_take_as_a_tuple_would(names: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(-len(names), len(names) - 1)))
    taken = PathList(names).take(rows)
    assert isinstance(taken, PathList)
    assert taken == tuple(names[row] for row in rows)
    again = data.draw(st.lists(st.integers(0, len(rows) - 1) if rows else st.nothing()))
    assert taken.take(np.array(again, dtype=np.int64)) == tuple(names[rows[row]] for row in again)


def test_as_a_sequence() -> None:
    paths = PathList(ODD_NAMES)
    assert len(paths) == 5
    assert paths[2] == ODD_NAMES[2]
    assert paths[-1] == ODD_NAMES[-1]
    assert isinstance(paths[1:3], PathList)
    assert paths[1:3] == ODD_NAMES[1:3]
    assert paths.take(np.array([True, False, False, True, False])) == ("a/1.png", "")
    assert "a/1.png" in paths
    assert paths.index("") == 3
    assert not PathList()
    with pytest.raises(IndexError):
        paths[5]


def test_equality() -> None:
    paths = PathList(["a", "b"])
    for same in (("a", "b"), ["a", "b"], PathList(["a", "b"]), PathList(["b", "c", "a"]).take([2, 0])):
        assert paths == same
        assert same == paths
    for other in (("a",), ("a", "b", "c"), ("b", "a"), "ab", PathList(["ab"]), PathList(["", "ab"]), None, 3):
        assert paths != other


def test_it_stays_small() -> None:
    """Eight bytes beside the text; a part brings its places alone."""
    paths = PathList(f"class-{row % 10}/{row:06d}.jpg" for row in range(10_000))
    assert len(pickle.dumps(paths)) < 10_000 * (len("class-0/000000.jpg") + 8) + 1000
    assert "class-0/000010" in repr(paths.take([10, 2]))
    assert len(repr(paths)) < 100
