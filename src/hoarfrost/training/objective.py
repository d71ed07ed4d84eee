"""The objective: a student, its teacher and a row of terms make one number of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hoarfrost.losses.memory import Memory, memories, to_mix
from hoarfrost.losses.terms import LossInputs, Replay, Term
from hoarfrost.models.network import Network
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.training.rehearsal import Rehearsal

Replayed = tuple[Tensor, Tensor]
"""features (R + more, D) of remembered classes, and the class ids (R,) of the first"""

Outcome = tuple[Tensor, Tensor, tuple[Tensor | None, ...]]
"""of a step: the loss, the statistics, and what each memory is to note"""


def choose_trained(network: Network, *, frozen: Sequence[str], terms: Sequence[Term]) -> None:
    """Sets which parameters get a gradient: not the frozen parts, and only heads that some term trains.

    What gets none is kept from the optimiser, since weight decay would shrink it. Of the novel heads only the newest is
    ever trained; residual branches all are, since each head looks at those up to its own.
    """
    network.requires_grad_(False)
    network.backbone.requires_grad_(True)
    for name in frozen:
        network.backbone.part(name).requires_grad_(False)
    heads = {head for term in terms for head in term.trains}
    by_joint = network.design.novel == "joint" and "novel" in heads and network.steps > 0
    network.joint.requires_grad_("joint" in heads or by_joint)
    for name, parts in (("novel", network.novel), ("auxiliary", network.auxiliary)):
        if len(parts):
            parts[-1].requires_grad_(name in heads)
    network.branches.requires_grad_(True)


class Objective(nn.Module):
    """The weighted sum of the terms, as a module, so that precision and several devices wrap it as a whole.

    Where several processes share a batch, ``gather`` brings their features together: the heads and the terms then see
    the whole batch in each process. ``assign`` gives the student's cluster probabilities of all images, as they are.
    """

    def __init__(
        self,
        student: Network,
        *,
        terms: Sequence[Term],
        teacher: Network | None = None,
        rehearsal: Rehearsal | None = None,
        remembered: Sequence[Memory] = (),
        assign: Callable[[], Tensor] | None = None,
        views_together: bool = True,
        gather: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.student = student
        self.teacher = teacher
        self.terms = tuple(term for term in terms if term.weight != 0)
        self.views_together = views_together
        self.gather = gather
        self.remembered, self.assign = tuple(remembered), assign
        self.memories = nn.ModuleList(remembered)
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
    def mixes(self) -> bool:
        """Whether the terms look at labelled images too, which are mixed into the batches of new ones."""
        return "labelled images" in self.needs

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
        self.weights.copy_(torch.tensor([term.weight_at(epoch) for term in self.terms]))

    def epoch_done(self, epoch: int) -> None:
        """Lets the memories look back at a 0-based epoch."""
        if self.assign is not None:
            for memory in self.remembered:
                memory.epoch_done(epoch, self.assign)

    def draw(self, generator: torch.Generator) -> Replayed | None:
        """The features that a step rehearses; the same in every process."""
        return None if self.rehearsal is None else self.rehearsal.draw(generator)

    def forward(
        self, images: Tensor, labels: Tensor | None, replayed: Replayed | None, rows: Tensor | None = None
    ) -> Outcome:
        """``(views x B, C, H, W)`` to the loss and to the statistics with the labels hit, ``(1 + terms + 1,)``.

        ``rows`` are the indices of the whole batch's images, for memories; last is what those are to ``note``. Where
        labelled images are mixed in, ``labels`` are theirs, they come last in each view, and no row is of them.
        """
        inputs = self.inputs(images, labels, replayed, rows)
        # The heads and the losses are cheap and sensitive: they stay in single precision.
        with torch.autocast(images.device.type, enabled=False):
            losses = torch.stack([term.loss(inputs) for term in self.terms])
            total = (self.weights * losses).sum()
            with torch.no_grad():
                hits = total.new_zeros(())
                if inputs.labels is not None:
                    hits = (inputs.joint.argmax(dim=1) == inputs.labels).sum()
                noticed = tuple(memory.noticed(inputs) for memory in self.remembered)
                return total, torch.cat([total[None], losses, hits[None]]), noticed

    def note(self, rows: Tensor, noticed: tuple[Tensor | None, ...]) -> None:
        """Lets the memories keep what they noticed in a step.

        After its backward pass and apart from what is compiled: PyTorch's compiler takes the copy of a buffer for the
        buffer, and the backward pass would read what is kept now in place of what was there.
        """
        with torch.no_grad():
            for memory, found in zip(self.remembered, noticed, strict=True):
                if found is not None:
                    memory.note(rows, found)

    def inputs(
        self, images: Tensor, labels: Tensor | None, replayed: Replayed | None, rows: Tensor | None = None
    ) -> LossInputs:
        """Runs the networks, as far as the terms need them."""
        student, teacher, views = self.student, self.teacher, images.chunk(self.views)
        if self.views_together:
            features = list(student(images).float().chunk(self.views))
        else:
            features = [student(view).float() for view in views]
        known, part = student.classes - (student.novel_per_step[-1] if student.steps else 0), None
        first = views[0]
        if self.mixes:
            assert rows is not None
            assert labels is not None
            # Of both kinds every process has the same part.
            new = len(first) * len(rows) // (len(rows) + len(labels))
            part = self.labelled_part([view[new:] for view in features], labels, known=known)
            features, labels, first = [view[:new] for view in features], None, first[:new]
        taught = None
        if teacher is not None and "teacher" in self.needs:
            with torch.no_grad():
                taught = teacher(first).float()
        if self.gather is not None:
            features = [self.gather(view) for view in features]
            taught = None if taught is None else self.gather(taught)
        two = self.views > 1
        given: dict[str, Tensor | None] = {}
        old_novel: tuple[Tensor, ...] = ()
        teacher_novel: tuple[Tensor, ...] = ()
        with torch.autocast(images.device.type, enabled=False):
            if student.steps:
                given["novel"] = student.novel_logits(features[0])
                given["novel_second"] = student.novel_logits(features[1]) if two else None
            if "joint second view" in self.needs:
                given["joint_second"] = student.joint_logits(features[1])
            if "auxiliary" in self.needs:
                given["auxiliary"] = student.auxiliary_logits(features[0])
            if teacher is not None and taught is not None:
                with torch.no_grad():
                    given["teacher_features"] = teacher.basic(taught)
                    given["teacher_joint"] = teacher.joint_logits(taught)
                if "old head" in self.needs:
                    given["old_head"] = teacher.joint_logits(features[0])
                    earlier = range(teacher.steps)
                    with torch.no_grad():
                        teacher_novel = tuple(teacher.novel_logits(taught, step) for step in earlier)
                    old_novel = tuple(teacher.novel_logits(features[0], step) for step in earlier)
            if replayed is not None:
                drawn, given["replay_labels"] = replayed
                rehearsed = len(replayed[1])
                given["replay_joint"], given["replay_more"] = student.joint(drawn[:rehearsed]), drawn[rehearsed:]
            if rows is not None:
                for memory in self.remembered:
                    given |= memory.given(rows)
            joint = student.joint_logits(features[0])
        return LossInputs(
            known=known,
            labelled=student.known,
            features=student.basic(features[0]),
            features_second=student.basic(features[1]) if two else None,
            joint=joint,
            labels=labels,
            labelled_part=part,
            old_novel=old_novel,
            teacher_novel=teacher_novel,
            **given,
        )

    def labelled_part(self, features: list[Tensor], labels: Tensor, *, known: int) -> LossInputs:
        """What the heads say of labelled images that are mixed in, from this process's features of each view."""
        student, two = self.student, self.views > 1
        if self.gather is not None:
            features = [self.gather(view) for view in features]
        with torch.autocast(labels.device.type, enabled=False):
            return LossInputs(
                known=known,
                labelled=student.known,
                features=student.basic(features[0]),
                features_second=student.basic(features[1]) if two else None,
                joint=student.joint_logits(features[0]),
                joint_second=student.joint_logits(features[1]) if two else None,
                novel=student.novel_logits(features[0]),
                novel_second=student.novel_logits(features[1]) if two else None,
                labels=labels,
            )


def discovery_objective(
    student: Network,
    teacher: Network,
    statistics: ClassStatistics,
    terms: Sequence[Term],
    *,
    images: int,
    labelled: int = 0,
    device: torch.device,
    start: Tensor | None = None,
    assign: Callable[[], Tensor] | None = None,
    views_together: bool = True,
    gather: Callable[[Tensor], Tensor] | None = None,
) -> Objective:
    """What a discovery in so many images minimises, with all that its terms remember.

    ``labelled`` images of stage one are mixed in, for a reference that sees them again.
    ``start`` are the first cluster probabilities of the images, for terms that cluster.
    """
    rehearsal = None
    replay = next((term for term in terms if isinstance(term, Replay)), None)
    if replay is not None:
        rehearsed = statistics.first(student.known) if replay.over == "labelled" else statistics
        rehearsal = Rehearsal(rehearsed, replay, device, more=to_mix(terms))
    novel, width = student.novel_per_step[-1], student.backbone.features
    objective = Objective(
        student,
        terms=terms,
        teacher=teacher,
        rehearsal=rehearsal,
        remembered=memories(terms, images=images, labelled=labelled, novel=novel, width=width, start=start),
        assign=assign,
        views_together=views_together,
        gather=gather,
    )
    return objective.to(device)
