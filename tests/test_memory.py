"""Class statistics against plain loops, and what is drawn from them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Literal

import pytest
import torch
from torch import Tensor

from hoarfrost.losses.terms import Replay
from hoarfrost.models.statistics import ClassStatistics, Tally
from hoarfrost.training.rehearsal import Rehearsal

CPU = torch.device("cpu")
EMPTY, SINGLE = 2, 3
"""A class without an image, and one with a single image."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def example() -> tuple[Tensor, Tensor]:
    """Features (12, 3) and labels of classes 0 to 4, of which one is empty and one has a single image."""
    features = torch.rand(12, 3, generator=seeded()) * torch.tensor([1.0, 10.0, 0.1]) + 5
    labels = torch.tensor([0, 4, 1, 0, SINGLE, 1, 4, 0, 4, 1, 0, 4])
    return features, labels


def statistics() -> ClassStatistics:
    return ClassStatistics.of(*example(), 5)


def values_of(class_id: int, feature: int) -> list[float]:
    features, labels = example()
    return [float(row[feature]) for row, label in zip(features, labels, strict=True) if int(label) == class_id]


class TestClassStatistics:
    def test_naive_loops(self) -> None:
        result = statistics()
        assert len(result) == 5
        assert result.mean.shape == result.variance.shape == (5, 3)
        for class_id in range(5):
            for feature in range(3):
                values = values_of(class_id, feature)
                assert int(result.count[class_id]) == len(values)
                if class_id == EMPTY:
                    continue
                mean = sum(values) / len(values)
                variance = sum((value - mean) ** 2 for value in values) / len(values)
                assert float(result.mean[class_id, feature]) == pytest.approx(mean, rel=1e-6)
                assert float(result.variance[class_id, feature]) == pytest.approx(variance, rel=1e-5, abs=1e-12)

    def test_empty_class(self) -> None:
        result = statistics()
        assert int(result.count[EMPTY]) == 0
        assert torch.isfinite(result.mean).all()
        assert torch.isfinite(result.variance).all()

    def test_a_last_class_without_images_is_there(self) -> None:
        assert len(ClassStatistics.of(*example(), 7)) == 7

    def test_a_small_spread_far_from_zero(self) -> None:
        """In single precision the sum of many large features would lose the spread."""
        features = (1000 + torch.rand(5000, 1, generator=seeded(), dtype=torch.float64) / 100).float()
        result = ClassStatistics.of(features, torch.zeros(5000, dtype=torch.int64), 1)
        torch.testing.assert_close(result.variance, features.double().var(dim=0, correction=0).float()[None])

    @pytest.mark.parametrize("size", [1, 2, 5, 12])
    def test_batch_by_batch_is_all_at_once(self, size: int) -> None:
        features, labels = example()
        tally = Tally(5, 3, CPU)
        for start in range(0, len(features), size):
            tally.add(features[start : start + size], labels[start : start + size])
        tally.add(features[:0], labels[:0])
        parts, whole = tally.statistics(), statistics()
        torch.testing.assert_close(parts.mean, whole.mean, rtol=1e-6, atol=0)
        torch.testing.assert_close(parts.variance, whole.variance, rtol=1e-5, atol=1e-12)
        assert torch.equal(parts.count, whole.count)

    def test_extended(self) -> None:
        features, labels = example()
        first = ClassStatistics.of(features[labels < 2], labels[labels < 2], 2)
        rest = ClassStatistics.of(features[labels >= 2], labels[labels >= 2] - 2, 3)
        together, whole = first.extended(rest), statistics()
        assert torch.equal(together.mean, whole.mean)
        assert torch.equal(together.variance, whole.variance)
        assert torch.equal(together.count, whole.count)
        assert len(first) == 2, "the first ones stay as they were"


class TestDeviation:
    def test_of_each_class(self) -> None:
        result = statistics().deviation("class")
        for class_id in (0, 1, SINGLE, 4):
            for feature in range(3):
                values = values_of(class_id, feature)
                mean = sum(values) / len(values)
                expected = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
                assert float(result[class_id, feature]) == pytest.approx(expected, rel=1e-5, abs=1e-6)

    def test_shared(self) -> None:
        result = statistics().deviation("shared")
        assert result.shape == (5, 3)
        for feature in range(3):
            deviations = []
            for class_id in (0, 1, SINGLE, 4):
                values = values_of(class_id, feature)
                mean = sum(values) / len(values)
                # A single image has no unbiased variance; it counts as 0.
                unbiased = sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)
                deviations.append(math.sqrt(unbiased + 1e-5))
            expected = sum(deviations) / len(deviations)
            for class_id in range(5):
                assert float(result[class_id, feature]) == pytest.approx(expected, rel=1e-5)

    def test_shared_over_classes_of_several_steps(self) -> None:
        """Classes of an earlier step and of a later one count alike."""
        features, labels = example()
        later = ClassStatistics.of(features * 3, labels, 5)
        expected = (statistics().deviation("shared")[0] + later.deviation("shared")[0]) / 2
        torch.testing.assert_close(statistics().extended(later).deviation("shared")[9], expected)


def known_spread() -> ClassStatistics:
    """Three classes far apart, the one in the middle without images; so many images that 1/n and 1/(n-1) agree."""
    return ClassStatistics(
        mean=torch.tensor([[0.0, 10.0], [777.0, 777.0], [100.0, -50.0]]),
        variance=torch.tensor([[1.0, 4.0], [777.0, 777.0], [9.0, 0.25]]),
        count=torch.tensor([100_000, 0, 100_000]),
    )


class TestRehearsal:
    @pytest.mark.parametrize("per_class", [1, 3])
    def test_every_class_equally_often(self, per_class: int) -> None:
        rehearsal = Rehearsal(statistics(), Replay(per_class=per_class, sampling="every"), CPU)
        features, labels = rehearsal.draw(seeded())
        assert features.shape == (4 * per_class, 3)
        assert Counter(labels.tolist()) == dict.fromkeys((0, 1, SINGLE, 4), per_class)

    def test_classes_at_random(self) -> None:
        rehearsal = Rehearsal(statistics(), Replay(per_class=500, sampling="random"), CPU)
        features, labels = rehearsal.draw(seeded())
        times = Counter(labels.tolist())
        assert len(features) == len(labels) == 4 * 500
        assert set(times) == {0, 1, SINGLE, 4}
        assert len(set(times.values())) > 1, "drawn, not dealt out"
        # 500 expected of each, with a standard deviation below 20.
        assert all(400 < count < 600 for count in times.values())

    @pytest.mark.parametrize("sampling", ["every", "random"])
    @pytest.mark.parametrize(
        ("spread", "deviations"),
        [("class", {0: (1.0, 2.0), 2: (3.0, 0.5)}), ("shared", {0: (2.0, 1.25), 2: (2.0, 1.25)})],
    )
    def test_draws_follow_the_statistics(
        self,
        sampling: Literal["every", "random"],
        spread: Literal["shared", "class"],
        deviations: dict[int, tuple[float, float]],
    ) -> None:
        rehearsal = Rehearsal(known_spread(), Replay(per_class=5000, spread=spread, sampling=sampling), CPU)
        features, labels = rehearsal.draw(seeded())
        assert set(labels.tolist()) == {0, 2}
        for class_id, expected in deviations.items():
            drawn = features[labels == class_id]
            assert drawn.std(dim=0).tolist() == pytest.approx(expected, rel=0.05)
            # Five standard errors of the mean.
            distance = (drawn.mean(dim=0) - known_spread().mean[class_id]).abs()
            assert (distance < 5 * torch.tensor(expected) / len(drawn) ** 0.5).all()

    def test_draws_may_be_negative(self) -> None:
        rehearsal = Rehearsal(known_spread(), Replay(per_class=100, spread="class"), CPU)
        features, labels = rehearsal.draw(seeded())
        assert features[labels == 0][:, 0].min() < -1

    @pytest.mark.parametrize("sampling", ["every", "random"])
    def test_the_generator_decides(self, sampling: Literal["every", "random"]) -> None:
        rehearsal = Rehearsal(statistics(), Replay(per_class=5, sampling=sampling), CPU)
        (first, labels), (again, same_labels), (other, _) = (rehearsal.draw(seeded(seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert torch.equal(labels, same_labels)
        assert not torch.equal(first, other)

    def test_each_draw_is_fresh(self) -> None:
        rehearsal = Rehearsal(statistics(), Replay(per_class=5), CPU)
        generator = seeded()
        assert not torch.equal(rehearsal.draw(generator)[0], rehearsal.draw(generator)[0])
