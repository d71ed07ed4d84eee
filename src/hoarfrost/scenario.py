"""A data set as a sequence of steps: labelled classes first, then images of new classes without their labels.

A ``Step`` is all that training gets. From step 1 on it has no labels and no image of an earlier class, unless made for
a reference; the truth is kept apart, for evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError


@dataclass(frozen=True)
class Step:
    """What is learned at once."""

    index: int
    images: ImageSet
    """with labels in step 0, without any from step 1 on, but for an upper bound"""
    seen_classes: int
    """classes before this step"""
    novel: int
    """classes that this step brings"""
    labelled: ImageSet | None = None
    """the labelled images of step 0 again, from step 1 on; only for a reference that is built on them"""
    mixed: bool = False
    """whether some of its images are of classes of step 0"""


@dataclass(frozen=True)
class Truth:
    """What only evaluation sees of a step."""

    train_labels: NDArray[np.int64]
    """class ids of the step's images, in their order"""
    test: ImageSet
    """labelled test images of all classes up to this step"""


@dataclass(frozen=True)
class Scenario:
    """Steps to learn from, and their truth apart."""

    steps: tuple[Step, ...]
    truths: tuple[Truth, ...]
    class_names: tuple[str, ...]
    """in the order of the class ids"""

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)


def parse_split(text: str, classes: int) -> tuple[int, ...]:
    """``"80-10-10"`` as the number of classes a step.

    >>> parse_split("4-3-3", 10)
    (4, 3, 3)
    """
    parts = text.split("-")
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts) or len(parts) < 2:
        raise InputError(f"split '{text}' is not of the form 5-5 or 80-10-10")
    sizes = tuple(int(part) for part in parts)
    if sizes[0] < 2 or min(sizes) < 1:
        raise InputError(f"split '{text}': the first part needs at least 2 classes, and each other one at least 1")
    if sum(sizes) != classes:
        raise InputError(f"split '{text}' adds up to {sum(sizes)} classes, but the data set has {classes}")
    return sizes


def class_order(classes: int, *, order: Literal["natural", "seeded"], seed: int) -> NDArray[np.int64]:
    """The data set's classes in the order in which they are learned."""
    if order == "natural":
        return np.arange(classes)
    return np.random.default_rng(seed).permutation(classes)


def build_scenario(
    train: ImageSet,
    test: ImageSet,
    *,
    split: str,
    order: Literal["natural", "seeded"] = "natural",
    seed: int = 0,
    supervised: bool = False,
    labelled_images: bool = False,
    mixed: float = 0.0,
) -> Scenario:
    """Cuts labelled train and test images into steps. Class ids follow the order of learning.

    With ``supervised``, for an upper bound alone, every step has all images up to it, with their labels. With
    ``labelled_images``, for a reference alone, later steps have the images of step 0 with their labels too. The share
    ``mixed`` of the images of each class of step 0 is not in that step, and comes back unlabelled in all later ones.
    """
    if not 0 <= mixed < 1:
        raise InputError(f"the share of old images that come back must be from 0 to below 1, not {mixed:g}")
    if train.labels is None or test.labels is None:
        raise InputError("a scenario is made from labelled images")
    if train.class_names != test.class_names:
        raise InputError("train and test images name different classes: give both the same class_names")
    sizes = parse_split(split, len(train.class_names))
    learned = class_order(len(train.class_names), order=order, seed=seed)
    position = np.empty_like(learned)
    position[learned] = np.arange(len(learned))
    train_ids, test_ids = position[train.labels], position[test.labels]
    names = tuple(train.class_names[index] for index in learned)
    held_out = _held_out(train_ids, sizes[0], mixed, seed)
    steps: list[Step] = []
    truths: list[Truth] = []
    for index, size in enumerate(sizes):
        known = sum(sizes[:index])
        own = (train_ids >= (0 if supervised else known)) & (train_ids < known + size)
        chosen = np.flatnonzero(own | held_out if index else own & ~held_out)
        seen = np.flatnonzero(test_ids < known + size)
        labelled = replace(train.take(chosen), labels=train_ids[chosen], class_names=names[: known + size])
        if index > 0:
            # A folder's order is the order of its classes: the images come in one that no label has a part in.
            labelled = labelled.take(labelled.canonical_order())
        assert labelled.labels is not None
        images = labelled if index == 0 or supervised else replace(labelled.without_labels(), paths=None)
        again = steps[0].images if index > 0 and labelled_images else None
        steps.append(Step(index, images, known, size, again, mixed=index > 0 and mixed > 0))
        tested = replace(test.take(seen), labels=test_ids[seen], class_names=names[: known + size])
        truths.append(Truth(labelled.labels, tested))
    return Scenario(tuple(steps), tuple(truths), names)


def _held_out(ids: NDArray[np.int64], classes: int, share: float, seed: int) -> NDArray[np.bool_]:
    """``(N,)``: a random share of the images of each of the first classes, though never all of a class."""
    held_out, random = np.zeros(len(ids), dtype=bool), np.random.default_rng(seed)
    for label in range(classes):
        own = random.permutation(np.flatnonzero(ids == label))
        held_out[own[: min(round(share * len(own)), max(len(own) - 1, 0))]] = True
    return held_out
