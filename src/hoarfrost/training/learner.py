"""The learner: fit on labelled images, discover in unlabelled ones, predict with one head for everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

import hoarfrost
from hoarfrost import store
from hoarfrost.config import Config, from_json, override, to_json
from hoarfrost.data.datasets import read_images
from hoarfrost.data.images import ImageFiles, ImageSet, as_images, default_size, encode_labels, fit_to
from hoarfrost.data.sources import ImageSource, Normaliser, plain_batches
from hoarfrost.errors import InputError, unknown
from hoarfrost.losses.terms import Replay
from hoarfrost.memory import ClassStatistics, Rehearsal
from hoarfrost.methods import get_method
from hoarfrost.models.backbones import build_backbone, get_shape
from hoarfrost.models.network import Network, grow
from hoarfrost.recipes import get_recipe
from hoarfrost.scenario import Step
from hoarfrost.seeding import seeded
from hoarfrost.training.loop import Checkpoint, Observer, train, unbounded
from hoarfrost.training.objective import Objective, choose_trained
from hoarfrost.training.runtime import Runtime

FILES = frozenset(
    {"model.json", "weights.safetensors", "prototypes.safetensors", "config.json", "log.jsonl", "report.html"}
)
"""what a model folder may hold"""

Images = ArrayLike | ImageSet | str | Path
"""uint8 arrays (N, H, W) or (N, H, W, C), an ImageSet, a folder of images or an .npz file"""


@dataclass(frozen=True)
class Outputs:
    """What the heads say of N images."""

    joint: NDArray[np.float32]
    """(N, C) logits over all classes"""
    novel: tuple[NDArray[np.float32], ...]
    """(N, n_t) logits of each discovery step's novel head"""
    features: NDArray[np.float32] | None
    """(N, D), where asked for"""

    @property
    def predicted(self) -> NDArray[np.int64]:
        """(N,) class ids, by the joint head"""
        return best(self.joint)


def best(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """The strongest class of each image."""
    classes: NDArray[np.int64] = logits.argmax(axis=1)
    return classes


class Learner:
    """One classifier for old and discovered classes.

    The constructor takes hyper-parameters only. ``recipe`` names the data set whose settings to start from;
    ``settings`` changes single ones by their dotted keys, for example ``{"discover.epochs": 20}``.
    """

    def __init__(
        self,
        method: str = "frost",
        backbone: str = "auto",
        seed: int = 0,
        *,
        recipe: str = "folder",
        device: str = "auto",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        config = get_recipe(recipe).config(get_method(method), seed)
        if backbone != "auto":
            get_shape(backbone)
            config = replace(config, backbone=backbone)
        self._begin(override(config, settings or {}), device)

    @classmethod
    def from_config(cls, config: Config, device: str = "auto") -> Learner:
        """A learner for a whole configuration."""
        learner = cls.__new__(cls)
        learner._begin(config, device)
        return learner

    def _begin(self, config: Config, device: str) -> None:
        self.config = config
        self.runtime = Runtime(device, config.precision)
        self.class_names: tuple[str, ...] = ()
        self._network: Network | None = None
        self._statistics: ClassStatistics | None = None

    @property
    def network(self) -> Network:
        """The trained network."""
        if self._network is None:
            raise InputError("this learner has not learned anything yet: call fit first")
        return self._network

    @property
    def statistics(self) -> ClassStatistics:
        """What is remembered of each class."""
        if self._statistics is None:
            raise InputError("this learner has not learned anything yet: call fit first")
        return self._statistics

    @property
    def known(self) -> int:
        """The number of classes that came with labels."""
        return self.network.known

    @property
    def novel_per_step(self) -> tuple[int, ...]:
        """The number of classes that each discovery added."""
        return self.network.novel_per_step

    def reconfigure(self, config: Config) -> None:
        """Changes the settings of discoveries to come; what the model is built on stays."""
        for name in ("backbone", "image_size", "mean", "std"):
            if getattr(config, name) != getattr(self.config, name):
                raise InputError(f"{name} cannot be changed, since the model was built with it: leave it as it is")
        check_frozen(config, config.backbone)
        self.config = config

    def learn(self, step: Step, *, observer: Observer | None = None, checkpoint: Checkpoint | None = None) -> Learner:
        """Fits step 0 of a scenario, discovers in a later one."""
        if step.index == 0:
            return self.fit(step.images, observer=observer, checkpoint=checkpoint)
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
        config, labelled = self._labelled(images, labels)
        assert labelled.labels is not None
        classes = len(labelled.class_names)
        with seeded(config.seed, "network"):
            network = Network(build_backbone(config.backbone, labelled.shape[2]), classes)
        network = self._placed(network)
        terms = config.method.stage_one
        choose_trained(network, frozen=(), terms=terms)
        objective = Objective(network, terms=terms).to(self.runtime.device)
        source = ImageSource(
            labelled,
            augment=config.fit_augment,
            views=objective.views,
            batch_size=config.fit.batch_size,
            normaliser=self._normaliser(config),
            device=self.runtime.device,
        )
        train(
            objective,
            source,
            config.fit,
            runtime=self.runtime,
            seed=config.seed,
            stage=0,
            observer=observer or Observer(),
            checkpoint=checkpoint,
        )
        self.config = config
        self._statistics = self._statistics_of(network, labelled, torch.from_numpy(labelled.labels), classes)
        self._network = network
        self.class_names = labelled.class_names
        return self

    def discover(
        self, unlabelled: Images, novel: int, *, observer: Observer | None = None, checkpoint: Checkpoint | None = None
    ) -> Learner:
        """One discovery step: finds ``novel`` new classes in images without labels, and keeps the earlier ones."""
        teacher, config = self.network, self.config
        images = self.prepare(unlabelled).without_labels()
        check_novel(novel, len(images))
        stage = len(teacher.novel) + 1
        with seeded(config.seed, "grow", stage):
            student = self._placed(grow(teacher, novel))
        terms = config.method.active
        choose_trained(student, frozen=config.method.frozen, terms=terms)
        teacher.requires_grad_(False)
        rehearsal = next(
            (Rehearsal(self.statistics, t, self.runtime.device) for t in terms if isinstance(t, Replay)), None
        )
        objective = Objective(
            student, terms=terms, teacher=teacher, rehearsal=rehearsal, views_together=config.views == "together"
        ).to(self.runtime.device)
        source = ImageSource(
            images,
            augment=config.discover_augment,
            views=objective.views,
            batch_size=config.discover.batch_size,
            normaliser=self._normaliser(config),
            device=self.runtime.device,
        )
        train(
            objective,
            source,
            config.discover,
            runtime=self.runtime,
            seed=config.seed,
            stage=stage,
            observer=observer or Observer(),
            checkpoint=checkpoint,
        )
        pseudo_labels = torch.from_numpy(self.outputs(images, student).novel[-1].argmax(axis=1))
        self._statistics = self.statistics.extended(self._statistics_of(student, images, pseudo_labels, novel))
        self.class_names = self.class_names + new_names(self.class_names, novel)
        self._network = student
        return self

    def outputs(self, images: Images, network: Network | None = None, *, features: bool = False) -> Outputs:
        """What all heads say of the images; of another network where one is given (one in training, say)."""
        network = network or self.network
        prepared = self.prepare(images)
        joint, novel, kept = [], [], []
        was_training = network.training
        network.eval()
        with torch.inference_mode():
            batches = plain_batches(
                prepared.images, batch_size=512, normaliser=self._normaliser(self.config), device=self.runtime.device
            )
            for batch in batches:
                with self.runtime.fabric.autocast():
                    extracted = network(batch)
                extracted = extracted.float()
                joint.append(network.joint(extracted))
                novel.append([head(extracted) for head in network.novel])
                if features:
                    kept.append(extracted)
        network.train(was_training)
        return Outputs(
            joint=torch.cat(joint).cpu().numpy(),
            novel=tuple(torch.cat(parts).cpu().numpy() for parts in zip(*novel, strict=True)),
            features=torch.cat(kept).cpu().numpy() if features else None,
        )

    def predict_proba(self, images: Images) -> NDArray[np.float64]:
        """Class probabilities ``(N, C)``; columns follow the class ids."""
        logits = self.outputs(images).joint.astype(np.float64)
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: NDArray[np.float64] = exponentials / exponentials.sum(axis=1, keepdims=True)
        return probabilities

    def predict(self, images: Images) -> NDArray[np.int64]:
        """Class ids ``(N,)``: old classes in the sorted order of their names, then discovered ones."""
        return self.outputs(images).predicted

    def prepare(self, images: Images) -> ImageSet:
        """The images in the size and the channels that this model works on."""
        size, channels = self.config.image_size, self.channels
        assert size is not None
        if isinstance(images, str | Path):
            return read_images(Path(images), labelled=False, size=size, channels=channels)
        if not isinstance(images, ImageSet):
            return ImageSet(fit_to(as_images(images), size, channels))
        return _fitted(images, size, channels)

    def save(self, folder: str | Path) -> None:
        """Writes the model folder as a whole; an earlier model there is replaced, anything else refused."""
        target = Path(folder)
        if not store.is_free(target):
            strangers = [] if not target.is_dir() else [p for p in target.iterdir() if p.name not in FILES]
            if strangers or not (target / "model.json").is_file():
                raise InputError(f"{target} holds something that is not a model: choose another place")
        with store.replaced_folder(target) as new:
            self.write_into(new)

    def write_into(self, folder: Path) -> None:
        """Writes the files of a model into a folder that exists."""
        statistics = self.statistics
        store.write_tensors(folder / "weights.safetensors", self.network.state_dict())
        store.write_tensors(
            folder / "prototypes.safetensors",
            {"mean": statistics.mean, "variance": statistics.variance, "count": statistics.count},
        )
        content = {
            "format": store.FORMAT,
            "hoarfrost": hoarfrost.__version__,
            "backbone": self.config.backbone,
            "channels": self.channels,
            "heads": {"known": self.known, "novel": list(self.novel_per_step)},
            "class_names": list(self.class_names),
            "config": to_json(self.config),
        }
        store.write_json(folder / "model.json", content)

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Learner:
        """The model of a folder that ``save`` wrote."""
        path = Path(folder)
        store.recover_folder(path)
        if not path.exists():
            raise InputError(f"there is no model folder {path}: check the path")
        if not (path / "model.json").exists() and (path / "model" / "model.json").exists():
            raise InputError(f"{path} is a run folder, no model folder: give its model, {path / 'model'}")
        content = store.read_json(path / "model.json", "model folder")
        store.check_format(content, path)
        weights, _ = store.read_tensors(path / "weights.safetensors")
        prototypes, _ = store.read_tensors(path / "prototypes.safetensors")
        try:
            learner = cls.from_config(from_json(Config, content["config"]), device)
            network = Network(build_backbone(content["backbone"], content["channels"]), content["heads"]["known"])
            for novel in content["heads"]["novel"]:
                network = grow(network, novel)
            if found := _mismatches(network, weights):
                raise store.damaged(path, f"weights.safetensors does not fit model.json at {found[0]}")
            network.load_state_dict(weights)
            learner.class_names = tuple(content["class_names"])
            learner._statistics = ClassStatistics(prototypes["mean"], prototypes["variance"], prototypes["count"])
        except (KeyError, TypeError, RuntimeError, IndexError) as error:
            raise store.damaged(path, f"{type(error).__name__}: {error}") from None
        except InputError as error:
            raise error if str(path) in str(error) else store.damaged(path, str(error)) from None
        _check_whole(path, learner, network)
        learner._network = learner._placed(network)
        return learner

    @property
    def channels(self) -> int:
        """1 for gray images, 3 for colour."""
        assert self.config.mean is not None
        return len(self.config.mean)

    def _labelled(self, images: Images, labels: ArrayLike | None) -> tuple[Config, ImageSet]:
        """The images with their labels, and the configuration with what was still open decided by them."""
        config = self.config
        if isinstance(images, str | Path):
            labelled = read_images(Path(images), labelled=True, size=config.image_size)
        elif isinstance(images, ImageSet):
            labelled = images
        else:
            labelled = ImageSet(as_images(images))
        if labels is not None:
            ids, names = encode_labels(labels, len(labelled))
            labelled = replace(labelled, labels=ids, class_names=names)
        if labelled.labels is None:
            raise InputError(
                "fit needs labels: give them as the second argument, or a folder with a sub-folder per class"
            )
        config = resolve(config, labelled, self.runtime.device)
        assert config.image_size is not None
        return config, _fitted(labelled, config.image_size, labelled.shape[2])

    def _normaliser(self, config: Config) -> Normaliser:
        assert config.mean is not None
        assert config.std is not None
        return Normaliser(config.mean, config.std, self.runtime.device)

    def _placed(self, network: Network) -> Network:
        for tensor in (*network.parameters(), *network.buffers()):
            if tensor.dim() == 4:
                tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
        return network.to(self.runtime.device)

    def _statistics_of(self, network: Network, images: ImageSet, labels: torch.Tensor, classes: int) -> ClassStatistics:
        features = self.outputs(images, network, features=True).features
        assert features is not None
        statistics = ClassStatistics.of(torch.from_numpy(features), labels, classes)
        if not (statistics.mean.isfinite().all() and statistics.variance.isfinite().all()):
            stage = len(network.novel)
            raise unbounded(stage, self.config.discover if stage else self.config.fit)
        return statistics


def resolve(config: Config, images: ImageSet, device: torch.device) -> Config:
    """The configuration with what it left open decided by the images of stage one, and by the device.

    Without a choice of backbone, little images and CPUs get the small one.
    """
    size = config.image_size or default_size([min(images.shape[:2])])
    mean, std = config.mean, config.std
    if mean is None or std is None or len(mean) != images.shape[2]:
        mean, std = channel_statistics(images)
    backbone = config.backbone
    if backbone == "auto":
        backbone = "small" if device.type == "cpu" or size < 24 else "resnet18"
    check_frozen(config, backbone)
    return replace(config, image_size=size, mean=mean, std=std, backbone=backbone)


def _mismatches(network: Network, weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Names of tensors that are missing, too many, or of another shape."""
    expected = network.state_dict()
    names = sorted(expected.keys() | weights.keys())
    return [n for n in names if n not in expected or n not in weights or expected[n].shape != weights[n].shape]


def _check_whole(path: Path, learner: Learner, network: Network) -> None:
    """Refuses a model folder whose files do not belong together."""
    config, statistics = learner.config, learner.statistics
    problems = {
        "class_names do not fit the heads": len(learner.class_names) != network.classes,
        "image_size is missing": config.image_size is None,
        "mean is missing": config.mean is None,
        "std does not fit mean": config.mean is not None and len(config.std or ()) != len(config.mean),
        "prototypes do not fit the heads": statistics.mean.shape != (network.classes, network.backbone.features),
    }
    for problem, found in problems.items():
        if found:
            raise store.damaged(path, problem)


def check_frozen(config: Config, backbone: str) -> None:
    """Refuses parts to freeze that the backbone does not have."""
    parts = get_shape(backbone).parts
    for part in config.method.frozen:
        if part not in parts:
            raise unknown("part of the backbone", part, parts)


def check_novel(novel: int, images: int | None = None) -> None:
    """Refuses a number of new classes that cannot be."""
    if isinstance(novel, bool) or not isinstance(novel, int | np.integer) or novel < 1:
        raise InputError(f"the number of new classes must be 1 or more, not {novel}")
    if images is not None and images < max(novel, 2):
        raise InputError(f"{images} images cannot hold {novel} new classes: give more images or a smaller number")


def new_names(taken: tuple[str, ...], novel: int) -> tuple[str, ...]:
    """Names for discovered classes, counted on over the steps, that no class has yet.

    >>> new_names(("cat", "dog", "new-1"), 2)
    ('new-2', 'new-3')
    """
    names: list[str] = []
    number = 1
    while len(names) < novel:
        name = f"new-{number}"
        if name not in taken:
            names.append(name)
        number += 1
    return tuple(names)


def channel_statistics(images: ImageSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, in 0..1, from at most 10,000 images evenly taken."""
    chosen = np.linspace(0, len(images) - 1, min(len(images), 10_000)).astype(np.int64)
    pixels = images.pixels(chosen).reshape(-1, images.shape[2])
    # Counting the 256 values is exact and needs no copy in floating point.
    counts = np.stack([np.bincount(channel, minlength=256) for channel in pixels.T]).astype(np.float64)
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum(axis=1)
    variance = counts @ values**2 / counts.sum(axis=1) - mean**2
    std = np.sqrt(np.maximum(variance, 1e-6))
    return tuple(mean.tolist()), tuple(std.tolist())


def _fitted(images: ImageSet, size: int, channels: int) -> ImageSet:
    if images.shape == (size, size, channels):
        return images
    if isinstance(images.images, ImageFiles):
        return replace(images, images=replace(images.images, size=size, channels=channels))
    return replace(images, images=fit_to(images.images, size, channels))
