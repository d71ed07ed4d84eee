"""The figures of a run: pure functions from numbers to matplotlib figures, for the report and for papers alike.

No pyplot and no global state, so that figures can be made in any thread and on machines without a display.
Colours are those of Okabe and Ito, which people with colour-blindness can tell apart.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray
from PIL import Image

from hoarfrost.printing import printable
from hoarfrost.unsorted.number import Count

LogEntry = Mapping[str, Any]

INK = "#1b2733"
MUTED = "#5b6b7a"
GRID = "#e3e8ed"
OLD_COLOUR = "#0072b2"
NEW_COLOURS = ("#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
ACCURACY_COLOURS = {"old": OLD_COLOUR, "new": NEW_COLOURS[0], "all": INK}
TERM_COLOURS = (OLD_COLOUR, *NEW_COLOURS)
TERM_STYLES = ("-", "--", ":")

COUNTS_UP_TO = 12
"""Number of classes up to which the confusion matrix prints its counts."""
MOST_TICK_LABELS = 25
LONGEST_LABEL = 16
MOST_NAMED = 15
"""New classes that the map names."""
MARKERS = ("o", "^", "s", "D")
SMALL = 8.0
"""Size of the text in figures, in points."""

_FROST = LinearSegmentedColormap.from_list("frost", ["#ffffff", "#cfe3f1", "#6fb0d8", OLD_COLOUR, "#00304d"])
_READER_FONTS = ["system-ui", "Segoe UI", "Helvetica Neue", "Arial", "DejaVu Sans"]


@dataclass(frozen=True)
class ClassBlock:
    """Neighbouring classes start..stop-1 that were learned together."""

    label: str
    start: int
    stop: int
    colour: str


def class_blocks(known: int, novel_per_step: Sequence[int]) -> list[ClassBlock]:
    """Return the labelled classes, then those of each discovery step.

    >>> [(block.label, block.start, block.stop) for block in class_blocks(4, [3, 3])]
    [('old', 0, 4), ('new, step 1', 4, 7), ('new, step 2', 7, 10)]
    """
    blocks = [ClassBlock("old", 0, known, OLD_COLOUR)]
    for index, count in enumerate(novel_per_step):
        start = blocks[-1].stop
        label = f"new, step {index + 1}" if len(novel_per_step) > 1 else "new"
        blocks.append(ClassBlock(label, start, start + count, NEW_COLOURS[index % len(NEW_COLOURS)]))
    return blocks


def loss_curves(log: Sequence[LogEntry]) -> Figure:
    """Draw the loss and its terms over the epochs of all stages."""
    figure, axes = _panel(4.8, 3.4)
    looks: dict[str, tuple[str, str]] = {}
    for epochs, entries in _stages(log):
        names = _term_names(entries)
        # A single term is the loss itself: its line would hide under the other.
        for name in names if len(names) > 1 else ():
            colour, style = looks.setdefault(name, _term_look(len(looks)))
            values = [_number(entry["terms"].get(name)) for entry in entries]
            axes.plot(epochs, values, style, color=colour, linewidth=1.2, label=name.replace("_", " "))
        axes.plot(epochs, [_number(entry["loss"]) for entry in entries], color=INK, linewidth=2.0, label="total loss")
    axes.set_ylabel("loss", color=MUTED, fontsize=SMALL)
    _log_scale_where_positive(axes, log)
    _mark_stages(axes, log)
    _legend_below(figure, axes, columns=3)
    return figure


def accuracy_curves(log: Sequence[LogEntry]) -> Figure:
    """Draw the accuracies in the log, in percent, over the epochs of all stages."""
    figure, axes = _panel(4.8, 3.4)
    for epochs, entries in _stages(log):
        training = [_number(entry.get("train_accuracy")) for entry in entries]
        _plot_measured(axes, epochs, training, colour=MUTED, style=":", label="labelled training images")
        for group, colour in ACCURACY_COLOURS.items():
            values = [_number((entry.get("accuracy") or {}).get(group)) for entry in entries]
            _plot_measured(axes, epochs, values, colour=colour, style="-", label=group)
    axes.set_ylabel("accuracy, %", color=MUTED, fontsize=SMALL)
    axes.set_ylim(0, 103)
    _mark_stages(axes, log)
    _legend_below(figure, axes, columns=4)
    return figure


def has_accuracy(log: Sequence[LogEntry]) -> bool:
    """Tell whether there is anything for `accuracy_curves` to draw."""
    measured = [[entry.get("train_accuracy"), *(entry.get("accuracy") or {}).values()] for entry in log]
    return any(value is not None for values in measured for value in values)


def confusion(
    matrix: NDArray[np.int64], known: int, *, class_names: Sequence[str], novel_per_step: Sequence[int]
) -> Figure:
    """Draw the (C, C) counts (rows true, columns predicted), coloured by their share of the row.

    A thick line is the border between old and new classes, thin ones lie between discovery steps.
    """
    figure, axes = _panel(5.2, 4.9)
    image = draw_confusion(axes, matrix, class_blocks(known, novel_per_step))
    _label_classes(axes, class_names, both=True)
    axes.set_xlabel("predicted class", color=MUTED, fontsize=SMALL)
    axes.set_ylabel("true class", color=MUTED, fontsize=SMALL)
    if len(class_names) <= COUNTS_UP_TO:
        _print_counts(axes, matrix, row_shares(matrix))
    draw_scale(figure, image, [axes])
    return figure


def draw_confusion(axes: Axes, matrix: NDArray[np.int64], blocks: Sequence[ClassBlock]) -> AxesImage:
    """Draw the shares of a matrix, and the borders between blocks of classes."""
    # Below linear growth: in a matrix of 100 classes an error of a few percent must still be seen.
    image = axes.imshow(row_shares(matrix), cmap=_FROST, norm=PowerNorm(0.6, 0, 100), interpolation="nearest")
    axes.grid(visible=False)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set(visible=True, color=GRID)
    _draw_borders(axes, blocks, classes=len(matrix))
    return image


def draw_scale(figure: Figure, image: AxesImage, axes: Sequence[Axes]) -> None:
    """Draw what the colours of confusion matrices mean, at the side of all of them."""
    bar = figure.colorbar(image, ax=list(axes), fraction=0.04, pad=0.02, aspect=32, ticks=[0, 5, 20, 50, 100])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=SMALL, labelcolor=MUTED)
    bar.set_label("% of the true class", color=MUTED, fontsize=SMALL)


def norms(
    weight_norms: NDArray[np.floating[Any]], known: int, *, class_names: Sequence[str], novel_per_step: Sequence[int]
) -> Figure:
    """Draw the (C,) lengths of the joint head's weight vectors as bars, with the mean of each group of classes."""
    figure, axes = _panel(5.2, 3.0)
    blocks = class_blocks(known, novel_per_step)
    draw_norms(axes, weight_norms, blocks)
    _label_classes(axes, class_names, both=False)
    axes.set_ylabel("norm of the weights", color=MUTED, fontsize=SMALL)
    draw_legend(figure, axes, blocks)
    return figure


def draw_norms(axes: Axes, weight_norms: NDArray[np.floating[Any]], blocks: Sequence[ClassBlock]) -> None:
    """Draw a bar a class, and the mean of each group."""
    for block in (block for block in blocks if block.stop > block.start):
        heights = weight_norms[block.start : block.stop]
        axes.bar(range(block.start, block.stop), heights, width=0.8, color=block.colour, alpha=0.75, linewidth=0)
        ends = (block.start - 0.4, block.stop - 0.6)
        axes.plot(ends, [heights.mean()] * 2, color=INK, linewidth=1.4, label="mean of the group", gid="mean")
    axes.set_xlim(-0.8, len(weight_norms) - 0.2)
    axes.grid(visible=False, axis="x")


def draw_legend(figure: Figure, axes: Axes, blocks: Sequence[ClassBlock]) -> None:
    """Say under the figure which colour is of which group of classes."""
    patches = [Patch(color=block.colour, alpha=0.75, linewidth=0, label=block.label) for block in blocks]
    _legend_below(figure, axes, columns=4, first=patches)


def sample_sheet(images: NDArray[np.uint8], *, columns: int = 8, tile: int = 96) -> Image.Image:
    """Lay images, (N, H, W, 1 or 3), on a transparent sheet; N is at least 1.

    Little images grow by a whole factor, pixel by pixel, to at most `tile` pixels a side; large ones shrink to it.
    """
    tiles = [to_tile(image, tile) for image in images]
    width, height = tiles[0].size
    gap = max(2, width // 16)
    across, down = min(columns, len(tiles)), math.ceil(len(tiles) / columns)
    sheet = Image.new("RGBA", (across * (width + gap) - gap, down * (height + gap) - gap))
    for index, picture in enumerate(tiles):
        row, column = divmod(index, columns)
        sheet.paste(picture, (column * (width + gap), row * (height + gap)))
    return sheet


def to_svg(figure: Figure) -> str:
    """Return the figure as SVG text, the same for the same figure at any time."""
    text = io.StringIO()
    # Identifiers follow from the content alone. Text stays text, in the reader's own fonts, which have the letters of
    # more languages than the one that measures here; what that one lacks does not matter.
    settings = matplotlib.rc_context(
        {"svg.hashsalt": "hoarfrost", "svg.fonttype": "none", "font.sans-serif": _READER_FONTS}
    )
    with settings, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.set_dpi(200)  # of images within it
        # savefig would draw all of it once before, for the layout, which is done in drawing anyway.
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    return text.getvalue()


def number_curve(count: Count) -> Figure:
    """Draw Hartigan's number over the number of classes, the level at which splitting ended, and the range."""
    figure, axes = _panel(4.8, 3.0)
    numbers = range(1, len(count.curve) + 1)
    axes.axvspan(count.least - 0.3, count.most + 0.3, color=GRID, label="likely range", linewidth=0)
    axes.plot(numbers, np.maximum(count.curve, 1e-3), "o-", color=OLD_COLOUR, markersize=3.5, label="Hartigan's number")
    axes.axhline(count.level, color=MUTED, linestyle="--", linewidth=1.2, label="level, learned from known classes")
    axes.axvline(count.number, color=NEW_COLOURS[0], linewidth=1.6, label="number chosen")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    axes.set_xlabel("number of new classes", color=MUTED, fontsize=SMALL)
    axes.set_ylabel("gain from one more class", color=MUTED, fontsize=SMALL)
    _legend_below(figure, axes, columns=2)
    return figure


def feature_map(points: NDArray[np.floating[Any]], groups: NDArray[np.int64], names: Sequence[str]) -> Figure:
    """Draw points (n, 2), each of the new class (n,) with that name, of a known one (-1), or unsure (-2)."""
    figure, axes = _panel(5.2, 4.6)
    looks = {-1: ("known classes", OLD_COLOUR, "."), -2: ("unsure", MUTED, "x")}
    for index, name in enumerate(names):
        row, column = divmod(index, len(NEW_COLOURS))
        looks[index] = (_shorten(name), NEW_COLOURS[column], MARKERS[row % len(MARKERS)])
    for group, (label, colour, marker) in looks.items():
        mine = points[groups == group]
        if len(mine):
            named = label if group < MOST_NAMED else f"_{label}"  # matplotlib leaves those out of a legend
            axes.scatter(
                mine[:, 0], mine[:, 1], s=16, color=colour, marker=marker, alpha=0.8, linewidths=0.8, label=named
            )
    axes.set_xticks([])
    axes.set_yticks([])
    _legend_below(figure, axes, columns=4)
    return figure


def row_shares(matrix: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each count as percent of its row, 0 in a row without images.

    >>> row_shares(np.array([[3, 1], [0, 0]])).tolist()
    [[75.0, 25.0], [0.0, 0.0]]
    """
    shares: NDArray[np.float64] = 100.0 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    return shares


def _panel(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of this size, in inches, with one plain pair of axes."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = figure.add_subplot(facecolor="white")
    plain(axes)
    return figure, axes


def plain(axes: Axes) -> None:
    """Take away what is not needed to read the axes."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(length=0, labelsize=SMALL, labelcolor=MUTED)
    axes.grid(visible=True, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)


def _number(value: float | None) -> float:
    """Return the value, NaN where there is none: matplotlib leaves a gap there."""
    return math.nan if value is None else float(value)


def _term_names(entries: Sequence[LogEntry]) -> list[str]:
    """Return the names of the loss terms that have a value in any of the entries, as they come."""
    return list(dict.fromkeys(name for entry in entries for name, value in entry["terms"].items() if value is not None))


def _term_look(index: int) -> tuple[str, str]:
    """Return the colour and the line style of the loss term with this index; a new style when the colours run out."""
    row, column = divmod(index, len(TERM_COLOURS))
    return TERM_COLOURS[column], TERM_STYLES[row % len(TERM_STYLES)]


def _stages(log: Sequence[LogEntry]) -> Iterator[tuple[range, list[LogEntry]]]:
    """Yield the entries of each stage with their epochs, counted from 1 over all stages."""
    start = 1
    for _, group in groupby(log, key=lambda entry: entry["stage"]):
        entries = list(group)
        yield range(start, start + len(entries)), entries
        start += len(entries)


def _mark_stages(axes: Axes, log: Sequence[LogEntry]) -> None:
    """Draw a line where a stage begins, and name the stages above the axes."""
    for epochs, entries in _stages(log):
        if epochs.start > 1:
            axes.axvline(epochs.start - 0.5, color=MUTED, linewidth=0.8, gid="stage")
        stage = entries[0]["stage"]
        # A stage too short for its name goes without.
        if len(epochs) >= 0.12 * len(log):
            axes.text(
                (epochs.start + epochs.stop - 1) / 2,
                1.02,
                f"step {stage}" if stage else "labels",
                transform=axes.get_xaxis_transform(),
                ha="center",
                color=MUTED,
                fontsize=SMALL,
            )
    axes.set_xlim(0.5, len(log) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("epoch, counted over all stages", color=MUTED, fontsize=SMALL)


def _log_scale_where_positive(axes: Axes, log: Sequence[LogEntry]) -> None:
    """Use a logarithmic scale over at most four decades when every loss is positive."""
    losses = np.array([_number(entry["loss"]) for entry in log])
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()] or [losses])
    drawn = drawn[np.isfinite(drawn) & (drawn > 0)]
    if drawn.size and not (losses <= 0).any():
        axes.set_yscale("log", nonpositive="mask")
        lowest, highest = max(drawn.min(), drawn.max() * 1e-4) * 0.8, drawn.max() * 1.25
        axes.set_ylim(lowest, highest)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if highest > 100 * lowest else (1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylabel("loss, logarithmic scale", color=MUTED, fontsize=SMALL)


def _plot_measured(
    axes: Axes, epochs: Sequence[int], values: Sequence[float], *, colour: str, style: str, label: str
) -> None:
    """Draw a line through the epochs that have a value, with dots where these are few."""
    points = [(epoch, value) for epoch, value in zip(epochs, values, strict=True) if not math.isnan(value)]
    if points:
        marker = "o" if len(points) <= 12 else None
        axes.plot(*zip(*points, strict=True), style, marker=marker, markersize=3.5, color=colour, label=label)


def _legend_below(figure: Figure, axes: Axes, *, columns: int, first: Sequence[Patch] = ()) -> None:
    """Put a legend under the axes, one entry a name."""
    by_name = {patch.get_label(): patch for patch in first}
    handles, labels = axes.get_legend_handles_labels()
    by_name |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in by_name}
    if by_name:
        figure.legend(
            list(by_name.values()),
            [str(name) for name in by_name],
            loc="outside lower center",
            ncols=min(columns, len(by_name)),
            frameon=False,
            fontsize=SMALL,
            labelcolor=INK,
            handlelength=1.4,
            columnspacing=1.4,
        )
        for text in figure.legends[0].get_texts():
            text.set_parse_math(False)  # A dollar in a class name is a dollar.


def _draw_borders(axes: Axes, blocks: Sequence[ClassBlock], *, classes: int) -> None:
    """Draw the lines between blocks of classes, and name the blocks above the matrix where there is room."""
    for index, block in enumerate(blocks[1:]):
        thick = 1.8 if classes <= 50 else 1.0  # of many classes it would hide some
        gid, width = ("border", thick) if index == 0 else ("step", 0.8)
        axes.axvline(block.start - 0.5, color=NEW_COLOURS[0], linewidth=width, gid=gid)
        axes.axhline(block.start - 0.5, color=NEW_COLOURS[0], linewidth=width, gid=gid)
    if min(block.stop - block.start for block in blocks) < 0.15 * classes and len(blocks) > 1:
        blocks = [blocks[0], ClassBlock("new", blocks[1].start, blocks[-1].stop, NEW_COLOURS[0])]
    for block in blocks:
        axes.text(
            (block.start + block.stop - 1) / 2,
            1.015,
            block.label,
            transform=axes.get_xaxis_transform(),
            ha="center",
            color=OLD_COLOUR if block.start == 0 else NEW_COLOURS[0],
            fontsize=SMALL,
        )


def _label_classes(axes: Axes, class_names: Sequence[str], *, both: bool) -> None:
    """Put class names at the ticks of the x axis or of both, only every so many where there are too many to read."""
    ticks = range(0, len(class_names), _tick_step(len(class_names)))
    labels = [_shorten(class_names[tick]) for tick in ticks]
    upright = any(len(label) > 3 for label in labels)
    axes.set_xticks(ticks, labels, rotation=90 if upright else 0)
    if both:
        axes.set_yticks(ticks, labels)
    for text in (*axes.get_xticklabels(), *(axes.get_yticklabels() if both else ())):
        text.set_parse_math(False)  # A dollar in a class name is a dollar.


def _tick_step(classes: int) -> int:
    """Return the smallest round distance between labels that leaves few enough of them."""
    distances = (1, 2, 5, 10, 20, 50, 100, 200, 500)
    return next((distance for distance in distances if classes <= MOST_TICK_LABELS * distance), classes)


def _shorten(name: str) -> str:
    """Return the name on one line, cut where it is too long for a tick."""
    line = printable(" ".join(name.split()))
    return line if len(line) <= LONGEST_LABEL else line[: LONGEST_LABEL - 1] + "…"


def _print_counts(axes: Axes, matrix: NDArray[np.int64], shares: NDArray[np.float64]) -> None:
    """Print each count in its cell, in white where the cell is dark; zeros stay empty."""
    for row, column in np.argwhere(matrix > 0):
        colour = "white" if shares[row, column] > 45 else INK
        count = str(matrix[row, column])
        axes.text(column, row, count, ha="center", va="center", color=colour, fontsize=SMALL)


def to_tile(image: NDArray[np.uint8], tile: int) -> Image.Image:
    """Return one (H, W, 1 or 3) image as a picture of about `tile` pixels a side."""
    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).convert("RGBA")
    longest = max(picture.size)
    if longest > tile:
        size = (max(1, picture.width * tile // longest), max(1, picture.height * tile // longest))
        return picture.resize(size, Image.Resampling.LANCZOS)
    factor = tile // longest
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
