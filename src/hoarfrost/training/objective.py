"""The objective: a student, its teacher and a row of terms make one number of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hoarfrost.data.augment import Augment
from hoarfrost.errors import InputError, require, unknown
from hoarfrost.losses.inputs import FIRST, SECOND, Activations, LossInputs, Sizes, View
from hoarfrost.losses.memory import Memory
from hoarfrost.losses.terms import Replay, Term
from hoarfrost.models.network import Network
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.training.rehearsal import Rehearsal

Replayed = tuple[Tensor, Tensor]
"""features (R + more, D) of remembered classes, and the class ids (R,) of the first"""

Outcome = tuple[Tensor, Tensor, tuple[Tensor | None, ...]]
"""of a step: the loss, the logged values, and the updates that the memories are to keep"""


def choose_trained(
    network: Network, *, frozen: Sequence[str], terms: Sequence[Term], moving_statistics: bool = False
) -> None:
    """Sets which parameters get a gradient: not the frozen parts, and only heads that some term trains.

    The batch statistics of frozen parts stay too, unless they are said to move.

    What gets none is kept from the optimiser, since weight decay would shrink it. Of the novel heads only the newest is
    ever trained; residual branches all are, since each head looks at those up to its own.
    """
    network.requires_grad_(False)
    network.backbone.requires_grad_(True)
    parts = network.backbone.chosen(frozen)
    for part in parts.values():
        part.requires_grad_(False)
    network.parts_in_evaluation = () if moving_statistics else tuple(parts)
    heads = {head for term in terms for head in term.trains}
    by_joint = network.design.novel == "joint" and "novel" in heads and network.steps > 0
    network.joint.requires_grad_("joint" in heads or by_joint)
    for name, of_steps in (("novel", network.novel), ("auxiliary", network.auxiliary)):
        if len(of_steps):
            of_steps[-1].requires_grad_(name in heads)
    for name, head in network.heads.items():
        head.requires_grad_(name in heads)
    network.branches.requires_grad_(True)


def views_of(terms: Sequence[Term]) -> tuple[View, ...]:
    """The views that the terms look at: the first always, then the second, then others, alike ones together."""
    named = {view.name: view for term in terms for view in (FIRST, *term.views)}
    usual = [view for view in (FIRST, SECOND) if view.name in named]
    others = [view for view in named.values() if view not in usual]
    kinds = list(dict.fromkeys(view.augment for view in others))
    return (*usual, *sorted(others, key=lambda view: kinds.index(view.augment)))


class Objective(nn.Module):
    """The weighted sum of the terms, as a module, so that precision and several devices wrap it as a whole.

    Where several processes share a batch, ``gather`` brings their features together: the heads and the terms then see
    the whole batch in each process. ``assign`` gives the student's cluster probabilities of all images, as they are.
    A discovery in so many ``images`` has a ``teacher``, the ``statistics`` of its classes, and ``clusters``: the first
    probabilities of the images' new classes, for terms that start from k-means. So many ``labelled_images`` of stage
    one are mixed in, for a reference that sees them again.
    """

    def __init__(
        self,
        student: Network,
        *,
        terms: Sequence[Term],
        images: int = 0,
        labelled_images: int = 0,
        teacher: Network | None = None,
        statistics: ClassStatistics | None = None,
        clusters: Tensor | None = None,
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
        sizes = sizes_of(student, images, labelled_images=labelled_images, clusters=clusters)
        self.remembered, self.assign = tuple(made_memories(self.terms, sizes)), assign
        self.memories = nn.ModuleList(self.remembered)
        self.needs = frozenset(need for term in self.terms for need in term.needs)
        self.rehearsal = None if statistics is None else self._rehearsal(statistics)
        self.views = views_of(self.terms)
        self.read = {(head, view.name) for term in self.terms for head in term.heads for view in term.views}
        self.made_heads = tuple(student.heads)
        check_heads(student, self.terms)
        # The ramps live in a tensor, so that a new epoch changes a value and no code.
        self.register_buffer("weights", torch.zeros(len(self.terms)), persistent=False)
        self.weights: Tensor

    def _rehearsal(self, statistics: ClassStatistics) -> Rehearsal | None:
        """What draws remembered features, if a term rehearses them."""
        replay = next((term for term in self.terms if isinstance(term, Replay)), None)
        if replay is None:
            return None
        rehearsed = statistics.first(self.student.labelled_classes) if replay.over == "labelled" else statistics
        return Rehearsal(rehearsed, replay, self.student.joint.weight.device)

    def augments(self, usual: Augment) -> tuple[Augment, ...]:
        """How each view is changed, where it is ``usual`` unless a term says otherwise."""
        return tuple(view.augment or usual for view in self.views)

    @property
    def mixes(self) -> bool:
        """Whether the terms look at labelled images too, which are mixed into the batches of new ones."""
        return "labelled images" in self.needs

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of the logged values: the loss, then each term; the number of correct predictions follows them."""
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
        for memory in self.remembered:
            memory.epoch_done(epoch, self.assign or _nothing_to_assign)

    def draw(self, generator: torch.Generator) -> Replayed | None:
        """The features that a step rehearses; the same in every process."""
        return None if self.rehearsal is None else self.rehearsal.draw(generator)

    def forward(
        self, images: Tensor, labels: Tensor | None, replayed: Replayed | None, rows: Tensor | None = None
    ) -> Outcome:
        """``(views x B, C, H, W)`` to the loss and to the statistics with the labels hit, ``(1 + terms + 1,)``.

        ``rows`` are the indices of the whole batch's images, for memories; last are the updates for those. Where
        labelled images are mixed in, ``labels`` are theirs, they come last in each view, and no row is of them.
        """
        inputs = self.inputs(images, labels, replayed, rows)
        # The heads and the losses are cheap and sensitive: they stay in single precision.
        with torch.autocast(images.device.type, enabled=False):
            losses = torch.stack([loss_of(term, inputs) for term in self.terms])
            total = (self.weights * losses).sum()
            with torch.no_grad():
                hits = total.new_zeros(())
                if inputs.labels is not None:
                    hits = (inputs.logits("joint").argmax(dim=1) == inputs.labels).sum()
                updates = tuple(memory.compute_update(inputs) for memory in self.remembered)
                return total, torch.cat([total[None], losses, hits[None]]), updates

    def apply_updates(self, rows: Tensor, updates: tuple[Tensor | None, ...]) -> None:
        """Lets the memories keep what they computed in a step.

        After its backward pass and apart from what is compiled: PyTorch's compiler takes the copy of a buffer for the
        buffer, and the backward pass would read what is kept now in place of what was there.
        """
        with torch.no_grad():
            for memory, found in zip(self.remembered, updates, strict=True):
                if found is not None:
                    memory.apply_update(rows, found)

    def inputs(
        self, images: Tensor, labels: Tensor | None, replayed: Replayed | None, rows: Tensor | None = None
    ) -> LossInputs:
        """Runs the networks, as far as the terms need them."""
        student, teacher, views = self.student, self.teacher, images.chunk(len(self.views))
        if self.views_together:
            features = list(student(images).chunk(len(self.views)))
        else:
            features = [student(view) for view in views]
        first, part, sizes = views[0], None, sizes_of(student)
        if self.mixes:
            assert rows is not None
            assert labels is not None
            # Of both kinds every process has the same part.
            new_images = len(first) * len(rows) // (len(rows) + len(labels))
            part = self._labelled_part([view[new_images:] for view in features], labels)
            features, labels, first = [view[:new_images] for view in features], None, first[:new_images]
        teacher_features = None
        if teacher is not None and self.needs & {"teacher", "old heads"}:
            with torch.no_grad():
                teacher_features = teacher(first)
        if self.gather is not None:
            features = [self.gather(view) for view in features]
            teacher_features = None if teacher_features is None else self.gather(teacher_features)
        with torch.autocast(images.device.type, enabled=False):
            # Heads are computed in one order, whatever the terms: that in which their gradients are added up.
            logits = self._logits(features, ("novel", "joint", "auxiliary", *self.made_heads), first_joint=False)
            before, old_heads = None, None
            if teacher is not None and teacher_features is not None:
                heads = teacher.class_heads if "old heads" in self.needs else ("joint",)
                with torch.no_grad():
                    before = activations(teacher, teacher_features, heads)
                if "old heads" in self.needs:
                    old_heads = activations(teacher, features[0], heads)
            replay_logits, replay_labels = None, None
            if replayed is not None:
                drawn, replay_labels = replayed
                replay_logits = student.joint(drawn)
            memories: dict[str, Tensor] = {}
            if rows is not None:
                for memory in self.remembered:
                    memories |= memory.loss_inputs(rows)
            logits["joint", FIRST.name] = student.joint_logits(features[0])
        return LossInputs(
            labelled_classes=sizes.labelled_classes,
            seen_classes=sizes.seen_classes,
            novel_classes=sizes.novel_classes,
            student=Activations(features_by_view=self._by_view(features), logits_by_head=logits),
            labels=labels,
            teacher=before,
            old_heads=old_heads,
            earlier_heads=() if teacher is None else teacher.class_heads[1:],
            replay_logits=replay_logits,
            replay_labels=replay_labels,
            memories=memories,
            labelled_part=part,
        )

    def _labelled_part(self, features: list[Tensor], labels: Tensor) -> LossInputs:
        """What the heads say of labelled images that are mixed in, from this process's features of each view."""
        if self.gather is not None:
            features = [self.gather(view) for view in features]
        with torch.autocast(labels.device.type, enabled=False):
            by_view = self._by_view(features)
            logits = self._logits(features, ("joint", "novel", "auxiliary", *self.made_heads))
        sizes = sizes_of(self.student)
        return LossInputs(
            labelled_classes=sizes.labelled_classes,
            seen_classes=sizes.seen_classes,
            novel_classes=sizes.novel_classes,
            student=Activations(features_by_view=by_view, logits_by_head=logits),
            labels=labels,
        )

    def _logits(
        self, features: Sequence[Tensor], heads: Sequence[str], *, first_joint: bool = True
    ) -> dict[tuple[str, str], Tensor]:
        """What the terms read of these heads, in their order."""
        return {
            (head, view.name): self.student.logits(head, seen)
            for head in heads
            for view, seen in zip(self.views, features, strict=True)
            if (head, view.name) in self.read and (first_joint or (head, view.name) != ("joint", FIRST.name))
        }

    def _by_view(self, features: Sequence[Tensor]) -> dict[str, Tensor]:
        return {
            view.name: self.student.backbone_features(seen) for view, seen in zip(self.views, features, strict=True)
        }


def loss_of(term: Term, inputs: LossInputs) -> Tensor:
    """One number; an error in a term says which one it is."""
    try:
        loss = term.loss(inputs)
        if loss.ndim:
            raise ValueError(f"a loss must be one number, not of the shape {tuple(loss.shape)}: take its mean")
    except Exception as error:
        error.add_note(f"in the loss of the term '{term.kind}'")
        raise
    return loss


def activations(network: Network, features: Tensor, heads: Sequence[str]) -> Activations:
    """What some heads of a network say of features ``(B, width)``, as of a first view."""
    return Activations(
        features_by_view={FIRST.name: network.backbone_features(features)},
        logits_by_head={(head, FIRST.name): network.logits(head, features) for head in heads},
    )


def _nothing_to_assign() -> Tensor:
    raise RuntimeError("a memory asks for the probabilities of new classes, which stage one lacks")


def made_memories(terms: Sequence[Term], sizes: Sizes) -> list[Memory]:
    """What the terms remember, in their order."""
    memories = [memory for term in terms if (memory := term.make_memory(sizes)) is not None]
    names = [name for memory in memories for name in memory.loss_inputs(torch.zeros(1, dtype=torch.long))]
    require(len(set(names)) == len(names), f"two memories provide the same name: {', '.join(sorted(names))}")
    return memories


def check_heads(network: Network, terms: Sequence[Term]) -> None:
    """Refuses terms that read a head which a network does not have."""
    for term in terms:
        for head in term.heads:
            if head not in network.head_names:
                raise InputError(f"term '{term.kind}': {unknown('head', head, network.head_names)}")


def make_heads(network: Network, terms: Sequence[Term], sizes: Sizes) -> None:
    """Gives a network the heads that terms make themselves."""
    device, trained = network.joint.weight.device, {name for term in terms for name in term.trains}
    for term in terms:
        for name, head in term.make_heads(sizes).items():
            require(
                name not in network.head_names, f"{term.kind} makes a head '{name}', which already exists: rename it"
            )
            require(name in trained, f"{term.kind} makes a head '{name}' that no term trains: list it in trains")
            network.heads[name] = head.to(device)


def sizes_of(network: Network, images: int = 0, *, labelled_images: int = 0, clusters: Tensor | None = None) -> Sizes:
    """What a network is about to learn."""
    novel = network.novel_per_step[-1] if network.steps else 0
    return Sizes(
        features=network.backbone.width,
        images=images,
        labelled_classes=network.labelled_classes,
        seen_classes=network.classes - novel,
        novel_classes=novel,
        labelled_images=labelled_images,
        clusters=clusters,
    )
