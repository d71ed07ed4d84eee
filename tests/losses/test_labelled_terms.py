"""The terms of a reference that sees labelled images again, against plain loops over the images of a batch."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from hoarfrost.losses.inputs import SECOND, LossInputs
from hoarfrost.losses.terms import (
    Consistency,
    LabelledContrast,
    LabelledCrossEntropy,
    OldHeadConsistency,
    Term,
)
from hoarfrost.methods import METHODS

from . import naive
from .naive import (
    LABELLED,
    MIXED_IN,
    Rows,
    both_views,
    changed,
    example,
    gradient,
    mean,
    mixed_example,
    rows,
    softmax,
    unit,
)

SEEDS = range(3)


def labelled(inputs: LossInputs) -> LossInputs:
    assert inputs.labelled_part is not None
    return inputs.labelled_part


def squares(first: Rows, second: Rows) -> float:
    """The mean over all entries of the squared difference of probabilities."""
    pairs = [(softmax(a), softmax(b)) for a, b in zip(first, second, strict=True)]
    return mean([(x - y) ** 2 for a, b in pairs for x, y in zip(a, b, strict=True)])


@pytest.mark.parametrize("seed", SEEDS)
def test_cross_entropy_is_of_the_labelled_images_and_classes_alone(seed: int) -> None:
    inputs = mixed_example(seed)
    part = labelled(inputs)
    assert part.labels is not None
    chosen = zip(rows(part.logits("joint")), part.labels.tolist(), strict=True)
    expected = mean([-math.log(softmax(row[:LABELLED])[label]) for row, label in chosen])
    loss = LabelledCrossEntropy().loss(inputs)
    assert loss.item() == pytest.approx(expected, rel=1e-9)
    torch.autograd.backward(loss)
    assert inputs.logits("joint").grad is None
    assert not gradient(part.logits("joint"))[:, LABELLED:].any()


@pytest.mark.parametrize("seed", SEEDS)
def test_both_heads_are_consistent_over_all_images(seed: int) -> None:
    inputs = mixed_example(seed)
    part = labelled(inputs)
    first, second = (new + old for new, old in zip(both_views(inputs, "novel"), both_views(part, "novel"), strict=True))
    novel = squares(first, second)
    assert Consistency().loss(inputs).item() == pytest.approx(novel, rel=1e-9)
    first, second = (new + old for new, old in zip(both_views(inputs, "joint"), both_views(part, "joint"), strict=True))
    first, second = ([row[:LABELLED] for row in view] for view in (first, second))
    assert OldHeadConsistency().loss(inputs).item() == pytest.approx(squares(first, second), rel=1e-9)


def test_consistency_of_the_old_head_needs_no_labelled_images() -> None:
    inputs = mixed_example()
    new = replace(inputs, labelled_part=None)
    first, second = ([row[:LABELLED] for row in view] for view in both_views(inputs, "joint"))
    assert OldHeadConsistency().loss(new).item() == pytest.approx(squares(first, second), rel=1e-9)
    assert "labelled images" not in OldHeadConsistency().needs


@pytest.mark.parametrize("seed", SEEDS)
def test_labelled_contrast(seed: int) -> None:
    inputs = mixed_example(seed)
    part = labelled(inputs)
    assert part.labels is not None
    found = set(inputs.memory("labelled_queue_labels").tolist())
    assert found == {-1, 0, 1}
    expected = naive.labelled_contrast(
        [unit(row) for row in rows(part.features())],
        [unit(row) for row in rows(part.features(SECOND))],
        rows(inputs.memory("labelled_queue")),
        labels=part.labels.tolist(),
        queue_labels=inputs.memory("labelled_queue_labels").tolist(),
        temperature=0.05,
    )
    loss = LabelledContrast().loss(inputs)
    assert loss.item() == pytest.approx(expected, rel=1e-9)
    torch.autograd.backward(loss)
    assert gradient(part.features()).any(dim=1).all()
    assert part.features(SECOND).grad is None
    assert inputs.features().grad is None


def test_in_an_empty_queue_an_image_is_like_its_second_view_alone() -> None:
    inputs = mixed_example()
    nothing = torch.full_like(inputs.memory("labelled_queue_labels"), -1)
    empty = changed(inputs, memories={"labelled_queue_labels": nothing})
    part = labelled(inputs)
    expected = naive.labelled_contrast(
        [unit(row) for row in rows(part.features())],
        [unit(row) for row in rows(part.features(SECOND))],
        rows(inputs.memory("labelled_queue")),
        labels=list(range(MIXED_IN)),
        queue_labels=[-1] * len(rows(inputs.memory("labelled_queue"))),
        temperature=0.05,
    )
    assert LabelledContrast().loss(empty).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("term", [LabelledCrossEntropy(), LabelledContrast()], ids=lambda term: term.kind)
def test_what_needs_labelled_images_says_so(term: Term) -> None:
    assert "labelled images" in term.needs
    with pytest.raises(RuntimeError, match="'labelled images', which this batch does not have"):
        term.loss(example())


def test_weights_and_sizes_are_those_of_the_authors_scripts() -> None:
    terms = {term.kind: term for term in METHODS["ncl-labelled"].active}
    assert terms["labelled-cross-entropy"].weight == 1
    assert (terms["labelled-contrast"].weight, terms["labelled-contrast"].start) == (0.1, 0)
    assert (terms["contrast"].weight, terms["contrast"].start) == (1, 1)
    assert (LabelledContrast().size, LabelledContrast().temperature) == (2000, 0.05)
    for name in ("weight", "ramp"):
        assert getattr(terms["old-head-consistency"], name) == getattr(terms["consistency"], name)
