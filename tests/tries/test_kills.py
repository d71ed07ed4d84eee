"""200 kills; ``python -m tests.tries`` tries as many as one likes."""

from __future__ import annotations

from .table import tried


def test_kills() -> None:
    assert tried("--inputs", "0", "--kills", "200") == {"kills": (200, 0)}
