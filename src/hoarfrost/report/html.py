"""The report of a run as one HTML file that needs nothing else: no network, no other file, no script."""

from __future__ import annotations

import base64
import io
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from hoarfrost.printing import MISSING, format_score, in_a_hundred, printable
from hoarfrost.report import figures
from hoarfrost.report.data import DiscoveryData, FitData, ReportData

SIDE, MANY = 256, 200
"""pixels a side of an image on the page of a discovery, and the number of images above which it is half as many"""


@dataclass(frozen=True)
class Picture:
    """An image inside the page: where it is (a data address), what it shows in words, and a name for it."""

    source: str
    alternative: str
    name: str = ""
    note: str = ""


def render(data: ReportData | DiscoveryData | FitData) -> str:
    """Return the report as the text of one self-contained HTML page."""
    environment = _environment()
    if isinstance(data, DiscoveryData):
        return _discovery(environment.get_template("discovery.html.j2"), data)
    if isinstance(data, FitData):
        return environment.get_template("fit.html.j2").render(
            data=data,
            title=f"{data.sentence}.",
            address=lambda image: _jpeg_address(image.pixels, SIDE),
            curves=_curves(data.log),
        )
    return environment.get_template("template.html.j2").render(
        title=data.title,
        summary=summarise(data),
        facts=data.facts,
        metrics=data.metrics,
        known=data.known,
        curves=_curves(data.log),
        confusion=_confusion(data),
        mistakes=None if data.confusion is None else border_mistakes(data.confusion, data.known),
        norms=_norms(data),
        mean_norms=mean_norms(data.weight_norms, data.known),
        samples=_samples(data),
    )


@cache
def _environment() -> jinja2.Environment:
    """Return what compiles the templates, each once."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["score"] = format_score
    environment.filters["scores"] = format_scores
    environment.filters["count"] = _count
    environment.filters["in_a_hundred"] = in_a_hundred
    environment.filters["quoted"] = shlex.quote
    return environment


def _template(name: str) -> str:
    return resources.files("hoarfrost.report").joinpath(name).read_text(encoding="utf-8")


def _discovery(template: jinja2.Template, data: DiscoveryData) -> str:
    groups = [data.unsure, *(part for group in (*data.new, *data.known) for part in (group.typical, group.doubtful))]
    side = SIDE if sum(map(len, groups)) <= MANY else SIDE // 2
    names = [group.name for group in data.new]
    map_words = f"{_count(len(data.points), 'image', 'images')} as points; similar images are close together."
    estimate = None
    if data.new and data.count is not None and len(data.count.curve) > 1:
        words = f"Hartigan's number for 1 to {len(data.count.curve)} classes; {data.count.number} chosen."
        estimate = _picture(figures.number_curve(data.count), words)
    return template.render(
        data=data,
        title=f"{data.sentence[0].upper()}{data.sentence[1:]}.",
        address=lambda image: _jpeg_address(image.pixels, side),
        estimate=estimate,
        map=_picture(figures.feature_map(data.points, data.point_groups, names), map_words),
        curves=_curves(data.log),
    )


def _shown(value: object) -> object:
    """Return what the page shows of a value: of text, be it a name, nothing that is not allowed in a page."""
    # A file's name may have bytes that are no text.
    return printable(value).encode(errors="replace").decode() if type(value) is str else value


def format_scores(values: Sequence[float | None]) -> str:
    """Return the percentages of several steps in a row.

    >>> format_scores([71.25, None])
    '71.2 · –'
    """
    return " · ".join(map(format_score, values)) or MISSING


def summarise(data: ReportData) -> str:
    """Say in one plain sentence what was run."""
    learned = f"A classifier learned {_count(data.known, 'class', 'classes')} from labelled images"
    if not data.novel_per_step:
        return f"{learned}."
    added = sum(data.novel_per_step)
    steps = f" in {len(data.novel_per_step)} steps" if len(data.novel_per_step) > 1 else ""
    return (
        f"{learned}. It then discovered {added} more in unlabelled images{steps}, "
        "without seeing the labelled ones again. "
        f"One head now predicts all {data.known + added}."
    )


def border_mistakes(matrix: NDArray[np.int64], known: int) -> dict[str, float | None]:
    """Return the percent of old images taken for new classes, and of new images taken for old ones.

    >>> border_mistakes(np.array([[8, 2], [1, 3]]), 1)
    {'old_as_new': 20.0, 'new_as_old': 25.0}
    """
    old, new = matrix[:known], matrix[known:]
    return {"old_as_new": _percent(old[:, known:], old), "new_as_old": _percent(new[:, :known], new)}


def mean_norms(weight_norms: NDArray[np.floating[Any]], known: int) -> dict[str, float | None]:
    """Return the mean norm of the old and of the new classes, None where there are none.

    >>> mean_norms(np.array([1.0, 2.0, 3.0]), 2)
    {'old': 1.5, 'new': 3.0}
    """
    groups = {"old": weight_norms[:known], "new": weight_norms[known:]}
    return {name: float(group.mean()) if group.size else None for name, group in groups.items()}


def _percent(part: NDArray[np.int64], whole: NDArray[np.int64]) -> float | None:
    total = int(whole.sum())
    return 100.0 * int(part.sum()) / total if total else None


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _curves(log: Sequence[Mapping[str, Any]]) -> list[Picture]:
    if not log:
        return []
    epochs = _count(len(log), "epoch", "epochs")
    pictures = [_picture(figures.loss_curves(log), f"Loss and its terms over {epochs}.", "Loss")]
    if figures.has_accuracy(log):
        pictures.append(_picture(figures.accuracy_curves(log), f"Accuracy in percent over {epochs}.", "Accuracy"))
    return pictures


def _confusion(data: ReportData) -> Picture | None:
    if data.confusion is None:
        return None
    figure = figures.confusion(
        data.confusion, data.known, class_names=data.class_names, novel_per_step=data.novel_per_step
    )
    right = _percent(np.diagonal(data.confusion), data.confusion)
    alternative = (
        f"Confusion matrix of {_count(len(data.class_names), 'class', 'classes')}, the first {data.known} old; "
        f"{format_score(right)} percent of the images lie on the diagonal."
    )
    return _picture(figure, alternative)


def _norms(data: ReportData) -> Picture | None:
    if not data.weight_norms.size:
        return None
    figure = figures.norms(
        data.weight_norms, data.known, class_names=data.class_names, novel_per_step=data.novel_per_step
    )
    smallest, largest = data.weight_norms.min(), data.weight_norms.max()
    alternative = f"Norms of the weights of each class, between {smallest:.2f} and {largest:.2f}."
    return _picture(figure, alternative)


def _samples(data: ReportData) -> list[Picture]:
    """Return a sheet for each discovered class of `samples`, in the order of the classes; empty where no image is."""
    steps = [step for step, count in enumerate(data.novel_per_step, start=1) for _ in range(count)]
    return [
        _sample(name, data, note=f"step {step}" if len(data.novel_per_step) > 1 else "")
        for name, step in zip(data.class_names[data.known :], steps, strict=True)
        if name in data.samples
    ]


def _sample(name: str, data: ReportData, note: str) -> Picture:
    images = data.samples[name]
    if not len(images):
        return Picture(source="", alternative="No image belongs to this class.", name=name, note=note)
    size = [_count(data.sizes[name], "image", "images")] if name in data.sizes else []
    return Picture(
        source=_png_address(figures.sample_sheet(images)),
        alternative=f"{_count(len(images), 'image', 'images')} assigned to the class {name}.",
        name=name,
        note=", ".join([*([note] if note else []), *size]),
    )


def _picture(figure: Figure, alternative: str, name: str = "") -> Picture:
    return Picture(_data_address("image/svg+xml", figures.to_svg(figure).encode()), alternative, name)


def _png_address(image: Image.Image) -> str:
    content = io.BytesIO()
    image.save(content, format="PNG", optimize=True)
    return _data_address("image/png", content.getvalue())


def _jpeg_address(pixels: NDArray[np.uint8], side: int) -> str:
    """Return the address of an image, (H, W, 1 or 3), of at most `side` pixels a side; little ones grow."""
    content = io.BytesIO()
    figures.to_tile(pixels, side).convert("RGB").save(content, format="JPEG", quality=80, optimize=True)
    return _data_address("image/jpeg", content.getvalue())


def _data_address(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
