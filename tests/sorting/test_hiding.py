"""What hidden known classes teach: as many are found as are hidden, and nothing by chance is called new."""

from __future__ import annotations

import numpy as np
import pytest

from hoarfrost.sorting.evidence import Floats, Ids
from hoarfrost.sorting.folder import LEAST, Sorter, sort_folder
from hoarfrost.sorting.hiding import MOST_CLASSES, MOST_IMAGES, USUAL, USUAL_ALONE, Hidden, draw, main_directions
from hoarfrost.sorting.space import KnownClasses


def clumped(classes: int, images: int, seed: int) -> tuple[Floats, Ids]:
    """Classes that are no Gaussians: their images come in clumps of four."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), images)
    clumps = np.repeat(random.normal(scale=0.7, size=(classes * images // 4, 30)), 4, axis=0)
    return random.normal(scale=2, size=(classes, 30))[labels] + clumps + random.normal(size=(len(labels), 30)), labels


@pytest.mark.parametrize("seed", range(3))
def test_each_image_of_a_draw_is_in_one_place(seed: int) -> None:
    labels = np.repeat(np.arange(60), np.random.default_rng(seed).integers(1, 60, 60))
    case = draw(labels, np.random.default_rng(seed))
    everything = np.concatenate([case.labelled, case.folder, case.tested])
    assert len(np.unique(everything)) == len(everything)
    assert (np.sort(everything) == np.flatnonzero(case.ids >= 0)).all()
    assert case.known + case.hidden <= MOST_CLASSES
    assert np.bincount(case.ids[everything]).max() <= MOST_IMAGES
    assert np.bincount(labels)[np.unique(labels[everything])].min() >= LEAST
    assert case.ids[case.labelled].max() == case.known - 1  # what is hidden has no label
    assert set(case.ids[case.folder]) == set(range(case.known + case.hidden))
    pairs = {(int(case.ids[i]), int(labels[i])) for i in everything}
    assert len(pairs) == case.known + case.hidden


def test_what_is_learned_holds_for_classes_that_were_never_labelled() -> None:
    features, labels = clumped(20, 32, 0)
    labelled = np.flatnonzero((labels < 14) & (np.arange(len(labels)) % 2 == 0))
    folder = np.setdiff1d(np.arange(len(labels)), labelled)
    sorter = Hidden(features[labelled], labels[labelled], seed=0).learned()
    known = KnownClasses.of(features[labelled], labels[labelled])
    found = sort_folder(known, features[folder], sorter)
    assert 5 <= found.novel <= 7
    old = labels[folder] < 14
    assert sort_folder(known, features[folder][old], sorter).novel == 0
    alone = sort_folder(known, features[folder][~old], sorter, only_new=True)
    assert 5 <= alone.novel <= 7


def test_the_same_seed_learns_the_same() -> None:
    features, labels = clumped(9, 16, 1)
    first, second = (Hidden(features, labels, seed=3).learned() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("classes", "images"), [(1, 16), (2, 16), (5, 3)])
def test_where_no_class_can_be_hidden_roughness_is_what_is_usual(classes: int, images: int) -> None:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), images)
    learned = Hidden(random.normal(size=(len(labels), 30)), labels, seed=0).learned()
    assert learned == Sorter(USUAL, USUAL_ALONE)


@pytest.mark.parametrize("shape", [(50, 20), (20, 50)])
def test_main_directions_are_those_of_a_singular_value_decomposition(shape: tuple[int, int]) -> None:
    features = np.random.default_rng(0).normal(size=shape) @ np.diag(np.linspace(1, 3, shape[1]))
    centred = features - features.mean(axis=0)
    left, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    assert np.allclose(np.abs(main_directions(features, 5)), np.abs((left * lengths)[:, :5]))
