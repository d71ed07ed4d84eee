"""What a discovery remembers of its own images: targets, averages and the queue, against plain loops."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hoarfrost.losses.functional import sharpened
from hoarfrost.losses.inputs import FIRST, Activations, LossInputs, Sizes
from hoarfrost.losses.memory import Ensemble, LabelledQueue, Memory, Queue, Targets
from hoarfrost.losses.terms import (
    ClusterConsistency,
    Clustering,
    Contrast,
    LabelledContrast,
    Pairwise,
    Replay,
)
from hoarfrost.training.objective import made_memories

IMAGES, NOVEL = 7, 3


def probabilities(seed: int) -> Tensor:
    return torch.randn(IMAGES, NOVEL, generator=torch.Generator().manual_seed(seed)).softmax(dim=1)


def inputs(features: Tensor, novel: Tensor) -> LossInputs:
    student = Activations(features_by_view={FIRST.name: features}, logits_by_head={("novel", FIRST.name): novel})
    return LossInputs(labelled_classes=2, seen_classes=2, novel_classes=NOVEL, student=student)


def sizes(*, labelled_images: int = 0, clusters: Tensor | None = None) -> Sizes:
    return Sizes(
        features=4,
        images=IMAGES,
        labelled_classes=2,
        seen_classes=2,
        novel_classes=NOVEL,
        labelled_images=labelled_images,
        clusters=clusters,
    )


def targets_of(term: Clustering) -> Targets:
    memory = term.make_memory(sizes(clusters=probabilities(0)))
    assert isinstance(memory, Targets)
    return memory


def step(memory: Memory, rows: Tensor, batch: LossInputs) -> None:
    """What a step of training does with a memory."""
    update = memory.compute_update(batch)
    assert update is not None
    memory.apply_update(rows, update)


def never() -> Tensor:
    raise AssertionError("nobody asked for the probabilities of all images")


def test_targets_are_renewed_after_so_many_epochs_and_not_before() -> None:
    targets = targets_of(Clustering(update=3))
    rows = torch.tensor([4, 0])
    first = sharpened(probabilities(0))
    for epoch in range(2):
        targets.epoch_done(epoch, never)
        assert torch.equal(targets.loss_inputs(rows)["targets"], first[rows])
    targets.epoch_done(2, lambda: probabilities(1))
    assert torch.allclose(targets.loss_inputs(rows)["targets"], sharpened(probabilities(1))[rows])
    targets.epoch_done(3, never)


def test_after_the_warm_up_targets_are_renewed_whatever_the_interval() -> None:
    targets = targets_of(Clustering(update=5, warm_up=2))
    targets.epoch_done(0, never)
    targets.epoch_done(1, lambda: probabilities(1))
    assert torch.allclose(targets.targets, sharpened(probabilities(1)))
    for epoch in range(2, 6):
        targets.epoch_done(epoch, never)
    targets.epoch_done(6, lambda: probabilities(2))
    assert torch.allclose(targets.targets, sharpened(probabilities(2)))


@pytest.mark.parametrize("warm_up", [0, 2])
def test_targets_of_an_average_weigh_late_epochs_most(warm_up: int) -> None:
    momentum = 0.6
    targets = targets_of(Clustering(update=2, warm_up=warm_up, momentum=momentum))
    for epoch in range(warm_up):
        targets.epoch_done(epoch, lambda: probabilities(9))
    seen = [probabilities(seed) for seed in range(4)]
    for number, now in enumerate(seen):
        targets.epoch_done(warm_up + number, lambda now=now: now)  # type: ignore[misc]
    weights = [(1 - momentum) * momentum ** (3 - number) for number in range(4)]
    average = sum(weight * now for weight, now in zip(weights, seen, strict=True))
    assert isinstance(average, Tensor)
    assert torch.allclose(targets.targets, sharpened(average / sum(weights)), atol=1e-6)


@pytest.mark.parametrize("start", [0, 2])
def test_an_ensemble_averages_what_training_saw_since_the_term_takes_part(start: int) -> None:
    ensemble = ClusterConsistency(target="ensemble", start=start).make_memory(sizes())
    assert isinstance(ensemble, Ensemble)
    rows, average = torch.arange(IMAGES), torch.zeros(IMAGES, NOVEL)
    for epoch in range(start):
        step(ensemble, rows, inputs(torch.zeros(IMAGES, 2), torch.randn(IMAGES, NOVEL)))
        ensemble.epoch_done(epoch, never)
    assert not ensemble.loss_inputs(rows)["ensemble"].any()  # as in DTC's first epoch
    for number in range(3):
        logits = torch.randn(IMAGES, NOVEL, generator=torch.Generator().manual_seed(number))
        for batch in (rows[:4], rows[4:]):
            step(ensemble, batch, inputs(torch.zeros(len(batch), 2), logits[batch]))
        ensemble.epoch_done(start + number, never)
        average = 0.6 * average + 0.4 * logits.softmax(dim=1)
        assert torch.allclose(ensemble.loss_inputs(rows)["ensemble"], average / (1 - 0.6 ** (number + 1)))


@pytest.mark.parametrize("batch", [3, 5, 12])
def test_a_queue_has_the_latest_images_whatever_the_batch(batch: int) -> None:
    size, width = 5, 4
    queue = Queue(size, width)
    assert queue.features.abs().max() <= (3 / width) ** 0.5
    came: list[list[float]] = []
    for seed in range(4):
        features = torch.randn(batch, width, generator=torch.Generator().manual_seed(seed))
        before = queue.features.clone()
        update = queue.compute_update(inputs(features, torch.zeros(batch, NOVEL)))
        assert torch.equal(queue.loss_inputs(torch.zeros(0))["queue"], before)  # the backward pass still reads it
        queue.apply_update(torch.zeros(0), update)
        came += [(row / row.norm()).tolist() for row in features]
    latest = sorted(came[-size:])
    assert torch.allclose(torch.tensor(sorted(queue.features.tolist())), torch.tensor(latest), atol=1e-6)


@pytest.mark.parametrize("batch", [3, 5, 12])
def test_a_queue_of_labelled_images_keeps_their_labels_beside_them(batch: int) -> None:
    size, width = 5, 4
    queue = LabelledQueue(size, width)
    assert queue.labels.tolist() == [-1] * size  # of no class
    came: list[list[float]] = []
    for seed in range(4):
        features = torch.randn(batch, width, generator=torch.Generator().manual_seed(seed))
        part = replace(inputs(features, torch.zeros(batch, NOVEL)), labels=100 * seed + torch.arange(batch))
        new = inputs(torch.zeros(2, width), torch.zeros(2, NOVEL))
        step(queue, torch.zeros(2), replace(new, labelled_part=part))
        came += [[*(row / row.norm()).tolist(), 100.0 * seed + n] for n, row in enumerate(features)]
    given = queue.loss_inputs(torch.zeros(0))
    kept = torch.cat([given["labelled_queue"], given["labelled_queue_labels"][:, None].float()], dim=1)
    assert torch.allclose(torch.tensor(sorted(kept.tolist())), torch.tensor(sorted(came[-size:])), atol=1e-6)


def test_a_method_remembers_what_its_terms_need_and_no_more() -> None:
    terms = (Clustering(), ClusterConsistency(), ClusterConsistency(target="ensemble"), Contrast(), Pairwise())
    found = made_memories(terms, sizes(clusters=probabilities(0)))
    assert [type(memory) for memory in found] == [Targets, Ensemble, Queue]
    assert len(found[-1].loss_inputs(torch.zeros(0))["queue"]) == IMAGES  # one epoch fills it
    (queue,) = made_memories((LabelledContrast(),), sizes(labelled_images=4))
    assert len(queue.loss_inputs(torch.zeros(0))["labelled_queue"]) == 4
    assert made_memories((Pairwise(), Replay()), sizes()) == []
