"""What is to be expected of folders to come: known classes are hidden, and folders that hold them are sorted.

In each draw a third of the known classes is hidden. Half of the images of the others is labelled; the other half and
the hidden ones are the folder. A few images of each class are held out for probabilities, which are not learned yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.sorting.folder import LEAST, FolderSort, Sorter, sort_folder
from hoarfrost.sorting.space import KnownClasses

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

DRAWS = 6
"""times that known classes are hidden"""
CROWDING = 0.6
"""the power with which roughness falls with the number of known classes, among which new ones are lost"""
MOST_CLASSES, MOST_IMAGES = 48, 40
"""known classes in a draw, and images of each"""
ROUGHNESSES = np.geomspace(0.25, 1.8, 8)
"""that are tried"""
USUAL, USUAL_ALONE, USUAL_WEIGHT = 0.7, 1.1, 0.3
"""the roughness that photographs have as a rule, in a mixed folder and where all is new; and what a difference from it
weighs against a difference of the numbers, since few classes that are hidden say little"""


@dataclass(frozen=True)
class Draw:
    """Known classes in a new order; the last are hidden."""

    ids: Ids
    """(N,): their new ids; -1 for images of classes that are not in this draw"""
    known: int
    """how many are not hidden"""
    labelled: Ids
    folder: Ids
    tested: Ids
    """positions of what is labelled, of what lies in the folder, and of what is held out"""

    @property
    def hidden(self) -> int:
        """How many classes are."""
        return int(self.ids.max(initial=-1)) + 1 - self.known


def draw(labels: Ids, random: np.random.Generator) -> Draw:
    """Hides a third of the classes that have images enough, at random."""
    sizes = np.bincount(labels)
    order = random.permutation(np.flatnonzero(sizes >= LEAST))[:MOST_CLASSES]
    known = len(order) - len(order) // 3
    ids, labelled, folder, tested = np.full(len(labels), -1), [], [], []
    for number, label in enumerate(order):
        own = random.permutation(np.flatnonzero(labels == label))[:MOST_IMAGES]
        ids[own] = number
        out, own = np.split(own, [max(1, len(own) // 6)])
        half = (len(own) + 1) // 2 if number < known else 0
        tested.append(out)
        labelled.append(own[:half])
        folder.append(own[half:])
    none = np.zeros(0, dtype=np.int64)
    return Draw(ids, known, *(np.concatenate([none, *parts]) for parts in (labelled, folder, tested)))


class Hidden:
    """Features ``(N, D)`` of known classes with ids ``(N,)``, some of which are hidden in each of some draws."""

    def __init__(self, features: Floats, labels: Ids, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.classes = len(np.unique(labels))
        self.directions = KnownClasses.of(features, np.unique(labels, return_inverse=True)[1]).directions
        self.features = main_directions(features, 2 * self.directions)
        self.draws = [draw(labels, random) for _ in range(DRAWS)]

    def sorted(self, case: Draw, sorter: Sorter, *, hidden: bool = True, only_new: bool = False) -> FolderSort:
        """The folder of a draw, with its hidden classes or without them; or these alone, where all is new."""
        is_hidden = case.ids[case.folder] >= case.known
        folder = case.folder[is_hidden] if only_new else case.folder[is_hidden <= hidden]
        known = KnownClasses.of(self.features[case.labelled], case.ids[case.labelled])
        return sort_folder(known, self.features[folder], sorter, only_new=only_new, directions=self.directions)

    def learned(self, tell: Callable[[], None] = lambda: None) -> Sorter:
        """The roughness with which as many classes are found as are hidden, and what was worth most by chance.

        Of fewer than three classes none can be hidden: then the roughness is what is usual.
        """
        if not all(case.hidden for case in self.draws):
            return Sorter(USUAL, USUAL_ALONE)
        mixed, alone = (self._roughness(only_new, tell) for only_new in (False, True))
        sorter = Sorter(mixed, alone, -np.inf)
        chance = [self.sorted(case, sorter, hidden=False).worth.sum() for case in self.draws]
        inner = float(np.mean([case.known for case in self.draws]))
        return Sorter(mixed * (self.classes / inner) ** -CROWDING, alone, float(max(0.0, *chance)))

    def _roughness(self, only_new: bool, tell: Callable[[], None]) -> float:
        """Where the share of classes that is found is nearest to 1, and the roughness itself to what is usual."""
        wanted, lost = sum(case.hidden for case in self.draws), []
        for roughness in ROUGHNESSES:
            sorter = Sorter(float(roughness), float(roughness), -np.inf)
            found = sum(self.sorted(case, sorter, only_new=only_new).novel for case in self.draws)
            unusual = math.log(roughness / (USUAL_ALONE if only_new else USUAL))
            lost.append((found / wanted - 1) ** 2 + USUAL_WEIGHT * unusual**2)
            tell()
        return float(ROUGHNESSES[int(np.argmin(lost))])


def main_directions(features: Floats, count: int) -> Floats:
    """Features ``(N, D)`` in the directions in which they vary most, ``(N, count)`` or fewer."""
    centred = features - features.mean(axis=0)
    products = centred.T @ centred if len(centred) > centred.shape[1] else centred @ centred.T
    values, vectors = np.linalg.eigh(products)
    vectors = vectors[:, ::-1][:, :count]
    if len(centred) > centred.shape[1]:
        return np.asarray(centred @ vectors)
    return np.asarray(vectors * np.sqrt(np.maximum(values[::-1][:count], 0)))
