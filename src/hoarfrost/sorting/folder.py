"""A folder is sorted: small groups are joined, and each image goes where it is most probable, until none moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import csr_array

from hoarfrost.sorting.evidence import Evidence
from hoarfrost.sorting.joining import Groups, Joined, join
from hoarfrost.sorting.space import KnownClasses, Space

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

CERTAIN = 2.0
"""times what is worth by chance: what is worth no more is not new"""
DOUBT = 3.0
"""what a class is worth, or a joining of two gains, up to which there may as well be one class less, or more: odds of
20 to 1"""
LEAST = 4
"""images in a new class; fewer are strange"""
TYPICAL = 0.8
"""the share of a new class's images, the nearest to its mean, that are remembered of it"""
IMAGES_A_GROUP = 8
"""in the small groups from which joining begins, on average"""
MOST_GROUPS = 800
AT_ONCE = 3000
"""images among which small groups are looked for; memory grows with its square"""
ROUNDS, MOVES = 4, 10
"""of joining, and of moving images between two of them, at most"""
SETTLED = 0.999
"""the share of images that stay where they are, from which on nothing is done again"""


@dataclass(frozen=True)
class Sorter:
    """What known classes, some of which were hidden, tell of folders to come."""

    roughness: float
    """how much less the images of a real class tell than those of a Gaussian one, as `evidence` has it"""
    roughness_alone: float
    """the same in folders where all is new"""
    chance: float = 0.0
    """the most that all new classes together were worth which were found where nothing was hidden"""


@dataclass(frozen=True)
class FolderSort:
    """What each of N images of a folder is."""

    labels: Ids
    """(N,): a known class, 0 to K - 1; a new one, from K on; -1 for what is strange"""
    novel: int
    """how many classes are new"""
    least: int
    most: int
    """the range of that number: without the classes that are worth little, and with halves of classes"""
    likeness: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """(n, K + n): what joining each new class with each class would gain, mostly less than 0; nan for itself"""
    distance: Floats = field(default_factory=lambda: np.zeros(0))
    """(N,): squared, of each image from the mean of its class"""

    @property
    def strange(self) -> NDArray[np.bool_]:
        """(N,): whether an image is one of a few that are like each other and like no class."""
        found: NDArray[np.bool_] = self.labels < 0
        return found

    @property
    def typical(self) -> NDArray[np.bool_]:
        """(N,): whether an image is one of the nearest to the mean of its class."""
        order = np.lexsort((self.distance, self.labels))
        ordered = self.labels[order]
        place = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        sizes = np.searchsorted(ordered, ordered, side="right") - np.searchsorted(ordered, ordered)
        found = np.empty(len(order), dtype=bool)
        found[order] = place < np.ceil(TYPICAL * sizes)
        return found

    @property
    def worth(self) -> Floats:
        """(n,): what is lost without each new class, which is then joined with the one most like it."""
        return worth(self.likeness)


def sort_folder(
    known: KnownClasses,
    features: Floats,
    sorter: Sorter,
    *,
    novel: int | None = None,
    only_new: bool = False,
    directions: int | None = None,
) -> FolderSort:
    """Sorts a folder's features ``(N, D)``: how many classes are new, unless ``novel`` says it, and which image is of
    which class.

    With ``only_new`` none is of a known one. ``directions`` are for a folder that is made of hidden classes: as many
    as the real one will have, since evidence grows with them.
    """
    if not len(features):
        return FolderSort(np.zeros(0, dtype=np.int64), 0, 0, 0)
    space, classes = Space.of(known, features, directions), len(known.count)
    first = 0 if only_new else classes
    points, means = space.points(features), space.points(known.mean)
    evidence = Evidence(space.between, sorter.roughness_alone if only_new else sorter.roughness)
    found = Sorting(evidence, points, known.count[:first], means[:first]).sorted(novel)
    if novel is None and not only_new and worth(found.gains).sum() <= CERTAIN * sorter.chance:
        nothing = Sorting(evidence, points, known.count, means).sorted(0)
        return FolderSort(nothing.labels, 0, 0, 0, distance=nothing.distance)
    sizes = np.bincount(found.labels, minlength=first)[first:]
    real = (sizes >= LEAST) | (novel is not None)
    if only_new and not real.any():
        real = sizes == sizes.max(initial=0)
    to = np.concatenate([np.arange(first), np.where(real, classes + np.cumsum(real) - 1, -1)])
    number, sure = int(real.sum()), int((real & (worth(found.gains) > DOUBT)).sum())
    if only_new:
        sure = max(sure, 1)
    likeness = np.full((number, classes + number), np.nan)
    kept = np.concatenate([np.ones(first, dtype=bool), real])
    likeness[:, classes - first :] = found.gains[real][:, kept]
    least, most = (number, number) if novel is not None else (min(sure, number), number + found.halves)
    return FolderSort(to[found.labels], number, least, most, likeness, found.distance)


@dataclass(frozen=True)
class Found:
    """What a sorting has found of N points beside K known classes."""

    labels: Ids
    """(N,): a known class, or a new one from there on"""
    gains: Floats
    """(n, K + n): what joining a new class with each class would gain; nan for itself"""
    joined: Joined
    """how groups became classes"""
    distance: Floats
    """(N,): squared, of each point from the mean of its class"""

    @property
    def halves(self) -> int:
        """How many joinings of two large groups gained little: they may have made one class of two."""
        sizes = np.bincount(self.labels, minlength=1)
        large = self.joined.smaller >= max(LEAST, np.median(sizes[sizes > 0]) / 2)
        return int((large & (self.joined.gains <= DOUBT)).sum())


class Sorting:
    """Points of a folder among known classes, of which there are ``count`` images (K,) with these means (K, q)."""

    def __init__(self, evidence: Evidence, points: Floats, count: Floats, mean: Floats) -> None:
        self.evidence, self.points, self.count, self.mean = evidence, points, count, mean
        self.known, self.moves = len(count), MOVES

    def sorted(self, novel: int | None = None) -> Found:
        """A class for each point."""
        groups = self._small_groups(novel or 0)
        cells, before = groups, np.full(len(groups), -1)
        for _ in range(ROUNDS):
            joined = self._joined(cells, novel)
            together = renumbered(joined.to[cells], self.known)
            labels = self._moved(together)
            if novel and labels.max() + 1 - self.known < novel:  # a class has lost its last image
                labels = together
            if (labels == before).mean() > SETTLED:
                break
            before = labels
            cells = np.unique(np.stack([labels, groups]), axis=1, return_inverse=True)[1].reshape(-1)
        count, total = self._with_known(labels)
        apart = self.points - (total / np.maximum(count, 1)[:, None])[labels]
        return Found(labels, self._likeness(labels), joined, (apart * apart).sum(axis=1))

    def _small_groups(self, least: int) -> Ids:
        """``(N,)``: by Ward's method, where directions count by how well they tell classes apart."""
        between = self.evidence.between
        typical = float(self.evidence.redundancy(np.array(float(IMAGES_A_GROUP))))
        weighted = self.points * np.sqrt(between / (between + typical))
        parts = -(-len(weighted) // AT_ONCE)
        whole = min(max(2, least, min(len(weighted) // IMAGES_A_GROUP, MOST_GROUPS)), len(weighted))
        labels, first = np.zeros(len(weighted), dtype=np.int64), 0
        for part in range(parts):
            chosen = np.arange(part, len(weighted), parts)
            if len(chosen) > 1:
                labels[chosen] = fcluster(linkage(weighted[chosen], "ward"), max(2, -(-whole // parts)), "maxclust") - 1
            labels[chosen] += first
            first = int(labels[chosen].max()) + 1
        return labels

    def _joined(self, cells: Ids, novel: int | None) -> Joined:
        """Classes, of which each is some cells."""
        count, mean = self._counted(cells, int(cells.max()) + 1)
        groups = Groups(
            self.evidence, np.concatenate([self.count, count]), np.concatenate([self.mean, mean]), self.known
        )
        return join(groups, novel)

    def _moved(self, labels: Ids) -> Ids:
        """Each point goes to the class in which it is most probable; its own is asked without it."""
        rows = np.arange(len(labels))
        for _ in range(self.moves):
            count, total = self._with_known(labels)
            scores = self.evidence.densities(self.points, count, total / np.maximum(count, 1)[:, None])
            others = count[labels] - 1
            rest = (total[labels] - self.points) / np.maximum(others, 1)[:, None]
            own = self.evidence.own_densities(self.points, others, rest)
            scores[rows, labels] = np.where(others > 0, own, -np.inf)
            after = renumbered(scores.argmax(axis=1), self.known)
            stays = (after == labels).mean()
            labels = after
            if stays > SETTLED:
                break
        return labels

    def _likeness(self, labels: Ids) -> Floats:
        """``(n, K + n)``: what joining each new class with each other would gain."""
        count, total = self._with_known(labels)
        mean = total / np.maximum(count, 1)[:, None]
        new = range(self.known, len(count))
        gains = [self.evidence.gains(float(count[c]), mean[c], count, mean) for c in new]
        found = np.stack(gains) if gains else np.zeros((0, len(count)))
        found[np.arange(len(found)), np.arange(self.known, len(count))] = np.nan
        return found

    def _with_known(self, labels: Ids) -> tuple[Floats, Floats]:
        """``(C,)`` and ``(C, q)``: how many images each class has, with those that are remembered, and their sum."""
        count, mean = self._counted(labels, max(int(labels.max()) + 1, self.known))
        total = count[:, None] * mean
        total[: self.known] += self.count[:, None] * self.mean
        count[: self.known] += self.count
        return count, total

    def _counted(self, labels: Ids, classes: int) -> tuple[Floats, Floats]:
        """``(classes,)`` and ``(classes, q)``: how many points have a label, and their mean."""
        count = np.bincount(labels, minlength=classes).astype(np.float64)
        of_class = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(classes, len(labels)))
        return count, (of_class @ self.points) / np.maximum(count, 1)[:, None]


def worth(gains: Floats) -> Floats:
    """``(n,)``: what is lost without each new class, of what joining it with each class gains ``(n, K + n)``."""
    others = np.where(np.isnan(gains), -np.inf, gains)
    return np.asarray(-others.max(axis=1, initial=-np.inf))


def renumbered(labels: Ids, known: int) -> Ids:
    """With new classes as ``known``, ``known`` + 1 and so on, in the order of their numbers.

    >>> renumbered(np.array([1, 7, 4, 7]), 3).tolist()
    [1, 4, 3, 4]
    """
    new = np.unique(labels[labels >= known])
    return np.where(labels < known, labels, known + np.searchsorted(new, labels))
