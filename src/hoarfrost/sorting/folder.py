"""A folder is sorted: small groups are joined, and each image goes where it is most probable, until none moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import csr_array

from hoarfrost.sorting.evidence import Evidence, Roughness
from hoarfrost.sorting.joining import Groups, join
from hoarfrost.sorting.space import KnownClasses, Space

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

IMAGES_A_GROUP = 8
"""in the small groups from which joining begins, on average"""
MOST_GROUPS = 800
AT_ONCE = 3000
"""images among which small groups are looked for; memory grows with its square"""
ROUNDS, MOVES = 8, 10
"""of joining, and of moving images between two of them, at most"""
SETTLED = 0.999
"""the share of images that stay where they are, from which on nothing is done again"""


@dataclass(frozen=True)
class Sorted:
    """Of N images of a folder."""

    labels: Ids
    """(N,): a known class, 0 to K - 1, or a new one, from K on"""
    novel: int
    """how many classes are new"""


def sort_folder(
    known: KnownClasses,
    features: Floats,
    roughness: Roughness,
    cost: float,
    *,
    novel: int | None = None,
    only_new: bool = False,
    directions: int | None = None,
) -> Sorted:
    """Sorts a folder's features ``(N, D)``: how many classes are new, unless ``novel`` says it, and which image is of
    which class. With ``only_new`` none is of a known one. ``directions`` are for a folder that is made of hidden
    classes: as many as the real one will have, since evidence grows with them."""
    space = Space.of(known, features, directions)
    points = space.points(features)
    first = 0 if only_new else len(known.count)
    classes = Sorting(Evidence(space.between, roughness), points, known.count[:first], space.points(known.mean)[:first])
    labels = classes.sorted(cost, novel)
    found = int(max(labels.max(initial=-1) + 1 - first, 0))
    return Sorted(labels + (len(known.count) if only_new else 0), found)


class Sorting:
    """Points of a folder among known classes, of which there are ``count`` images (K,) with these means (K, q)."""

    def __init__(self, evidence: Evidence, points: Floats, count: Floats, mean: Floats) -> None:
        self.evidence, self.points, self.count, self.mean = evidence, points, count, mean
        self.known, self.moves = len(count), MOVES

    def sorted(self, cost: float, novel: int | None = None) -> Ids:
        """``(N,)``: a class for each point."""
        groups = self._small_groups()
        cells, before = groups, np.full(len(groups), -1)
        for _ in range(ROUNDS):
            labels = self._moved(self._joined(cells, cost, novel))
            if (labels == before).mean() > SETTLED:
                break
            before = labels
            cells = np.unique(np.stack([labels, groups]), axis=1, return_inverse=True)[1].reshape(-1)
        return labels

    def _small_groups(self) -> Ids:
        """``(N,)``: by Ward's method, where directions count by how well they tell classes apart."""
        between, scatter = self.evidence.between, self.evidence.roughness.scatter
        weighted = self.points * np.sqrt(between / (between + scatter))
        parts = -(-len(weighted) // AT_ONCE)
        whole = max(2, min(len(weighted) // IMAGES_A_GROUP, MOST_GROUPS))
        labels, first = np.zeros(len(weighted), dtype=np.int64), 0
        for part in range(parts):
            chosen = np.arange(part, len(weighted), parts)
            if len(chosen) > 1:
                labels[chosen] = fcluster(linkage(weighted[chosen], "ward"), max(2, whole // parts), "maxclust") - 1
            labels[chosen] += first
            first = int(labels[chosen].max()) + 1
        return labels

    def _joined(self, cells: Ids, cost: float, novel: int | None) -> Ids:
        """``(N,)``: classes of which each is some cells."""
        count, mean = self._counted(cells, int(cells.max()) + 1)
        groups = Groups(
            self.evidence, np.concatenate([self.count, count]), np.concatenate([self.mean, mean]), self.known
        )
        return renumbered(join(groups, cost, novel).to[cells], self.known)

    def _moved(self, labels: Ids) -> Ids:
        """Each point goes to the class in which it is most probable; its own is asked without it."""
        rows = np.arange(len(labels))
        for _ in range(self.moves):
            classes = max(int(labels.max()) + 1, self.known)
            count, mean = self._counted(labels, classes)
            total = count[:, None] * mean
            total[: self.known] += self.count[:, None] * self.mean
            count[: self.known] += self.count
            effective = self.evidence.roughness.effective
            scores = self.evidence.densities(self.points, effective(count), total / np.maximum(count, 1)[:, None])
            others = count[labels] - 1
            rest = (total[labels] - self.points) / np.maximum(others, 1)[:, None]
            own = self.evidence.own_densities(self.points, effective(others), rest)
            scores[rows, labels] = np.where(others > 0, own, -np.inf)
            after = renumbered(scores.argmax(axis=1), self.known)
            stays = (after == labels).mean()
            labels = after
            if stays > SETTLED:
                break
        return labels

    def _counted(self, labels: Ids, classes: int) -> tuple[Floats, Floats]:
        """``(classes,)`` and ``(classes, q)``: how many points have a label, and their mean."""
        count = np.bincount(labels, minlength=classes).astype(np.float64)
        of_class = csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(classes, len(labels)))
        return count, (of_class @ self.points) / np.maximum(count, 1)[:, None]


def renumbered(labels: Ids, known: int) -> Ids:
    """With new classes as ``known``, ``known`` + 1 and so on, in the order of their numbers.

    >>> renumbered(np.array([1, 7, 4, 7]), 3).tolist()
    [1, 4, 3, 4]
    """
    new = np.unique(labels[labels >= known])
    return np.where(labels < known, labels, known + np.searchsorted(new, labels))
