"""The model that sorts folders, tried on known classes that are hidden: what its settings are chosen on.

python benchmarks/sorting.py DIR... --known 16 --grid 1,.2,5 1,.35,5 2,.2,10

Each DIR has train/ with a folder a class. Of its first classes by name, which are known, some are hidden: they lie in a
folder together with half of the images of the others. A grid point is scatter, clumping and cost. Of each, over some
draws: classes found for one that is hidden, in the folder as it is (*whole*) and where hiding is done again among its
labelled images (*inner*), and classes made of a folder without anything hidden. No new class is looked at.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hoarfrost import Learner
from hoarfrost.data.datasets import read_images
from hoarfrost.data.images import ImageSet
from hoarfrost.models.statistics import transformed
from hoarfrost.sorting.evidence import Floats, Ids, Roughness
from hoarfrost.sorting.folder import sort_folder
from hoarfrost.sorting.space import KnownClasses
from hoarfrost.training.inference import Inference

LEAST = 4
"""images that a class which counts as found has"""


class Hidden(NamedTuple):
    """Labelled images and a folder; in that, classes from ``known`` on are hidden ones."""

    labelled: Floats
    labels: Ids
    folder: Floats
    truth: Ids
    known: int
    directions: int
    """of the whole folder, for the one inside it too: evidence grows with them"""

    @property
    def hidden(self) -> int:
        return int(self.truth.max()) + 1 - self.known

    def without_hidden(self) -> Hidden:
        old = self.truth < self.known
        return self._replace(folder=self.folder[old], truth=self.truth[old])


def hide(
    points: Floats, labels: Ids, share: float, random: np.random.Generator, directions: int | None = None
) -> Hidden:
    """A share of the classes is hidden, and of the others half of the images comes back."""
    classes = random.permutation(np.unique(labels))
    known = len(classes) - max(1, round(share * len(classes)))
    parts: list[tuple[Ids, Ids]] = []
    for number, label in enumerate(classes):
        own = random.permutation(np.flatnonzero(labels == label))
        kept = (len(own) + 1) // 2 if number < known else 0
        parts.append((own[:kept], own[kept:]))
    kept, back = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    ids = np.argsort(classes)[np.searchsorted(np.sort(classes), labels)]
    directions = directions or KnownClasses.of(points[kept], ids[kept]).directions
    return Hidden(points[kept], ids[kept], points[back], ids[back], known, directions)


def points_of(folder: Path, known: int) -> tuple[Floats, Ids]:
    """As the readout of photographs looks at them, of the first classes by name."""
    learner = Learner(backbone="efficientnet-lite0", settings={"fit_frozen": ["all"]})
    images = read_images(folder / "train", labelled=True, size=288)
    assert images.labels is not None
    images = images.take(np.flatnonzero(images.labels < known))
    assert images.labels is not None
    few = np.concatenate([np.flatnonzero(images.labels == label)[:2] for label in range(known)])
    learner.fit(images.take(few))
    inference = Inference(learner.config, learner.runtime)
    import torch

    features = inference.features(ImageSet(learner.prepare(images.without_labels()).images), learner.network)
    found = transformed(torch.from_numpy(np.asarray(features)), "hellinger").double().numpy()
    return found, images.labels


def counted(case: Hidden, roughness: Roughness, cost: float) -> int:
    known = KnownClasses.of(case.labelled, case.labels)
    found = sort_folder(known, case.folder, roughness, cost, directions=case.directions)
    return int((np.bincount(found.labels, minlength=case.known)[case.known :] >= LEAST).sum())


def cases(points: Floats, labels: Ids, draws: int) -> Iterator[tuple[str, Hidden]]:
    for draw in range(draws):
        random = np.random.default_rng(draw)
        whole = hide(points, labels, 1 / 3, random)
        yield "whole", whole
        yield "inner", hide(whole.labelled, whole.labels, 1 / 3, random, whole.directions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--known", type=int, default=16)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--grid", nargs="+", default=["1,.2,5", "1,.35,5", "1,.5,5", "2,.1,10", "3,.15,10"])
    args = parser.parse_args()
    for folder in args.folders:
        points, labels = points_of(folder, args.known)
        tried = list(cases(points, labels, args.draws))
        for text in args.grid:
            scatter, clumping, cost = map(float, text.split(","))
            roughness, line = Roughness(scatter, clumping), []
            for size in ("whole", "inner"):
                own = [case for name, case in tried if name == size]
                ratio = np.mean([counted(case, roughness, cost) / case.hidden for case in own])
                nothing = np.mean([counted(case.without_hidden(), roughness, cost) for case in own])
                line.append(f"{size} {ratio:.2f}, nothing hidden {nothing:.1f}")
            print(f"{folder.name}: scatter {scatter:g}, clumping {clumping:g}, cost {cost:g}: {'; '.join(line)}")


if __name__ == "__main__":
    main()
