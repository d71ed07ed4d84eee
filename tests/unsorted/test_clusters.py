"""Principal components and k-means against what they are defined by."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hoarfrost.data import rows
from hoarfrost.unsorted import clusters
from hoarfrost.unsorted.clusters import k_means, principal_components


def blobs(seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Three groups of twenty points in six dimensions, far apart."""
    generator = np.random.default_rng(seed)
    centres = np.eye(6)[:3] * 10
    return np.concatenate([centre + generator.normal(size=(20, 6)) for centre in centres])


@pytest.mark.parametrize("seed", range(3))
def test_components_keep_what_a_projection_can_keep(seed: int) -> None:
    features = blobs(seed) @ np.random.default_rng(seed).normal(size=(6, 6))
    found = principal_components(features, 2)
    centred = features - features.mean(axis=0)
    singular = np.linalg.svd(centred, compute_uv=False)
    assert np.allclose(np.square(found).sum(axis=0), np.square(singular[:2]))  # not whitened
    assert np.allclose(found.mean(axis=0), 0)
    assert abs(found[:, 0] @ found[:, 1]) < 1e-6 * np.square(found).sum()


def test_components_do_not_depend_on_where_the_features_lie_nor_on_a_mirror_image() -> None:
    features = blobs(0)
    assert np.allclose(principal_components(features + 5, 3), principal_components(features, 3))
    assert np.allclose(np.abs(principal_components(-features, 3)), np.abs(principal_components(features, 3)))


def test_more_components_than_there_are_directions_are_zero() -> None:
    found = principal_components(blobs(0), 9)
    assert found.shape == (60, 9)
    assert not found[:, 6:].any()
    assert found[:, :6].any(axis=0).all()


def test_few_points_in_many_dimensions_have_the_same_components() -> None:
    features = np.random.default_rng(0).normal(size=(12, 40)) * np.geomspace(1, 100, 40)
    found = principal_components(features, 5)
    centred = features - features.mean(axis=0)
    vectors = np.linalg.eigh(centred.T @ centred)[1][:, :-6:-1]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(5)])
    assert np.allclose(found, centred @ (vectors * signs))
    assert np.allclose(principal_components(features, 20)[:, 11:], 0), "twelve points differ in eleven directions"


def test_few_of_many_components_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.random.default_rng(0).normal(size=(90, 60)) @ np.random.default_rng(1).normal(size=(60, 60))
    few = principal_components(features, 6)
    monkeypatch.setattr(clusters, "FEW", 100)
    np.testing.assert_allclose(few, principal_components(features, 6), atol=1e-9 * np.abs(few).max())
    monkeypatch.setattr(clusters, "FEW", 10)
    assert not principal_components(np.ones((90, 60)), 6).any(), "nothing varies"


@pytest.mark.parametrize("chunk", [1, 7, 60])
def test_components_of_rows_that_come_some_at_a_time(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    features = blobs(0)
    whole = principal_components(features, 3)
    monkeypatch.setattr(rows, "CHUNK", chunk)
    assert np.allclose(principal_components(rows.Mapped(features / 2, lambda part: 2 * part), 3), whole)


@pytest.mark.parametrize("seed", range(3))
def test_k_means_finds_groups_that_are_far_apart(seed: int) -> None:
    features = blobs(seed)
    centres = k_means(features, 3, seed)
    means = [features[start : start + 20].mean(axis=0) for start in (0, 20, 40)]
    apart = min(np.abs(np.array(order) - means).max() for order in itertools.permutations(centres))
    assert apart < 1e-6


def test_the_same_seed_finds_the_same_centres() -> None:
    features = np.random.default_rng(0).normal(size=(50, 4))
    assert np.array_equal(k_means(features, 7, 2**70 + 1), k_means(features, 7, 2**70 + 1))


def test_fewer_different_images_than_clusters_are_no_error(recwarn: pytest.WarningsRecorder) -> None:
    assert k_means(np.ones((6, 2)), 3, 0).shape == (3, 2)
    assert not list(recwarn)
