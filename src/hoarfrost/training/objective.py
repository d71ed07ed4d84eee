"""The objective: a student, its teacher and a row of terms make one number of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hoarfrost.losses.functional import sigmoid_rampup
from hoarfrost.losses.terms import LossInputs, Term
from hoarfrost.memory import Rehearsal
from hoarfrost.models.network import Network

Replayed = tuple[Tensor, Tensor]
"""features (R, D) of remembered classes, and their class ids (R,)"""


def choose_trained(network: Network, *, frozen: Sequence[str], terms: Sequence[Term]) -> None:
    """Sets which parameters get a gradient: not the frozen parts, and only heads that some term trains.

    What gets none is kept from the optimiser, since weight decay would shrink it. Of the novel heads only the newest is
    ever trained.
    """
    network.requires_grad_(False)
    network.backbone.requires_grad_(True)
    for name in frozen:
        network.backbone.part(name).requires_grad_(False)
    heads = {head for term in terms for head in term.trains}
    network.joint.requires_grad_("joint" in heads)
    if len(network.novel):
        network.novel[-1].requires_grad_("novel" in heads)


class Objective(nn.Module):
    """The weighted sum of the terms, as a module, so that precision and several devices wrap it as a whole.

    Where several processes share a batch, ``gather`` brings their features together: the heads and the terms then see
    the whole batch in each process.
    """

    def __init__(
        self,
        student: Network,
        *,
        terms: Sequence[Term],
        teacher: Network | None = None,
        rehearsal: Rehearsal | None = None,
        views_together: bool = True,
        gather: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.student = student
        self.teacher = teacher
        self.terms = tuple(term for term in terms if term.weight != 0)
        self.views_together = views_together
        self.gather = gather
        self.needs = frozenset(need for term in self.terms for need in term.needs)
        self.rehearsal = rehearsal if "replay" in self.needs else None
        # The ramps live in a tensor, so that a new epoch changes a value and no code.
        self.register_buffer("weights", torch.zeros(len(self.terms)), persistent=False)
        self.weights: Tensor

    @property
    def views(self) -> int:
        """How many views of an image the terms look at."""
        return 2 if "second view" in self.needs else 1

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of what ``forward`` gives beside the loss, but for the last: how many labels were hit."""
        return ("loss", *(term.kind for term in self.terms))

    def train(self, mode: bool = True) -> Objective:
        """The teacher never leaves its evaluation mode."""
        super().train(mode)
        if self.teacher is not None:
            self.teacher.eval()
        return self

    def set_epoch(self, epoch: int) -> None:
        """Sets the weights of a 0-based epoch."""
        ramped = [term.weight * sigmoid_rampup(epoch, term.ramp) for term in self.terms]
        self.weights.copy_(torch.tensor(ramped))

    def draw(self, generator: torch.Generator) -> Replayed | None:
        """The features that a step rehearses; the same in every process."""
        return None if self.rehearsal is None else self.rehearsal.draw(generator)

    def forward(self, images: Tensor, labels: Tensor | None, replayed: Replayed | None) -> tuple[Tensor, Tensor]:
        """``(views x B, C, H, W)`` to the loss and to the statistics with the labels hit, ``(1 + terms + 1,)``."""
        inputs = self.inputs(images, labels, replayed)
        # The heads and the losses are cheap and sensitive: they stay in single precision.
        with torch.autocast(images.device.type, enabled=False):
            losses = torch.stack([term.loss(inputs) for term in self.terms])
            total = (self.weights * losses).sum()
            with torch.no_grad():
                hits = total.new_zeros(())
                if labels is not None:
                    hits = (inputs.joint.argmax(dim=1) == labels).sum()
                return total, torch.cat([total[None], losses, hits[None]])

    def inputs(self, images: Tensor, labels: Tensor | None, replayed: Replayed | None) -> LossInputs:
        """Runs the networks, as far as the terms need them."""
        student, views = self.student, images.chunk(self.views)
        if self.views_together:
            features = list(student(images).float().chunk(self.views))
        else:
            features = [student(view).float() for view in views]
        teacher_features = teacher_joint = replay_joint = replay_labels = novel = novel_second = None
        if self.teacher is not None and "teacher" in self.needs:
            with torch.no_grad():
                teacher_features = self.teacher(views[0]).float()
        if self.gather is not None:
            features = [self.gather(view) for view in features]
            teacher_features = None if teacher_features is None else self.gather(teacher_features)
        with torch.autocast(images.device.type, enabled=False):
            if len(student.novel):
                novel = student.novel[-1](features[0])
                novel_second = student.novel[-1](features[1]) if self.views > 1 else None
            if self.teacher is not None and teacher_features is not None:
                with torch.no_grad():
                    teacher_joint = self.teacher.joint(teacher_features)
            if replayed is not None:
                replay, replay_labels = replayed
                replay_joint = student.joint(replay)
            joint = student.joint(features[0])
        return LossInputs(
            known=student.classes - (student.novel_per_step[-1] if len(student.novel) else 0),
            features=features[0],
            joint=joint,
            labels=labels,
            novel=novel,
            novel_second=novel_second,
            teacher_features=teacher_features,
            teacher_joint=teacher_joint,
            replay_joint=replay_joint,
            replay_labels=replay_labels,
        )
