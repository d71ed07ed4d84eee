"""Every fit tries known classes as new ones, many times. Where no test looks at what that says, a few times will do."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

FEW = {
    "hoarfrost.unsorted.expectations": {"GAINS": 2, "DRAWS": 1, "FEW_DRAWS": 1},
    "hoarfrost.unsorted.mixed": {"FEW_STARTS": 2},
    "hoarfrost.unsorted.number": {"SUBSETS": 3},
}
"""how often, by the names of modules and of what they go by"""

now: Mapping[str, Mapping[str, int]] = {}
"""what of it holds in this process, and is to hold in those that are forked"""


def draw_few(patch: pytest.MonkeyPatch) -> None:
    """From now on a fit tries known classes as new ones a few times only."""
    from hoarfrost.training import expecting
    from hoarfrost.unsorted import expectations

    patch.setattr(sys.modules[__name__], "now", FEW)
    for module, counts in FEW.items():
        for name, count in counts.items():
            patch.setattr(sys.modules[module], name, count)
    patch.setattr(expecting, "EXPECTING", expectations.GAINS + sum(expectations.FOLDS) + expectations.DRAWS)
