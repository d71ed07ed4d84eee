"""Draws docs/sorting.png: made-up features in two dimensions, and what the sorter makes of them.

python -m tools.sorting_picture
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hoarfrost.sorting.folder import Sorter, sort_folder
from hoarfrost.sorting.hiding import CHANCE, USUAL, USUAL_ALONE
from hoarfrost.sorting.space import KnownClasses

PICTURE = Path(__file__).parents[1] / "docs" / "sorting.png"
KNOWN = np.array([[-14.0, 8.0], [0.0, -12.0], [13.0, 9.0]])
NEW = np.array([[-12.0, -9.0], [14.0, -7.0]])
STRANGE = np.array([[1.0, 13.0]])
BLUE, ORANGE, GREY = ("#173f73", "#2f7ac0", "#5f9fdc"), ("#c2410c", "#d98a1f"), "#777777"


def scattered(centres: NDArray[Any], each: int, random: np.random.Generator) -> NDArray[Any]:
    """So many points about each centre."""
    return np.repeat(centres, each, axis=0) + random.normal(scale=1.8, size=(len(centres) * each, 2))


def main() -> None:
    """Sorts, draws and writes."""
    random = np.random.default_rng(0)
    labelled, ids = scattered(KNOWN, 30, random), np.repeat(np.arange(3), 30)
    folder = np.concatenate([scattered(KNOWN, 15, random), scattered(NEW, 15, random), scattered(STRANGE, 3, random)])
    found = sort_folder(KnownClasses.of(labelled, ids), folder, Sorter(USUAL, USUAL_ALONE, CHANCE))
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    before, after = figure.subplots(1, 2, sharex=True, sharey=True)
    before.set_title("a folder beside three known classes", fontsize=10)
    before.scatter(*folder.T, s=12, color=GREY)
    after.set_title(f"sorted: {found.novel} new classes, {found.strange.sum()} strange images")
    after.title.set_fontsize(10)
    colours = [*BLUE, *ORANGE]
    after.scatter(*folder[~found.strange].T, s=12, color=[colours[own] for own in found.labels[~found.strange]])
    after.scatter(*folder[found.strange].T, s=24, color=GREY, marker="x")
    for number in range(found.novel):
        name(after, folder[found.labels == len(KNOWN) + number].mean(axis=0), f"new-{number + 1}", ORANGE[number])
    for axes in (before, after):
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_ylim(-22, 18)
        for number in range(len(KNOWN)):
            mean = labelled[ids == number].mean(axis=0)
            axes.scatter(*mean, s=90, marker="+", color=BLUE[number], linewidths=2)
            name(axes, mean, f"known {number + 1}", BLUE[number])
    figure.savefig(PICTURE, format="png")


def name(axes: Axes, at: NDArray[Any], words: str, colour: str) -> None:
    """Writes the name of a class below it."""
    axes.annotate(words, (float(at[0]), float(at[1]) - 7), ha="center", va="center", fontsize=9, color=colour)


if __name__ == "__main__":
    main()
