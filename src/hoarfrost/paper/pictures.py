"""The paper's figures, from the ``metrics.json`` of runs.

One picture a data set. What the figures of the paper show, and what is drawn here:

- **Figure 4**: the lengths of the weight vectors that decide, of FRoST without FD and FR, without ST, and whole. The
  paper does not name its data set; CIFAR-10 is taken, as in figure 5.
- **Figure 5**: confusion matrices on CIFAR-10, new classes by the clusters that class-iNCD matched them to: (a) FRoST
  without FD and FR, (b) without ST, (c) AutoNovel, (d) NCL, (e) ResTune, (f) FRoST. Which is which follows from the
  text, which calls ResTune's (e).
- **Figure A1** (first of the supplement): ResTune's confusion matrix as its own protocol sees it in All, where any
  cluster may stand for any class; on all three data sets. Here the same predictions under class-iNCD stand beside it.
- **Figure A2**: confusion matrices of ResTune and of FRoST under class-iNCD, on all three data sets.
- **Figure A3**: confusion matrices of FRoST after the first and the second of two steps, on CIFAR-100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from hoarfrost import metrics
from hoarfrost.errors import InputError
from hoarfrost.paper.tables import Table
from hoarfrost.printing import format_score
from hoarfrost.report import comparison
from hoarfrost.report.comparison import Compared


def panels(table: Table, label: str, content: Mapping[str, Any]) -> list[Compared]:
    """What a figure shows of one run, from the content of its ``metrics.json``."""
    last = len(content["steps"])
    if table.picture == "steps":
        return [_after(step, f"after step {step}", content) for step in range(1, last + 1)]
    after = _after(last, label, content)
    if table.picture == "protocols":
        own = freely_matched(after.confusion)
        return [
            replace(after, title=f"its own protocol: All {format_score(_all(own))}", confusion=own),
            replace(after, title=f"class-iNCD: All {format_score(_all(after.confusion))}"),
        ]
    return [after]


def _after(step: int, title: str, content: Mapping[str, Any]) -> Compared:
    """The state after a step, counted from 1."""
    steps = content["steps"][:step]
    if not {"confusion", "weight_norms"} <= steps[-1].keys():
        raise InputError(
            "metrics.json lacks a confusion matrix or weight norms: an earlier version wrote it, or the method has none"
        )
    rows, norms = steps[-1]["confusion"], steps[-1]["weight_norms"]
    try:
        sizes = (steps[0]["known"], *(entry["novel"] for entry in steps))
        fits = min(sizes) > 0 and len(rows) == len(norms) == sum(sizes)
        fits = fits and all(0 <= column < len(rows) and count >= 0 for row in rows for column, count in row)
    except (KeyError, ValueError):
        fits = False
    if not fits:
        raise InputError("its confusion matrix or weight norms do not match its classes")
    return Compared(
        title=title,
        known=sizes[0],
        novel_per_step=sizes[1:],
        confusion=metrics.from_sparse_rows(rows),
        weight_norms=np.array(norms),
    )


def freely_matched(confusion: NDArray[np.int64]) -> NDArray[np.int64]:
    """A (C, C) matrix with its columns in the order in which All of the Original RT protocol matches them to the rows.

    The matching is fitted on the test images and asks not whether a class is old or new.

    >>> freely_matched(np.array([[0, 9], [5, 1]]))
    array([[9, 0],
           [1, 5]])
    """
    true, predicted = np.nonzero(confusion)
    images = confusion[true, predicted]
    columns = metrics.match_clusters(np.repeat(predicted, images), np.repeat(true, images), len(confusion))
    return confusion[:, columns]


def _all(confusion: NDArray[np.int64]) -> float:
    return 100 * float(np.trace(confusion)) / max(1, int(confusion.sum()))


def draw(table: Table, shown: Sequence[Compared], place: str) -> Figure:
    """The figure; ``place`` names the data set in its title."""
    draws = comparison.norms if table.picture == "norms" else comparison.confusions
    if len(shown) > 1:
        shown = [replace(run, title=f"({letter}) {run.title}") for letter, run in zip("abcdefgh", shown, strict=False)]
    return draws(shown, f"{table.title}\n{place}")


def save(figure: Figure, path: Path) -> list[Path]:
    """As PNG and as PDF."""
    pdf = path.with_suffix(".pdf")
    figure.savefig(pdf, metadata={"CreationDate": None})
    return [write_png(figure, path.with_suffix(".png")), pdf]


def write_png(figure: Figure, path: Path) -> Path:
    """The same bytes for the same figure: the version of what draws is not in them."""
    figure.savefig(path, dpi=200, metadata={"Software": None})
    return path
