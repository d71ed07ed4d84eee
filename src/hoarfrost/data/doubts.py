"""What is worth a second look in a labelled set before it is learned from, a line each; without torch."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from hoarfrost.data.images import ImageSet, in_chunks
from hoarfrost.reading import open_regular

FEW = 5
"""images of a class below which little can be learned of it"""

UNEVEN = 10
"""times that the largest class may have the images of the smallest"""

COMPARED = 1 << 20
"""bytes, the first of a file, that are compared; what follows may be gigabytes"""

NAMED = 3
"""how many examples a line has; the rest is counted"""


def doubts(images: ImageSet, folder: Path) -> list[str]:
    """Classes with few images, uneven ones, names that differ in case alone, copies; ``folder`` has their paths."""
    assert images.labels is not None
    counts = np.bincount(images.labels, minlength=len(images.class_names)).tolist()
    sizes = sorted((count, name) for name, count in zip(images.class_names, counts, strict=True) if count)
    lines = []
    if few := [f"{name} {count}" for count, name in sizes if count < FEW]:
        lines.append(
            f"{_classes(len(few))} fewer than {FEW} images ({_some(few)}): their predictions will be unreliable"
        )
    (least, smallest), (most, largest) = sizes[0], sizes[-1]
    if most > UNEVEN * least:
        lines.append(f"class sizes are very uneven: {largest} has {most} images, {smallest} has {least}")
    alike = defaultdict(list)
    for name in images.class_names:
        alike[name.casefold()].append(name)
    if same := [" and ".join(names) for names in alike.values() if len(names) > 1]:
        lines.append(f"class names that differ only in upper and lower case: {_some(same)}; are they one class?")
    return lines + _copies(images, folder)


def _classes(count: int) -> str:
    return "1 class has" if count == 1 else f"{count} classes have"


def _some(examples: Sequence[str]) -> str:
    more = f" and {len(examples) - NAMED} more" if len(examples) > NAMED else ""
    return ", ".join(examples[:NAMED]) + more


def _copies(images: ImageSet, folder: Path) -> list[str]:
    """Of images that are there twice, within a class and in several."""
    assert images.labels is not None
    within, between = list[str](), list[str]()
    for same in _same_content(images, folder):
        first = _name(images, same[0])
        for other in same[1:]:
            apart = images.labels[other] != images.labels[same[0]]
            (between if apart else within).append(f"{_name(images, other)} is {first}")
    lines = []
    if between:
        lines.append(f"the same image is in more than one class: {_some(between)}; one label must be wrong")
    if within:
        lines.append(f"duplicate images within a class: {_some(within)}")
    return lines


def _name(images: ImageSet, index: int) -> str:
    return f"image {index}" if images.paths is None else images.paths[index]


def _same_content(images: ImageSet, folder: Path) -> Iterable[list[int]]:
    """Positions of images with the same pixels; of files, with the same size and the same first bytes."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    if images.paths is None:
        for rows in in_chunks(len(images)):
            for index, pixels in zip(rows, images.pixels(slice(rows.start, rows.stop)), strict=True):
                groups[hashlib.sha256(pixels.tobytes()).digest()].append(index)
        return (same for same in groups.values() if len(same) > 1)
    files, by_size = [folder / path for path in images.paths], defaultdict[int, list[int]](list)
    for index, file in enumerate(files):
        by_size[file.stat().st_size].append(index)
    for size, same_size in by_size.items():
        for index in same_size if len(same_size) > 1 else ():  # others cannot be the same
            with open_regular(files[index]) as content:
                groups[hashlib.sha256(b"%d " % size + content.read(COMPARED)).digest()].append(index)
    return (same for same in groups.values() if len(same) > 1)
