"""The learner: fit on labelled images, discover in unlabelled ones, predict with one head for everything."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from hoarfrost.config import DECIDED, Config, Method, Schedule
from hoarfrost.data.arrays import as_images, encode_labels
from hoarfrost.data.augment import Augment
from hoarfrost.data.cache import AUTO, Keep
from hoarfrost.data.datasets import read_images
from hoarfrost.data.images import ImageSet
from hoarfrost.data.sources import ImageSource, Normaliser, plain_batches
from hoarfrost.errors import InputError, unknown
from hoarfrost.methods import get_method
from hoarfrost.models.backbones import build_backbone, get_shape
from hoarfrost.models.classes import ClassTable
from hoarfrost.models.model import Model
from hoarfrost.models.network import Network, grow, placed, set_nearest
from hoarfrost.models.statistics import ClassStatistics, Tally
from hoarfrost.recipes import get_recipe
from hoarfrost.scenario import Step
from hoarfrost.seeding import derive, seeded
from hoarfrost.settings import override
from hoarfrost.training.forecast import warn_of_too_much
from hoarfrost.training.loop import Checkpoint, diverged, train
from hoarfrost.training.objective import Objective, choose_trained, discovery_objective
from hoarfrost.training.observers import Observer
from hoarfrost.training.resolve import check_frozen, resolve
from hoarfrost.training.runtime import Compile, Runtime
from hoarfrost.training.start import start_from_clusters

Images = ArrayLike | ImageSet | str | Path
"""uint8 arrays (N, H, W) or (N, H, W, C), an ImageSet, a folder of images or an .npz file"""

EVALUATION_BATCH = 512


@dataclass(frozen=True)
class Outputs:
    """What the heads say of N images."""

    joint: NDArray[np.float32]
    """(N, C) over all classes: the method's readout, which for most is the joint head's logits"""
    novel: tuple[NDArray[np.float32], ...]
    """(N, n_t) logits of each discovery step's novel head"""
    features: NDArray[np.float32] | None
    """(N, D), where asked for"""
    calibrated: NDArray[np.float32] | None = None
    """(N, C), where heads are concatenated: the probabilities of each head side by side"""
    by_joint: bool = True
    """whether the joint head decides, as it was trained"""

    @property
    def predicted(self) -> NDArray[np.int64]:
        """(N,) class ids"""
        return best(self.joint)


def best(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """The strongest class of each image."""
    classes: NDArray[np.int64] = logits.argmax(axis=1)
    return classes


class Learner:
    """One classifier for old and discovered classes.

    The constructor takes hyper-parameters only. ``method`` is a preset's name or a ``Method`` of one's own. ``recipe``
    names the data set whose settings to start from, ``variant`` where they come from, the authors' public code ("code")
    or the paper's text ("paper"). ``settings`` changes single ones by their dotted keys, for example
    ``{"discover.epochs": 20}``. ``compiled`` says whether training steps are compiled: "auto" does it on a GPU where
    there are many.
    """

    def __init__(
        self,
        method: str | Method = "frost",
        backbone: str = "auto",
        seed: int = 0,
        *,
        recipe: str = "folder",
        variant: str = "code",
        device: str = "auto",
        compiled: Compile = "auto",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._parameters: dict[str, Any] | None = {
            "method": method,
            "backbone": backbone,
            "seed": seed,
            "recipe": recipe,
            "variant": variant,
            "device": device,
            "compiled": compiled,
            "settings": settings,
        }
        preset = get_method(method) if isinstance(method, str) else method
        config = get_recipe(recipe, variant).config(preset, operator.index(seed))
        if backbone != "auto":
            get_shape(backbone)
            config = replace(config, backbone=backbone)
        self._begin(override(config, settings or {}), device, compiled)

    @classmethod
    def from_config(cls, config: Config, device: str = "auto", compiled: Compile = "auto") -> Learner:
        """A learner for a whole configuration."""
        learner = cls.__new__(cls)
        learner._parameters = None
        learner._begin(config, device, compiled)
        return learner

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the constructor was given, by name, as scikit-learn asks for it."""
        if self._parameters is None:
            raise InputError("this learner was loaded, or made from a configuration: load it again to have another one")
        return dict(self._parameters)

    def set_params(self, **parameters: Any) -> Learner:
        """The same learner as if its constructor had been given these; what it has learned is gone."""
        given = self.get_params()
        if strange := sorted(parameters.keys() - given.keys()):
            raise unknown("parameter", strange[0], given)
        Learner.__init__(self, **{**given, **parameters})
        return self

    def _begin(self, config: Config, device: str, compiled: Compile) -> None:
        self.config = config
        self._asked = config  # what fit leaves open is decided anew by each fit's images
        self._device = device
        self.runtime = Runtime(device, config.precision, compiled)
        self._model: Model | None = None
        self._loaded: tuple[Network, Path] | None = None
        self.trained: dict[str, Any] = {}
        """how the last stage was computed: batch size, steps of the optimiser, precision, versions"""

    @property
    def model(self) -> Model:
        """What was learned so far."""
        if self._model is None:
            raise InputError("this learner has not learned anything yet: call fit first")
        return self._model

    @property
    def network(self) -> Network:
        """The trained network."""
        return self.model.network

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names by class id: labelled classes, then discovered ones."""
        return self.model.class_names

    @property
    def known(self) -> int:
        """The number of classes that came with labels."""
        return self.network.known

    @property
    def novel_per_step(self) -> tuple[int, ...]:
        """The number of classes that each discovery added."""
        return self.network.novel_per_step

    @property
    def channels(self) -> int:
        """1 for gray images, 3 for colour."""
        assert self.config.mean is not None
        return len(self.config.mean)

    def rename(self, name: str, to: str) -> Learner:
        """Gives a class another name."""
        return self._edited(self.model.classes.rename(name, to))

    def merge(self, name: str, into: str) -> Learner:
        """Makes a class part of another one: its images are predicted as that one from now on."""
        return self._edited(self.model.classes.merge(name, into))

    def reject(self, name: str) -> Learner:
        """Has a discovered class count as none: its images go to the class that suits them next."""
        return self._edited(self.model.classes.reject(name))

    def undo(self) -> Learner:
        """Takes the last renaming, merging or rejecting back."""
        return self._edited(self.model.classes.undo())

    def _edited(self, classes: ClassTable) -> Learner:
        self._model = replace(self.model, classes=classes)
        return self

    def reconfigure(self, config: Config) -> None:
        """Changes the settings of discoveries to come; what the model is built on stays."""
        if self._model is None:
            self._begin(config, self._device, self.runtime.compiled)
            return
        for name in DECIDED:
            if getattr(config, name) != getattr(self.config, name):
                raise InputError(f"{name} cannot be changed, since the model was built with it: leave it as it is")
        check_frozen(config, config.backbone)
        if config.method.design != self.config.method.design:
            if self.network.steps:
                raise InputError("method.design cannot be changed after a discovery: leave it as it is")
            self.network.design = config.method.design
        if config.precision != self.config.precision:
            self.runtime = Runtime(self._device, config.precision, self.runtime.compiled)
        self.config = config
        self._model = replace(self._model, config=config)

    def learn(self, step: Step, *, observer: Observer | None = None, checkpoint: Checkpoint | None = None) -> Learner:
        """Fits step 0 of a scenario, discovers in a later one; references may learn from labels there too."""
        if step.index == 0:
            return self.fit(step.images, observer=observer, checkpoint=checkpoint)
        if self.config.method.supervised:
            return self._fit_again(step, observer=observer, checkpoint=checkpoint)
        if self.config.method.labelled_images and step.labelled is not None:
            return self._discover(step.images, step.novel, step.labelled, observer=observer, checkpoint=checkpoint)
        return self.discover(step.images, step.novel, observer=observer, checkpoint=checkpoint)

    def fit(
        self,
        images: Images,
        labels: ArrayLike | None = None,
        *,
        observer: Observer | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Learner:
        """Stage one: learns the labelled classes with cross-entropy and remembers their statistics."""
        labelled = self._labelled(images, labels)
        config = resolve(self._asked, labelled, self.runtime.device)
        assert config.image_size is not None
        labelled = labelled.fitted(config.image_size)
        assert labelled.labels is not None
        before, self.config = self.config, config
        try:
            with seeded(config.seed, "network"):
                backbone = build_backbone(config.backbone, labelled.shape[2])
                network = Network(backbone, len(labelled.class_names), config.method.design)
            self._fit(network, labelled, observer, checkpoint)
            self._model = replace(self.model, decided=self._asked.left_open)
        except BaseException:
            self.config = before  # an earlier model stays usable
            raise
        return self

    def _fit(
        self, network: Network, labelled: ImageSet, observer: Observer | None, checkpoint: Checkpoint | None
    ) -> None:
        """Trains a new network on labelled images of all its classes."""
        config, terms = self.config, self.config.method.stage_one
        network = placed(network, self.runtime.device)
        choose_trained(network, frozen=(), terms=terms)
        objective = Objective(network, terms=terms, gather=self.runtime.processes.gather)
        self._train(
            objective,
            labelled,
            config.fit,
            labelled=0,
            augment=config.fit_augment,
            observer=observer,
            checkpoint=checkpoint,
        )
        statistics = self._statistics(network, labelled, network.classes)
        decided = () if self._model is None else self._model.decided
        classes = ClassTable.of_steps(labelled.class_names, (network.known, *network.novel_per_step))
        self._model = Model(config, network.eval(), statistics, classes, decided)

    def _fit_again(self, step: Step, *, observer: Observer | None, checkpoint: Checkpoint | None) -> Learner:
        """The upper bound's step: a new network for all classes so far, from labelled images of all of them."""
        before = self.network
        with seeded(self.config.seed, "network", step.index):
            network = Network(build_backbone(self.config.backbone, self.channels), before.known, before.design)
            for novel in (*before.novel_per_step, step.novel):
                network = grow(network, novel)
        assert step.images.labels is not None
        self._fit(network, step.images.fitted(self.config.image_size or 0), observer, checkpoint)
        return self

    def discover(
        self, unlabelled: Images, novel: int, *, observer: Observer | None = None, checkpoint: Checkpoint | None = None
    ) -> Learner:
        """One discovery step: finds ``novel`` new classes in images without labels, and keeps the earlier ones."""
        method = self.config.method
        if method.supervised:
            raise InputError(f"the method '{method.name}' needs the labels of all classes: use hoarfrost run")
        if method.labelled_images:
            raise InputError(f"the method '{method.name}' needs the labelled images again: use hoarfrost run")
        return self._discover(unlabelled, novel, None, observer=observer, checkpoint=checkpoint)

    def _discover(
        self,
        unlabelled: Images,
        novel: int,
        labelled: ImageSet | None,
        *,
        observer: Observer | None,
        checkpoint: Checkpoint | None,
    ) -> Learner:
        """A discovery; a reference sees the ``labelled`` images of stage one again."""
        before, config = self.model, self.config
        images = self.prepare(unlabelled).without_labels()
        mixed_in = None if labelled is None else self.prepare(labelled)
        novel = check_novel(novel, len(images))
        teacher, terms, step = before.network.requires_grad_(False), config.method.active, before.network.steps + 1
        with seeded(config.seed, "grow", step):
            student = placed(grow(teacher, novel), self.runtime.device)
        start = self._start(student, teacher, images) if config.method.start == "k-means" else None
        if terms:
            choose_trained(student, frozen=config.method.frozen, terms=terms)
            objective = self._objective(student, before, images, start, 0 if mixed_in is None else len(mixed_in))
            self._train(
                objective,
                images,
                config.discover,
                labelled=int(before.statistics.count[: teacher.known].sum()),
                augment=config.discover_augment,
                mixed_in=mixed_in if objective.mixes else None,
                observer=observer,
                checkpoint=checkpoint,
            )
        else:
            self._note_training(batch_size=None, steps=0, compiled=False)
        statistics = before.statistics.extended(self._statistics(student, images, novel))
        if config.method.design.readout == "means":
            set_nearest(student.joint, statistics.mean, statistics.count > 0)
        classes = before.classes.with_discovered(novel)
        self._model = Model(config, student.eval(), statistics, classes, before.decided)
        return self

    def _start(self, student: Network, teacher: Network, images: ImageSet) -> Tensor:
        """Lets the newest novel head begin with clusters of the teacher's features; gives their probabilities."""
        features = self.outputs(images, teacher, features=True).features
        assert features is not None
        seed = derive(self.config.seed, "k-means", student.steps)
        basic = features[:, : teacher.backbone.features]
        return start_from_clusters(student, basic, seed, self.runtime.processes)

    def _objective(
        self, student: Network, before: Model, images: ImageSet, start: Tensor | None, labelled: int
    ) -> Objective:
        """What a discovery minimises; so many ``labelled`` images are mixed in."""

        def assign() -> Tensor:
            novel = self.outputs(images, student).novel[-1]
            return torch.from_numpy(novel).to(self.runtime.device).softmax(dim=1)

        with seeded(self.config.seed, "memory", student.steps):
            return discovery_objective(
                student,
                before.network,
                before.remembered,
                self.config.method.active,
                images=len(images),
                labelled=labelled,
                device=self.runtime.device,
                start=start,
                assign=assign,
                views_together=self.config.views == "together",
                gather=self.runtime.processes.gather,
            )

    @torch.no_grad()
    def outputs(self, images: Images, network: Network | None = None, *, features: bool = False) -> Outputs:
        """What all heads say of the images; of another network where one is given (one in training, say).

        Several processes share the images out, and all get the whole.
        """
        network = network or self.network
        prepared = self.prepare(images)
        joint, novel, kept, calibrated = [], [], [], []
        for extracted in self._features(prepared, network):
            joint.append(network.decide(extracted))
            novel.append([network.novel_logits(extracted, step) for step in range(network.steps)])
            if features:
                kept.append(extracted)
            if network.design.concatenates:
                calibrated.append(network.calibrated(extracted))

        def whole(parts: Sequence[Tensor]) -> NDArray[np.float32]:
            rows: NDArray[np.float32] = (
                self.runtime.processes.gather_rows(torch.cat(list(parts)), len(prepared)).cpu().numpy()
            )
            return rows

        classes = self._model.classes if self._model is not None and network is self._model.network else None

        def of_classes(columns: NDArray[np.float32]) -> NDArray[np.float32]:
            """As people have decided of the classes; a network in training has none of that yet."""
            return columns if classes is None else classes.scores(columns)

        scores = whole(joint)
        if np.isnan(scores).any() or np.isposinf(scores).any():
            place = f" in {self._loaded[1]}" if self._loaded is not None and self._loaded[0] is network else ""
            raise InputError(
                f"the model{place} gives scores that are no numbers: restore it from a copy, or learn it again"
            )
        return Outputs(
            joint=of_classes(scores),
            novel=tuple(whole(parts) for parts in zip(*novel, strict=True)),
            features=whole(kept) if features else None,
            calibrated=of_classes(whole(calibrated)) if calibrated else None,
            by_joint=network.design.readout == "joint",
        )

    @torch.no_grad()
    def _features(self, images: ImageSet, network: Network) -> Iterator[Tensor]:
        """Features of this process's images, batch by batch; at least one batch, be it empty."""
        device, mine = self.runtime.device, self.runtime.processes.part_of(len(images))
        if not len(mine):
            yield torch.zeros(0, network.width, device=device)
            return
        was_training = network.training
        network.eval()
        try:
            with self.runtime.numerics(search=False):  # the last batch has a size of its own
                for batch in plain_batches(
                    images.rows(mine), batch_size=EVALUATION_BATCH, normaliser=self._normaliser(), device=device
                ):
                    with self.runtime.autocast():
                        extracted = network(batch)
                    yield extracted
        finally:
            network.train(was_training)

    def predict_proba(self, images: Images) -> NDArray[np.float64]:
        """Class probabilities ``(N, C)``; columns follow the class ids."""
        logits = self.outputs(images).joint.astype(np.float64)
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: NDArray[np.float64] = exponentials / exponentials.sum(axis=1, keepdims=True)
        return probabilities

    def predict(self, images: Images) -> NDArray[np.int64]:
        """Class ids ``(N,)``: old classes in the sorted order of their names, then discovered ones."""
        return self.outputs(images).predicted

    def prepare(self, images: Images, keep: Keep = AUTO) -> ImageSet:
        """The images in the size and the channels that this model works on; ``keep`` says where those of files are."""
        size = self.config.image_size
        if size is None:
            raise InputError("this learner has not learned anything yet: call fit first")
        if isinstance(images, str | Path):
            return read_images(Path(images), labelled=False, size=size, channels=self.channels, keep=keep)
        given = images if isinstance(images, ImageSet) else ImageSet(as_images(images))
        return given.fitted(size, self.channels)

    def save(self, folder: str | Path) -> None:
        """Writes the model folder as a whole; an earlier model there is replaced, anything else refused."""
        self.runtime.processes.first(lambda: self.model.save(Path(folder)))

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto", compiled: Compile = "auto") -> Learner:
        """The learner of a model folder, ready to predict or to discover."""
        model = Model.load(Path(folder))
        learner = cls.from_config(model.config, device, compiled)
        learner._asked = model.config.opened(model.decided)
        learner._model = replace(model, network=placed(model.network, learner.runtime.device))
        learner._loaded = (learner._model.network, Path(folder))
        return learner

    def _labelled(self, images: Images, labels: ArrayLike | None) -> ImageSet:
        """The images with their labels."""
        if isinstance(images, str | Path):
            labelled = read_images(Path(images), labelled=True, size=self.config.image_size)
        else:
            labelled = images if isinstance(images, ImageSet) else ImageSet(as_images(images))
        if labels is not None:
            ids, names = encode_labels(labels, len(labelled))
            labelled = replace(labelled, labels=ids, class_names=names)
        if labelled.labels is not None and len(np.unique(labelled.labels)) < 2:
            raise InputError("the images are all of one class: at least two classes are needed")
        if labelled.labels is None:
            raise InputError("fit needs labels: give them as the second argument, or a folder of class folders")
        return labelled

    def _train(
        self,
        objective: Objective,
        images: ImageSet,
        schedule: Schedule,
        *,
        labelled: int,
        augment: Augment,
        observer: Observer | None,
        checkpoint: Checkpoint | None,
        mixed_in: ImageSet | None = None,
    ) -> None:
        """A stage; ``labelled`` images had labels in stage one and are gone."""
        objective.to(self.runtime.device)
        batch_size = schedule.batch_of(len(images), labelled)
        source = ImageSource(
            images,
            augment=augment,
            views=objective.views,
            batch_size=batch_size,
            normaliser=self._normaliser(),
            device=self.runtime.device,
            share=self.runtime.processes.share(batch_size),
            mixed_in=mixed_in,
        )
        height, width, channels = images.shape
        shape = (objective.views * source.batch_size, channels, height, width)
        warn_of_too_much(objective.student, shape, schedule.epochs * len(source), self.runtime)
        compiled = train(
            objective,
            source,
            schedule,
            runtime=self.runtime,
            seed=self.config.seed,
            stage=objective.student.steps,
            key="fit" if schedule is self.config.fit else "discover",
            observer=observer or Observer(),
            checkpoint=checkpoint,
        )
        self._note_training(batch_size=source.batch_size, steps=schedule.epochs * len(source), compiled=compiled)

    def _note_training(self, *, batch_size: int | None, steps: int, compiled: bool) -> None:
        self.trained = {"batch_size": batch_size, "steps": steps, "compiled": compiled, **self.runtime.describe()}

    def _normaliser(self) -> Normaliser:
        assert self.config.mean is not None
        assert self.config.std is not None
        return Normaliser(self.config.mean, self.config.std, self.runtime.device)

    @torch.no_grad()
    def _statistics(self, network: Network, images: ImageSet, classes: int) -> ClassStatistics:
        """Of the images' classes, or without labels of those that the newest novel head takes them for."""
        device = self.runtime.device
        tally = Tally(classes, network.backbone.features, device)
        part = self.runtime.processes.part_of(len(images))
        given = None if images.labels is None else torch.from_numpy(images.labels[part]).to(device)
        start = 0
        for features in self._features(images, network):
            rows = slice(start, start := start + len(features))
            labels = network.novel_logits(features).argmax(dim=1) if given is None else given[rows]
            tally.add(network.basic(features), labels)
        statistics = self.runtime.processes.gather_tally(tally).statistics()
        if not (statistics.mean.isfinite().all() and statistics.variance.isfinite().all()):
            by_labels = images.labels is not None
            raise diverged(self.config.fit if by_labels else self.config.discover, "fit" if by_labels else "discover")
        return statistics


def check_novel(novel: int, images: int | None = None) -> int:
    """The number of new classes; refuses one that cannot be."""
    if isinstance(novel, bool) or not isinstance(novel, int | np.integer) or novel < 1:
        raise InputError(f"the number of new classes must be 1 or more, not {novel}")
    if images is not None and images < novel:
        raise InputError(f"{images} images cannot hold {novel} new classes: give more images or a smaller number")
    if images == 1:
        raise InputError("a discovery compares images with each other: give it at least 2")
    return int(novel)
