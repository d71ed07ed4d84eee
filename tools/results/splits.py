"""The splits of continual category discovery as lists, so that others can have the same images.

An image is known by its number within its class, from 0, in the order of the first eight bytes of the SHA-256 of its
pixels (uint8, height by width by channel), read as a little-endian number. So it does not matter in which order a copy
of the data set has its files. Where a class gives most of its images, a list has those that it does not give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hoarfrost.scenario import DRAWS, ClassOrder, class_order, continual_images, usual_stages

IMAGES_A_CLASS = 500

LISTED: dict[str, tuple[str, ClassOrder, str]] = {
    "cifar100-shuffled": ("cifar100", "shuffled", usual_stages(100)),
    "cifar100-natural": ("cifar100", "natural", usual_stages(100)),
    "cifar100-nine-stages": ("cifar100", "natural", "-".join(["10"] * 10)),
    "tiny-imagenet-shuffled": ("tiny-imagenet", "shuffled", usual_stages(200)),
    "tiny-imagenet-natural": ("tiny-imagenet", "natural", usual_stages(200)),
}
"""the data set, the order of its classes and the split of each list"""


def listed(name: str, classes: Sequence[str]) -> dict[str, Any]:
    """The content of a list; ``classes`` are the data set's in their natural order."""
    dataset, order, split = LISTED[name]
    sizes = tuple(map(int, split.split("-")))
    learned = class_order(len(classes), order=order, seed=0, labelled=sizes[0]).tolist()
    steps = continual_images([IMAGES_A_CLASS] * len(classes), sizes, DRAWS[dataset])
    return {
        "dataset": dataset,
        "split": split,
        "images_a_class": IMAGES_A_CLASS,
        "classes": list(classes),
        "learned": learned,
        "stages": [[_short(own.tolist()) for own in step] for step in steps],
    }


def _short(chosen: Sequence[int]) -> dict[str, list[int]]:
    """The numbers, or those that are left out where these are fewer."""
    left_out = np.setdiff1d(np.arange(IMAGES_A_CLASS), chosen).tolist()
    return {"all_but": left_out} if len(left_out) < len(chosen) else {"only": sorted(chosen)}
