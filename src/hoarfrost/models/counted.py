"""Which images the class statistics are made of, and the features of those that people have moved since.

An image is known again by a digest of its content, so that it is taken from exactly the class to which it was added.
Digests are no pictures: nothing of an image can be seen in them. Statistics stay in a model folder as they were
learned. What was moved is applied to them when a model is used, so that an undone move leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hoarfrost import store
from hoarfrost.errors import require
from hoarfrost.models import decisions
from hoarfrost.models.classes import ClassTable, Edit
from hoarfrost.models.statistics import ClassStatistics, KeptStatistics

IMAGES, MOVED = "images.safetensors", "moved.safetensors"
DIGEST = 16
"""bytes of a digest"""
MOST = 1_000_000
"""images that a model knows again; of more, the latest"""

Bytes = NDArray[np.uint8]
Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


def _no_digests() -> Bytes:
    return np.zeros((0, DIGEST), dtype=np.uint8)


def _no_ids() -> Ids:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Counted:
    """The images that a model has looked at, N of them, and the features of M that were moved.

    >>> counted = Counted(np.zeros((1, DIGEST), dtype=np.uint8), np.array([2]))
    >>> counted.labels_of(["00" * DIGEST, "11" * DIGEST])
    [[2], []]
    """

    digest: Bytes = field(default_factory=_no_digests)
    """(N, 16)"""
    label: Ids = field(default_factory=_no_ids)
    """(N,): the class whose statistics an image is part of; -1 for none"""
    row: Ids = field(default_factory=_no_ids)
    """(N,): its row among the kept features of the last folder; -1 for others"""
    given: Ids = field(default_factory=_no_ids)
    """(N,): the class to which a person moved it before the last discovery; -1 for none"""
    key: str = ""
    """the name of the kept features of the last folder"""
    features: Mapping[str, Floats] = field(default_factory=dict)
    """(D,) of each image that was moved, by its digest"""

    def __post_init__(self) -> None:
        for name in ("row", "given"):
            if len(getattr(self, name)) != len(self.digest):
                object.__setattr__(self, name, np.full(len(self.digest), -1))

    @cached_property
    def names(self) -> list[str]:
        """The digests as text."""
        text = np.ascontiguousarray(self.digest).tobytes().hex()
        return [text[start : start + 2 * DIGEST] for start in range(0, len(text), 2 * DIGEST)]

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, name in enumerate(self.names):
            found.setdefault(name, []).append(place)
        return found

    def labels_of(self, digests: Iterable[str]) -> list[list[int]]:
        """The classes whose statistics each image is part of: mostly one, more where it was looked at twice."""
        label = self.label
        return [[int(label[k]) for k in self._places.get(name, ()) if label[k] >= 0] for name in digests]

    @property
    def given_by_name(self) -> dict[str, int]:
        """The classes that people had given images to before the last discovery."""
        return {self.names[k]: int(self.given[k]) for k in np.flatnonzero(self.given >= 0).tolist()}

    def extended(self, more: Counted) -> Counted:
        """With the images of another folder, which is the last one then."""
        whole = Counted(
            np.concatenate([self.digest, more.digest]),
            np.concatenate([self.label, more.label]),
            np.concatenate([np.full(len(self.row), -1), more.row]),
            np.concatenate([self.given, more.given]),
            more.key,
        )
        if len(whole.digest) <= MOST:
            return whole
        last = slice(-MOST, None)
        return Counted(whole.digest[last], whole.label[last], whole.row[last], whole.given[last], whole.key)

    def settled(self, moved: Mapping[str, int]) -> Counted:
        """After moves that statistics hold from now on: each image is part of the class that it was moved to."""
        label, now = self.label.copy(), self.given.copy()
        strangers = []
        for name, target in moved.items():
            places = self._places.get(name, [])
            label[places] = -1
            if places:
                label[places[-1]] = target
                now[places] = target
            else:
                strangers.append((name, target))
        kept = Counted(self.digest, label, self.row, now, self.key)
        if not strangers:
            return kept
        text = b"".join(bytes.fromhex(name) for name, _ in strangers)
        targets = np.array([target for _, target in strangers])
        more = Counted(np.frombuffer(text, dtype=np.uint8).reshape(-1, DIGEST).copy(), targets, given=targets)
        return replace(kept.extended(more), row=np.concatenate([self.row, more.row]), key=self.key)

    def with_features(self, digests: Sequence[str], features: Floats) -> Counted:
        """With those of images that are moved now."""
        found = {name: np.array(row) for name, row in zip(digests, features, strict=True)}
        return replace(self, features={**self.features, **found})

    def applied(
        self, statistics: ClassStatistics, moved: Mapping[str, int], kept: KeptStatistics, classes: int
    ) -> ClassStatistics:
        """Class statistics after moves, with room for so many classes: both of a move change exactly."""
        taken, taken_from, added, added_to = list[str](), list[int](), list[str](), list[int]()
        for (name, target), labels in zip(moved.items(), self.labels_of(moved), strict=True):
            if target in labels:
                labels.remove(target)
            else:
                added.append(name)
                added_to.append(target)
            taken += [name] * len(labels)
            taken_from += labels
        return statistics.with_room(classes).changed(
            self._tensor(taken), torch.tensor(taken_from), self._tensor(added), torch.tensor(added_to), kept
        )

    def _tensor(self, names: Sequence[str]) -> torch.Tensor:
        return torch.from_numpy(np.stack([self.features[name] for name in names])) if names else torch.zeros(0, 0)

    # Files ------------------------------------------------------------------------------------------------------------

    def write_into(self, folder: Path) -> None:
        """All of it, into a folder that is being made."""
        tensors = {name: torch.from_numpy(getattr(self, name)) for name in ("digest", "label", "row", "given")}
        store.write_tensors(folder / IMAGES, tensors, {"features": self.key})
        if self.features:
            self.write_moved(folder, self.features)

    def needed(self, edits: Iterable[Edit]) -> dict[str, int]:
        """The images that decisions move, but for those that are counted where they are moved to; by digest."""
        moved = [(name, edit.id) for edit in edits for name in edit.images or ()]
        labels = self.labels_of(name for name, _ in moved)
        return {name: target for (name, target), own in zip(moved, labels, strict=True) if own != [target]}

    def write_moved(self, folder: Path, needed: Iterable[str]) -> None:
        """The features of moved images that are needed, as a whole."""
        names = [name for name in needed if name in self.features]
        content = b"".join(map(bytes.fromhex, names))
        tensors = {
            "digest": torch.from_numpy(np.frombuffer(content, dtype=np.uint8).reshape(-1, DIGEST).copy()),
            "features": self._tensor(names),
        }
        store.write_tensors(folder / MOVED, tensors, lasting=True)

    @classmethod
    def read(cls, folder: Path, classes: int) -> Counted:
        """Of a model folder; models of earlier versions know no image again."""
        made = cls()
        if (folder / IMAGES).exists():
            tensors, words = store.read_tensors(folder / IMAGES)
            problem = _misfit(tensors, classes)
            if problem:
                raise store.damaged(folder / IMAGES, problem)
            digest, label, row, given = (tensors[name].numpy() for name in ("digest", "label", "row", "given"))
            made = cls(digest, label, row, given, words.get("features", ""))
        return replace(made, features=read_moved(folder))

    def check(self, edits: Iterable[Edit], width: int) -> None:
        """Refuses moves of images whose features are not there."""
        for name in self.needed(edits):
            row = self.features.get(name)
            require(row is not None and len(row) == width, f"{MOVED} lacks the features of an image that was moved")


def keep_moves(folder: Path, before: ClassTable, after: ClassTable, counted: Counted) -> None:
    """Writes into a model folder the features that its decisions need, before the table is written.

    Those of decisions that can be redone stay. Nobody else may change the model meanwhile.
    """
    edits = [*before.edits, *decisions.undone(folder, before), *after.edits]
    held = replace(counted, features={**read_moved(folder), **counted.features})
    held.check(after.edits, len(next(iter(held.features.values()), ())))
    held.write_moved(folder, held.needed(edits))


def read_moved(folder: Path) -> dict[str, Floats]:
    """The features of images that were moved, by their digests."""
    if not (folder / MOVED).exists():
        return {}
    tensors, _ = store.read_tensors(folder / MOVED)
    digest, features = tensors.get("digest"), tensors.get("features")
    if (
        digest is None
        or features is None
        or digest.dtype != torch.uint8
        or digest.shape[1:] != (DIGEST,)
        or features.dtype != torch.float32
        or features.ndim != 2
        or len(features) != len(digest)
        or not features.isfinite().all()
    ):
        raise store.damaged(folder / MOVED, "it does not hold features of images")
    names = Counted(digest.numpy(), np.full(len(digest), -1)).names
    return dict(zip(names, features.numpy(), strict=True))


def _misfit(tensors: Mapping[str, torch.Tensor], classes: int) -> str:
    """What is wrong with the tensors of a file, in words; empty where nothing is."""
    digest = tensors.get("digest")
    if digest is None or digest.dtype != torch.uint8 or digest.shape[1:] != (DIGEST,):
        return "it holds no digests of images"
    for name in ("label", "row", "given"):
        ids = tensors.get(name)
        if ids is None or ids.dtype != torch.int64 or ids.shape != (len(digest),):
            return f"its '{name}' does not fit its images"
        if len(ids) and (int(ids.min()) < -1 or (name != "row" and int(ids.max()) >= classes)):
            return f"its '{name}' does not fit the classes"
    return ""
