"""Every fit tries known classes as new ones, many times. Where no test looks at what that says, a few times will do."""

from __future__ import annotations

import pytest

from hoarfrost.training import expecting
from hoarfrost.unsorted import expectations

GAINS, DRAWS = 3, 2


def draw_few(patch: pytest.MonkeyPatch) -> None:
    """From now on a fit tries known classes as new ones a few times only."""
    patch.setattr(expectations, "GAINS", GAINS)
    patch.setattr(expectations, "DRAWS", DRAWS)
    patch.setattr(expecting, "EXPECTING", GAINS + sum(expectations.FOLDS) + DRAWS)
