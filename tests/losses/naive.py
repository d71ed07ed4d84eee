"""Losses as plain loops over numbers, written from their equations, and a batch to try them on."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from hoarfrost.losses.inputs import FIRST, SECOND, Activations, LossInputs, View

Row = list[float]
Rows = list[Row]

LABELLED, SEEN, NOVEL, IMAGES, FEATURES, REPLAYED, QUEUE = 2, 3, 2, 6, 8, 5, 12


def activations(features: Mapping[View, Tensor], logits: Mapping[tuple[str, View], Tensor]) -> Activations:
    """What a network makes of a batch, by views themselves in place of their names."""
    return Activations(
        features_by_view={view.name: found for view, found in features.items()},
        logits_by_head={(head, view.name): found for (head, view), found in logits.items()},
    )


def example(seed: int = 0, images: int = IMAGES, heads: Mapping[str, int] | None = None) -> LossInputs:
    """A batch in the second step of a discovery; with ``heads`` of a term's own, by their number of outputs."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    sizes = {"joint": SEEN + NOVEL, "novel": NOVEL, "auxiliary": NOVEL, **(heads or {})}
    both = (FIRST, SECOND)
    return LossInputs(
        labelled_classes=LABELLED,
        seen_classes=SEEN,
        novel_classes=NOVEL,
        student=activations(
            {view: random(images, FEATURES) for view in both},
            {(head, view): random(images, size) for head, size in sizes.items() for view in both},
        ),
        labels=torch.arange(images) * 3 % (SEEN + NOVEL),
        teacher=activations({FIRST: random(images, FEATURES)}, {("joint", FIRST): random(images, SEEN)}),
        old_heads=activations({}, {("joint", FIRST): random(images, SEEN)}),
        replay_logits=random(REPLAYED, SEEN + NOVEL),
        replay_labels=torch.arange(REPLAYED) % LABELLED,
        memories={
            "targets": random(images, NOVEL).detach().softmax(dim=1),
            "ensemble": random(images, NOVEL).detach().softmax(dim=1),
            "queue": torch.tensor([unit(row) for row in rows(random(QUEUE, FEATURES))], dtype=torch.float64),
        },
    )


MIXED_IN = 4
"""labelled images in a mixed batch"""


def mixed_example(seed: int = 0, images: int = IMAGES) -> LossInputs:
    """A batch with labelled images mixed in, some of whose classes are in the queue."""
    more, new = example(seed + 100, MIXED_IN), example(seed, images)
    queued = torch.tensor([-1, -1, *(n * n % 3 % LABELLED for n in range(QUEUE - 2))])
    part = replace(more, labels=torch.arange(MIXED_IN) % LABELLED)
    return changed(
        replace(new, labels=None, labelled_part=part),
        memories={"labelled_queue": more.memory("queue"), "labelled_queue_labels": queued},
    )


def changed(
    inputs: LossInputs,
    *,
    features: Mapping[View, Tensor] | None = None,
    logits: Mapping[tuple[str, View], Tensor] | None = None,
    memories: Mapping[str, Tensor] | None = None,
) -> LossInputs:
    """The batch with other features and logits of the network in training, and other memories."""
    student, other = inputs.student, activations(features or {}, logits or {})
    return replace(
        inputs,
        student=Activations(
            features_by_view={**student.features_by_view, **other.features_by_view},
            logits_by_head={**student.logits_by_head, **other.logits_by_head},
        ),
        memories={**inputs.memories, **(memories or {})},
    )


def limited(inputs: LossInputs, names: Collection[str]) -> LossInputs:
    """The batch with no more than the named views, heads, needs and memories, and its labelled images likewise."""
    student, part, replayed = inputs.student, inputs.labelled_part, "replay" in names
    return replace(
        inputs,
        student=Activations(
            features_by_view={view: found for view, found in student.features_by_view.items() if view in names},
            logits_by_head={key: found for key, found in student.logits_by_head.items() if set(key) <= set(names)},
        ),
        teacher=inputs.teacher if "teacher" in names else None,
        old_heads=inputs.old_heads if "old heads" in names else None,
        replay_logits=inputs.replay_logits if replayed else None,
        replay_labels=inputs.replay_labels if replayed else None,
        memories={name: found for name, found in inputs.memories.items() if name in names},
        labelled_part=None if part is None or "labelled images" not in names else limited(part, names),
    )


def both_views(inputs: LossInputs, head: str) -> tuple[Rows, Rows]:
    """The logits of a head on the first and the second view."""
    return rows(inputs.logits(head)), rows(inputs.logits(head, SECOND))


def gradient(tensor: Tensor) -> Tensor:
    """What reached it."""
    assert tensor.grad is not None
    return tensor.grad


def old_head(inputs: LossInputs) -> Tensor:
    """``(B, seen)``: the previous model's joint head on the features of the network in training."""
    assert inputs.old_heads is not None
    return inputs.old_heads.logits("joint")


def taught(inputs: LossInputs) -> Activations:
    """What the previous model makes of the batch."""
    assert inputs.teacher is not None
    return inputs.teacher


def rows(tensor: Tensor | None) -> Rows:
    assert tensor is not None
    result: Rows = tensor.tolist()
    return result


def mean(values: Row) -> float:
    return sum(values) / len(values)


def dot(a: Row, b: Row) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def unit(row: Row) -> Row:
    length = math.sqrt(dot(row, row))
    return [value / length for value in row]


def softmax(row: Row) -> Row:
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


def top(row: Row, k: int) -> set[int]:
    """Indices of the k largest values; between equal ones the lower index."""
    return set(sorted(range(len(row)), key=lambda index: (-row[index], index))[:k])


def bottom(row: Row, k: int) -> set[int]:
    return top([-value for value in row], k)


def distillation(student: Rows, teacher: Rows, temperature: float) -> float:
    losses = []
    for s, t in zip(student, teacher, strict=True):
        now, before = (softmax([value / temperature for value in row]) for row in (s, t))
        losses.append(-sum(b * math.log(n) for n, b in zip(now, before, strict=True)))
    return mean(losses)


def extreme_pairs(probabilities: Rows, positives: int, negatives: int) -> Rows:
    """ResTune: 1 for the most similar, then -1 for the least similar, then 1 for the image itself."""
    result = []
    for i, p in enumerate(probabilities):
        similar = [dot(p, q) for q in probabilities]
        row = [0.0] * len(similar)
        for j in top(similar, positives):
            row[j] = 1.0
        for j in bottom(similar, negatives):
            row[j] = -1.0
        row[i] = 1.0
        result.append(row)
    return result


def signed_pairwise_bce(p: Rows, pairs: Rows) -> float:
    losses = []
    for i in range(len(p)):
        for j in range(len(p)):
            together = dot(p[i], p[j])
            if pairs[i][j] == 1:
                losses.append(-math.log(together + 1e-7))
            elif pairs[i][j] == -1:
                losses.append(-math.log(1 - together + 1e-7))
            else:
                losses.append(0.0)
    return mean(losses)


def student_t(points: Rows, centres: Rows) -> Rows:
    """DTC: the probability of a cluster falls with 1 + distance^2."""
    result = []
    for point in points:
        near = [1 / (1 + math.dist(point, centre) ** 2) for centre in centres]
        result.append([value / sum(near) for value in near])
    return result


def sharpened(q: Rows) -> Rows:
    """DTC: p_ik is proportional to q_ik^2 / sum_i q_ik."""
    sizes = [sum(row[k] for row in q) for k in range(len(q[0]))]
    result = []
    for row in q:
        weighted = [value * value / size for value, size in zip(row, sizes, strict=True)]
        result.append([value / sum(weighted) for value in weighted])
    return result


def mean_divergence(target: Rows, q: Rows) -> float:
    """KL(target || q) as a mean over all entries; 0 log 0 is 0."""
    entries = [(t, s) for row, other in zip(target, q, strict=True) for t, s in zip(row, other, strict=True)]
    return mean([t * math.log(t / s) if t > 0 else 0.0 for t, s in entries])


def neighbour_contrast(
    query: Rows, key: Rows, queue: Rows, *, temperature: float, own: float, neighbours: int
) -> float:
    """NCL: the strongest of 1 + K logits share 1 - own, then the first gets own."""
    losses = []
    for q, k in zip(query, key, strict=True):
        logits = [dot(q, other) / temperature for other in (k, *queue)]
        target = [0.0] * len(logits)
        for j in top(logits, neighbours):
            target[j] = (1 - own) / neighbours
        target[0] = own
        losses.append(-sum(t * math.log(p) for t, p in zip(target, softmax(logits), strict=True)))
    return mean(losses)


def labelled_contrast(
    query: Rows, key: Rows, queue: Rows, *, labels: list[int], queue_labels: list[int], temperature: float
) -> float:
    """NCL: the key and all of the image's class in the queue are equally right, among 1 + K."""
    losses = []
    for q, k, label in zip(query, key, labels, strict=True):
        probabilities = softmax([dot(q, other) / temperature for other in (k, *queue)])
        right = [0, *(1 + j for j, other in enumerate(queue_labels) if other == label)]
        losses.append(mean([-math.log(probabilities[j]) for j in right]))
    return mean(losses)
