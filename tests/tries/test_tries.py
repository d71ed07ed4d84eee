"""Hostile inputs of each kind, and kills; ``python -m tests.tries`` tries as many as one likes."""

from __future__ import annotations

import sys

import pytest

from .inputs import KINDS
from .table import tried

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and ends of processes as Linux has them")

EACH = 100


def test_hostile_inputs_and_kills() -> None:
    """In one process, since what is tried takes a while to make."""
    counts = tried("--inputs", str(EACH * len(KINDS)), "--kills", str(EACH))
    assert counts == dict.fromkeys((*KINDS, "kills"), (EACH, 0))
