"""How many threads share the work on a folder: many draws of the same kind, side by side, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from hoarfrost.data.images import usable_cores

MOST_THREADS = 4
"""since each draw takes memory of its own, and many wait for each other"""
LARGE = 2**18
"""numbers that draws are of, from which on threads gain more than they take"""

Draw = TypeVar("Draw")
Found = TypeVar("Found")


def from_each(
    work: Callable[[Draw], Found], draws: Iterable[Draw], *, size: int, tell: Callable[[], None]
) -> list[Found]:
    """What ``work`` finds in each of the draws, which are of ``size`` numbers; ``tell`` is called after each.

    Threads share large ones. However many there are, they find the same: a product of matrices is left to one.
    """
    threads = min(usable_cores(), MOST_THREADS) if size >= LARGE else 1
    found = []
    with _controller().limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        for one in pool.map(work, draws) if threads > 1 else map(work, draws):
            found.append(one)
            tell()
    return found


@contextmanager
def few_threads() -> Iterator[None]:
    """Within the block few threads share a product of matrices.

    With one thread on each of many cores, all wait for the slowest, which is long where other processes are busy there.
    """
    now = [library["num_threads"] for library in _controller().select(user_api="blas").info()]
    with _controller().limit(limits=min([*now, MOST_THREADS]), user_api="blas"):
        yield


@cache
def _controller() -> Any:
    """Of the libraries that multiply matrices; to look for them takes a while."""
    import scipy.linalg  # noqa: F401 - which brings one of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
