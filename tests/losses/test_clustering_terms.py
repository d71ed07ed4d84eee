"""The terms of DTC, ResTune and NCL against plain loops over the images of a batch."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hoarfrost.losses.inputs import FIRST, SECOND, Activations, LossInputs
from hoarfrost.losses.terms import (
    ClusterConsistency,
    Clustering,
    Contrast,
    ExtremePairs,
    OldHeadDistillation,
    Pairwise,
)

from . import naive
from .naive import (
    FEATURES,
    IMAGES,
    LABELLED,
    NOVEL,
    QUEUE,
    Rows,
    activations,
    both_views,
    changed,
    dot,
    example,
    gradient,
    mean,
    old_head,
    rows,
    softmax,
    taught,
    unit,
)

SEEDS = range(3)


def probabilities(logits: Tensor | None) -> Rows:
    return [softmax(row) for row in rows(logits)]


@pytest.mark.parametrize("seed", SEEDS)
def test_pairwise_by_cosine(seed: int) -> None:
    inputs = example(seed)
    alike = inputs.features().detach()[[0, 0, 1, 1, 2, 3]] + 0.3 * inputs.features().detach()
    inputs = changed(inputs, features={FIRST: alike})
    first, second, units = (
        probabilities(inputs.logits("novel")),
        probabilities(inputs.logits("novel", SECOND)),
        [unit(row) for row in rows(alike)],
    )
    losses, together = [], 0
    for i in range(IMAGES):
        for j in range(IMAGES):
            same = dot(units[i], units[j]) > 0.8
            together += same
            product = dot(first[i], second[j])
            losses.append(-math.log((product if same else 1 - product) + 1e-7))
    assert IMAGES < together < IMAGES**2
    assert Pairwise(pairs="cosine", threshold=0.8).loss(inputs).item() == pytest.approx(mean(losses), rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_old_head_distillation_is_of_the_labelled_classes(seed: int) -> None:
    inputs = example(seed)
    now, before = (
        [row[:LABELLED] for row in rows(part)] for part in (old_head(inputs), taught(inputs).logits("joint"))
    )
    expected = naive.distillation(now, before, 2.0)
    assert OldHeadDistillation().loss(inputs).item() == pytest.approx(expected, rel=1e-9)
    expected = naive.distillation(now, before, 3.0)
    assert OldHeadDistillation(temperature=3.0).loss(inputs).item() == pytest.approx(expected, rel=1e-9)


def with_novel(network: Activations | None, *novel: Tensor) -> Activations:
    """What a network says, and what the novel heads of its steps say."""
    assert network is not None
    logits = {(f"novel {step}", FIRST.name): found for step, found in enumerate(novel, 1)}
    return replace(network, logits_by_head={**network.logits_by_head, **logits})


def test_old_head_distillation_adds_up_over_every_earlier_head() -> None:
    inputs, generator = example(), torch.Generator().manual_seed(0)
    (now, before), (later, earlier) = (
        [torch.randn(len(inputs.features()), size, generator=generator, dtype=torch.float64) for _ in range(2)]
        for size in (4, 2)
    )
    every = replace(
        inputs,
        earlier_heads=("novel 1", "novel 2"),
        old_heads=with_novel(inputs.old_heads, now, later),
        teacher=with_novel(inputs.teacher, before, earlier),
    )
    expected = OldHeadDistillation().loss(inputs).item()
    expected += naive.distillation(rows(now), rows(before), 2.0) + naive.distillation(rows(later), rows(earlier), 2.0)
    assert OldHeadDistillation().loss(every).item() == pytest.approx(expected, rel=1e-9)


def test_old_head_distillation_moves_the_features_and_no_head() -> None:
    inputs = example()
    frozen = torch.linspace(-1, 1, FEATURES * 3, dtype=torch.float64).view(FEATURES, 3)
    now = activations({}, {("joint", FIRST): inputs.features() @ frozen})
    term = OldHeadDistillation()
    torch.autograd.backward(term.loss(replace(inputs, old_heads=now)))
    assert gradient(inputs.features()).any(dim=1).all()
    assert inputs.logits("joint").grad is None
    assert term.trains == frozenset()


@pytest.mark.parametrize("seed", SEEDS)
def test_clustering(seed: int) -> None:
    inputs = example(seed)
    expected = naive.mean_divergence(rows(inputs.memory("targets")), probabilities(inputs.logits("novel")))
    assert Clustering().loss(inputs).item() == pytest.approx(expected, rel=1e-9)


def test_clustering_of_points_and_centres_is_that_of_their_distances() -> None:
    points, centres = example(1).features().detach(), example(2).features().detach()[:NOVEL]
    distances = [[math.dist(point, centre) for centre in rows(centres)] for point in rows(points)]
    logits = torch.tensor([[-math.log(1 + d * d) for d in row] for row in distances], dtype=torch.float64)
    q = naive.student_t(rows(points), rows(centres))
    target = naive.sharpened(q)
    inputs = changed(
        example(),
        logits={("novel", FIRST): logits},
        memories={"targets": torch.tensor(target, dtype=torch.float64)},
    )
    assert Clustering().loss(inputs).item() == pytest.approx(naive.mean_divergence(target, q), rel=1e-9)


@pytest.mark.parametrize("update", [1, 3, 5])
@pytest.mark.parametrize("warm_up", [0, 1, 4, 10])
def test_targets_are_renewed_at_the_end_of_the_warm_up_and_every_few_epochs_since(update: int, warm_up: int) -> None:
    expected = [warm_up - 1] if warm_up else []
    for epoch in range(30):  # after the warm-up
        if (epoch + 1) % update == 0:
            expected.append(warm_up + epoch)
    term = Clustering(update=update, warm_up=warm_up)
    assert [epoch for epoch in range(warm_up + 30) if term.renews(epoch)] == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_clusters_agree_between_views(seed: int) -> None:
    inputs = example(seed)
    first, second = ([softmax(row) for row in view] for view in both_views(inputs, "novel"))
    squares = [(first[i][c] - second[i][c]) ** 2 for i in range(IMAGES) for c in range(NOVEL)]
    assert ClusterConsistency().loss(inputs).item() == pytest.approx(mean(squares), rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_clusters_agree_with_their_average(seed: int) -> None:
    inputs = example(seed)
    now, average = probabilities(inputs.logits("novel")), rows(inputs.memory("ensemble"))
    squares = [(now[i][c] - average[i][c]) ** 2 for i in range(IMAGES) for c in range(NOVEL)]
    assert ClusterConsistency(target="ensemble").loss(inputs).item() == pytest.approx(mean(squares), rel=1e-9)


def test_both_views_move_but_not_the_second_towards_an_average() -> None:
    inputs = example()
    torch.autograd.backward(ClusterConsistency(target="ensemble").loss(inputs))
    assert inputs.logits("novel").grad is not None
    assert inputs.logits("novel", SECOND).grad is None
    torch.autograd.backward(ClusterConsistency().loss(inputs))
    assert inputs.logits("novel", SECOND).grad is not None


@pytest.mark.parametrize("images", [1, 6, 15, 30])  # fewer than the 10 and 10 pairs of an image, and more
def test_extreme_pairs_are_those_of_the_labelled_classes(images: int) -> None:
    inputs = example(images, images)
    similar = [softmax(row[:LABELLED]) for row in rows(inputs.logits("joint"))]
    pairs = naive.extreme_pairs(similar, 10, 10)
    expected = naive.signed_pairwise_bce(probabilities(inputs.logits("auxiliary")), pairs)
    assert ExtremePairs().loss(inputs).item() == pytest.approx(expected, rel=1e-9)


def contrast(inputs: LossInputs, neighbours: int) -> float:
    query, key = ([unit(row) for row in rows(part)] for part in (inputs.features(), inputs.features(SECOND)))
    queue = rows(inputs.memory("queue"))
    return naive.neighbour_contrast(query, key, queue, temperature=0.05, own=0.2, neighbours=neighbours)


@pytest.mark.parametrize("images", [1, 6, 9])
def test_contrast(images: int) -> None:
    inputs = example(images, images)
    expected = contrast(inputs, QUEUE // (2 * NOVEL))
    assert Contrast(size=QUEUE).loss(inputs).item() == pytest.approx(expected, rel=1e-9)


def test_contrast_with_a_short_queue_has_one_neighbour() -> None:
    inputs = example()
    inputs = changed(inputs, memories={"queue": inputs.memory("queue")[:3]})
    expected = contrast(inputs, 1)
    assert Contrast(size=3).loss(inputs).item() == pytest.approx(expected, rel=1e-9)


def test_contrast_moves_the_first_view_alone() -> None:
    inputs = example()
    torch.autograd.backward(Contrast(size=QUEUE).loss(inputs))
    assert gradient(inputs.features()).any(dim=1).all()
    assert inputs.features(SECOND).grad is None


def test_the_length_of_features_does_not_matter_to_contrast() -> None:
    inputs = example()
    longer = changed(inputs, features={FIRST: 7 * inputs.features(), SECOND: 3 * inputs.features(SECOND)})
    assert Contrast(size=QUEUE).loss(longer).item() == pytest.approx(Contrast(size=QUEUE).loss(inputs).item(), rel=1e-9)


def test_a_single_new_class_is_a_sure_one() -> None:
    inputs = example()
    one = torch.ones(IMAGES, 1, dtype=torch.float64)
    logits = inputs.features().detach()[:, :1]
    inputs = changed(
        inputs,
        logits={("novel", FIRST): logits, ("novel", SECOND): -logits, ("auxiliary", FIRST): logits},
        memories={"targets": one, "ensemble": one},
    )
    assert Clustering().loss(inputs).item() == 0
    assert ClusterConsistency().loss(inputs).item() == 0
    assert ClusterConsistency(target="ensemble").loss(inputs).item() == 0
    pairs = naive.extreme_pairs([softmax(row[:LABELLED]) for row in rows(inputs.logits("joint"))], 2, 1)
    apart = sum(row.count(-1.0) for row in pairs)
    expected = -apart * math.log(1e-7) / IMAGES**2
    assert apart > 0
    assert ExtremePairs(positives=2, negatives=1).loss(inputs).item() == pytest.approx(expected, abs=1e-6)


def test_the_usual_values_are_the_published_ones() -> None:
    contrast = Contrast()
    assert (contrast.size, contrast.temperature, contrast.own) == (2000, 0.05, 0.2)
    assert (Pairwise().pairs, Pairwise().threshold) == ("rank", 0.95)
    assert (ExtremePairs().positives, ExtremePairs().negatives) == (10, 10)
    assert (OldHeadDistillation().temperature, ClusterConsistency().momentum) == (2.0, 0.6)
    assert all(type(term).weight == 1.0 for term in (contrast, Clustering(), ClusterConsistency(), ExtremePairs()))
