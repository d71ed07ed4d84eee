"""``make check`` leaves out tests that exist."""

from __future__ import annotations

import re

from .conftest import SLOW
from .pages import ROOT


def test_the_slow_tests_are_tests() -> None:
    listed = SLOW.read_text().split()
    assert listed == sorted(set(listed))
    for name in listed:
        path, *_, function = name.split("::")
        if path.startswith("tests/"):  # the others are examples in docstrings
            assert re.search(rf"\bdef {function}\(", (ROOT / path).read_text()), name
