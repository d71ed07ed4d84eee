"""Images as evidence: they are known again, moved from one class to another, and a class of them is split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.images import ImageSet, OnDisk
from hoarfrost.data.rows import FeatureFile
from hoarfrost.data.sources import FeatureSet
from hoarfrost.data.unsure import UNSURE_BELOW
from hoarfrost.errors import InputError, require
from hoarfrost.models.counted import DIGEST, Counted
from hoarfrost.models.model import Model
from hoarfrost.sorting.space import Space
from hoarfrost.training.expecting import remembered_classes, sorting_points
from hoarfrost.training.features import FeatureCache, name_of
from hoarfrost.training.inference import Inference
from hoarfrost.unsorted.clusters import k_means, squared_distances

DIRECTIONS = 16
"""in which a class is split, at most"""
LEAST_IMAGES = 2
"""of a group that becomes a class"""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Images as a model knows them: N digests, and features ``(N, D)``."""

    digests: tuple[str, ...]
    features: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.digests)

    def take(self, positions: NDArray[np.int64]) -> Evidence:
        """Some of them."""
        return Evidence(tuple(self.digests[k] for k in positions.tolist()), self.features[positions])


def check_movable(model: Model) -> None:
    """Refuses models that decide by trained heads."""
    name = model.config.method.name
    require(
        model.can_move,
        f"the method '{name}' decides by trained heads, which cannot change without training: choose a model of"
        " hoarfrost or kmeans",
    )


def digests_of(images: ImageSet) -> NDArray[np.uint8]:
    """``(N, 16)``: by which images are known again."""
    return np.ascontiguousarray(images.digests()[:, :DIGEST])


def counted_in(model: Model, images: ImageSet, labels: NDArray[np.int64] | None) -> Counted:
    """What is remembered of the images of a stage: which class each was counted for, and where its features are."""
    stored, rows, key = images.images, np.full(len(images), -1), ""
    if isinstance(stored, OnDisk) and stored.features:
        features = stored.features.get(name_of(model.network, stored))
        if isinstance(features, FeatureFile) and features.kept_as:
            rows, key = np.asarray(features.rows), features.kept_as
    return Counted(digests_of(images), np.full(len(images), -1) if labels is None else labels, rows, key=key)


def evidence_of(inference: Inference, model: Model, cache: FeatureCache, images: ImageSet) -> Evidence:
    """Of prepared images: kept features of those that the last discovery has seen, computed ones of others."""
    digests = Counted(digests_of(images), np.full(len(images), -1)).names
    known = kept_evidence(model, cache)
    place = {} if known is None else {name: k for k, name in enumerate(known.digests)}
    features = np.zeros((len(images), model.network.decisive_width), dtype=np.float32)
    there = np.array([place.get(name, -1) for name in digests], dtype=np.int64)
    if known is not None:
        features[there >= 0] = known.features[there[there >= 0]]
    if len(missing := np.flatnonzero(there < 0)):
        features[missing] = np.asarray(inference.computed_once(images.take(missing), model.network).images)
    require(bool(np.isfinite(features).all()), "the features of these images are NaN or infinite: restore the model")
    return Evidence(tuple(digests), features)


def kept_evidence(model: Model, cache: FeatureCache) -> Evidence | None:
    """The images of the last discovery's folder, whose features are kept beside the model; None where they are not."""
    counted = model.counted
    places = np.flatnonzero(counted.row >= 0)
    if not len(places) or (found := cache.kept(counted.key, counted.row[places], model.network.decisive_width)) is None:
        return None
    names = counted.names
    return Evidence(tuple(names[k] for k in places.tolist()), found)


def classes_of(inference: Inference, model: Model, evidence: Evidence) -> NDArray[np.int64]:
    """``(N,)``: the class of each image, as `sort` would have it; -1 where it is unsure."""
    outputs = inference.outputs(FeatureSet(evidence.features), model.readout, classes=model.classes)
    sureness = outputs.sureness
    found = np.where(sureness.max(axis=1) < UNSURE_BELOW, -1, sureness.argmax(axis=1))
    given, stands_for = model.given, model.classes.stands_for
    for row, name in enumerate(evidence.digests) if given else ():
        if name in given and stands_for[given[name]] >= 0:
            found[row] = stands_for[given[name]]
    return found


@dataclass(frozen=True)
class Changes:
    """What other images became of another class."""

    images: int
    """how many were looked at"""
    ways: tuple[tuple[int, int, int], ...]
    """how many, from which class id, to which; -1 for unsure; the most first"""
    digests: tuple[str, ...] = ()
    """of those that changed"""

    @property
    def count(self) -> int:
        """How many changed."""
        return sum(number for number, *_ in self.ways)


def changes(inference: Inference, before: Model, after: Model, evidence: Evidence) -> Changes:
    """Which images have another class after a decision; those that were moved by it are not counted."""
    moved = {name for name, k in after.classes.moved.items() if before.classes.moved.get(name) != k}
    moved |= before.classes.moved.keys() - after.classes.moved.keys()
    others = evidence.take(np.flatnonzero([name not in moved for name in evidence.digests]))
    if not len(others):
        return Changes(0, ())
    first, second = (classes_of(inference, model, others) for model in (before, after))
    changed = np.flatnonzero(first != second)
    ways = Counter(zip(first[changed].tolist(), second[changed].tolist(), strict=True))
    told = tuple((number, *way) for way, number in ways.most_common())
    return Changes(len(others), told, tuple(others.digests[k] for k in changed.tolist()))


def split_groups(inference: Inference, model: Model, evidence: Evidence, name: str, into: int) -> list[Evidence]:
    """The images of a class in so many groups by k-means, the largest group first.

    Groups are looked for in the directions in which known classes are round and the images of this one differ most.
    """
    class_id = model.classes.find(name)
    own = evidence.take(np.flatnonzero(classes_of(inference, model, evidence) == class_id))
    least = LEAST_IMAGES * into
    if len(own) < least:
        raise InputError(
            f"'{name}' has {len(own)} image{'' if len(own) == 1 else 's'} in the folder, too few for {into} groups:"
            f" give --folder with at least {least} of its images"
        )
    points = _points(model, own.features)
    centres = k_means(points, into, model.config.seed)
    labels = squared_distances(points, centres).argmin(axis=1)
    sizes = np.bincount(labels, minlength=into)
    if sizes.min() < LEAST_IMAGES:
        raise InputError(f"'{name}' does not fall into {into} groups: choose a smaller --into, or move single images")
    order = np.argsort(-sizes, kind="stable")
    return [own.take(np.flatnonzero(labels == group)) for group in order.tolist()]


def _points(model: Model, features: NDArray[np.float32]) -> NDArray[np.float64]:
    """``(N, q)``: in the space of the known classes where there is one, else as they are."""
    known, _ = remembered_classes(model.settled.statistics)
    seen = np.asarray(sorting_points(features, model.network))
    points = Space.of(known, seen).points(seen)
    centred = points - points.mean(axis=0)
    turned = np.linalg.svd(centred, full_matrices=False)[2][:DIRECTIONS].T
    return np.asarray(centred @ turned)


def with_given(model: Model, digests: Sequence[str], sureness: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities ``(N, C)``, certain for images that a person has given to a class."""
    given, stands_for = model.given, model.classes.stands_for
    targets = np.array([given.get(name, -1) for name in digests], dtype=np.int64)
    targets = np.where(targets >= 0, stands_for[targets], -1)
    rows, made = np.flatnonzero(targets >= 0), sureness.copy()
    made[rows] = 0
    made[rows, targets[rows]] = 1
    return made
