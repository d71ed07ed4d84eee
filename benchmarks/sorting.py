"""The model that sorts folders, tried on known classes that are hidden: what its settings are chosen on.

python benchmarks/sorting.py DIR... --known 16

Each DIR has train/ with a folder a class. Of its first classes by name, which are known, a third is hidden: they lie in
a folder together with half of the images of the others. What is learned from the other halves sorts that folder, with
its hidden classes and without them. Prints, draw by draw: what was learned, classes found for those that are hidden, in
all and where all is new, classes made of nothing, and seconds. No new class is looked at.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from hoarfrost import Learner
from hoarfrost.data.datasets import read_images
from hoarfrost.data.images import ImageSet
from hoarfrost.models.statistics import transformed
from hoarfrost.sorting.evidence import Floats, Ids
from hoarfrost.sorting.folder import sort_folder
from hoarfrost.sorting.hiding import Hidden, draw
from hoarfrost.sorting.space import KnownClasses
from hoarfrost.training.inference import Inference


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--known", type=int, default=16)
    parser.add_argument("--draws", type=int, default=8)
    args = parser.parse_args()
    for folder in args.folders:
        features, labels = points_of(folder, args.known)
        for number in range(args.draws):
            print(f"{folder.name}: {tried(features, labels, number)}", flush=True)


def tried(features: Floats, labels: Ids, seed: int) -> str:
    """What one draw shows, in words."""
    case = draw(labels, np.random.default_rng(seed))
    labelled, own = features[case.labelled], case.ids[case.labelled]
    begun = time.perf_counter()
    sorter = Hidden(labelled, own, seed).learned()
    learned = time.perf_counter()
    known, folder = KnownClasses.of(labelled, own), features[case.folder]
    hidden = case.ids[case.folder] >= case.known
    found = sort_folder(known, folder, sorter)
    ended = time.perf_counter()
    alone = sort_folder(known, folder[hidden], sorter, only_new=True)
    nothing = sort_folder(known, folder[~hidden], sorter)
    return (
        f"roughness {sorter.roughness:.2f}, alone {sorter.roughness_alone:.2f}, chance {sorter.chance:.1f};"
        f" {found.novel} ({found.least} to {found.most}) for {case.hidden}, alone {alone.novel}, of nothing"
        f" {nothing.novel}; learned in {learned - begun:.1f} s, sorted in {ended - learned:.1f} s"
    )


if __name__ == "__main__":
    main()
