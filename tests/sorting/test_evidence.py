"""The evidence of groups against densities of all their images together, written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from hoarfrost.sorting.evidence import GROWTH, SPREAD, Evidence, Floats


def log_density(values: Floats, mean: float, covariance: Floats) -> float:
    return float(multivariate_normal(np.full(len(values), mean), covariance).logpdf(values))


def together(images: Floats, between: float, noise: float) -> float:
    """The log density of one feature of some images of one class, whose mean is not known."""
    n = len(images)
    return log_density(images, 0.0, noise * np.eye(n) + between * np.ones((n, n)))


@pytest.mark.parametrize("seed", range(4))
def test_of_independent_images_a_join_gains_what_the_densities_of_all_images_say(seed: int) -> None:
    random = np.random.default_rng(seed)
    between = random.uniform(0.1, 4, size=5)
    groups = [random.normal(size=(n, 5)) for n in (3, 7)]
    both = np.concatenate(groups)
    expected = sum(
        together(both[:, d], between[d], 1.0) - sum(together(own[:, d], between[d], 1.0) for own in groups)
        for d in range(5)
    )
    evidence = Evidence(between, 1.0)
    of = [float(evidence.of(np.array([float(len(x))]), x.mean(axis=0)[None])[0]) for x in (both, *groups)]
    assert of[0] - of[1] - of[2] == pytest.approx(expected, abs=1e-3)  # logarithms are read off a table


@pytest.mark.parametrize("seed", range(4))
def test_a_join_is_asked_as_if_every_image_were_so_much_noisier(seed: int) -> None:
    """Each of n images has the noise of their redundancy; densities apart are taken from those together."""
    random = np.random.default_rng(seed)
    between, roughness = random.uniform(0.1, 4, size=3), float(random.uniform(0.2, 1.5))
    one, others = random.normal(size=(4, 3)), [random.normal(size=(n, 3)) for n in (2, 9)]
    found = Evidence(between, roughness).gains(
        4.0, one.mean(axis=0), np.array([2.0, 9.0]), np.stack([own.mean(axis=0) for own in others])
    )
    for own, gain in zip(others, found, strict=True):
        both, noise = np.concatenate([one, own]), roughness * (4 + len(own)) ** GROWTH
        expected = sum(
            together(both[:, d], between[d], noise) - sum(together(x[:, d], between[d], noise) for x in (one, own))
            for d in range(3)
        )
        assert gain == pytest.approx(expected, abs=1e-3)


def test_more_images_of_a_class_tell_more_but_each_tells_less() -> None:
    count = np.array([1.0, 10.0, 100.0, 1000.0])
    independent = count / Evidence(np.ones(1), 0.7).redundancy(count)
    assert (np.diff(independent) > 0).all()
    assert (np.diff(independent / count) < 0).all()


@pytest.mark.parametrize("count", [0.0, 1.0, 5.5])
def test_one_more_image_is_as_probable_as_all_together_say(count: float) -> None:
    """Of the mean of a group and one more image, jointly normal, the second given the first."""
    random = np.random.default_rng(3)
    between, roughness = random.uniform(0.1, 4, size=4), 0.6
    points, mean = random.normal(size=(6, 4)), random.normal(size=4)
    expected = np.zeros(6)
    for d, b in enumerate(between):
        noise = roughness * count**GROWTH / count if count else 1e12
        explained = b / (b + noise)
        variance = b + SPREAD - b * explained
        expected += -0.5 * (np.log(variance) + (points[:, d] - explained * mean[d]) ** 2 / variance)
    evidence = Evidence(between, roughness)
    found = evidence.densities(points, np.array([count]), mean[None])[:, 0]
    assert np.allclose(found, expected)
    assert np.allclose(evidence.own_densities(points, np.full(6, count), np.tile(mean, (6, 1))), expected)
