"""Kills; ``python -m tests.tries`` tries as many as one likes."""

from __future__ import annotations

import sys

import pytest

from .table import tried

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and ends of processes as Linux has them")


def test_kills() -> None:
    assert tried("--inputs", "0", "--kills", "200") == {"kills": (200, 0)}
