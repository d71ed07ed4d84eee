"""VB-CGCD: the mixture, what is taken out of it, and how wide new classes are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hoarfrost.data.datasets import load_dataset
from hoarfrost.models.readout import Gaussians
from hoarfrost.models.statistics import ClassStatistics, KeptStatistics
from hoarfrost.scenario import build_scenario, usual_draws
from hoarfrost.training.learner import Learner
from hoarfrost.training.mixture import STEPS, aligned, first_factor, mean_log_determinant, mixture_labels, second_factor

SETTINGS = Gaussians(shrink=0.3, ridge=0.01)
KEPT = KeptStatistics("full")


def drawn(classes: int, spread: float, seed: int, images: int = 60) -> ClassStatistics:
    """Statistics of classes whose features are spread so far, each its own way."""
    random = torch.Generator().manual_seed(seed)
    features, labels = [], []
    for label in range(classes):
        mixed = torch.randn(images, 5, generator=random) @ torch.randn(5, 5, generator=random)
        features.append(spread * mixed + torch.randn(5, generator=random))
        labels.append(torch.full((images,), label))
    return ClassStatistics.of(torch.cat(features), torch.cat(labels), classes, KEPT)


def naive_log_determinant(covariances: np.ndarray) -> float:
    """Over classes, of covariances drawn to their mean and ridged, written out."""
    mean = covariances.mean(axis=0)
    ridge = SETTINGS.ridge * np.diagonal(mean).mean() * np.eye(len(mean))
    found = [np.linalg.slogdet((1 - SETTINGS.shrink) * own + SETTINGS.shrink * mean + ridge)[1] for own in covariances]
    return float(np.mean(found))


@pytest.mark.parametrize(("spread", "factor"), [(0.2, 1.2), (0.2, 0.5), (0.8, 1.2), (0.8, 0.5), (3.0, 1.2)])
def test_new_classes_become_their_own_until_they_would_be_narrower_than_the_known(spread: float, factor: float) -> None:
    known, found = drawn(6, 1.0, seed=0), drawn(3, spread, seed=1)
    old, own = known.covariances().numpy(), found.covariances().numpy()
    between, least = old.mean(axis=0), naive_log_determinant(old) - math.log(factor)
    shares, share = [1 - step / STEPS for step in range(1, STEPS + 1)], 1.0
    for nearer in shares:
        if naive_log_determinant((1 - nearer) * own + nearer * between) < least:
            break
        share = nearer
    made = aligned(found, known, SETTINGS, factor=factor)
    expected = (1 - share) * own + share * between
    np.testing.assert_allclose(made.covariances().numpy(), expected, rtol=0.02, atol=0.02 * np.abs(expected).max())
    assert mean_log_determinant(made, SETTINGS) == pytest.approx(naive_log_determinant(expected), abs=0.05)
    assert torch.equal(made.mean, found.mean)
    if spread == 0.2:
        assert share > 0, "narrow classes are stopped early"
    if spread == 3.0:
        assert share == 0, "wide ones are left as they are"


def test_the_factors_are_those_of_both_fits() -> None:
    assert first_factor(50, 70, 10) == 1.6
    assert second_factor(90, 10) == pytest.approx(math.sqrt(0.1))


def test_nothing_is_aligned_where_all_classes_share_a_covariance() -> None:
    shared = ClassStatistics.of(torch.randn(40, 5), torch.arange(40) % 4, 4, KeptStatistics("shared"))
    assert aligned(shared, shared, Gaussians(covariance="shared"), factor=1.2) is shared


def test_a_mixture_finds_groups_that_differ_in_their_spread_alone() -> None:
    random = np.random.default_rng(0)
    narrow, wide = random.normal(0, [0.1, 3], (300, 2)), random.normal(0, [3, 0.1], (300, 2))
    labels = mixture_labels(np.concatenate([narrow, wide]), 2, seed=0)
    first = np.bincount(labels[:300], minlength=2).max() + np.bincount(labels[300:], minlength=2).max()
    assert first > 560


def test_what_is_old_is_taken_out_of_a_stage() -> None:
    scenario = build_scenario(*load_dataset("digits", None), split="5-3-2", draws=usual_draws("digits", 90))
    settings = {"fit.epochs": 6, "image_size": 8}
    learner = Learner("vb-cgcd", seed=1, recipe="digits", device="cpu", settings=settings)
    learner.learn(scenario.steps[0])
    old = scenario.truths[1].train_labels < 5
    look = learner.look(scenario.steps[1].images, 3, only_new=False)
    assert ((look.known >= 0) == old).mean() > 0.9
    learner.learn(scenario.steps[1])
    assert learner.novel_per_step == (3,)
    assert learner.assigned is not None
    assert np.array_equal(learner.assigned[look.known >= 0], look.known[look.known >= 0])
    assert (learner.assigned[look.known < 0] >= 5).all()
