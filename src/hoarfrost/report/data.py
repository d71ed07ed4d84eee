"""What a report shows: plain numbers and arrays, gathered by whoever made the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.unsorted.number import Count


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportData:
    """The content of one report; C classes, the first `known` of them learned from labels.

    Empty or missing parts are left out of the report: `confusion` is None where clusters need not be classes.
    """

    title: str
    """Heading of the page."""
    facts: tuple[tuple[str, str], ...]
    """Name and value of what identifies the run: method, data set, seed, device, time."""
    metrics: Mapping[str, Any]
    """The content of `metrics.json`, in percent; a score is None where its group has no image."""
    log: Sequence[Mapping[str, Any]]
    """One entry an epoch, in order: `stage` (0: the labelled one), `epoch`, `loss`, `terms`, and in some `accuracy`."""
    class_names: Sequence[str]
    """C names, by class id."""
    known: int
    """Number of classes learned from labels in stage one."""
    novel_per_step: Sequence[int]
    """Number of classes that each discovery step added."""
    weight_norms: NDArray[np.floating[Any]]
    """(C,) length of the joint head's weight vector of each class; empty where no weights decide."""
    confusion: NDArray[np.int64] | None
    """(C, C) counts of test images: rows the true class, columns the predicted one."""
    samples: Mapping[str, NDArray[np.uint8]]
    """Name of a discovered class to the images, (N, H, W, 1 or 3), most confidently put into it; none is shown so."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Name of a discovered class to the number of images put into it."""

    def __post_init__(self) -> None:
        """Refuse parts that do not speak of the same classes."""
        classes = len(self.class_names)
        added = sum(self.novel_per_step)
        if self.known + added != classes:
            raise ValueError(f"{self.known} known and {added} discovered classes do not make {classes} class names")
        if self.weight_norms.shape not in ((0,), (classes,)):
            raise ValueError(f"weight_norms has the shape {self.weight_norms.shape}, expected {(classes,)}")
        if self.confusion is not None and self.confusion.shape != (classes, classes):
            raise ValueError(f"confusion has the shape {self.confusion.shape}, expected {(classes, classes)}")
        strangers = sorted(set(self.samples) - set(self.class_names[self.known :]))
        if strangers:
            raise ValueError(f"samples of {strangers[0]!r}, which is not a discovered class")


@dataclass(frozen=True, eq=False)
class Shown:
    """An image on the page of a discovery."""

    name: str
    """of its file"""
    pixels: NDArray[np.uint8]
    """(H, W, 1 or 3)"""


LOOSE = 0.6
"""the mean probability of a class below which its images hardly hold together"""


@dataclass(frozen=True, eq=False)
class Group:
    """Images that were given to one class."""

    name: str
    size: int
    typical: list[Shown]
    """those whose probability of the class is highest, the highest first"""
    doubtful: list[Shown] = field(default_factory=list)
    """those whose probability of the class is lowest, the lowest first; none of them is typical"""
    nearest: Sequence[str] = ()
    """names of the earlier classes that its images look like most, on average"""
    near_new: str | None = None
    """that of another new class, where they look even more like it"""
    probability: float | None = None
    """of the class, the mean over its images: how well they hold together, and apart from others; None for few"""

    @property
    def holds(self) -> str:
        """That in words, to stand after the number of images."""
        if self.probability is None:
            return ""
        loose = "; perhaps several classes" if self.probability < LOOSE else ""
        return f"{100 * self.probability:.0f} % sure on average{loose}"


@dataclass(frozen=True, eq=False, kw_only=True)
class DiscoveryData:
    """The content of the page of one discovery in images without labels."""

    sentence: str
    """what was found"""
    facts: tuple[tuple[str, str], ...] = ()
    """Name and value: method, seed, device, time."""
    new: Sequence[Group]
    known: Sequence[Group] = ()
    """of the earlier classes that were given images those with the least sure ones"""
    known_classes: int = 0
    """that were given images, with those that are not shown"""
    known_others: Sequence[tuple[str, int]] = ()
    """names and sizes of those that are not shown"""
    unsure: Sequence[Shown] = ()
    unsure_images: int = 0
    """with those that are not shown"""
    count: Count | None = None
    """how the number of new classes was estimated, if it was"""
    left_out: str = ""
    """what lay beside the images and was not read"""
    error: float | None = None
    """the share of the images that are sure that is expected to be taken for old and be new, or the other way round"""
    points: NDArray[np.floating[Any]]
    """(n, 2): features of some of the images along their two strongest directions"""
    point_groups: NDArray[np.int64]
    """(n,): of each point the position in ``new``, -1 for a known class, -2 for unsure"""
    log: Sequence[Mapping[str, Any]] = ()
    """as in ``ReportData``"""


@dataclass(frozen=True, eq=False)
class LabelledClass:
    """A class that was learned from labelled images."""

    name: str
    size: int
    """its images"""
    scored: int | None = None
    """of which so many were scored when others were learned from"""
    accuracy: float | None = None
    """percentage of those that were right"""
    taken_for: str | None = None
    """the class that its other images are taken for most often"""


@dataclass(frozen=True, eq=False, kw_only=True)
class FitData:
    """The content of the page of ``fit``."""

    sentence: str
    """what was learned"""
    expected: str
    """what is to be expected of it"""
    doubts: Sequence[str] = ()
    """what is worth a second look in the images, a sentence each"""
    classes: Sequence[LabelledClass] = ()
    mistaken: Sequence[Shown] = ()
    """images that are taken for another class when others are learned from, the surest mistake first"""
    mistaken_images: int = 0
    """with those that are not shown"""
    facts: tuple[tuple[str, str], ...] = ()
    log: Sequence[Mapping[str, Any]] = ()
    """as in ``ReportData``"""
