"""The two stages of learning: from labelled images, and from unlabelled ones after those are gone.

A stage takes images and, in a discovery, the model before; it gives the model after. A discovery is a short list of
phases: a student grows out of the model before, it is trained, each image is assigned to a class, it is decided which
network stays, and what is to be remembered of the new classes is computed with that one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hoarfrost.computing.forecast import warn_of_too_much
from hoarfrost.computing.runtime import Runtime
from hoarfrost.config import Config, Schedule
from hoarfrost.data.augment import Augment
from hoarfrost.data.images import ImageSet
from hoarfrost.data.sources import ImageSource, Samples
from hoarfrost.data.unsure import UNSURE_BELOW
from hoarfrost.errors import AllNewHelps
from hoarfrost.losses.terms import Term
from hoarfrost.models.classes import ClassTable
from hoarfrost.models.model import Discovery, Model
from hoarfrost.models.network import Network, grow, set_nearest, to_channels_last
from hoarfrost.models.readout import ClassMeans, Gaussians
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.seeding import derive, seeded
from hoarfrost.training.averaging import average_of, move_towards
from hoarfrost.training.calibration import calibrated
from hoarfrost.training.expecting import Look, learn_calibration, look_at
from hoarfrost.training.features import FeatureCache
from hoarfrost.training.held_out import held_back
from hoarfrost.training.inference import Inference
from hoarfrost.training.loop import Checkpoint, diverged, train
from hoarfrost.training.mixture import aligned, look_by_mixture, second_factor
from hoarfrost.training.objective import (
    Objective,
    check_heads,
    choose_trained,
    make_heads,
    sizes_of,
    views_of,
)
from hoarfrost.training.observers import Observer
from hoarfrost.training.start import MOST_DIRECTIONS, Clusters, start_from_clusters, start_joint_head


@dataclass(frozen=True)
class Learned:
    """What a stage leaves."""

    model: Model
    trained: dict[str, Any]
    """how it was computed: batch size, steps of the optimiser, precision, versions"""
    assigned: NDArray[np.int64] | None = None
    """(N,) in a discovery: the class that each image was given to, an old one or a new one, or -1 for none"""
    counted: NDArray[np.int64] | None = None
    """(N,): the class whose statistics each image is part of now, or -1 for none; None where it is part of none"""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage, with what it is computed by and who looks on."""

    config: Config
    runtime: Runtime
    observer: Observer
    checkpoint: Checkpoint | None
    cache: FeatureCache

    @property
    def _inference(self) -> Inference:
        return Inference(self.config, self.runtime, self.cache, self.observer)

    def fit(self, network: Network, labelled: ImageSet) -> Learned:
        """Trains a new network on labelled images of all its classes, and remembers the statistics of each."""
        config = self.config
        terms = tuple(term for term in config.method.stage_one if term.weight)
        assert labelled.labels is not None
        self._check_discovery(network)
        network = to_channels_last(network, self.runtime.device)
        begun = copy.deepcopy(network.backbone) if config.fit_keeps else None
        learns = np.flatnonzero(~held_back(config, labelled.labels))
        self._make_heads(network, terms, len(learns))
        choose_trained(network, frozen=config.fit_frozen, terms=terms)
        samples = self._samples(network, labelled, frozen=config.fit_frozen, terms=terms, usual=config.fit_augment)
        with seeded(config.seed, "memory", 0):
            objective = Objective(network, terms=terms, images=len(learns), gather=self.runtime.processes.gather)
        learned_from = samples.take(learns) if config.holds_back else samples
        trained = self._train(objective, learned_from, config.fit, "fit", labelled=0, augment=config.fit_augment)
        network.heads.clear()
        if begun is not None:
            move_towards(network.backbone, begun, config.fit_keeps)
            samples = self._inference.computed_once(samples, network) if config.fixed_in_discovery else samples
        statistics = self._statistics(network, samples, labelled.labels, network.classes, "fit")
        if begun is not None:  # the head was trained with other features
            set_nearest(network.joint, statistics.mean, statistics.count > 0)
        classes = ClassTable.of_steps(labelled.class_names, (network.labelled_classes, *network.novel_per_step))
        calibration = learn_calibration(self._inference, network.eval(), samples, labelled.labels, statistics)
        model = Model(config, network.eval(), statistics, classes, calibration=calibration)
        return Learned(model, trained, counted=labelled.labels)

    def _check_discovery(self, network: Network) -> None:
        """Refuses, before hours of training, terms of a discovery to come that read a head which there will not be."""
        if terms := self.config.method.active:
            with seeded(self.config.seed, "check"):
                student = grow(network, 2, same_backbone=True)
                make_heads(student, terms, sizes_of(student, 2))
            check_heads(student, terms)

    def look(self, before: Model, images: ImageSet, novel: int | None, *, only_new: bool) -> Look:
        """What is in a folder, by a model, before anything is learned from it."""
        network = before.network.requires_grad_(False)
        return self._looked(before, self._unlabelled(network, images), novel, only_new=only_new)

    def _looked(self, before: Model, images: Samples, novel: int | None, *, only_new: bool) -> Look:
        """The same of prepared images: as the method looks at them."""
        method = self.config.method
        if method.sorts:
            return look_at(self._inference, before, images, novel, only_new=only_new)
        # Of a number that is given nothing but that is asked: the method tells old from new by itself.
        look = look_at(self._inference, before, images, novel, only_new=only_new or novel is not None)
        none = np.full(len(images), False)
        whole = Look(look.novel, np.full(len(images), -1), none, none, look.count)
        if method.start == "mixture" and look.novel:
            return look_by_mixture(self._inference, before, images, whole, only_new=only_new)
        return whole

    def _unlabelled(self, teacher: Network, images: ImageSet) -> Samples:
        """The images of a discovery, or what its frozen parts make of them."""
        method = self.config.method
        # A residual branch, which comes with the student, looks at images.
        if method.design.residual:
            return images
        frozen = () if method.moving_statistics else method.frozen
        return self._samples(teacher, images, frozen=frozen, terms=method.active, usual=self.config.discover_augment)

    def discover(
        self,
        before: Model,
        images: ImageSet,
        novel: int | None,
        labelled: ImageSet | None = None,
        *,
        only_new: bool = True,
        look: Look | None = None,
    ) -> Learned:
        """Finds ``novel`` new classes in unlabelled images; a reference sees ``labelled`` ones of stage one again.

        None: as many as there seem to be. Without ``only_new`` images that look like a known class are given to it, and
        the others alone are learned from; where nothing is new, the model stays as it is. The folder is not looked at
        again where a ``look`` is given.
        """
        method, teacher = self.config.method, before.network.requires_grad_(False)
        whole = self._unlabelled(teacher, images)
        look = look or self._looked(before, whole, novel, only_new=only_new)
        if not look.novel:
            return self._nothing_new(before, whole, look)
        unknown = np.flatnonzero(look.known < 0)
        samples = whole if only_new else self._enough(whole.take(unknown), len(images), look.novel)
        labelled_samples = None if labelled is None else self._unlabelled(teacher, labelled)
        with seeded(self.config.seed, "grow", teacher.steps + 1):
            student = to_channels_last(grow(teacher, look.novel), self.runtime.device)
        unmoved = student if method.decides == "trained" else copy.deepcopy(student)
        clusters = self._start(student, before, samples, look, unknown) if method.start == "k-means" else None
        if method.start == "joint k-means":
            features, seed = (
                self._inference.features(samples, teacher),
                derive(self.config.seed, "k-means", student.steps),
            )
            start_joint_head(student, teacher, features, seed, self.runtime.processes)
        trained = self._train_student(student, before, samples, clusters, labelled_samples)
        by_clusters = clusters is not None and not method.active and method.design.readout.by_likelihood
        if look.clusters is not None and not method.active:
            new, typical = look.clusters[unknown] + teacher.classes, np.ones(len(samples), dtype=bool)
            typical = typical if look.typical is None else look.typical[unknown]
        elif not method.sorts:
            new = self._inference.outputs(samples, method.design.readout.read(student)).predicted
            typical = new >= teacher.classes
        elif clusters is not None and by_clusters:
            new, typical = clusters.labels + teacher.classes, clusters.typical
        else:
            new, typical = self._assign_new(student, samples), np.ones(len(samples), dtype=bool)
        remembered = np.where(typical & ~look.unsure[unknown], new, -1)
        model = self._extended(before, self._deciding(unmoved, student), samples, new, remembered)
        if by_clusters and not only_new:
            assigned = self._predicted(model, whole, look)
        else:
            assigned = look.known.copy()
            assigned[unknown] = new
            assigned[look.unsure] = -1
        counted = np.full(len(images), -1)
        counted[unknown] = remembered
        return replace(self._found(model, trained, assigned, look), counted=counted)

    def _nothing_new(self, before: Model, images: Samples, look: Look) -> Learned:
        """The model as it was, with what it makes of the images."""
        described = self._described(batch_size=None, steps=0, compiled=False)
        assigned = np.where(look.unsure, -1, look.known)
        if before.network.design.readout.by_likelihood:
            assigned = self._predicted(before, images, look)
        return self._found(before, described, assigned, look)

    def _deciding(self, unmoved: Network, student: Network) -> Network:
        """The network that decides from now on: the trained one, the one before, or the average of both."""
        decides = self.config.method.decides
        if decides == "trained":
            return student
        network = unmoved if decides == "unmoved" else average_of(unmoved, student)
        network.novel[-1] = student.novel[-1]
        return network

    def _extended(
        self,
        before: Model,
        network: Network,
        images: Samples,
        new: NDArray[np.int64],
        remembered: NDArray[np.int64],
    ) -> Model:
        """A model with the new classes behind those of the one before.

        ``new`` ``(N,)`` are the class ids of the images, and ``remembered`` the same of those that class statistics are
        made of, -1 of others.
        """
        first, readout = before.network.classes, self.config.method.design.readout
        found = self._statistics(network, images, remembered - first, network.classes - first, "discover")
        if self.config.method.start == "mixture":
            assert isinstance(readout, Gaussians)
            factor = second_factor(first, network.classes - first)
            found = aligned(found, before.statistics, readout, factor=factor)
        statistics = self._carried(before, network, images).extended(found)
        if readout == ClassMeans():
            set_nearest(network.joint, statistics.mean, statistics.count > 0)
        calibration = before.calibration
        if readout.by_likelihood and calibration.sorter is None:
            of_new = calibrated(self._inference, network, images, new, found, before.statistics)
            known_images, new_images = int(before.statistics.count.sum()), int(found.count.sum())
            calibration = calibration.with_more(of_new, images=known_images, more=new_images)
        classes = before.classes.with_discovered(network.classes - first)
        return Model(self.config, network.eval(), statistics, classes, before.decided, calibration)

    def _predicted(self, model: Model, images: Samples, look: Look) -> NDArray[np.int64]:
        """``(N,)``: the class that the model gives to each image of a folder that was looked at, -1 where it is unsure.

        It knows the new classes, and measures in all directions, so that it is right more often than that look.
        """
        outputs = self._inference.outputs(images, model.readout, classes=model.classes)
        unsure = look.strange | (outputs.sureness.max(axis=1) < UNSURE_BELOW)
        return np.where(unsure, -1, outputs.predicted)

    def _found(self, model: Model, trained: dict[str, Any], assigned: NDArray[np.int64], look: Look) -> Learned:
        """With what was found, in numbers of images."""
        counts = np.bincount(assigned[assigned >= 0], minlength=model.network.classes).tolist()
        first = model.network.classes - look.novel
        unsure, new = int((assigned < 0).sum()), tuple(counts[first:])
        discovery = Discovery(len(assigned), sum(counts[:first]), unsure, new, look.count, look.nearest)
        return Learned(replace(model, discovery=discovery), trained, assigned)

    def _samples(
        self, network: Network, images: ImageSet, *, frozen: Sequence[str], terms: Sequence[Term], usual: Augment
    ) -> Samples:
        """The images, or their features, where training changes neither: those are computed once.

        That is so where all of the backbone is ``frozen`` with its batch statistics, and no view changes an image.
        """
        views = views_of([term for term in terms if term.weight])
        changed = any(type(view.augment or usual) is not Augment for view in views)
        moves = network.backbone.chosen(frozen).keys() != network.backbone.parts.keys() or len(network.branches) > 0
        return images if changed or moves else self._inference.computed_once(images, network)

    def _train_student(
        self,
        student: Network,
        before: Model,
        images: Samples,
        clusters: Clusters | None,
        labelled: Samples | None,
    ) -> dict[str, Any]:
        """The phase that trains; some methods have none."""
        config, terms = self.config, self.config.method.active
        if not terms:
            return self._described(batch_size=None, steps=0, compiled=False)
        self._make_heads(student, terms, len(images))
        choose_trained(
            student, frozen=config.method.frozen, terms=terms, moving_statistics=config.method.moving_statistics
        )
        inference = self._inference
        with seeded(config.seed, "memory", student.steps):
            objective = Objective(
                student,
                terms=terms,
                images=len(images),
                labelled_images=0 if labelled is None else len(labelled),
                teacher=before.network,
                statistics=before.remembered,
                clusters=None if clusters is None else clusters.probabilities,
                assign=lambda: inference.novel_logits(images, student).softmax(dim=1),
                views_together=config.views == "together",
                gather=self.runtime.processes.gather,
            )
        trained = self._train(
            objective,
            images,
            config.discover,
            "discover",
            labelled=int(before.statistics.count[: student.labelled_classes].sum()),
            augment=config.discover_augment,
            mixed_in=labelled if objective.mixes else None,
        )
        student.heads.clear()
        return trained

    def _start(
        self, student: Network, before: Model, images: Samples, look: Look, unknown: NDArray[np.int64]
    ) -> Clusters:
        """Lets the newest novel head begin with clusters of the features that the model before has of the images.

        They are those that a ``look`` has found already, of images in these positions, or k-means's.
        """
        features = self._inference.features(images, before.network)
        seed = derive(self.config.seed, "k-means", student.steps)
        most = MOST_DIRECTIONS if self.config.fixed_in_discovery else None
        labels = None if look.clusters is None else np.where(look.strange, -1, look.clusters)[unknown]
        return start_from_clusters(student, features, before.statistics, seed, self.runtime.processes, most, labels)

    def _make_heads(self, network: Network, terms: tuple[Term, ...], images: int) -> None:
        """Those that terms make themselves."""
        with seeded(self.config.seed, "heads", network.steps):
            make_heads(network, terms, sizes_of(network, images))

    def _enough(self, images: Samples, whole: int, novel: int) -> Samples:
        """The images that look like no known class, if they can be learned from."""
        if len(images) < max(novel, 2):
            raise AllNewHelps(
                f"{len(images)} of {whole} images look new, too few for {novel} new classes: give more images"
            )
        return images

    def _assign_new(self, student: Network, images: Samples) -> NDArray[np.int64]:
        """``(N,)``: the class id that each image is given to, of those that the newest novel head knows."""
        clusters: NDArray[np.int64] = self._inference.novel_logits(images, student).argmax(dim=1).cpu().numpy()
        return clusters + student.classes - student.novel_per_step[-1]

    def _statistics(
        self, network: Network, images: Samples, labels: NDArray[np.int64], classes: int, key: str
    ) -> ClassStatistics:
        statistics = self._inference.statistics(images, network, labels, classes)
        if not (statistics.mean.isfinite().all() and statistics.variance.isfinite().all()):
            raise diverged(getattr(self.config, key), key)
        return statistics

    def _carried(self, before: Model, network: Network, images: Samples) -> ClassStatistics:
        """What is remembered of the classes before, where a readout by likelihood has to look at changed features."""
        kept, inference = network.kept, self._inference
        if self.config.method.decides == "unmoved" or not network.design.readout.by_likelihood:
            return before.statistics
        seen = [torch.from_numpy(np.asarray(inference.features(images, seen))) for seen in (before.network, network)]
        return before.statistics.carried(*(kept.transformed(features.to(self.runtime.device)) for features in seen))

    def _train(
        self,
        objective: Objective,
        images: Samples,
        schedule: Schedule,
        key: str,
        *,
        labelled: int,
        augment: Augment,
        mixed_in: Samples | None = None,
    ) -> dict[str, Any]:
        """Trains the objective's student; ``labelled`` images had labels in stage one and are gone."""
        runtime = self.runtime
        objective.to(runtime.device)
        batch_size = schedule.batch_of(len(images), labelled)
        views = objective.augments(augment)
        source = ImageSource(
            images,
            views=views,
            batch_size=batch_size,
            normaliser=self._inference.normaliser,
            device=runtime.device,
            share=runtime.processes.share(batch_size),
            mixed_in=mixed_in,
        )
        steps = schedule.epochs * len(source)
        if isinstance(images, ImageSet):  # features take next to nothing
            height, width, channels = images.shape
            shape = (len(views) * source.batch_size, channels, height, width)
            warn_of_too_much(objective.student, shape, steps, runtime)
        compiled = train(
            objective,
            source,
            schedule,
            runtime=runtime,
            seed=self.config.seed,
            stage=objective.student.steps,
            key=key,
            observer=self.observer,
            checkpoint=self.checkpoint,
            decay=0.0 if key == "fit" else self.config.method.weight_average,
        )
        return self._described(batch_size=source.batch_size, steps=steps, compiled=compiled)

    def _described(self, *, batch_size: int | None, steps: int, compiled: bool) -> dict[str, Any]:
        return {"batch_size": batch_size, "steps": steps, "compiled": compiled, **self.runtime.describe()}
