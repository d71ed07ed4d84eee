"""The learner: fit on labelled images, discover in unlabelled ones, predict with one head for everything."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hoarfrost.computing.runtime import Compile, Runtime
from hoarfrost.config import DECIDED, Config, Method
from hoarfrost.data.arrays import encode_labels
from hoarfrost.data.cache import AUTO, ImageStorage
from hoarfrost.data.datasets import are_paths, read_images
from hoarfrost.data.given import Images, Pictures, told
from hoarfrost.data.images import ImageSet, OnDisk
from hoarfrost.data.sources import Samples
from hoarfrost.errors import InputError, NotFitted, unknown
from hoarfrost.methods import DEFAULT, get_method
from hoarfrost.models.backbone import Backbone
from hoarfrost.models.backbones import build_backbone, find_backbone, name_of
from hoarfrost.models.classes import ClassTable
from hoarfrost.models.counted import Counted
from hoarfrost.models.model import Model
from hoarfrost.models.network import Network, check_design, grow, kept_statistics, to_channels_last
from hoarfrost.models.readout import Calibration, Readout
from hoarfrost.recipes import get_recipe
from hoarfrost.scenario import Step
from hoarfrost.seeding import seeded
from hoarfrost.settings import override
from hoarfrost.training.display import examples, of_classes
from hoarfrost.training.estimator import parameters_of, tags
from hoarfrost.training.expecting import Look
from hoarfrost.training.features import FeatureCache
from hoarfrost.training.held_out import HeldOut, held_out
from hoarfrost.training.images import check_every, image_set, new_network, with_labels
from hoarfrost.training.inference import Inference, Outputs, check_scores
from hoarfrost.training.loop import Checkpoint
from hoarfrost.training.moving import (
    Changes,
    Evidence,
    changes,
    check_movable,
    counted_in,
    digests_of,
    evidence_of,
    kept_evidence,
    split_groups,
    with_given,
)
from hoarfrost.training.observers import Observer
from hoarfrost.training.predictions import Predictions
from hoarfrost.training.resolve import check_frozen, resolve
from hoarfrost.training.stages import Learned, Stage
from hoarfrost.unsorted.number import Count

KEPT = 256 << 20
"""bytes of images in memory that predictions keep, so that notebooks show them"""


class Learner:
    """One classifier for old and discovered classes.

    The constructor takes hyper-parameters only. ``method`` is a preset's name or a ``Method`` of one's own;
    ``backbone`` is a name or a ``Backbone`` of one's own, and each ``fit`` begins with a copy of it. ``recipe`` names
    the data set whose settings to start from, ``variant`` where they come from: the authors' public code ("code"),
    the paper's text ("paper"), or the authors' first scripts, in one step ("released"). ``settings`` changes single
    ones by their dotted keys, for example ``{"discover.epochs": 20}``. ``compiled`` says whether training steps are
    compiled: "auto" does it on a GPU where there are many.
    """

    _estimator_type = "classifier"  # for versions of scikit-learn that ask for no tags

    def __init__(
        self,
        method: str | Method = DEFAULT,
        backbone: str | Backbone = "auto",
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
        self._own_backbone = backbone if isinstance(backbone, Backbone) else None
        if isinstance(backbone, Backbone):
            config = replace(config, backbone=name_of(backbone))
        elif backbone != "auto":
            find_backbone(backbone)
            config = replace(config, backbone=backbone)
        self._begin(override(config, settings or {}), device, compiled)

    @classmethod
    def from_config(cls, config: Config, device: str = "auto", compiled: Compile = "auto") -> Learner:
        """A learner for a whole configuration."""
        learner = cls.__new__(cls)
        learner._parameters, learner._own_backbone = None, None
        learner._begin(config, device, compiled)
        return learner

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the constructor was given, by name, as scikit-learn asks for it.

        Of a learner that was loaded or made from a configuration: what the constructor makes the same of.
        """
        if self._parameters is None:
            backbone, compiled = self._own_backbone, self.runtime.compiled
            self._parameters = {**parameters_of(self._asked), "device": self._device, "compiled": compiled}
            self._parameters |= {} if backbone is None else {"backbone": backbone}
        return dict(self._parameters)

    def set_params(self, **parameters: Any) -> Learner:
        """The same learner as if its constructor had been given these; what it has learned is gone."""
        given = self.get_params()
        if not parameters:
            return self
        if strange := sorted(parameters.keys() - given.keys()):
            raise unknown("parameter", strange[0], given)
        Learner.__init__(self, **{**given, **parameters})
        return self

    def __sklearn_tags__(self) -> Any:
        return tags()

    def __sklearn_is_fitted__(self) -> bool:
        return self._model is not None

    def _begin(self, config: Config, device: str, compiled: Compile) -> None:
        self.config = config
        self._asked = config  # what fit leaves open is decided anew by each fit's images
        self._device = device
        self.runtime = Runtime(device, config.precision, compiled)
        self._model: Model | None = None
        self._loaded: tuple[Network, Path] | None = None
        self._cache, self._observer = FeatureCache(), Observer()
        self._examples: dict[int, ImageSet] = {}
        self.trained: dict[str, Any] = {}
        """how the last stage was computed: batch size, steps of the optimiser, precision, versions"""
        self.assigned: NDArray[np.int64] | None = None
        """(N,) after a discovery: the class that each of its images was given to, old or new, or -1 for none"""

    def __repr__(self) -> str:
        name, backbone = self.config.method.name, self.config.backbone
        if self._model is None:
            return f"Learner({name}, {backbone}: nothing learned yet)"
        classes, steps = self._model.classes, len(self.novel_per_step)
        old = sum(classes.rows[k].step == 0 for k in classes.present)
        new = f", {len(classes.present) - old} discovered in {steps} step{'s' if steps > 1 else ''}" if steps else ""
        return f"Learner({name}, {backbone}: {old} labelled classes{new})"

    def _repr_html_(self) -> str:
        rows = () if self._model is None else self._model.classes.rows
        present = dict(zip(self._model.classes.present, self.class_names, strict=True)) if self._model else {}
        return of_classes(repr(self), {k: (name, rows[k].step) for k, name in present.items()}, self._examples)

    @property
    def model(self) -> Model:
        """What was learned so far."""
        if self._model is None:
            raise NotFitted("this learner has not learned anything yet: call fit first")
        return self._model

    @property
    def network(self) -> Network:
        """The trained network."""
        return self.model.network

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names in the order of ``predict_proba``'s columns: labelled classes, then discovered ones.

        Classes that were merged into others or rejected are left out.
        """
        own = self.model.classes.own_names
        return tuple(own[k] for k in self.model.classes.present)

    @property
    def classes_(self) -> NDArray[Any]:
        """The same as labels: as they were given to ``fit``; discovered and renamed classes by their names."""
        return self.model.labels_present

    @property
    def labelled_classes(self) -> int:
        """The number of classes that came with labels."""
        return self.network.labelled_classes

    @property
    def novel_per_step(self) -> tuple[int, ...]:
        """The number of classes that each discovery added."""
        return self.network.novel_per_step

    @property
    def count(self) -> Count | None:
        """How the last discovery estimated the number of new classes; None where it was given."""
        return None if self.model.discovery is None else self.model.discovery.count

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
        """Takes the last decision back: a new name, a merge, a rejection, a move or a split."""
        return self._edited(self.model.classes.undo())

    def move(self, images: Images | Evidence, to: str) -> Learner:
        """Makes images evidence of a class, which is a new one if no class has that name.

        An image is taken from exactly the class that it was counted for. Counts, means and covariances of both classes
        change, and no old image is needed. From now on ``predictions`` gives these images to that class.
        """
        evidence = self.evidence(images)
        return self._edited(self.model.classes.move(evidence.digests, to), evidence)

    def split(self, name: str, images: Images | Evidence | None = None, *, into: int = 2) -> Learner:
        """Makes two or more classes of one, by k-means of the features of its ``images``; the largest group stays.

        Without ``images`` they are those of the last discovery, whose features are kept beside the model.
        """
        groups = self.groups(name, images, into=into)
        return self.decide(self.model.classes.split(name, [group.digests for group in groups[1:]]), groups[1:])

    def correct(self, images: Images, labels: ArrayLike | None = None) -> Learner:
        """Makes labelled images evidence of their classes; names that no class has make new ones.

        ``images`` with ``labels``, or a folder with a sub-folder for each class. Images that were counted before are
        moved, and not counted twice. All of it is one decision.
        """
        labelled = self.labelled(images, labels)
        evidence, ids = self.evidence(labelled), labelled.labels
        assert ids is not None
        groups = [(labelled.class_names[k], evidence.take(np.flatnonzero(ids == k))) for k in np.unique(ids).tolist()]
        return self.correct_by(groups)

    def correct_by(self, groups: Sequence[tuple[str, Evidence]]) -> Learner:
        """The same, given the name and the images of each class."""
        table = self.model.classes.corrected([(name, own.digests) for name, own in groups])
        return self.decide(table, [own for _, own in groups])

    def decide(self, classes: ClassTable, groups: Sequence[Evidence] = ()) -> Learner:
        """Takes over a table of decisions; the groups are images that these move."""
        for own in groups:
            self._edited(self.model.classes, own)
        return self._edited(classes)

    def labelled(self, images: Images, labels: ArrayLike | None = None) -> ImageSet:
        """Labelled images as this model sees them."""
        if isinstance(images, str | Path) and labels is None:
            assert self.config.image_size is not None
            keep = replace(AUTO, photographs=self.config.image_size) if self.config.fixed_in_discovery else AUTO
            size, channels = self.config.image_size, self.channels
            return read_images(images, labelled=True, size=size, channels=channels, keep=keep, least_classes=1)
        prepared = self.prepare(self._every(images), compute=False)
        if labels is not None:
            ids, names = encode_labels(labels, len(prepared))
            prepared = replace(prepared, labels=ids, class_names=names)
        if prepared.labels is None:
            raise InputError("labels are needed: give them, or a folder with a sub-folder per class")
        return prepared

    def groups(self, name: str, images: Images | Evidence | None = None, *, into: int = 2) -> list[Evidence]:
        """What ``split`` would make of a class: groups of its images, the largest first."""
        check_movable(self.model)
        if into < 2:
            raise InputError(f"a class is split into 2 groups or more, not {into}: choose another number")
        self.model.classes.find(name)
        evidence = self.last_folder() if images is None else self.evidence(images)
        if evidence is None:
            raise InputError("the images of the last discovery are not known: give the folder of the images (--folder)")
        return split_groups(self._inference, self.model, evidence, name, into)

    def evidence(self, images: Images | Evidence) -> Evidence:
        """Images as this model knows them again, with their features."""
        check_movable(self.model)
        if isinstance(images, Evidence):
            return images
        prepared = self.prepare(self._every(images), compute=False)
        return evidence_of(self._inference, self.model, self._cache, prepared)

    def last_folder(self) -> Evidence | None:
        """The images of the last discovery, where their features are kept beside the model."""
        return kept_evidence(self.model, self._cache)

    def changes(self, before: Model, images: Evidence | None) -> Changes | None:
        """Which of the images, those of the last discovery say, have another class than they had before."""
        return None if images is None else changes(self._inference, before, self.model, images)

    def _edited(self, classes: ClassTable, evidence: Evidence | None = None) -> Learner:
        model = self.model
        counted = model.counted
        if evidence is not None:
            counted = counted.with_features(evidence.digests, evidence.features)
        self._model = replace(model, classes=classes, counted=counted)
        return self

    def reconfigure(self, config: Config) -> None:
        """Changes the settings of discoveries to come; what the model is built on stays."""
        if self._model is None:
            self._begin(config, self._device, self.runtime.compiled)
            return
        for name in (*DECIDED, "fit_frozen", "fit_keeps"):
            if getattr(config, name) != getattr(self.config, name):
                raise InputError(f"{name} cannot be changed after fit: leave it as it is")
        check_frozen(config, tuple(self.network.backbone.parts))
        if config.method.design != self.config.method.design:
            if self.network.steps:
                raise InputError("method.design cannot be changed after a discovery: leave it as it is")
            if config.method.design.mirror != self.config.method.design.mirror:
                raise InputError("method.design.mirror cannot be changed: the class statistics were made with it")
            check_design(config.method.design, self.network.backbone)
            kept = kept_statistics(config.method.design, self.network.backbone)
            if not self.model.statistics.fit(kept, self.network.backbone.width):
                raise InputError("method.design.readout needs class statistics that this model lacks: fit it again")
            self.network.design = config.method.design
            # The rest of it was the earlier readout's.
            self._model = replace(self._model, calibration=Calibration(levels=self._model.calibration.levels))
        if config.precision != self.config.precision:
            self.runtime = Runtime(self._device, config.precision, self.runtime.compiled)
        self.config = config
        self._model = replace(self._model, config=config)

    def learn(
        self,
        step: Step,
        *,
        estimate: bool = False,
        observer: Observer | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Learner:
        """Fits step 0 of a scenario, discovers in a later one; references may learn from labels there too.

        With ``estimate`` the number of new classes is not taken from the step.
        """
        if step.index == 0:
            return self.fit(step.images, observer=observer, checkpoint=checkpoint)
        if self.config.method.supervised:
            return self._fit_again(step, observer=observer, checkpoint=checkpoint)
        if self.config.method.labelled_images and step.labelled is not None:
            labelled = step.labelled
            return self._discover(
                step.images, step.novel, labelled, only_new=True, observer=observer, checkpoint=checkpoint
            )
        novel: int | Literal["auto"] = "auto" if estimate else step.novel
        return self.discover(step.images, novel, only_new=not step.mixed, observer=observer, checkpoint=checkpoint)

    def fit(
        self,
        images: Images,
        labels: ArrayLike | None = None,
        *,
        observer: Observer | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Learner:
        """Stage one: learns the labelled classes by ``method.stage_one``, and remembers their statistics."""
        labelled, values = with_labels(images, labels, self._asked, self.runtime, self._own_backbone)
        config = resolve(self._asked, labelled, self.runtime.device, self._own_backbone)
        assert config.image_size is not None
        labelled = labelled.fitted(config.image_size, len(config.mean or ()))
        assert labelled.labels is not None
        network = new_network(config, len(labelled.class_names), self._own_backbone)
        before, self.config = self.config, config
        try:
            learned = self._stage(config, observer, checkpoint).fit(network, labelled)
        except BaseException:
            self.config = before  # an earlier model stays usable
            raise
        self._examples = examples(labelled, labelled.labels)
        # A pretrained backbone suits other images too; what it replaced in the settings is gone.
        decided = () if config.fixed_in_discovery else self._asked.left_open
        return self._keep(learned, replace(learned.model, decided=decided, labels=values), labelled)

    def _fit_again(self, step: Step, *, observer: Observer | None, checkpoint: Checkpoint | None) -> Learner:
        """The upper bound's step: a new network for all classes so far, from labelled images of all of them."""
        before = self.network
        with seeded(self.config.seed, "network", step.index):
            backbone = build_backbone(self.config.backbone, self.channels, self._own_backbone)
            network = Network(backbone, before.labelled_classes, before.design)
            for novel in (*before.novel_per_step, step.novel):
                network = grow(network, novel)
        labelled = self.prepare(step.images)
        learned = self._stage(self.config, observer, checkpoint).fit(network, labelled)
        model = replace(learned.model, decided=self.model.decided, labels=self.model.labels)
        return self._keep(learned, model, labelled)

    def _stage(self, config: Config, observer: Observer | None, checkpoint: Checkpoint | None) -> Stage:
        observer = observer or Observer()
        return Stage(config=config, runtime=self.runtime, observer=observer, checkpoint=checkpoint, cache=self._cache)

    def _keep(self, learned: Learned, model: Model, images: ImageSet, before: Model | None = None) -> Learner:
        if model.config.method.design.readout.from_statistics:
            counted = counted_in(model, images, learned.counted)
            model = replace(model, counted=counted if before is None else before.counted.extended(counted))
        self._model, self.trained, self.assigned = model, learned.trained, learned.assigned
        return self

    def discover(
        self,
        unlabelled: Images,
        novel: int | Literal["auto"] | None = None,
        *,
        only_new: bool = False,
        look: Look | None = None,
        observer: Observer | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Learner:
        """One discovery step: finds new classes in images without labels, and keeps the earlier ones.

        ``novel`` is the number of new classes; without one it is estimated (``count``). As on the command line, known
        and new classes are mixed: each image is given to a known class, to a new class, or to none (``assigned``). If
        nothing is new, no class is added. With ``only_new`` every image is of a new class, as in the paper. A ``look``
        is what the method of that name returned for these images; with one, they are not looked at again.
        """
        method = self.config.method
        if method.supervised:
            raise InputError(f"the method '{method.name}' needs the labels of all classes: use hoarfrost run")
        if method.labelled_images:
            raise InputError(f"the method '{method.name}' needs the labelled images again: use hoarfrost run")
        return self._discover(
            unlabelled, novel, None, only_new=only_new, look=look, observer=observer, checkpoint=checkpoint
        )

    def look(self, unlabelled: Images, novel: int | Literal["auto"] | None = None, *, only_new: bool = False) -> Look:
        """What ``discover`` would begin with: how many classes are new, and which images are of known ones."""
        images = self.prepare(unlabelled).without_labels()
        number = None if novel is None or novel == "auto" else check_novel(novel, len(images))
        return self._stage(self.config, self._observer, None).look(
            self.model.settled, images, number, only_new=only_new
        )

    def _discover(
        self,
        unlabelled: Images,
        novel: int | Literal["auto"] | None,
        labelled: ImageSet | None,
        *,
        only_new: bool,
        look: Look | None = None,
        observer: Observer | None,
        checkpoint: Checkpoint | None,
    ) -> Learner:
        """A discovery; a reference sees the ``labelled`` images of stage one again."""
        before = self.model.settled
        images = self.prepare(unlabelled).without_labels()
        mixed_in = None if labelled is None else self.prepare(labelled)
        number = None if novel is None or novel == "auto" else check_novel(novel, len(images))
        if not len(images):
            raise InputError("there are no images to discover classes in: give some")
        stage = self._stage(self.config, observer, checkpoint)
        learned = stage.discover(before, images, number, mixed_in, only_new=only_new, look=look)
        if learned.assigned is not None:
            self._examples = {**examples(images, learned.assigned), **self._examples}
        return self._keep(learned, replace(learned.model, labels=before.labels), images, before)

    def outputs(self, images: Images | Pictures, network: Network | None = None, *, features: bool = False) -> Outputs:
        """What the readout and all heads say of the images; of another network where one is given (one in training).

        Several processes share the images out, and all get the whole.
        """
        if network is None or (self._model is not None and network is self._model.network):
            model, readout = self.model, self.model.readout
        else:
            model, readout = None, network.design.readout.read(network)
        # What people have decided of the classes is not for a network in training.
        classes = None if model is None else model.classes
        outputs = self._inference.outputs(self._samples(images, readout), readout, features=features, classes=classes)
        loaded = self._loaded is not None and self._loaded[0] is readout.network
        check_scores(outputs.scores, f" in {self._loaded[1]}" if self._loaded is not None and loaded else "")
        return outputs

    def unlikeness(self, images: Images) -> NDArray[np.float32]:
        """``(N,)``: how unlike every known class an image is; the larger, the more."""
        readout = self.model.readout
        return self._inference.unlikeness(self._samples(images, readout), readout)

    @property
    def _inference(self) -> Inference:
        return Inference(self.config, self.runtime, self._cache, self._observer)

    def _samples(self, images: Images | Pictures, readout: Readout) -> Samples:
        """The images as ``prepare`` makes them, or their features, where those are always the same."""
        prepared = self.prepare(images)
        once = self.config.fixed_in_all_stages or (self.config.fixed_in_discovery and not readout.network.training)
        return self._inference.computed_once(prepared, readout.network) if once else prepared

    def predictions(self, images: Images, *, threshold: float | None = None, keep: ImageStorage = AUTO) -> Predictions:
        """What is predicted of each image, with the paths of those in files; broken ones are left out and named.

        An image whose best class is less probable than ``threshold`` is unsure. ``keep`` is as for ``prepare``.
        """
        prepared = self.prepare(images, keep)
        paths, root = prepared.paths, Path()
        if isinstance(images, str | Path) and Path(images).is_dir():
            root = Path(images)
        return Predictions(
            self.judged(prepared)[1][:, self.model.classes.present],
            self.class_names,
            self.labelled_classes,
            None if paths is None else [str(root / path) for path in paths],
            threshold,
            self.model.classes.present,
            self.classes_,
            prepared if isinstance(prepared.images, OnDisk) or prepared.images.nbytes <= KEPT else None,
        )

    def predict_proba(self, images: Images) -> NDArray[np.float64]:
        """The probability of each class ``(N, P)``, columns in the order of ``classes_``; as ``predictions`` has it.

        A row adds up to 1, or to less: what is missing is the probability that the image is of none of the classes.
        """
        present = self.model.classes.present
        return self.judged(self.prepare(self._every(images)))[1][:, present]

    def judged(self, images: ImageSet) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """``(N,)`` the class id of each image, and ``(N, C)`` the probability of each class.

        An image to which somebody gave a class is of that class.
        """
        outputs = self.outputs(self._every(images))
        predicted, sureness = outputs.predicted, outputs.sureness
        if self.model.given:
            names = Counted(digests_of(images), np.full(len(images), -1)).names
            sureness = with_given(self.model, names, sureness)
            predicted = np.where([name in self.model.given for name in names], sureness.argmax(axis=1), predicted)
        return predicted, sureness

    def predict(self, images: Images) -> NDArray[Any]:
        """The label of each image ``(N,)``, as given to ``fit``; of discovered and renamed classes the name.

        For class ids, see ``predictions``.
        """
        # Ids of classes that can be predicted, which come in their order.
        present = self.model.classes.present
        predicted, _ = self.judged(self.prepare(self._every(images)))
        return self.classes_[np.searchsorted(present, predicted)]

    def score(self, images: Images, labels: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of the images, from 0 to 1, whose label is predicted; labels are as those given to ``fit``."""
        predicted, given = self.predict(images), np.asarray(labels)
        if given.shape != predicted.shape:
            raise InputError(f"there are {given.size} labels for {len(predicted)} images: give one label per image")
        right = given.astype(object) == predicted.astype(object)
        return float(np.average(right, weights=None if sample_weight is None else np.asarray(sample_weight)))

    def transform(self, images: Images) -> NDArray[np.float32]:
        """The features of each image, ``(N, D)``."""
        features = self.outputs(self._every(images), features=True).features
        assert features is not None
        return features

    def _every(self, images: Images) -> Images | Pictures:
        """The images; of a list of files each one, so that what is predicted stands in its place."""
        given = told(images)
        if not are_paths(given):
            return given
        prepared = self.prepare(given)
        check_every(given, prepared)
        return prepared

    def held_out(self, labelled: ImageSet) -> HeldOut | None:
        """What is predicted of the labelled images of stage one when others are learned from, and its accuracy.

        Each fifth of a class is scored by class statistics of the other four; where the backbone was tuned on those,
        the last fifth alone is. None where it was trained on all, or where something else decides.
        """
        if not self.config.fixed_in_discovery:
            return None
        return held_out(self._inference, self.network, self.prepare(labelled))

    def prepare(self, images: Images | Pictures, keep: ImageStorage = AUTO, *, compute: bool = True) -> ImageSet:
        """The images in the size and the channels that this model works on; ``keep`` says where those of files are.

        Features of photographs that no discovery changes are computed in passing, if ``compute``.
        """
        size = self.config.image_size
        if size is None:
            raise NotFitted("this learner has not learned anything yet: call fit first")
        given = told(images)
        if isinstance(given, str | Path) or are_paths(given):
            if self.config.fixed_in_discovery:
                inference, network = self._inference, self.network
                computes = compute and self.runtime.processes.count == 1
                first_read = (lambda files, _: inference.read_first(files, network)) if computes else None
                keep = replace(keep, photographs=size, first_read=first_read)
            return read_images(given, labelled=False, size=size, channels=self.channels, keep=keep)
        if isinstance(given, Pictures):
            return given.read(size, self.channels)[0]
        return image_set(given).fitted(size, self.channels)

    def keep_features(self, *folders: str | Path, add: bool = True) -> None:
        """Has features of image files that no discovery changes kept in folders, and takes those that are in one.

        Without ``add`` they are only looked for.
        """
        if self.runtime.processes.count == 1:
            self._cache.folders, self._cache.read_only = tuple(map(Path, folders)), not add

    def follow(self, observer: Observer) -> None:
        """Has an observer told how far it is, where images are looked at outside of the stages."""
        self._observer = observer

    def save(self, folder: str | Path) -> None:
        """Writes the model folder as a whole; an earlier model there is replaced, anything else refused."""
        self.runtime.processes.first(lambda: self.model.save(Path(folder)))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "auto",
        compiled: Compile = "auto",
        *,
        backbone: Backbone | None = None,
    ) -> Learner:
        """The learner of a model folder, ready to predict or to discover.

        ``backbone`` is for a model that was made with an object for a backbone: one like it, whose weights are not
        used but for another ``fit``.
        """
        model = Model.load(Path(folder), backbone)
        learner = cls.from_config(model.config, device, compiled)
        learner._own_backbone = backbone
        learner._asked = model.config.opened(model.decided)
        learner._model = replace(model, network=to_channels_last(model.network, learner.runtime.device))
        learner._loaded = (learner._model.network, Path(folder))
        return learner


def check_novel(novel: int, images: int | None = None) -> int:
    """The number of new classes; refuses one that cannot be."""
    if isinstance(novel, bool) or not isinstance(novel, int | np.integer) or novel < 1:
        raise InputError(f"the number of new classes must be at least 1, not {novel}")
    if images is not None and images < novel:
        raise InputError(f"{images} images cannot hold {novel} new classes: give more images or a smaller number")
    if images == 1:
        raise InputError("a discovery needs at least 2 images")
    return int(novel)
