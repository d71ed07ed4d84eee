from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from hoarfrost.unsorted import draws
from hoarfrost.unsorted.draws import LARGE, MOST_THREADS, few_threads, from_each


@pytest.mark.parametrize(("cores", "size"), [(1, LARGE), (2, LARGE), (7, LARGE), (7, LARGE - 1)])
def test_threads_change_nothing(cores: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "usable_cores", lambda: cores)
    random = np.random.default_rng(0)
    matrices = [random.normal(size=(300, 200)) for _ in range(9)]
    told = list[int]()
    found = from_each(lambda matrix: matrix.T @ matrix, matrices, size=size, tell=lambda: told.append(len(told)))
    assert told == list(range(9))
    monkeypatch.setattr(draws, "usable_cores", lambda: 1)
    alone = from_each(lambda matrix: matrix.T @ matrix, matrices, size=LARGE, tell=lambda: None)
    for matrix, one, other in zip(matrices, found, alone, strict=True):
        assert (one == other).all(), "not even by rounding"
        np.testing.assert_allclose(one, np.einsum("ni,nj->ij", matrix, matrix), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [0, LARGE])
def test_an_error_is_not_lost(size: int) -> None:
    def work(number: int) -> int:
        if number == 2:
            raise ValueError("no")
        return number

    with pytest.raises(ValueError, match="no"):
        from_each(work, range(4), size=size, tell=lambda: None)


@pytest.mark.parametrize("before", [1, 3, 16])
def test_few_threads_are_no_more_than_there_were(before: int) -> None:
    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    draws._controller()  # which brings all of the libraries
    with threadpool_limits(before, user_api="blas"):
        (there,) = threads()  # a library may have fewer
        with few_threads():
            assert threads() == {min(there, MOST_THREADS)}
        assert threads() == {there}
