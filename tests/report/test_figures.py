"""The figures show the numbers they were given."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hoarfrost.report import figures


def entry(stage: int, epoch: int, loss: float | None, **more: Any) -> dict[str, Any]:
    terms = {"cross_entropy": loss} if stage == 0 else {"pairwise": 0.5, "feature_distillation": 0.2}
    return {"stage": stage, "epoch": epoch, "loss": loss, "terms": terms, "learning_rate": 0.1, "seconds": 0.2, **more}


LOG = [
    entry(0, 0, 2.0, train_accuracy=40.0),
    entry(0, 1, 1.0, train_accuracy=80.0, accuracy={"old": 75.0, "new": None, "all": None}),
    entry(1, 0, 0.7),
    entry(1, 1, 0.6, accuracy={"old": 70.0, "new": 30.0, "all": 50.0}),
    entry(1, 2, 0.5, accuracy={"old": 68.0, "new": 60.0, "all": 64.0}),
]


def main_axes(figure: Figure) -> Axes:
    return figure.axes[0]


def lines(figure: Figure, label: str) -> list[Line2D]:
    return [line for line in main_axes(figure).get_lines() if line.get_label() == label]


def points(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in zip(*map(np.asarray, line.get_data()), strict=True)]


def marked(figure: Figure, gid: str) -> list[Line2D]:
    return [line for line in main_axes(figure).get_lines() if line.get_gid() == gid]


def legend_labels(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def names(count: int) -> list[str]:
    return [f"class {index}" for index in range(count)]


def draw(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=50)
    return content.getvalue()


def test_the_loss_runs_on_over_all_stages() -> None:
    first, second = lines(figures.loss_curves(LOG), "total loss")
    assert points(first) == [(1, 2.0), (2, 1.0)]
    assert points(second) == [(3, 0.7), (4, 0.6), (5, 0.5)]


def test_terms_are_drawn_only_where_there_are_several() -> None:
    figure = figures.loss_curves(LOG)
    assert lines(figure, "cross entropy") == []
    assert [points(line) for line in lines(figure, "pairwise")] == [[(3, 0.5), (4, 0.5), (5, 0.5)]]
    assert sorted(legend_labels(figure)) == ["feature distillation", "pairwise", "total loss"]


def test_a_line_marks_where_a_stage_begins() -> None:
    for figure in (figures.loss_curves(LOG), figures.accuracy_curves(LOG)):
        assert [float(np.asarray(line.get_xdata())[0]) for line in marked(figure, "stage")] == [2.5]


def test_the_loss_scale_is_logarithmic_only_for_positive_losses() -> None:
    assert main_axes(figures.loss_curves(LOG)).get_yscale() == "log"
    assert main_axes(figures.loss_curves([*LOG, entry(1, 3, -0.1)])).get_yscale() == "linear"


@pytest.mark.parametrize("loss", [math.nan, math.inf, None, 0.0])
def test_a_loss_that_is_no_number_does_not_stop_the_drawing(loss: float | None) -> None:
    assert draw(figures.loss_curves([entry(0, 0, loss)]))
    assert draw(figures.loss_curves([*LOG, entry(1, 3, loss)]))


def test_every_loss_term_looks_different() -> None:
    terms = {f"term_{index}": 1.0 + index for index in range(10)}
    drawn = main_axes(figures.loss_curves([{**entry(1, 0, 9.0), "terms": terms}])).get_lines()[:10]
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn}) == 10


def test_accuracies_are_drawn_where_they_were_measured() -> None:
    figure = figures.accuracy_curves(LOG)
    assert [points(line) for line in lines(figure, "old")] == [[(2, 75.0)], [(4, 70.0), (5, 68.0)]]
    assert [points(line) for line in lines(figure, "new")] == [[(4, 30.0), (5, 60.0)]]
    assert [points(line) for line in lines(figure, "labelled training images")] == [[(1, 40.0), (2, 80.0)]]


def test_a_log_without_any_accuracy_is_known() -> None:
    nothing = entry(1, 0, 0.5, accuracy={"old": None, "new": None, "all": None})
    assert not figures.has_accuracy([])
    assert not figures.has_accuracy([entry(0, 0, 1.0), nothing])
    assert figures.has_accuracy([entry(0, 0, 1.0, train_accuracy=0.0)])
    assert figures.has_accuracy(LOG)


def test_the_border_lies_between_old_and_new_classes() -> None:
    figure = figures.confusion(np.eye(10, dtype=np.int64), 4, class_names=names(10), novel_per_step=[3, 3])
    for gid, position in (("border", 3.5), ("step", 6.5)):
        vertical, horizontal = marked(figure, gid)
        assert list(np.asarray(vertical.get_xdata())) == [position, position]
        assert list(np.asarray(horizontal.get_ydata())) == [position, position]
    assert marked(figure, "border")[0].get_linewidth() > marked(figure, "step")[0].get_linewidth()


def test_there_is_no_border_without_new_classes() -> None:
    figure = figures.confusion(np.eye(3, dtype=np.int64), 3, class_names=names(3), novel_per_step=[])
    assert marked(figure, "border") == []


def test_the_colours_are_shares_of_the_row_and_the_text_is_counts() -> None:
    matrix = np.array([[3, 1, 0], [0, 0, 0], [2, 0, 6]])
    figure = figures.confusion(matrix, 2, class_names=names(3), novel_per_step=[1])
    colours = np.asarray(main_axes(figure).images[0].get_array())
    np.testing.assert_allclose(colours, [[75, 25, 0], [0, 0, 0], [25, 0, 75]])
    printed = {(text.get_position(), text.get_text()) for text in main_axes(figure).texts if text.get_text().isdigit()}
    assert printed == {((0, 0), "3"), ((1, 0), "1"), ((0, 2), "2"), ((2, 2), "6")}


@pytest.mark.parametrize("classes", [13, 100, 200])
def test_many_classes_have_few_labels_and_no_counts(classes: int) -> None:
    new = classes // 10
    matrix = np.full((classes, classes), 5, dtype=np.int64)
    figure = figures.confusion(matrix, classes - new, class_names=names(classes), novel_per_step=[new])
    axes = main_axes(figure)
    assert not any(text.get_text().isdigit() for text in axes.texts)
    assert 5 <= len(axes.get_xticks()) <= figures.MOST_TICK_LABELS
    labelled = {
        int(tick): text.get_text() for tick, text in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    }
    assert labelled == {tick: f"class {tick}" for tick in labelled}


@pytest.mark.parametrize(("known", "novel_per_step"), [(5, [5]), (4, [3, 3]), (180, [10, 10]), (3, [])])
def test_the_bars_are_the_norms(known: int, novel_per_step: list[int]) -> None:
    classes = known + sum(novel_per_step)
    weight_norms = np.random.default_rng(0).uniform(0.5, 1.5, classes)
    figure = figures.norms(weight_norms, known, class_names=names(classes), novel_per_step=novel_per_step)
    groups = [container for container in main_axes(figure).containers if isinstance(container, BarContainer)]
    bars = [bar for group in groups for bar in group.patches]
    assert [len(group.patches) for group in groups] == [known, *novel_per_step]
    assert len({group.patches[0].get_facecolor() for group in groups}) == len(groups)
    np.testing.assert_allclose([bar.get_height() for bar in bars], weight_norms)
    np.testing.assert_allclose([bar.get_x() + bar.get_width() / 2 for bar in bars], range(classes))
    means = [float(np.asarray(line.get_ydata())[0]) for line in marked(figure, "mean")]
    assert means == pytest.approx(
        [group.mean() for group in np.split(weight_norms, np.cumsum([known, *novel_per_step])[:-1])]
    )


def test_odd_class_names_are_drawn_as_they_are() -> None:
    odd = ["$x_$", "<b>", "雪", "two\nlines", "a name that does not end before the page"]
    figure = figures.norms(np.ones(5), 3, class_names=odd, novel_per_step=[2])
    shown = [text.get_text() for text in main_axes(figure).get_xticklabels()]
    assert shown == ["$x_$", "<b>", "雪", "two lines", "a name that doe…"]
    assert "雪" in figures.to_svg(figure)


def test_the_same_figure_gives_the_same_svg() -> None:
    first, second = (figures.to_svg(figures.loss_curves(LOG)) for _ in range(2))
    assert first == second
    assert "<dc:date>" not in first


def test_little_gray_images_grow_pixel_by_pixel() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 1), dtype=np.uint8)
    sheet = np.asarray(figures.sample_sheet(images, columns=2, tile=20))
    assert sheet.shape == (16 + 2 + 16, 16 + 2 + 16, 4)
    for channel in range(3):
        np.testing.assert_array_equal(sheet[:16:2, 18::2, channel], images[1, ..., 0])
    np.testing.assert_array_equal(sheet[:16, :16, 0], np.kron(images[0, ..., 0], np.ones((2, 2), dtype=np.uint8)))
    assert (sheet[:, 16:18, 3] == 0).all()
    assert (sheet[18:, 18:, 3] == 0).all()


def test_colour_images_keep_their_colours() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    sheet = np.asarray(figures.sample_sheet(images, tile=32))
    np.testing.assert_array_equal(sheet[:, :32, :3], images[0])
    np.testing.assert_array_equal(sheet[:, -32:, :3], images[1])


def test_large_images_shrink_and_keep_their_shape() -> None:
    sheet = figures.sample_sheet(np.zeros((1, 100, 200, 3), dtype=np.uint8), tile=50)
    assert sheet.size == (50, 25)
