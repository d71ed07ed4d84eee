"""A data set as a sequence of steps: labelled classes first, then images of new classes without their labels.

A ``Step`` is all that training gets. From step 1 on it has no labels and no image of an earlier class, unless made for
a reference; the truth is kept apart, for evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
    """whether some of its images are of classes that came before"""


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
        raise InputError(f"split '{text}': the first part needs at least 2 classes, the others at least 1")
    if sum(sizes) != classes:
        raise InputError(f"split '{text}' adds up to {sum(sizes)} classes, but the data set has {classes}")
    return sizes


ClassOrder = Literal["natural", "seeded", "shuffled"]


def class_order(classes: int, *, order: ClassOrder, seed: int, labelled: int = 0) -> NDArray[np.int64]:
    """The data set's classes in the order in which they are learned.

    ``shuffled`` leaves the ``labelled`` ones in their places, and has the others as Happy has them, whatever the seed.
    """
    natural = np.arange(classes)
    if order == "shuffled":
        np.random.RandomState(0).shuffle(natural[labelled:])
    return np.random.default_rng(seed).permutation(classes) if order == "seeded" else natural


@dataclass(frozen=True, kw_only=True)
class Draws:
    """How many images of a class are in a step of continual category discovery; a class that has fewer gives all."""

    new: int
    """of a class that is new"""
    labelled: int
    """of each class of step 0, from those that were not in it"""
    earlier: int
    """of each class that an earlier step brought"""


LABELLED_SHARE = 0.8
"""of the images of each class of step 0 in continual category discovery; the others come back without labels"""

DRAWS = {
    "cifar10": Draws(new=4000, labelled=250, earlier=250),
    "cifar100": Draws(new=400, labelled=25, earlier=25),
    "tiny-imagenet": Draws(new=400, labelled=25, earlier=25),
}
"""as Happy (Ma et al., NeurIPS 2024) has them"""


def usual_draws(dataset: str, images_a_class: int) -> Draws:
    """Those of a data set; of any other the shares that Happy takes of CUB, 25, 5 and 5 of 30 images.

    >>> usual_draws("flowers", 60)
    Draws(new=50, labelled=10, earlier=10)
    """
    back = max(1, round(images_a_class / 6))
    return DRAWS.get(dataset) or Draws(new=max(1, round(images_a_class * 5 / 6)), labelled=back, earlier=back)


def usual_stages(classes: int) -> str:
    """The split of continual category discovery: half of the classes labelled, the others in five steps.

    >>> usual_stages(100), usual_stages(24)
    ('50-10-10-10-10-10', '12-3-3-2-2-2')
    """
    labelled = classes // 2
    return "-".join(map(str, [labelled, *map(len, np.array_split(np.arange(classes - labelled), 5))]))


def continual_images(images: Sequence[int], sizes: Sequence[int], draws: Draws) -> list[list[NDArray[np.int64]]]:
    """Which images are in which step of continual category discovery: for each step and class so far their numbers.

    ``images`` has the number of images of each class in the order of learning, and ``sizes`` the classes of each step.
    Every step draws anew from the images of a labelled class that have no labels, and from all of a class discovered
    earlier. The draws are the same for every seed and in every version of NumPy.
    """
    random = np.random.RandomState(0)
    shuffled = [random.permutation(count) for count in images]
    ends = [int(LABELLED_SHARE * count) for count in images]
    steps = [[own[:end] for own, end in zip(shuffled[: sizes[0]], ends, strict=False)]]
    for index in range(1, len(sizes)):
        known = sum(sizes[:index])
        step = [
            random.permutation(own[end:])[: draws.labelled]
            for own, end in zip(shuffled[: sizes[0]], ends, strict=False)
        ]
        step += [random.permutation(own)[: draws.earlier] for own in shuffled[sizes[0] : known]]
        steps.append([*step, *(own[: draws.new] for own in shuffled[known : known + sizes[index]])])
    return steps


def build_scenario(
    train: ImageSet,
    test: ImageSet,
    *,
    split: str,
    order: ClassOrder = "natural",
    seed: int = 0,
    supervised: bool = False,
    labelled_images: bool = False,
    mixed: float = 0.0,
    draws: Draws | None = None,
) -> Scenario:
    """Cuts labelled train and test images into steps. Class ids follow the order of learning.

    With ``supervised``, for an upper bound alone, every step has all images up to it, with their labels. With
    ``labelled_images``, for a reference alone, later steps have the images of step 0 with their labels too. The share
    ``mixed`` of the images of each class of step 0 is not in that step, and comes back unlabelled in all later ones.
    With ``draws`` the steps are those of continual category discovery (`continual_images`).
    """
    if not 0 <= mixed < 1:
        raise InputError(f"--mixed must be at least 0 and below 1, not {mixed:g}")
    if train.labels is None or test.labels is None:
        raise InputError("a scenario needs labelled images")
    if train.class_names != test.class_names:
        raise InputError("training and test images have different classes: give both the same class_names")
    sizes = parse_split(split, len(train.class_names))
    learned = class_order(len(train.class_names), order=order, seed=seed, labelled=sizes[0])
    position = np.empty_like(learned)
    position[learned] = np.arange(len(learned))
    train_ids, test_ids = position[train.labels], position[test.labels]
    names = tuple(train.class_names[index] for index in learned)
    held_out = _held_out(train_ids, sizes[0], mixed, seed)
    drawn = None if draws is None else _drawn(train, train_ids, sizes, draws)
    steps: list[Step] = []
    truths: list[Truth] = []
    for index, size in enumerate(sizes):
        known = sum(sizes[:index])
        own = (train_ids >= (0 if supervised else known)) & (train_ids < known + size)
        chosen = drawn[index] if drawn else np.flatnonzero(own | held_out if index else own & ~held_out)
        seen = np.flatnonzero(test_ids < known + size)
        labelled = replace(train.take(chosen), labels=train_ids[chosen], class_names=names[: known + size])
        if index > 0:
            # A folder's order is the order of its classes: the images come in one that no label has a part in.
            labelled = labelled.take(labelled.canonical_order())
        assert labelled.labels is not None
        images = labelled if index == 0 or supervised else replace(labelled.without_labels(), paths=None)
        again = steps[0].images if index > 0 and labelled_images else None
        steps.append(Step(index, images, known, size, again, mixed=index > 0 and (mixed > 0 or drawn is not None)))
        tested = replace(test.take(seen), labels=test_ids[seen], class_names=names[: known + size])
        truths.append(Truth(labelled.labels, tested))
    return Scenario(tuple(steps), tuple(truths), names)


def _drawn(train: ImageSet, ids: NDArray[np.int64], sizes: Sequence[int], draws: Draws) -> list[NDArray[np.int64]]:
    """For each step the positions of its images. Those of a class are numbered by their content, not by their place."""
    order = train.canonical_order()
    members = [order[ids[order] == label] for label in range(sum(sizes))]
    steps = continual_images([len(own) for own in members], sizes, draws)
    return [np.concatenate([own[chosen] for own, chosen in zip(members, step, strict=False)]) for step in steps]


def _held_out(ids: NDArray[np.int64], classes: int, share: float, seed: int) -> NDArray[np.bool_]:
    """``(N,)``: a random share of the images of each of the first classes, though never all of a class."""
    held_out, random = np.zeros(len(ids), dtype=bool), np.random.default_rng(seed)
    for label in range(classes):
        own = random.permutation(np.flatnonzero(ids == label))
        held_out[own[: min(round(share * len(own)), max(len(own) - 1, 0))]] = True
    return held_out
