"""What is remembered: of images that are gone the mean and the variance of their class's features; of those in training
what they were taken for earlier, and the features of the latest.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    Replay,
    Term,
    present,
)


@dataclass(frozen=True)
class ClassStatistics:
    """Eq. (9) for C classes and D features, always on the CPU, stored with the model."""

    mean: Tensor
    """(C, D)"""
    variance: Tensor
    """(C, D), divided by n as the paper has it"""
    count: Tensor
    """(C,) images a class; 0 for a discovered class to which no image went"""

    def __len__(self) -> int:
        return len(self.mean)

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int) -> ClassStatistics:
        """The statistics of features ``(N, D)`` with class ids ``(N,)``."""
        tally = Tally(classes, features.shape[1], features.device)
        tally.add(features, labels.to(features.device))
        return tally.statistics()

    def first(self, classes: int) -> ClassStatistics:
        """Of the first classes alone."""
        return ClassStatistics(self.mean[:classes], self.variance[:classes], self.count[:classes])

    def extended(self, more: ClassStatistics) -> ClassStatistics:
        """With the classes of ``more`` behind these."""
        return ClassStatistics(
            torch.cat([self.mean, more.mean]),
            torch.cat([self.variance, more.variance]),
            torch.cat([self.count, more.count]),
        )

    def merged(self, stands_for: Tensor) -> ClassStatistics:
        """Where classes stand for others, ``(C,)`` ids: those together, in the place of that one; -1 leaves one out.

        A class that is part of another has no images of its own any more.
        """
        whole = Tally(len(self), self.mean.shape[1], self.mean.device)
        for columns in range(len(self)):  # one after the other: two may stand for the same
            target = int(stands_for[columns])
            if target < 0:
                continue
            count, mean, squares = (torch.zeros_like(part) for part in (whole.count, whole.mean, whole.squares))
            count[target], mean[target] = self.count[columns], self.mean[columns].double()
            squares[target] = self.variance[columns].double() * self.count[columns]
            whole.merge(count, mean, squares)
        return whole.statistics()

    def deviation(self, spread: str) -> Tensor:
        """Standard deviations ``(C, D)``: each class's own, as in Eq. (9), or "shared", their mean over the classes.

        The shared one is the public code's: from unbiased variances, with 1e-5 added to each.
        """
        if spread == "class":
            return self.variance.sqrt()
        count = self.count[:, None].to(self.variance.dtype)
        unbiased = self.variance * count / (count - 1).clamp(min=1)
        seen = self.count > 0
        shared = (unbiased[seen] + 1e-5).sqrt().mean(dim=0)
        return shared.expand_as(self.mean)


class Tally:
    """Class statistics of features that come batch by batch; in double precision, since sums are long."""

    def __init__(self, classes: int, features: int, device: torch.device) -> None:
        self.count = torch.zeros(classes, dtype=torch.float64, device=device)
        self.mean = torch.zeros(classes, features, dtype=torch.float64, device=device)
        self.squares = torch.zeros_like(self.mean)
        """of the distances from the mean, added up"""

    def add(self, features: Tensor, labels: Tensor) -> None:
        """A batch ``(B, D)`` with class ids ``(B,)``."""
        features = features.double()
        count = torch.zeros_like(self.count).index_add_(0, labels, torch.ones_like(features[:, 0]))
        mean = torch.zeros_like(self.mean).index_add_(0, labels, features) / count.clamp(min=1)[:, None]
        squares = torch.zeros_like(self.mean).index_add_(0, labels, (features - mean[labels]).square())
        self.merge(count, mean, squares)

    def merge(self, count: Tensor, mean: Tensor, squares: Tensor) -> None:
        """What another tally counted: two means are joined by how far they lie apart."""
        whole = self.count + count
        part = (count / whole.clamp(min=1))[:, None]
        apart = mean - self.mean
        self.squares += squares + apart.square() * part * self.count[:, None]
        self.mean += apart * part
        self.count = whole

    def statistics(self) -> ClassStatistics:
        """What was counted so far."""
        variance = self.squares / self.count.clamp(min=1)[:, None]
        return ClassStatistics(self.mean.float().cpu(), variance.float().cpu(), self.count.long().cpu())


class Rehearsal:
    """Draws features of remembered classes, on the device of training; ``more`` of them beside those to rehearse."""

    def __init__(self, statistics: ClassStatistics, term: Replay, device: torch.device, more: int = 0) -> None:
        seen = torch.nonzero(statistics.count > 0).flatten()
        self.mean = statistics.mean[seen].to(device)
        self.deviation = statistics.deviation(term.spread)[seen].to(device)
        self.classes = seen.to(device)
        self.every = torch.arange(len(seen), device=device).repeat_interleave(term.per_class)
        self.random, self.more = term.sampling == "random", more

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features ``(R + more, D)`` and the class ids ``(R,)`` of the first; not clamped, as in the public code."""
        rows = self.every
        if self.random:
            rows = self._any(len(rows), generator)
        drawn = torch.cat([rows, self._any(self.more, generator)]) if self.more else rows
        noise = torch.randn((len(drawn), self.mean.shape[1]), generator=generator, device=rows.device)
        return self.mean[drawn] + noise * self.deviation[drawn], self.classes[rows]

    def _any(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.randint(len(self.classes), (count,), generator=generator, device=self.classes.device)


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
