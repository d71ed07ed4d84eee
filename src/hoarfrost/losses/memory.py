"""What a discovery remembers of its own images: what they were taken for earlier, and the features of the latest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hoarfrost.losses.functional import sharpened, unit_rows
from hoarfrost.losses.terms import (
    MIXES,
    ClusterConsistency,
    Clustering,
    Contrast,
    LabelledContrast,
    LossInputs,
    Term,
    present,
)


class Memory(nn.Module):
    """What a discovery remembers of its own images: buffers, so that they are saved with the state of a stage."""

    @abstractmethod
    def given(self, rows: Tensor) -> dict[str, Tensor]:
        """Fields of ``LossInputs`` for the images of these indices."""

    def noticed(self, inputs: LossInputs) -> Tensor | None:
        """What is to be kept of a step, if anything. Nothing is changed here: this is compiled with the loss."""
        return None

    def note(self, rows: Tensor, noticed: Tensor) -> None:
        """Keeps it, when the backward pass has read what was here before; without waiting for the device."""

    def epoch_done(self, epoch: int, assign: Callable[[], Tensor]) -> None:
        """Keeps something of a 0-based epoch. ``assign`` gives the probabilities of all images as they are, (N, n)."""


class Targets(Memory):
    """What each image was taken for, sharpened: the targets of clustering."""

    targets: Tensor
    average: Tensor

    def __init__(self, term: Clustering, probabilities: Tensor) -> None:
        super().__init__()
        self.term = term
        self.register_buffer("targets", sharpened(probabilities))
        if term.momentum:
            self.register_buffer("average", torch.zeros_like(probabilities))

    def given(self, rows: Tensor) -> dict[str, Tensor]:
        """The targets."""
        return {"targets": self.targets[rows]}

    def epoch_done(self, epoch: int, assign: Callable[[], Tensor]) -> None:
        """New targets, where it is time; with a momentum from the average over the epochs since the warm-up."""
        renews, momentum = self.term.renews(epoch), self.term.momentum
        averaged = epoch + 1 - self.term.warm_up
        if momentum and averaged > 0:
            self.average.mul_(momentum).add_(assign(), alpha=1 - momentum)
            if renews:
                self.targets.copy_(sharpened(self.average / (1 - momentum**averaged)))
        elif renews:
            self.targets.copy_(sharpened(assign()))


class Ensemble(Memory):
    """The probabilities of each image in training, averaged over the epochs since the term takes part.

    In its first epoch they are 0, as in DTC's code.
    """

    average: Tensor
    latest: Tensor
    target: Tensor

    def __init__(self, term: ClusterConsistency, images: int, novel: int) -> None:
        super().__init__()
        self.term = term
        for name in ("average", "latest", "target"):
            self.register_buffer(name, torch.zeros(images, novel))

    def given(self, rows: Tensor) -> dict[str, Tensor]:
        """The averages."""
        return {"ensemble": self.target[rows]}

    def noticed(self, inputs: LossInputs) -> Tensor:
        """What the images are taken for now."""
        assert inputs.novel is not None
        return inputs.novel.detach().softmax(dim=1)

    def note(self, rows: Tensor, noticed: Tensor) -> None:
        """In the places of the images."""
        self.latest.index_copy_(0, rows, noticed)

    def epoch_done(self, epoch: int, assign: Callable[[], Tensor]) -> None:
        """Corrected for the zeros that it began with."""
        momentum, averaged = self.term.momentum, epoch + 1 - self.term.start
        if averaged < 1:
            return
        self.average.mul_(momentum).add_(self.latest, alpha=1 - momentum)
        self.target.copy_(self.average / (1 - momentum**averaged))


class Queue(Memory):
    """The features of the latest images, each of length 1."""

    features: Tensor
    position: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("features", (2 * torch.rand(size, width) - 1) * (3 / width) ** 0.5)
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def given(self, rows: Tensor) -> dict[str, Tensor]:
        """All of them."""
        return {"queue": self.features}

    def noticed(self, inputs: LossInputs) -> Tensor:
        """The features of the first view."""
        return unit_rows(inputs.features.detach())

    def note(self, rows: Tensor, noticed: Tensor) -> None:
        """The oldest make room."""
        newest = noticed[-len(self.features) :]
        self.features.index_copy_(0, self.places(len(newest)), newest)
        self.position.add_(len(newest)).remainder_(len(self.features))

    def places(self, count: int) -> Tensor:
        """Where the next so many go."""
        return (self.position + torch.arange(count, device=self.position.device)) % len(self.features)


class LabelledQueue(Queue):
    """The features of the latest labelled images, each of length 1, and their class ids."""

    labels: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__(size, width)
        self.register_buffer("labels", torch.full((size,), -1))

    def given(self, rows: Tensor) -> dict[str, Tensor]:
        """All of them."""
        return {"labelled_queue": self.features, "labelled_queue_labels": self.labels}

    def noticed(self, inputs: LossInputs) -> Tensor:
        """The features of the first view and, in a last column, the class ids."""
        part = inputs.labelled_images()
        labels = present(part.labels, "labels").to(part.features.dtype)
        return torch.cat([unit_rows(part.features.detach()), labels[:, None]], dim=1)

    def note(self, rows: Tensor, noticed: Tensor) -> None:
        """The oldest make room."""
        newest = noticed[-len(self.labels) :, -1]
        self.labels.index_copy_(0, self.places(len(newest)), newest.long())
        super().note(rows, noticed[:, :-1])


def memories(
    terms: Sequence[Term], *, images: int, novel: int, width: int, start: Tensor | None, labelled: int = 0
) -> list[Memory]:
    """What these terms need; ``start`` are the first probabilities of all images, (N, n), for clustering.

    ``labelled`` images are mixed in.
    """
    found: list[Memory] = []
    for term in terms:
        if isinstance(term, Clustering) and start is not None:
            found.append(Targets(term, start))
        if isinstance(term, ClusterConsistency) and "ensemble" in term.needs:
            found.append(Ensemble(term, images, novel))
        if isinstance(term, Contrast):
            # Never more than there are images: an epoch fills it, and nothing drawn at random is left.
            found.append(Queue(min(term.size, images), width))
        if isinstance(term, LabelledContrast):
            found.append(LabelledQueue(min(term.size, labelled), width))
    return found


def to_mix(terms: Sequence[Term]) -> int:
    """How many features of remembered classes are mixed with others in a step."""
    return sum(MIXES * term.mixed for term in terms if isinstance(term, Contrast) and term.hard_negatives)
