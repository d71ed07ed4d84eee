"""What a discovery remembers of its own images: what they were taken for earlier, and the features of the latest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hoarfrost.losses.functional import sharpened, unit_rows
from hoarfrost.losses.inputs import LossInputs, present


class Memory(nn.Module, ABC):
    """What a discovery remembers of its own images: buffers, so that they are saved with the state of a stage."""

    @abstractmethod
    def loss_inputs(self, rows: Tensor) -> dict[str, Tensor]:
        """What the loss reads, by name, for the images of these indices."""

    def compute_update(self, inputs: LossInputs) -> Tensor | None:
        """What is to be kept of a step, if anything. Nothing is changed here: this is compiled with the loss."""
        return None

    def apply_update(self, rows: Tensor, update: Tensor) -> None:
        """Keeps it, when the backward pass has read what was here before; without waiting for the device."""

    def epoch_done(self, epoch: int, assign: Callable[[], Tensor]) -> None:
        """Keeps something of a 0-based epoch. ``assign`` gives the probabilities of all images as they are, (N, n)."""


class Targets(Memory):
    """What each image was taken for, sharpened: the targets of clustering."""

    targets: Tensor
    average: Tensor

    def __init__(
        self, probabilities: Tensor, *, renews: Callable[[int], bool], warm_up: int = 0, momentum: float = 0.0
    ) -> None:
        super().__init__()
        self.renews, self.warm_up, self.momentum = renews, warm_up, momentum
        self.register_buffer("targets", sharpened(probabilities))
        if momentum:
            self.register_buffer("average", torch.zeros_like(probabilities))

    def loss_inputs(self, rows: Tensor) -> dict[str, Tensor]:
        """The targets."""
        return {"targets": self.targets[rows]}

    def epoch_done(self, epoch: int, assign: Callable[[], Tensor]) -> None:
        """New targets, where it is time; with a momentum from the average over the epochs since the warm-up."""
        renews, momentum = self.renews(epoch), self.momentum
        averaged = epoch + 1 - self.warm_up
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

    def __init__(self, images: int, novel_classes: int, *, start: int = 0, momentum: float = 0.6) -> None:
        super().__init__()
        self.start, self.momentum = start, momentum
        for name in ("average", "latest", "target"):
            self.register_buffer(name, torch.zeros(images, novel_classes))

    def loss_inputs(self, rows: Tensor) -> dict[str, Tensor]:
        """The averages."""
        return {"ensemble": self.target[rows]}

    def compute_update(self, inputs: LossInputs) -> Tensor:
        """What the images are taken for now."""
        return inputs.logits("novel").detach().softmax(dim=1)

    def apply_update(self, rows: Tensor, update: Tensor) -> None:
        """In the places of the images."""
        self.latest.index_copy_(0, rows, update)

    def epoch_done(self, epoch: int, assign: Callable[[], Tensor]) -> None:
        """Corrected for the zeros that it began with."""
        momentum, averaged = self.momentum, epoch + 1 - self.start
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

    def loss_inputs(self, rows: Tensor) -> dict[str, Tensor]:
        """All of them."""
        return {"queue": self.features}

    def compute_update(self, inputs: LossInputs) -> Tensor:
        """The features of the first view."""
        return unit_rows(inputs.features().detach())

    def apply_update(self, rows: Tensor, update: Tensor) -> None:
        """The oldest make room."""
        newest = update[-len(self.features) :]
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

    def loss_inputs(self, rows: Tensor) -> dict[str, Tensor]:
        """All of them."""
        return {"labelled_queue": self.features, "labelled_queue_labels": self.labels}

    def compute_update(self, inputs: LossInputs) -> Tensor:
        """The features of the first view and, in a last column, the class ids."""
        part = inputs.labelled_images()
        features = part.features().detach()
        labels = present(part.labels, "labels").to(features.dtype)
        return torch.cat([unit_rows(features), labels[:, None]], dim=1)

    def apply_update(self, rows: Tensor, update: Tensor) -> None:
        """The oldest make room."""
        newest = update[-len(self.labels) :, -1]
        self.labels.index_copy_(0, self.places(len(newest)), newest.long())
        super().apply_update(rows, update[:, :-1])
