"""Many draws of the same kind, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from hoarfrost.data.images import usable_cores

MOST_THREADS = 4
"""since each takes memory of its own"""

Draw = TypeVar("Draw")
Found = TypeVar("Found")


def from_each(work: Callable[[Draw], Found], draws: Iterable[Draw], tell: Callable[[], None]) -> list[Found]:
    """What ``work`` finds in each of the draws, by some threads; ``tell`` is called after each.

    However many threads there are, the numbers are the same: products of matrices are left to one thread each.
    """
    found = []
    with (
        _controller().limit(limits=1, user_api="blas"),
        ThreadPoolExecutor(min(usable_cores(), MOST_THREADS)) as pool,
    ):
        for one in pool.map(work, draws):
            found.append(one)
            tell()
    return found


@cache
def _controller() -> Any:
    """Of the libraries that multiply matrices; to look for them takes a while."""
    import scipy.linalg  # noqa: F401 - which brings one of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
