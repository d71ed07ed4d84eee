"""Many draws of the same kind, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hoarfrost.data.images import usable_cores

MOST_THREADS = 4
"""since each takes memory of its own"""

Draw = TypeVar("Draw")
Found = TypeVar("Found")


def from_each(work: Callable[[Draw], Found], draws: Iterable[Draw], tell: Callable[[], None]) -> list[Found]:
    """What ``work`` finds in each of the draws, by some threads; ``tell`` is called after each.

    However many threads there are, the numbers are the same: products of matrices are left to one thread each.
    """
    from threadpoolctl import threadpool_limits

    found = []
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(min(usable_cores(), MOST_THREADS)) as pool:
        for one in pool.map(work, draws):
            found.append(one)
            tell()
    return found
