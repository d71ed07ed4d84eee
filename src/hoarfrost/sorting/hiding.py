"""What is to be expected of folders to come: known classes are hidden, and folders that hold them are sorted.

In each draw a third of the known classes is hidden. Half of the images of the others is labelled; the other half and
the hidden ones are the folder. A few images of each class are held out: from them it is learned how sure one may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from hoarfrost.metrics import match_unequal
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
CHANCE = 10.0
"""what is taken to be worth no more than chance, at least, since a few small draws may show less than there will be"""
TEMPERATURES = np.geomspace(0.05, 100, 200)
"""that are tried"""
UNLIKE = 2.0
"""times the median squared distance of held-out images of known classes: what lies farther off is unlike everything"""
TRIED = 2 * len(ROUGHNESSES) + DRAWS
"""times that something is tried, in all"""
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
    """Features ``(N, D)`` of known classes with ids ``(N,)``, some of which are hidden in each of some draws.

    ``diagonal``: of classes variances alone are known.
    """

    def __init__(self, features: Floats, labels: Ids, seed: int, *, diagonal: bool = False) -> None:
        random = np.random.default_rng(seed)
        self.diagonal, self.labels = diagonal, np.unique(labels, return_inverse=True)[1]
        self.classes = len(np.unique(labels))
        self.directions = self._known(features, self.labels).directions
        self.whole, self.features = features, main_directions(features, 2 * self.directions)
        some = bool((np.bincount(labels) >= LEAST).any())
        self.draws = [draw(labels, random) for _ in range(DRAWS)] if some else []

    def _known(self, features: Floats, labels: Ids) -> KnownClasses:
        return KnownClasses.of(features, labels, diagonal=self.diagonal)

    def sorted(
        self, case: Draw, sorter: Sorter, *, hidden: bool = True, only_new: bool = False, novel: int | None = None
    ) -> FolderSort:
        """The folder of a draw, with its hidden classes or without them.

        Where all is new, it holds the hidden classes alone, and all images of the others are labelled.
        """
        is_hidden = case.ids[case.folder] >= case.known
        labelled, folder = case.labelled, case.folder[is_hidden <= hidden]
        if only_new:
            labelled, folder = np.concatenate([labelled, case.folder[~is_hidden]]), case.folder[is_hidden]
        known = self._known(self.features[labelled], case.ids[labelled])
        directions = None if only_new else self.directions
        return sort_folder(known, self.features[folder], sorter, novel=novel, only_new=only_new, directions=directions)

    def learned(self, tell: Callable[[], None] = lambda: None) -> Sorter:
        """The roughness with which as many classes are found as are hidden, and what was worth most by chance.

        Of fewer than three classes none can be hidden: then the roughness is what is usual.
        """
        if not self.draws or not all(case.hidden for case in self.draws):
            return Sorter(USUAL, USUAL_ALONE, CHANCE)
        mixed, alone = (self._roughness(only_new, tell) for only_new in (False, True))
        sorter = Sorter(mixed, alone, -np.inf)
        chance = [self.sorted(case, sorter, hidden=False).worth.sum() for case in self.draws]
        inner = float(np.mean([case.known for case in self.draws]))
        return Sorter(mixed * (self.classes / inner) ** -CROWDING, alone, float(max(CHANCE, *chance)))

    def sureness(self, sorter: Sorter, ridge: float, tell: Callable[[], None] = lambda: None) -> Sureness | None:
        """The temperature with which the mean probability of held-out images is the share of them that is right.

        They are scored as a readout with this ``ridge``, and one covariance for all classes, scores them after a
        discovery. All images of known classes are labelled here, and the hidden classes, whose number is given, lie in
        a folder of their own: so there is about as much to learn from as later on. None where no class has enough.
        """
        if not self.draws:
            return None
        scores, right, distances = list[Floats](), list[NDArray[np.bool_]](), list[Floats]()
        for case in self.draws:
            true = case.ids[case.folder]
            hidden = case.folder[true >= case.known]
            found = self.sorted(case, sorter, only_new=True, novel=case.hidden)
            labelled = np.concatenate([case.labelled, case.folder[true < case.known]])
            rows = np.concatenate([labelled, hidden[found.typical]])
            ids = np.concatenate([case.ids[labelled], found.labels[found.typical]])
            own = readout_scores(self.whole[rows], ids, self.whole[case.tested], ridge, diagonal=self.diagonal)
            clusters, classes = found.labels - case.known, case.ids[hidden] - case.known
            matched = match_unequal(clusters, classes, clusters=found.novel, classes=case.hidden)
            target = np.concatenate([np.arange(case.known), np.where(matched < 0, -1, case.known + matched)])
            scores.append(own)
            right.append(own.argmax(axis=1) == target[case.ids[case.tested]])
            distances.append(-2 * own.max(axis=1)[case.ids[case.tested] < case.known])
            tell()
        wanted = np.concatenate(right).mean()
        sure = [np.concatenate([_highest(own / some) for own in scores]).mean() for some in TEMPERATURES]
        usual = float(np.median(np.concatenate(distances)))
        unlike = UNLIKE * usual if usual > 0 else None
        return Sureness(float(TEMPERATURES[int(np.abs(np.array(sure) - wanted).argmin())]), unlike)

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


@dataclass(frozen=True)
class Sureness:
    """How sure a readout may be of photographs."""

    temperature: float
    unlike: float | None
    """the squared distance from the nearest class beyond which an image is unlike everything; None where nothing
    varies"""


def readout_scores(features: Floats, ids: Ids, tested: Floats, ridge: float, *, diagonal: bool) -> Floats:
    """``(n, C)``: log-likelihoods of features, but for what all classes have in common."""
    known = KnownClasses.of(features, ids, diagonal=diagonal)
    within = known.within * (known.degrees / len(features))
    size = len(within)
    root = cholesky(within + ridge * max(np.trace(within) / size, 1e-12) * np.eye(size), lower=True)
    points, means = (solve_triangular(root, rows.T, lower=True).T for rows in (tested, known.mean))
    squares = (points * points).sum(axis=1)[:, None] + (means * means).sum(axis=1)
    found: Floats = np.minimum(points @ means.T - squares / 2, 0)
    return found


def _highest(scores: Floats) -> Floats:
    """``(N,)``: the highest probability of each row."""
    found: Floats = 1 / np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)
    return found


def main_directions(features: Floats, count: int) -> Floats:
    """Features ``(N, D)`` in the directions in which they vary most, ``(N, count)`` or fewer."""
    centred = features - features.mean(axis=0)
    products = centred.T @ centred if len(centred) > centred.shape[1] else centred @ centred.T
    values, vectors = np.linalg.eigh(products)
    vectors = vectors[:, ::-1][:, :count]
    if len(centred) > centred.shape[1]:
        return np.asarray(centred @ vectors)
    return np.asarray(vectors * np.sqrt(np.maximum(values[::-1][:count], 0)))
