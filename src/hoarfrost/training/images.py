"""What people give as images, brought to what a configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from hoarfrost.computing.runtime import Runtime
from hoarfrost.config import Config
from hoarfrost.data.arrays import Label, as_images, encode_with_values
from hoarfrost.data.cache import AUTO, ImageStorage
from hoarfrost.data.datasets import are_paths, read_images
from hoarfrost.data.given import Given, Images, Pictures, told
from hoarfrost.data.images import ImageFiles, ImageSet
from hoarfrost.errors import InputError
from hoarfrost.models.backbone import Backbone
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Network, to_channels_last
from hoarfrost.seeding import seeded
from hoarfrost.training.inference import Inference
from hoarfrost.training.observers import Observer
from hoarfrost.training.resolve import choose, storage, suited


def image_set(given: Given) -> ImageSet:
    """What is no path and no picture, as the images of a set."""
    return given if isinstance(given, ImageSet) else ImageSet(as_images(cast(ArrayLike, given)))


def with_labels(
    images: Images, labels: ArrayLike | None, asked: Config, runtime: Runtime, own_backbone: Backbone | None
) -> tuple[ImageSet, tuple[Label, ...] | None]:
    """The images that stage one learns from, with their classes, for a configuration that may leave something open.

    Behind them the label of each class as it was given; None where the names of the classes are the labels.
    """
    given = told(images)
    if isinstance(given, str | Path) or are_paths(given):
        labelled = read_labelled(given, asked, runtime, own_backbone=own_backbone)
        if are_paths(given):
            check_every(given, labelled)
    elif isinstance(given, Pictures):
        photographs = storage(asked, AUTO, own_backbone).photographs
        labelled, beside = given.read(suited(asked, own_backbone).image_size, photographs=photographs)
        labels = beside if labels is None else labels
    else:
        labelled = image_set(given)
    values = None
    if labels is not None:
        ids, names, values = encode_with_values(labels, len(labelled))
        labelled = replace(labelled, labels=ids, class_names=names)
    if labelled.labels is not None and len(np.unique(labelled.labels)) < 2:
        raise InputError("all images are of one class: at least two classes are needed")
    if labelled.labels is None:
        raise InputError(
            "fit needs labels: give them as the second argument, or give a folder with a sub-folder per class"
        )
    return labelled, values


def check_every(paths: Sequence[str | Path], images: ImageSet) -> None:
    """Refuses images that are not those of all the paths, in their order."""
    assert images.paths is not None
    for path, found in zip_longest((str(Path(path)) for path in paths), images.paths):
        if path != found:
            raise InputError(f"{path} is not a readable image: leave it out (predictions() skips such files)")


def new_network(config: Config, classes: int, own_backbone: Backbone | None = None) -> Network:
    """The network that stage one begins with, for a configuration with nothing left open."""
    with seeded(config.seed, "network"):
        backbone = build_backbone(config.backbone, len(config.mean or ()), own_backbone)
        return Network(backbone, classes, config.method.design)


def read_labelled(
    source: str | Path | Sequence[str | Path],
    asked: Config,
    runtime: Runtime,
    *,
    keep: ImageStorage = AUTO,
    own_backbone: Backbone | None = None,
    compute: bool = True,
    observer: Observer | None = None,
) -> ImageSet:
    """The labelled images that a configuration asks for, which may leave something open, kept as suits them.

    Features of photographs that no stage changes are computed in passing, if ``compute``.
    """

    def first_read(files: ImageFiles, classes: int) -> list[int]:
        # The images' own labels are not known yet, and only how many there are of each class matters.
        some = ImageSet(files, np.arange(len(files)) % classes, tuple(map(str, range(classes))))
        config = choose(asked, some, runtime.device, own_backbone)
        if not config.fixed_in_all_stages or config.mean is None or config.image_size != files.size:
            return files.decode_into(None)
        network = to_channels_last(new_network(config, classes, own_backbone), runtime.device)
        return Inference(config, runtime, observer=observer).read_first(files, network)

    single = runtime.processes.count == 1
    kept = replace(storage(asked, keep, own_backbone), first_read=first_read if compute and single else None)
    size = suited(asked, own_backbone).image_size
    images = read_images(source, labelled=not are_paths(source), size=size, keep=kept)
    config = choose(asked, images, runtime.device, own_backbone)
    return images if config.fixed_in_all_stages else keep.placed(images.fitted(config.image_size))
