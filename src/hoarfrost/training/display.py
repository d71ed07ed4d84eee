"""What notebooks show of predictions and of a learner: a table with small pictures."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.images import ImageSet, UnreadableImage
from hoarfrost.errors import InputError
from hoarfrost.printing import printable

ROWS = 24
"""rows of a table"""

EXAMPLES = 4
"""pictures of a class"""

SIDE = 48
"""pixels of a picture's sides"""


def examples(images: ImageSet, ids: NDArray[np.int64]) -> dict[int, ImageSet]:
    """Some images of each class that has any, the first ones."""
    order = np.argsort(ids, kind="stable")
    classes, starts = np.unique(ids[order], return_index=True)
    parts = zip(classes.tolist(), np.split(order, starts[1:]), strict=True)
    return {c: images.take(positions[:EXAMPLES]) for c, positions in parts if c >= 0}


def pictures(images: ImageSet | None) -> str:
    """Images side by side; nothing for those that cannot be read any more."""
    if images is None:
        return ""
    try:
        return "".join(map(_picture, images.pixels(slice(None))))
    except (InputError, UnreadableImage, OSError):
        return ""


def _picture(pixels: NDArray[np.uint8]) -> str:
    from PIL import Image

    image, file = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels), BytesIO()
    image.resize((SIDE, SIDE)).save(file, "PNG")
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}">'


def table(title: str, heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], left: int) -> str:
    """A table under a title; of each row its pictures, as HTML, and its texts, as they are; ``left`` more are told."""
    lines = [f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in ('', *heads))}</tr>"]
    for shown, texts in rows:
        cells = "".join(f"<td>{escape(printable(text))}</td>" for text in texts)
        lines.append(f"<tr><td>{shown}</td>{cells}</tr>")
    more = f"<p>and {left} more</p>" if left > 0 else ""
    return f"<p>{escape(printable(title))}</p><table>{''.join(lines)}</table>{more}"


def of_classes(title: str, names: Mapping[int, tuple[str, int]], shown: Mapping[int, ImageSet]) -> str:
    """The classes of a learner by id, each with its name and the discovery that found it, 0 for a labelled one."""
    rows = (
        (pictures(shown.get(k)), (name, f"discovered in step {step}" if step else "labelled"))
        for k, (name, step) in [*names.items()][:ROWS]
    )
    return table(title, ("class", "kind"), rows, len(names) - ROWS)
