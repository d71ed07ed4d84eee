"""A model: all that stays of a stage, as one value in memory and as one folder on disk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, replace
from filecmp import cmp
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

import hoarfrost
from hoarfrost import plugins, store
from hoarfrost.config import DECIDED, Config
from hoarfrost.data.arrays import Label, array_of
from hoarfrost.errors import InputError, Missing, Unavailable, out_of_memory, require
from hoarfrost.models.backbone import Backbone
from hoarfrost.models.backbones import OBJECT, build_backbone, name_of, rebuild_backbone
from hoarfrost.models.classes import ClassTable
from hoarfrost.models.counted import IMAGES, MOVED, Counted
from hoarfrost.models.description import class_table, read_description
from hoarfrost.models.network import Network, grow, set_nearest
from hoarfrost.models.readout import Calibration, ClassMeans, Known, Readout
from hoarfrost.models.statistics import ClassStatistics
from hoarfrost.reading import numbers_in
from hoarfrost.settings import from_json, to_json
from hoarfrost.unsorted.number import Count

TENSORS = "weights.safetensors", "prototypes.safetensors"
BACKBONE = "backbone."
"""begins the names of a backbone's tensors"""
BESIDE = "config.json", "log.jsonl", "report.html", "decisions.jsonl"
"""what a command writes beside its model: how it came about"""
FILES = frozenset({"model.json", *TENSORS, *BESIDE, IMAGES, MOVED, "checkpoint.safetensors"})
"""what a model folder may hold; a checkpoint was left there by earlier versions that were killed"""


LEAST, MOST = 1e-30, 1e30
"""what a number may be that something is divided by: in single precision its inverse is one too"""


def calibration_of(content: Mapping[str, Any]) -> Calibration:
    """Of the content of ``model.json``, its numbers checked; earlier versions had a temperature alone."""
    known = {one.name for one in fields(Calibration)}  # what earlier versions had besides is not read
    found = {"temperature": content.get("temperature", 1.0)}
    found |= {name: value for name, value in content.get("calibration", {}).items() if name in known}
    made = from_json(Calibration, found, "calibration")
    require(all(abs(number) <= MOST for number in numbers_in(found)), "a number in its calibration is too large")
    require(made.temperature >= LEAST, "its temperature is not above 0")
    sorter = made.sorter
    rough = () if sorter is None else (sorter.roughness, sorter.roughness_alone)
    require(all(LEAST <= some <= MOST for some in rough), "a roughness in its calibration is not above 0")
    require(sorter is None or sorter.chance >= 0, "a chance in its calibration is below 0")
    distances = made.unlike, None if made.expected is None else made.expected.deviation
    require(all(some is None or some >= LEAST for some in distances), "a distance in its calibration is not above 0")
    return made


@dataclass(frozen=True)
class Discovery:
    """What a discovery found, in numbers of images."""

    images: int
    known: int
    """given to classes that were known before"""
    unsure: int
    """given to none"""
    new: tuple[int, ...]
    """given to each new class"""
    count: Count | None = None
    """how the number of new classes was estimated, if it was"""
    nearest: tuple[tuple[int, ...], ...] = ()
    """ids of the known classes that each new one is most like, where that was looked at"""

    def in_words(self, *, mixed: bool) -> str:
        """One sentence, without its full stop; ``mixed``: images of known classes were looked for.

        >>> Discovery(400, 260, 20, (70, 50)).in_words(mixed=True)
        '2 new classes in 120 of 400 images; 260 look like known classes, 20 are unsure'
        >>> Discovery(9, 1, 1, (7,)).in_words(mixed=True)
        '1 new class in 7 of 9 images; 1 looks like a known class, 1 is unsure'
        >>> Discovery(1, 0, 1, ()).in_words(mixed=False)
        'nothing new in 1 image: the model does not change'
        """
        classes = f"{len(self.new)} new class" + ("es" if len(self.new) != 1 else "")
        images = f"{self.images} image" + ("s" if self.images != 1 else "")
        said = f"{classes} in {sum(self.new)} of {images}"
        if not self.new:
            said = f"nothing new in {images}: the model does not change"
        if not mixed:
            return said
        known = "looks like a known class" if self.known == 1 else "look like known classes"
        return f"{said}; {self.known} {known}, {self.unsure} {'is' if self.unsure == 1 else 'are'} unsure"


@dataclass(frozen=True)
class Model:
    """A network, what it remembers of each class, the table of classes, and the settings it was made with."""

    config: Config
    network: Network
    statistics: ClassStatistics
    classes: ClassTable
    decided: tuple[str, ...] = tuple(DECIDED)
    """settings that the images of stage one decided, as nobody else had"""
    calibration: Calibration = field(default_factory=Calibration)
    discovery: Discovery | None = None
    """what the last discovery found"""
    counted: Counted = field(default_factory=Counted)
    """which images the statistics are made of, and the features of those that people moved since"""
    labels: tuple[Label, ...] | None = None
    """of the labelled classes, as people gave them; None where these are their names"""

    @property
    def can_move(self) -> bool:
        """Whether class statistics decide, so that an image can be moved without training."""
        readout = self.config.method.design.readout
        return readout.by_likelihood or (readout.from_statistics and self.network.steps > 0)

    @property
    def given(self) -> dict[str, int]:
        """The class to which people gave images, by digest."""
        moved = self.classes.moved
        before = {name: k for name, k in self.counted.given_by_name.items() if name not in moved}
        return before | moved

    @cached_property
    def settled(self) -> Model:
        """The model as its decisions make it: with the statistics after all moves, and heads for classes that people
        made. The model itself keeps what it has learned, so that they can be undone."""
        table = self.classes
        if not table.moved:
            return self
        self.counted.check(table.edits, self.network.decisive_width)
        with torch.random.fork_rng(devices=[]):  # no weights of these heads decide
            network = grow(self.network, table.made, same_backbone=True) if table.made else self.network
        statistics = self.counted.applied(self.statistics, table.moved, network.kept, len(table))
        if network.design.readout == ClassMeans():
            network = network if table.made else deepcopy(network, {id(network.backbone): network.backbone})
            set_nearest(network.joint, statistics.mean, statistics.count > 0)
        counted = self.counted.settled(table.moved)
        return replace(self, network=network.eval(), statistics=statistics, classes=table.settled, counted=counted)

    @cached_property
    def readout(self) -> Readout:
        """What decides."""
        if self.settled is not self:
            return self.settled.readout
        method = self.config.method
        rejected = torch.from_numpy(self.classes.stands_for < 0)
        known = Known(self.statistics.without(rejected), self.calibration, by_heads=method.decides == "trained")
        return self.network.design.readout.read(self.network, known)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names by class id, also of classes that were merged or rejected."""
        return self.classes.names

    @property
    def labels_present(self) -> NDArray[Any]:
        """``(P,)``: the label of each class that can be predicted; for a discovered or renamed class, its name."""
        own, rows, given = self.classes.own_names, self.classes.rows, self.labels or ()
        return array_of(
            [given[k] if k < len(given) and own[k] == rows[k].name else own[k] for k in self.classes.present]
        )

    @property
    def remembered(self) -> ClassStatistics:
        """What is remembered of the classes as people have decided of them: those that were merged as one."""
        if self.settled is not self:
            return self.settled.remembered
        if not self.classes.is_edited:
            return self.statistics
        return self.statistics.merged(torch.from_numpy(self.classes.stands_for))

    def write_into(self, folder: Path) -> None:
        """Writes the files of a model into a folder that exists."""
        statistics, network, method = self.statistics, self.network, self.config.method
        store.write_tensors(folder / "weights.safetensors", network.state_dict())
        store.write_tensors(folder / "prototypes.safetensors", statistics.tensors())
        if len(self.counted.digest) or self.counted.features:
            self.counted.write_into(folder)
        content = {
            "format": store.FORMAT,
            "hoarfrost": hoarfrost.__version__,
            "backbone": self.config.backbone,
            "encoder": network.backbone.description,
            "channels": len(self.config.mean or ()),
            "heads": {"known": network.labelled_classes, "novel": list(network.novel_per_step)},
            "class_names": list(self.class_names),
            "classes": self.classes.to_json(),
            **({} if self.labels is None else {"labels": list(self.labels)}),
            "decided": list(self.decided),
            "temperature": self.calibration.temperature,
            "calibration": {key: value for key, value in asdict(self.calibration).items() if key != "temperature"},
            "discovery": None if self.discovery is None else asdict(self.discovery),
            "needs": plugins.packages_of([type(part) for part in (*method.terms, *method.stage_one, network.backbone)]),
            "config": to_json(self.config),
        }
        store.write_json(folder / "model.json", content)

    def save(self, folder: Path) -> None:
        """Writes the model folder as a whole; an earlier model there is replaced, anything else refused.

        Where that is this very model, but for what was renamed, merged or rejected, its page and log stay.
        """
        foreign = not (folder / "model.json").is_file() or store.strangers(folder, FILES)
        if foreign and not store.is_free(folder):
            raise InputError(f"{folder} holds something that is not a model: choose another folder")
        with store.replaced_folder(folder) as new:
            self.write_into(new)
            if _are_one(folder, new):
                for path in (folder / name for name in BESIDE):
                    if path.is_file():
                        shutil.copy2(path, new / path.name)

    @classmethod
    def load(cls, folder: Path, backbone: Backbone | None = None) -> Model:
        """The model of a folder, checked as far as files can be; ``backbone`` is like the object that it was made with.

        A model whose backbone has a name needs none.
        """
        content = read_description(folder)
        if backbone is None and content["backbone"].startswith(OBJECT):
            kind, how = content["backbone"].removeprefix(OBJECT), "Learner.load(folder, backbone=...)"
            raise InputError(f"the backbone of {folder} is a Python object of the class {kind}: give it, as in {how}")
        if backbone is not None and content["backbone"] != name_of(backbone):
            raise InputError(
                f"the backbone of {folder} is {content['backbone']}, not {name_of(backbone)}: give that one"
            )
        weights, _ = store.read_tensors(folder / "weights.safetensors")
        prototypes, _ = store.read_tensors(folder / "prototypes.safetensors")
        try:
            model = cls._assemble(content, weights, prototypes, backbone)
        except Missing as error:
            needs = ", ".join(content.get("needs", [])) or "the package that provides it"
            raise InputError(
                f"{folder} cannot be loaded: {error}; install {needs}, or set {plugins.OWN_FILES} to its file"
            ) from None
        except Unavailable as error:
            raise InputError(f"{folder} cannot be loaded: {error}") from None
        except KeyError as error:
            raise store.damaged(folder, f"it lacks {error}") from None
        except (TypeError, RuntimeError, IndexError, ValueError) as error:
            if out_of_memory(error):
                raise
            raise store.damaged(folder, str(error)) from None
        for problem, found in model._problems().items():
            if found:
                raise store.damaged(folder, problem)
        counted = Counted.read(folder, model.network.classes)
        try:
            counted.check(model.classes.edits, model.network.decisive_width)
        except InputError as error:
            raise store.damaged(folder, str(error)) from None
        return replace(model, counted=counted)

    @classmethod
    def _assemble(
        cls,
        content: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        prototypes: Mapping[str, Tensor],
        own_backbone: Backbone | None,
    ) -> Model:
        config = from_json(Config, content["config"])
        heads = content["heads"]
        table = class_table(content)
        # Before anything is built: a number in a damaged file may ask for any amount of memory.
        require(len(config.mean or ()) in (0, content["channels"]), "mean does not fit the channels")
        require(
            weights["joint.weight"].shape[:1] == (len(table) - table.made,),
            "weights.safetensors does not fit the heads",
        )
        with torch.random.fork_rng(devices=[]):  # what is drawn here is replaced at once
            if (description := content.get("encoder")) is not None:
                own = {name: weights[name] for name in weights if name.startswith(BACKBONE)}
                backbone = rebuild_backbone(description, {name.removeprefix(BACKBONE): own[name] for name in own})
            else:
                backbone = build_backbone(content["backbone"], content["channels"], own_backbone, begins=False)
            require(config.backbone == content["backbone"], "its configuration has another backbone")
            network = Network(backbone, heads["known"], config.method.design)
            for novel in heads["novel"]:
                network = grow(network, novel, same_backbone=True)
        expected = network.state_dict()
        for name in sorted(expected.keys() | weights.keys()):
            if name not in expected or name not in weights or not _alike(expected[name], weights[name]):
                raise InputError(f"weights.safetensors does not fit model.json at {name}")
        network.load_state_dict(weights)
        calibration = calibration_of(content)
        statistics = ClassStatistics.from_tensors(prototypes)
        decided, found = tuple(content.get("decided", DECIDED)), content.get("discovery")
        discovery = None if found is None else from_json(Discovery, found, "discovery")
        labels = tuple(content["labels"]) if "labels" in content else None
        return cls(config, network, statistics, table, decided, calibration, discovery, labels=labels)

    def _problems(self) -> dict[str, bool]:
        """What can be wrong with files that do not belong together."""
        config, network, statistics = self.config, self.network, self.statistics
        held = [tensor for name, tensor in statistics.tensors().items() if name != "count"]
        spread = [statistics.variance, statistics.for_readout.variance]
        return {
            "image_size is missing": config.image_size is None,
            "mean is missing": config.mean is None,
            "std does not fit mean": len(config.std or ()) != len(config.mean or ()),
            "prototypes do not fit the heads": not (
                statistics.count.shape == (network.classes,) and statistics.fit(network.kept, network.backbone.width)
            ),
            "weights.safetensors holds NaN or infinite values": not all(map(_finite, network.state_dict().values())),
            "prototypes.safetensors holds NaN or infinite values": not all(map(_finite, held)),
            "prototypes.safetensors holds numbers below 0": any(
                bool((tensor < 0).any()) for tensor in (statistics.count, *spread)
            ),
        }


def _are_one(folder: Path, other: Path) -> bool:
    """Whether two folders hold the same model, but for what people have decided of its classes."""
    if not all((folder / name).is_file() and cmp(folder / name, other / name, shallow=False) for name in TENSORS):
        return False
    decisions = dict.fromkeys(("hoarfrost", "class_names", "classes"))
    with suppress(InputError):  # of one that is damaged
        before, after = (store.read_json(place / "model.json", "model folder") | decisions for place in (folder, other))
        return before == after
    return False


def _alike(expected: Tensor, given: Tensor) -> bool:
    return (expected.shape, expected.dtype) == (given.shape, given.dtype)


def _finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())
