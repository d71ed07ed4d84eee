"""Runs side by side: each panel shows the numbers of its run."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.container import BarContainer

from hoarfrost.report import comparison
from hoarfrost.report.comparison import Compared


def run(title: str, *, known: int = 3, novel: tuple[int, ...] = (2,), seed: int = 0) -> Compared:
    generator, classes = np.random.default_rng(seed), known + sum(novel)
    return Compared(
        title=title,
        known=known,
        novel_per_step=novel,
        confusion=generator.integers(0, 9, (classes, classes)),
        weight_norms=generator.uniform(0.5, 2, classes),
    )


RUNS = [run(f"run {seed}", seed=seed) for seed in range(5)]


def test_norms_are_bars_on_one_scale() -> None:
    figure = comparison.norms(RUNS)
    assert [axes.get_title() for axes in figure.axes] == [f"run {seed}" for seed in range(5)]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    for axes, shown in zip(figure.axes, RUNS, strict=True):
        bars = [bar.get_height() for group in axes.containers if isinstance(group, BarContainer) for bar in group]
        assert bars == pytest.approx(shown.weight_norms)
        assert axes.get_ylim()[1] > max(bars)


def test_confusions_are_shares_of_the_true_class() -> None:
    figure = comparison.confusions(RUNS)
    for axes, shown in zip(figure.axes, RUNS, strict=False):
        drawn = np.asarray(axes.get_images()[0].get_array())
        assert np.allclose(drawn, 100 * shown.confusion / shown.confusion.sum(axis=1, keepdims=True))
        borders = [line for line in axes.get_lines() if line.get_gid() == "border"]
        assert len(borders) == 2
    assert len(figure.axes) == len(RUNS) + 1, "one scale for all"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_any_number_of_runs_has_room(count: int) -> None:
    shown = [run(f"run {seed}", known=80, novel=(10, 10), seed=seed) for seed in range(count)]
    for figure in (comparison.norms(shown), comparison.confusions(shown)):
        figure.draw_without_rendering()
        assert figure.get_size_inches()[0] < 9
