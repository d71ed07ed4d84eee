"""What hidden known classes teach: as many are found as are hidden, and nothing by chance is called new."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Literal

import numpy as np
import pytest
import torch

from hoarfrost.models.readout import Gaussians
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.sorting.evidence import Floats, Ids
from hoarfrost.sorting.folder import LEAST, Sorter, sort_folder
from hoarfrost.sorting.hiding import (
    CHANCE,
    MOST_CLASSES,
    MOST_IMAGES,
    USUAL,
    USUAL_ALONE,
    Hidden,
    draw,
    main_directions,
    readout_scores,
)
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
    assert learned == Sorter(USUAL, USUAL_ALONE, CHANCE)
    sure = Hidden(random.normal(size=(len(labels), 30)), labels, seed=0).sureness(learned, 0.5)
    assert (sure is None) == (images < LEAST), "how sure one may be of known classes is known all the same"


@pytest.mark.parametrize("shape", [(50, 20), (20, 50)])
def test_main_directions_are_those_of_a_singular_value_decomposition(shape: tuple[int, int]) -> None:
    features = np.random.default_rng(0).normal(size=shape) @ np.diag(np.linspace(1, 3, shape[1]))
    centred = features - features.mean(axis=0)
    left, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    assert np.allclose(np.abs(main_directions(features, 5)), np.abs((left * lengths)[:, :5]))


def test_the_mean_probability_of_what_was_held_out_is_the_share_that_is_right() -> None:
    features, labels = clumped(12, 16, 4)
    features += 3 * np.random.default_rng(6).normal(size=features.shape)
    hidden, ridge = Hidden(features, labels, seed=5), 0.5
    sorter = hidden.learned()
    sure = hidden.sureness(sorter, ridge)
    assert sure is not None
    right, highest, nearest = list[bool](), list[float](), list[float]()
    for case in hidden.draws:
        old = case.ids[case.folder] < case.known
        folder = case.folder[~old]
        found = hidden.sorted(case, sorter, only_new=True, novel=case.hidden)
        rows = [*case.labelled, *case.folder[old]]
        ids, true = list(case.ids[rows]), case.ids[folder]
        for own in range(case.known, case.known + found.novel):
            members = np.flatnonzero(found.labels == own)
            order = members[np.argsort(found.distance[members], kind="stable")]
            typical = order[: math.ceil(0.8 * len(order))]
            rows += list(folder[typical])
            ids += [own] * len(typical)
        points, given = features[rows], np.array(ids)
        means = np.stack([points[given == c].mean(axis=0) for c in range(case.known + found.novel)])
        within = np.cov((points - means[given]).T, bias=True)
        within += ridge * np.trace(within) / len(within) * np.eye(len(within))
        inverse = np.linalg.inv(within)
        together = [
            [((found.labels == k) & (true == c)).sum() for k in range(case.known, len(means))]
            for c in range(case.known, case.known + case.hidden)
        ]
        best = max(
            permutations([*range(found.novel), *[-1] * case.hidden], case.hidden),
            key=lambda chosen: sum(row[k] for row, k in zip(together, chosen, strict=True) if k >= 0),
        )
        for image in case.tested:
            own = case.ids[image]
            scores = np.array([-0.5 * (features[image] - mean) @ inverse @ (features[image] - mean) for mean in means])
            cluster = -1 if own < case.known else best[own - case.known]
            wanted = own if own < case.known else case.known + cluster
            right.append(bool(scores.argmax() == wanted) and (own < case.known or cluster >= 0))
            tempered = np.exp((scores - scores.max()) / sure.temperature)
            highest.append(float(tempered.max() / tempered.sum()))
            nearest += [-2 * scores.max()] if own < case.known else []
    assert 0 < np.mean(right) < 1
    assert np.mean(highest) == pytest.approx(np.mean(right), abs=0.01)
    assert sure.unlike == pytest.approx(2 * np.median(nearest))
    assert Hidden(features[:6], np.arange(6), seed=5).sureness(sorter, ridge) is None


@pytest.mark.parametrize("covariance", ["shared", "diagonal"])
def test_held_out_images_are_scored_as_a_readout_scores_them(covariance: Literal["shared", "diagonal"]) -> None:
    random = np.random.default_rng(0)
    points, labels = random.normal(size=(60, 6)) @ random.normal(size=(6, 6)), np.arange(60) % 4
    found = readout_scores(points[:40], labels[:40], points[40:], 0.2, diagonal=covariance == "diagonal")
    kind = Gaussians(covariance="shared", ridge=0.2)
    features = torch.from_numpy(points).float()
    statistics = ClassStatistics.of(features[:40], torch.from_numpy(labels[:40]), 4, kind.kept)
    distances = kind.gaussians(statistics, torch.device("cpu")).distances(features[40:])
    if covariance == "shared":
        np.testing.assert_allclose(-2 * found, distances.numpy(), rtol=1e-3, atol=1e-3)
    else:
        apart = points[:40] - np.stack([points[:40][labels[:40] == c].mean(axis=0) for c in range(4)])[labels[:40]]
        variances = np.square(apart).mean(axis=0)
        variances += 0.2 * variances.mean()
        means = np.stack([points[:40][labels[:40] == c].mean(axis=0) for c in range(4)])
        np.testing.assert_allclose(-2 * found, (np.square(points[40:, None] - means) / variances).sum(axis=2))
