"""Class statistics with covariances, and Gaussians made of them: against numpy and scipy."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from hoarfrost.errors import InputError
from hoarfrost.models.gaussians import ClassGaussians, mean_covariance
from hoarfrost.models.statistics import ClassStatistics, KeptStatistics, Tally, Transform, transformed

CPU = torch.device("cpu")
KEPT = {"full": KeptStatistics("full"), "low-rank": KeptStatistics("low-rank", 3), "shared": KeptStatistics("shared")}
CLASSES, FEATURES = 4, 6


def drawn(images: int = 200) -> tuple[Tensor, Tensor]:
    """Features that vary together, in scales far apart, and class ids; class 2 has no images, class 3 fewer than
    features."""
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(FEATURES, FEATURES, generator=generator)
    scales = torch.logspace(-2, 2, FEATURES)
    labels = torch.randint(2, (images,), generator=generator)
    labels[:4] = 3
    features = torch.randn(images, FEATURES, generator=generator) @ mixing
    return (features + labels[:, None]) * scales, labels


def of_class(features: Tensor, labels: Tensor, label: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rows: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = features[labels == label].double().numpy()
    return rows


def close(found: Tensor, expected: object, variance: Tensor) -> None:
    """In units of the deviations, as half precision has it."""
    units = variance.double().sqrt().clamp(min=1e-30)
    scale = units[:, None] * units
    np.testing.assert_allclose((found / scale).numpy(), np.asarray(expected) / scale.numpy(), atol=2e-3)


def test_covariances_batch_by_batch_are_those_of_numpy() -> None:
    features, labels = drawn()
    tally = Tally(CLASSES, FEATURES, CPU, KEPT["full"])
    for start in range(0, 200, 33):
        tally.add(features[start : start + 33], labels[start : start + 33])
    statistics = tally.statistics()
    plain = ClassStatistics.of(features, labels, CLASSES)
    torch.testing.assert_close(statistics.mean, plain.mean)
    assert plain.root is None, "nothing is kept that nobody asked for"
    assert statistics.root is not None
    assert statistics.root.dtype == torch.float16
    found = statistics.covariances()
    for label in (0, 1, 3):
        rows = of_class(features, labels, label)
        close(found[label], np.cov(rows.T, bias=True), statistics.variance[label])
    assert not found[2].any()


def test_a_low_rank_one_has_the_main_directions_and_every_variance() -> None:
    features, labels = drawn()
    statistics = ClassStatistics.of(features, labels, CLASSES, KEPT["low-rank"])
    assert statistics.root is not None
    assert statistics.root.shape == (CLASSES, FEATURES, 3)
    found = statistics.covariances()
    for label in (0, 1):
        whole = np.cov(of_class(features, labels, label).T, bias=True)
        values, vectors = np.linalg.eigh(whole)
        expected = (vectors[:, -3:] * values[-3:]) @ vectors[:, -3:].T
        np.fill_diagonal(expected, np.diag(whole))
        close(found[label], expected, statistics.variance[label])


def test_a_shared_one_is_that_within_the_classes() -> None:
    features, labels = drawn()
    statistics = ClassStatistics.of(features, labels, CLASSES, KEPT["shared"])
    apart = np.concatenate([rows - rows.mean(axis=0) for c in (0, 1, 3) for rows in [of_class(features, labels, c)]])
    np.testing.assert_allclose(statistics.covariances()[0], apart.T @ apart / 200, rtol=1e-3)
    first = ClassStatistics.of(features[labels < 1], labels[labels < 1], 1, KEPT["shared"])
    rest = ClassStatistics.of(features[labels > 0], labels[labels > 0] - 1, 3, KEPT["shared"])
    torch.testing.assert_close(first.extended(rest).covariances(), statistics.covariances(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", KEPT)
def test_statistics_are_extended_cut_and_merged_with_their_covariances(kind: str) -> None:
    features, labels = drawn()
    kept = KEPT[kind]
    whole = ClassStatistics.of(features, labels, CLASSES, kept)
    assert whole.fit(kept, FEATURES)
    both = whole.first(2).extended(ClassStatistics.of(features[:4], labels[:4] - 2, 2, kept))
    assert both.fit(kept, FEATURES)
    assert whole.first(2).extended(ClassStatistics.of(features[:4], labels[:4] - 2, 2)).root is None
    if kind != "shared":
        torch.testing.assert_close(both.covariances(), whole.covariances())
    merged = whole.merged(torch.tensor([0, 0, 2, 3]))
    assert merged.fit(kept, FEATURES)
    together = ClassStatistics.of(features, torch.where(labels == 1, 0, labels), CLASSES, kept)
    assert merged.count.tolist() == together.count.tolist()
    torch.testing.assert_close(merged.variance, together.variance)
    if kind == "full":
        close(merged.covariances()[0], together.covariances()[0], together.variance[0])
    elif kind == "shared":
        torch.testing.assert_close(merged.covariances(), together.covariances(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", KEPT)
def test_a_merge_leaves_the_other_classes_as_they_are(kind: str) -> None:
    features, labels = drawn()
    whole = ClassStatistics.of(features, labels, CLASSES, KEPT[kind])
    same = whole.merged(torch.arange(CLASSES))
    assert all(torch.equal(tensor, same.tensors()[name]) for name, tensor in whole.tensors().items())
    merged = whole.merged(torch.tensor([0, 1, 2, 1]))
    for name in ("mean", "variance", *(["root"] if kind != "shared" else [])):
        assert torch.equal(getattr(merged, name)[[0, 2]], getattr(whole, name)[[0, 2]])


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("rejected", [0, 3])
def test_a_rejected_class_leaves_no_scatter(kind: str, rejected: int) -> None:
    features, labels = drawn()
    features[labels == rejected] *= 30
    others = labels != rejected
    whole = ClassStatistics.of(features, labels, CLASSES, KEPT[kind])
    expected = mean_covariance(ClassStatistics.of(features[others], labels[others], CLASSES, KEPT[kind]), CPU)
    stands_for = torch.where(torch.arange(CLASSES) == rejected, -1, torch.arange(CLASSES))
    for made in (whole.without(stands_for < 0), whole.merged(stands_for)):
        found = mean_covariance(made, CPU)
        torch.testing.assert_close(found.diagonal(), expected.diagonal(), rtol=1e-3, atol=0)
        assert not made.count[rejected]


@pytest.mark.parametrize("how", ["unit", "sqrt"])
def test_of_transformed_features_all_is_kept_beside_the_plain_ones(how: Transform) -> None:
    features, labels = drawn()
    statistics = ClassStatistics.of(features, labels, CLASSES, KeptStatistics("full", features=how))
    torch.testing.assert_close(statistics.mean, ClassStatistics.of(features, labels, CLASSES).mean)
    inner = statistics.for_readout
    for label in (0, 1):
        rows = of_class(features, labels, label)
        seen = np.sign(rows) * np.sqrt(abs(rows)) if how == "sqrt" else rows / np.linalg.norm(rows, axis=1)[:, None]
        np.testing.assert_allclose(inner.mean[label], seen.mean(axis=0), rtol=1e-4, atol=1e-6)
        close(inner.covariances()[label], np.cov(seen.T, bias=True), inner.variance[label])
        np.testing.assert_allclose(transformed(features[labels == label], how), seen, rtol=1e-4, atol=1e-6)
    again = ClassStatistics.from_tensors(statistics.tensors())
    assert again.tensors().keys() == statistics.tensors().keys()
    assert all(torch.equal(tensor, again.tensors()[name]) for name, tensor in statistics.tensors().items())


@pytest.mark.parametrize("kind", ["full", "low-rank", "shared", "diagonal"])
@pytest.mark.parametrize("shrink", [0.0, 0.5])
def test_scores_are_the_log_likelihoods_of_scipy(
    kind: Literal["full", "low-rank", "shared", "diagonal"], shrink: float
) -> None:
    features, labels = drawn()
    features = features / torch.logspace(-2, 2, FEATURES)
    statistics = ClassStatistics.of(features, labels, CLASSES, KEPT.get(kind))
    ridge = 0.01
    gaussians = ClassGaussians(statistics, shrink=shrink, ridge=ridge, diagonal=kind == "diagonal", device=CPU)
    own = torch.diag_embed(statistics.variance.double()) if kind == "diagonal" else statistics.covariances()
    covariances = own.expand(CLASSES, -1, -1).numpy()
    mean = covariances[[0, 1, 3]].mean(axis=0)
    points = features[:20] + 1
    scores, distances = gaussians.log_likelihoods(points), gaussians.distances(points)
    for label in (0, 1, 3):
        whole = (1 - shrink) * covariances[label] + shrink * mean
        whole = whole + ridge * np.diag(mean).mean() * np.eye(FEATURES)
        expected = multivariate_normal(statistics.mean[label].double().numpy(), whole).logpdf(points.double().numpy())
        np.testing.assert_allclose(scores[:, label], expected, rtol=1e-3)
        apart = (points - statistics.mean[label]).double().numpy()
        squared = np.einsum("bi,ij,bj->b", apart, np.linalg.inv(whole), apart)
        np.testing.assert_allclose(distances[:, label], squared, rtol=1e-3)
    assert scores[:, 2].isneginf().all(), "a class without images never wins"
    torch.testing.assert_close(gaussians.log_likelihoods(points, slice(1, 3)), scores[:, 1:3])


def test_features_far_from_zero_keep_their_digits() -> None:
    """A covariance that the classes share whitens features and means each by themselves."""
    features, labels = drawn()
    near, far = (
        ClassGaussians(
            ClassStatistics.of(some, labels, CLASSES, KEPT["shared"]), shrink=0.0, ridge=0.1, diagonal=False, device=CPU
        ).distances(some[:20])
        for some in (features, features + 1000 * torch.logspace(-2, 2, FEATURES))
    )
    torch.testing.assert_close(near, far, rtol=1e-2, atol=1e-2)


def test_many_classes_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = drawn()
    statistics = ClassStatistics.of(features, labels, CLASSES, KEPT["full"])
    whole = ClassGaussians(statistics, shrink=0.5, ridge=0.01, diagonal=False, device=CPU).log_likelihoods(features)
    monkeypatch.setattr("hoarfrost.models.gaussians.AT_ONCE", 1)
    parts = ClassGaussians(statistics, shrink=0.5, ridge=0.01, diagonal=False, device=CPU).log_likelihoods(features)
    torch.testing.assert_close(parts, whole)


def test_features_that_never_vary_are_no_obstacle() -> None:
    features, labels = torch.ones(10, 3), torch.arange(10) % 2
    for kept, diagonal in (
        (KeptStatistics("full"), False),
        (KeptStatistics("shared"), False),
        (KeptStatistics(), True),
    ):
        statistics = ClassStatistics.of(features, labels, 2, kept)
        gaussians = ClassGaussians(statistics, shrink=0.5, ridge=0.01, diagonal=diagonal, device=CPU)
        assert gaussians.log_likelihoods(features).isfinite().all()


def test_without_any_image_there_is_no_gaussian() -> None:
    none = ClassStatistics(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))
    with pytest.raises(InputError, match="no class has images"):
        ClassGaussians(none, shrink=0.5, ridge=0.01, diagonal=True, device=CPU)


CARRIED = {
    "full": KeptStatistics("full"),
    "low-rank": KeptStatistics("low-rank", 4),
    "shared": KeptStatistics("shared"),
    "none": KeptStatistics(),
}


@pytest.mark.parametrize("how", ["plain", "unit"])
@pytest.mark.parametrize("kind", CARRIED)
def test_statistics_are_carried_along_where_features_change(kind: str, how: Transform) -> None:
    """By ridge regression: W = (X'X + r 1)^-1 X'Y, then W' Sigma W and what is left, of each class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(400)
    before = torch.randn(1200, 4, generator=generator) @ torch.randn(4, 4, generator=generator) + labels[:, None]
    seen = transformed(before, how)
    after = seen @ torch.randn(4, 4, generator=generator) + 2 + 0.3 * torch.randn(1200, 4, generator=generator)
    statistics = ClassStatistics.of(before, labels, 3, replace(CARRIED[kind], features=how))
    found, known = statistics.carried(seen, after).for_readout, statistics.for_readout

    x, y = (rows.double().numpy() - rows.double().numpy().mean(axis=0) for rows in (seen, after))
    ridge = 0.01 * np.trace(x.T @ x) / 4 * np.eye(4)
    turn = np.linalg.inv(x.T @ x + ridge) @ x.T @ y
    left = (y - x @ turn).T @ (y - x @ turn) / len(y)
    for label in range(3):
        mean = (known.mean[label] - seen.mean(dim=0)).numpy() @ turn + after.mean(dim=0).numpy()
        np.testing.assert_allclose(found.mean[label], mean, rtol=1e-4, atol=1e-5)
        if kind in ("none", "shared"):
            spread = turn.T @ np.diag(known.variance[label].numpy()) @ turn + left
            np.testing.assert_allclose(found.variance[label], np.diag(spread), rtol=1e-4)
        if kind != "none":
            which = 0 if kind == "shared" else label
            spread = turn.T @ known.covariances()[which].numpy() @ turn + left
            np.testing.assert_allclose(found.covariances()[which], spread, atol=5e-3 * spread.max())
    assert found.count.tolist() == [400] * 3


@pytest.mark.parametrize("covariance", KEPT)
def test_the_nearest_class_is_found_from_likelihoods(covariance: str) -> None:
    features, labels = drawn()
    statistics = ClassStatistics.of(features, labels, CLASSES, KEPT[covariance])
    gaussians = ClassGaussians(statistics, shrink=0.5, ridge=0.1, diagonal=False, device=CPU)
    for among in (torch.ones(CLASSES, dtype=torch.bool), torch.tensor([False, True, True, True])):
        found = gaussians.nearest(gaussians.log_likelihoods(features), among)
        expected = gaussians.distances(features)[:, among].amin(dim=1)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
