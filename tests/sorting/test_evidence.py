"""The evidence of groups against densities of all their images together, written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from hoarfrost.sorting.evidence import Evidence, Floats, Roughness


def log_density(values: Floats, mean: float, covariance: Floats) -> float:
    return float(multivariate_normal(np.full(len(values), mean), covariance).logpdf(values))


def together(images: Floats, between: float, scatter: float) -> float:
    """The log density of one feature of some images of one class, whose mean is not known."""
    n = len(images)
    return log_density(images, 0.0, scatter * np.eye(n) + between * np.ones((n, n)))


@pytest.mark.parametrize("seed", range(4))
def test_without_clumps_a_join_gains_what_the_densities_of_all_images_say(seed: int) -> None:
    random = np.random.default_rng(seed)
    between, scatter = random.uniform(0.1, 4, size=5), float(random.uniform(0.5, 6))
    groups = [random.normal(size=(n, 5)) for n in (3, 7)]
    both = np.concatenate(groups)
    expected = sum(
        together(both[:, d], between[d], scatter) - sum(together(own[:, d], between[d], scatter) for own in groups)
        for d in range(5)
    )
    evidence = Evidence(between, Roughness(scatter, 0.0))
    of = [float(evidence.of(np.array([float(len(x))]), x.mean(axis=0)[None])[0]) for x in (both, *groups)]
    assert of[0] - of[1] - of[2] == pytest.approx(expected, abs=1e-3)  # logarithms are read off a table


@pytest.mark.parametrize("seed", range(4))
def test_a_clumped_group_tells_what_its_mean_tells(seed: int) -> None:
    random = np.random.default_rng(seed)
    between, roughness = random.uniform(0.1, 4, size=3), Roughness(2.0, 0.3)
    count, mean = 12.0, random.normal(size=3)
    noise = 2.0 / count + 0.3
    expected = sum(
        log_density(mean[[d]], 0.0, np.array([[between[d] + noise]])) - log_density(mean[[d]], 0.0, np.array([[noise]]))
        for d in range(3)
    )
    effective = roughness.effective(np.array([count]))
    assert Evidence(between, roughness).of(effective, mean[None])[0] == pytest.approx(expected, abs=1e-3)


def test_many_images_of_one_group_tell_no_more_than_clumps_allow() -> None:
    roughness = Roughness(2.0, 0.1)
    assert np.allclose(roughness.effective(np.array([1.0, 20.0, 1e9])), [1 / 1.05, 10.0, 20.0])
    assert np.allclose(Roughness(2.0, 0.0).effective(np.array([1.0, 20.0])), [1.0, 20.0])


@pytest.mark.parametrize("effective", [0.0, 1.0, 5.5])
def test_one_more_image_is_as_probable_as_all_together_say(effective: float) -> None:
    """Of the mean of a group and one more image, jointly normal, the second given the first."""
    random = np.random.default_rng(3)
    between, scatter, clumping = random.uniform(0.1, 4, size=4), 2.0, 0.5
    points, mean = random.normal(size=(6, 4)), random.normal(size=4)
    expected = np.zeros(6)
    for d, b in enumerate(between):
        noise = scatter / effective if effective else 1e12
        explained = b / (b + noise)
        variance = b + scatter + clumping - b * explained
        expected += -0.5 * (np.log(variance) + (points[:, d] - explained * mean[d]) ** 2 / variance)
    evidence = Evidence(between, Roughness(scatter, clumping))
    found = evidence.densities(points, np.array([effective]), mean[None])[:, 0]
    assert np.allclose(found, expected)
    assert np.allclose(evidence.own_densities(points, np.full(6, effective), np.tile(mean, (6, 1))), expected)
