"""Figures that set several runs side by side: pure functions, like those of one run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hoarfrost.report import figures

MOST_COLUMNS = 3


@dataclass(frozen=True)
class Compared:
    """What a figure shows of one run."""

    title: str
    known: int
    novel_per_step: tuple[int, ...]
    confusion: NDArray[np.int64]
    """(C, C) counts, rows true, columns predicted"""
    weight_norms: NDArray[np.floating[Any]]
    """(C,)"""

    @property
    def blocks(self) -> list[figures.ClassBlock]:
        """The labelled classes, and those of each step."""
        return figures.class_blocks(self.known, self.novel_per_step)


def norms(runs: Sequence[Compared], title: str = "") -> Figure:
    """Draw the lengths of the weight vectors that decide, on one scale."""
    figure = _figure(runs, 2.6, 2.3, title)
    highest = max(float(run.weight_norms.max()) for run in runs)
    for run, axes in _panels(figure, runs):
        figures.draw_norms(axes, run.weight_norms, run.blocks)
        axes.set_ylim(0, 1.08 * highest)
        axes.set_xticks([])
    for axes in figure.axes[::MOST_COLUMNS]:
        axes.set_ylabel("norm of the weights", color=figures.MUTED, fontsize=figures.SMALL)
    figures.draw_legend(figure, figure.axes[0], runs[0].blocks)
    return figure


def confusions(runs: Sequence[Compared], title: str = "") -> Figure:
    """Draw the confusion matrices, discovered classes by the clusters that they were matched to."""
    side = 2.5 if len(runs) > 2 else 3.4
    figure = _figure(runs, side, side + 0.3, title)
    images = []
    for number, (run, axes) in enumerate(_panels(figure, runs)):
        images.append(figures.draw_confusion(axes, run.confusion, run.blocks))
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(run.title, pad=14, color=figures.INK, fontsize=figures.SMALL + 1)
        if number + MOST_COLUMNS >= len(runs):
            axes.set_xlabel("predicted class", color=figures.MUTED, fontsize=figures.SMALL)
        if number % MOST_COLUMNS == 0:
            axes.set_ylabel("true class", color=figures.MUTED, fontsize=figures.SMALL)
    figures.draw_scale(figure, images[0], figure.axes)
    return figure


def _figure(runs: Sequence[Compared], width: float, height: float, title: str) -> Figure:
    columns, rows = min(len(runs), MOST_COLUMNS), math.ceil(len(runs) / MOST_COLUMNS)
    size = (0.8 + columns * width, 0.3 + rows * height + 0.2 * len(title.splitlines()))
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    if title:
        figure.suptitle(title, color=figures.INK, fontsize=figures.SMALL + 2)
    return figure


def _panels(figure: Figure, runs: Sequence[Compared]) -> Iterator[tuple[Compared, Axes]]:
    columns, rows = min(len(runs), MOST_COLUMNS), math.ceil(len(runs) / MOST_COLUMNS)
    for index, run in enumerate(runs, start=1):
        axes = figure.add_subplot(rows, columns, index, facecolor="white")
        figures.plain(axes)
        axes.set_title(run.title, color=figures.INK, fontsize=figures.SMALL + 1)
        yield run, axes
