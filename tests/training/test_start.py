"""Clusters that a novel head begins with, in the space in which likelihoods measure; and mirror images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from hoarfrost import Learner
from hoarfrost.computing.processes import Processes
from hoarfrost.data.images import ImageSet
from hoarfrost.errors import InputError
from hoarfrost.methods import METHODS
from hoarfrost.models.backbones import build_backbone
from hoarfrost.models.network import Design, Network, grow
from hoarfrost.models.readout import Gaussians
from hoarfrost.models.statistics import ClassStatistics, KeptStatistics, transformed
from hoarfrost.recipes import RECIPES
from hoarfrost.settings import override
from hoarfrost.training.expecting import known_classes
from hoarfrost.training.start import start_from_clusters, start_joint_head
from hoarfrost.unsorted.clusters import TYPICAL

WIDTH = 64


def features_of(means: NDArray[np.float64], each: int, spread: NDArray[np.float64], seed: int) -> NDArray[np.float32]:
    draws = np.random.default_rng(seed).standard_normal((len(means), each, means.shape[1]))
    rows: NDArray[np.float32] = (means[:, None] + draws * spread).reshape(-1, means.shape[1]).astype(np.float32)
    return rows


def scattered(classes: int, seed: int, apart: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means that differ in the last features alone, and a spread that is large in the first ones."""
    means = np.zeros((classes, WIDTH))
    means[:, -8:] = np.random.default_rng(seed).standard_normal((classes, 8)) * apart
    return means, np.r_[np.full(8, 10.0), np.ones(WIDTH - 8)]


@pytest.mark.parametrize("kept", ["full", "shared", "none"])
def test_whitened_features_spread_alike_in_all_directions(kept: Any) -> None:
    means, spread = scattered(3, 0, 5.0)
    rows = features_of(means, 4000, spread, 1)
    labels = torch.arange(3).repeat_interleave(4000)
    statistics = ClassStatistics.of(torch.from_numpy(rows), labels, 3, KeptStatistics(kept))
    known, present = known_classes(statistics)
    white = np.asarray(replace(known, ridge=1e-9).whitened(rows.astype(np.float64))[0])
    assert present.tolist() == [0, 1, 2]
    for label in range(3):
        covariance = np.cov(white[labels == label].T)
        np.testing.assert_allclose(covariance, np.eye(WIDTH), atol=0.15)


def started(design: Design, rows: NDArray[np.float32], novel: int) -> tuple[Network, NDArray[np.int64], Any]:
    torch.manual_seed(0)
    means, spread = scattered(4, 9, 5.0)
    known = torch.from_numpy(features_of(means, 300, spread, 2))
    statistics = ClassStatistics.of(known, torch.arange(4).repeat_interleave(300), 4, design.readout.kept)
    student = grow(Network(build_backbone("small", 1), 4, design), novel)
    clusters = start_from_clusters(student, rows, statistics, 0, Processes())
    return student, clusters.labels, clusters


def test_clusters_are_looked_for_where_likelihoods_measure() -> None:
    means, spread = scattered(3, 3, 4.0)
    rows = features_of(means, 60, spread, 3)
    student, labels, clusters = started(Design(novel="cosine", readout=Gaussians(covariance="shared")), rows, 3)
    groups = labels.reshape(3, 60)
    assert all(len(set(group)) == 1 for group in groups), "what varies within the known classes counts less"
    assert len(set(groups[:, 0])) == 3
    assert [int(clusters.typical[labels == k].sum()) for k in range(3)] == [round(TYPICAL * 60)] * 3
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for cluster in range(3):
        mean = unit[labels == cluster].mean(axis=0)
        np.testing.assert_allclose(
            student.novel[-1].state_dict()["weight"][cluster].numpy(), mean / np.linalg.norm(mean), atol=1e-5
        )
    _, plain, _ = started(Design(novel="cosine"), rows, 3)
    assert any(len(set(group)) > 1 for group in plain.reshape(3, 60)), "directions alone do not show it"


def test_the_farthest_images_are_not_typical() -> None:
    means, _ = scattered(2, 5, 8.0)
    rows = features_of(means, 20, np.ones(WIDTH), 3)
    rows[0] += 6.0
    _, labels, clusters = started(Design(novel="cosine", readout=Gaussians(covariance="shared")), rows, 2)
    assert labels[0] == labels[1]
    assert not clusters.typical[0]
    assert clusters.typical.sum() == 2 * round(TYPICAL * 20)


def test_the_square_root_at_length_one() -> None:
    rows = torch.tensor([[4.0, 9.0, -16.0]])
    expected = np.array([2.0, 3.0, -4.0]) / np.sqrt(29)
    np.testing.assert_allclose(transformed(rows, "hellinger").numpy()[0], expected, rtol=1e-6)


def test_features_are_the_mean_of_an_image_and_its_mirror_image() -> None:
    images = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3), dtype=np.uint8)
    settings = {"fit.epochs": 1, "method.design.mirror": True}
    learner = Learner("frost", "small", device="cpu", settings=settings).fit(images, np.arange(24) % 3)
    found = learner.outputs(images, features=True).features
    alone = replace(learner.network.design, mirror=False)
    learner.network.design = alone
    mirrored = learner.outputs(ImageSet(np.ascontiguousarray(images[:, :, ::-1])), features=True).features
    plain = learner.outputs(images, features=True).features
    assert found is not None
    assert plain is not None
    assert mirrored is not None
    np.testing.assert_allclose(found, (plain + mirrored) / 2, rtol=1e-4, atol=1e-5)
    assert not np.allclose(found, plain)
    with pytest.raises(InputError, match=r"method\.design\.mirror cannot be changed"):
        learner.reconfigure(override(learner.config, {"method.design.mirror": False}))


@pytest.mark.parametrize(("recipe", "mirrors"), [("cifar10", True), ("tiny-imagenet", True), ("digits", False)])
def test_only_images_that_may_be_mirrored_are(recipe: str, mirrors: bool) -> None:
    config = RECIPES[recipe].config(METHODS["hoarfrost"], 0)
    assert config.method.design.mirror == mirrors


def test_happys_head_begins_with_the_clusters_that_are_least_like_a_known_class() -> None:
    torch.manual_seed(0)
    directions = torch.eye(6)
    backbone = build_backbone("small", 1)
    width = backbone.width
    before = Network(backbone, 4, Design(novel="joint", joint="cosine"))
    places = torch.zeros(6, width)
    places[:, :6] = directions
    with torch.no_grad():
        before.joint.weight.copy_(places[:4])
        before.joint.bias.copy_(torch.arange(4.0))
    features = (places.repeat_interleave(20, dim=0) + 0.01 * torch.randn(120, width)).numpy()
    student = grow(before, 2)
    start_joint_head(student, before, features, 0, Processes())
    new = functional.normalize(student.joint.weight[4:], dim=1)
    assert sorted((new @ places.T).argmax(dim=1).tolist()) == [4, 5]
    assert torch.equal(student.joint.weight[:4], before.joint.weight)
    assert student.joint.bias[4:].tolist() == [1.5, 1.5]
    assert torch.linalg.vector_norm(student.joint.weight[4:], dim=1).tolist() == pytest.approx([1.0, 1.0])
