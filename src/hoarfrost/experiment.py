"""A whole scenario, learned, scored and written to a run folder; killed at any moment, it can be gone on with.

While it runs, ``unfinished/`` in the run folder holds a model folder for each finished stage and the state after the
last epoch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hoarfrost import evaluation, metrics, provenance, store
from hoarfrost.computing.runtime import Compile, Runtime, resolve_device
from hoarfrost.config import Config
from hoarfrost.data.cache import AUTO, ImageStorage
from hoarfrost.data.images import ImageSet, OnDisk
from hoarfrost.data.sources import check_enough
from hoarfrost.errors import InputError
from hoarfrost.forms import DISCOVERY_RECORD, METRICS, STAGE_ONE_RECORD, is_assignment, misfit_of_steps
from hoarfrost.models.network import Design, Network
from hoarfrost.report.gather import report_data, write_report
from hoarfrost.scenario import ClassOrder, Scenario, Step, Truth, build_scenario, usual_draws
from hoarfrost.settings import to_json
from hoarfrost.training.learner import Learner, check_novel
from hoarfrost.training.observers import Entry, LogFile, Observer, Observers
from hoarfrost.training.resolve import resolve

Record = dict[str, Any]
Protocol = Literal["class-incd", "c-gcd"]

FILES = frozenset(
    {
        "config.json",
        "metrics.json",
        "log.jsonl",
        "model",
        "report.html",
        "tensorboard",
        "unfinished",
    }
)
"""what a run folder may hold"""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What decides a run."""

    dataset: str
    split: str
    class_order: ClassOrder
    learner: Config
    variant: str = "code"
    """whose settings it began with, one of ``recipes.VARIANTS``"""

    kind: Literal["run", "demo"] = "run"
    """a demo replaces an earlier demo in its place"""
    mixed: float = 0.0
    """the share of the labelled classes' images that come back unlabelled in every discovery"""
    novel: Literal["given", "auto"] = "given"
    """whether the number of new classes is said or estimated"""
    protocol: Protocol = "class-incd"
    """the paper's, or continual category discovery, in which all classes so far come back"""

    @property
    def is_open(self) -> bool:
        """Whether clusters need not be as many as classes, or old images come back."""
        return self.mixed > 0 or self.novel == "auto" or self.protocol == "c-gcd"

    def describe(self, train: ImageSet, test: ImageSet) -> dict[str, Any]:
        """The content of ``config.json``; the images are in it by their digests."""
        images = {"train": train.digest(), "test": test.digest()}
        content = to_json(self)
        if not self.is_open:  # as earlier versions have it, whose runs can be gone on with
            del content["mixed"], content["novel"]
        if self.protocol == "class-incd":
            del content["protocol"]
        return {"format": store.FORMAT, **content, "images": images}


def kept_for_epochs(step: Step, config: Config, keep: ImageStorage) -> Step:
    """The step with its images where they are to be kept, if every epoch reads them; photographs are on disk."""
    labelled = step.index == 0 or config.method.supervised
    fixed = config.fixed_in_all_stages if labelled else config.fixed_in_discovery
    if fixed or not isinstance(step.images.images, OnDisk):
        return step
    return replace(step, images=keep.placed(step.images.fitted(config.image_size)))


class Watch(Observer):
    """Adds test accuracies to some of the log's entries. It only looks: training does not depend on it."""

    def __init__(self, learner: Learner, step: Step, *, truth: Truth, assignment: evaluation.Assignment) -> None:
        self.learner, self.step, self.truth, self.assignment = learner, step, truth, assignment
        self.every = self.last = 1

    def stage_started(self, stage: int, *, epochs: int, batches: int, done: int) -> None:
        """A dozen looks a stage."""
        self.every, self.last = max(1, epochs // 12), epochs - 1

    def epoch_done(self, entry: Entry, network: Network) -> None:
        """Scores the student on the test images."""
        if (entry["epoch"] + 1) % self.every and entry["epoch"] != self.last:
            return
        true = self.truth.test.labels
        assert true is not None
        assignment = self.assignment
        if self.step.index > 0:
            assignment = assignment.with_step(matched(self.learner, self.step, self.truth, network))
        predicted = self.learner.outputs(self.truth.test, network).predicted
        scores = metrics.class_incd_scores(predicted, true, assignment.known, assignment.whole)
        entry["accuracy"] = evaluation.percentages(scores)


class Run:
    """A run folder and what is in it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.unfinished = out / "unfinished"
        self.log = LogFile(out / "log.jsonl")
        self.made_now = False

    @contextmanager
    def opened(self, content: dict[str, Any], *, resume: bool) -> Iterator[bool]:
        """Makes the folder, or goes on with it; gives whether all is done there. Refuses anything else in its place.

        Within the block nobody else works in it.
        """
        store.check_folder(self.out)
        with store.at_work(self.out, lambda: self._make(content, resume=resume)) as self.made_now:
            done = (self.out / "metrics.json").exists()
            if done:
                shutil.rmtree(self.unfinished, ignore_errors=True)
            else:
                self.unfinished.mkdir(exist_ok=True)
            yield done

    def _make(self, content: dict[str, Any], *, resume: bool) -> bool:
        """False where it is there, to go on with."""
        kind = None if store.is_free(self.out) else self._kind()
        replaces = kind == content["kind"] == "demo" and not resume
        if kind is None or replaces:
            with store.replaced_folder(self.out) as new:
                store.write_json(new / "config.json", content)
                (new / self.unfinished.name).mkdir()
            return True
        if not resume:
            raise InputError(f"{self.out} already holds a {kind}: continue it with --resume, or choose another --out")
        store.check_same(self.out, content)
        return False

    def _kind(self) -> str:
        """What is in the folder, a run or a demo; refuses anything else, and a demo with foreign files."""
        config = self.out / "config.json"
        kind = store.read_json(config, "run folder").get("kind") if config.is_file() else None
        if kind not in ("run", "demo") or (kind == "demo" and store.strangers(self.out, FILES)):
            raise InputError(f"{self.out} already holds something else: choose another --out")
        return str(kind)

    def abandon(self) -> None:
        """Removes what this process made if it failed before its first epoch was saved: it would only be in the way."""
        if not self.made_now or any(self.unfinished.glob("stage-*")):
            return
        if not store.strangers(self.out, FILES):
            shutil.rmtree(self.out, ignore_errors=True)

    def stage_folder(self, index: int) -> Path:
        """The model folder of a finished stage."""
        return self.unfinished / f"stage-{index}"

    def checkpoint(self, index: int) -> store.CheckpointFile:
        """The state after the last epoch of a stage."""
        return store.CheckpointFile(self.unfinished / f"stage-{index}.safetensors")

    def finished_stages(self, scenario: Scenario) -> list[Record]:
        """The records of the stages that are done."""
        records: list[Record] = []
        for step in scenario.steps:
            path = self.stage_folder(step.index) / "record.json"
            if not path.exists():
                break
            record = store.read_json(path, "stage folder", DISCOVERY_RECORD if step.index else STAGE_ONE_RECORD)
            closed = "found" not in record.get("scores", {})
            if step.index and closed and not is_assignment(record["assignment"], step.novel):
                raise store.damaged(path, "its assignment is invalid")
            records.append(record)
        return records

    def whole_log(self, config: Config) -> list[Entry]:
        """The log of all stages. Says so where a stage's last epochs are not in it, as after a loss of power."""
        entries = self.log.entries()
        for stage in sorted({entry["stage"] for entry in entries}):
            fitted = stage == 0 or config.method.supervised  # which learns each step as stage one
            epochs = (config.fit if fitted else config.discover).epochs
            if lacking := epochs - sum(entry["stage"] == stage for entry in entries):
                words = f"{lacking} of {epochs} epochs of stage {stage}"
                warnings.warn(f"{self.log.path} lacks {words}: their time is not counted", stacklevel=2)
        self.log.adopt(entries)  # without a line that was cut short
        return entries

    def finish_stage(self, learner: Learner, index: int, record: Record) -> None:
        """Keeps a stage's model and its record, both or none."""
        with store.replaced_folder(self.stage_folder(index)) as new:
            learner.model.write_into(new)
            store.write_json(new / "record.json", record)
        self.checkpoint(index).path.unlink(missing_ok=True)


SHARED_SETTINGS = ("backbone", "image_size", "mean", "std", "fit", "fit_augment", "precision", "seed")
"""what decides stage one, beside its terms and its images"""
SHARED_DESIGN = ("joint", "before_last", "mirror")
"""of a network's design, what stage one is trained or remembered by"""


class Shelf:
    """A folder of stage-one models that runs share, each found by all that decides it."""

    def __init__(self, root: Path, config: Config, scenario: Scenario, runtime: Runtime) -> None:
        images, test = scenario.steps[0].images, scenario.truths[0].test
        content = {name: to_json(getattr(config, name)) for name in SHARED_SETTINGS}
        content |= {"fit_frozen": list(config.fit_frozen)} if config.fit_frozen else {}
        content |= {"fit_keeps": config.fit_keeps} if config.fit_keeps else {}
        content |= {
            "stage_one": to_json(config.method.stage_one),
            "images": images.digest(),
            "class_names": list(images.class_names),
            "test": test.digest(),  # the record and the log have its scores
            "computed": [
                *(runtime.device.type, runtime.half, runtime.processes.count),
                *([] if runtime.compiled == "auto" else [f"compile {runtime.compiled}"]),
            ],
        }
        if config.method.design.readout.by_likelihood:  # then it decides from stage one on
            content["readout"] = to_json(config.method.design.readout)
        design, usual = config.method.design, Design()
        content |= {
            name: getattr(design, name) for name in SHARED_DESIGN if getattr(design, name) != getattr(usual, name)
        }
        key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
        self.folder, self.epochs = root / f"stage-one-{key}", config.fit.epochs

    @staticmethod
    def check(root: Path) -> None:
        """Refuses a place where nothing can be kept, before anything is learned."""
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to {root}: {error.strerror}; choose another --share") from error

    def find(self) -> tuple[Record, list[Entry]] | None:
        """The record and the log of the model, if it is there."""
        path, log = self.folder / "record.json", self.folder / "log.jsonl"
        if not path.exists() or not log.exists():
            return None
        try:
            record, entries = store.read_json(path, "stage-one folder", STAGE_ONE_RECORD), LogFile(log).entries()
        except InputError:
            raise self.damaged() from None
        if len(entries) != self.epochs:
            raise self.damaged()
        return record, entries

    def damaged(self) -> InputError:
        """The error for a model that is not what was kept."""
        return InputError(f"the stage-one model in {self.folder} is damaged: remove it")

    def put(self, learner: Learner, record: Record, log: LogFile) -> None:
        """Keeps a finished stage one, unless another run was quicker. The run goes on without, if need be."""
        try:
            with store.alone(self.folder.parent):
                if self.find() is not None:
                    return
                with store.replaced_folder(self.folder) as new:
                    learner.model.write_into(new)
                    shutil.copyfile(log.path, new / "log.jsonl")
                    store.write_json(new / "record.json", record)
        except OSError as error:
            warnings.warn(f"stage one could not be saved in {self.folder.parent}: {error.strerror}", stacklevel=2)


def run(
    config: RunConfig,
    train: ImageSet,
    test: ImageSet,
    *,
    out: Path,
    device: str = "auto",
    compiled: Compile = "auto",
    resume: bool = False,
    observer: Observer | None = None,
    share: Path | None = None,
    keep: ImageStorage = AUTO,
) -> dict[str, Any]:
    """Learns every step, scores it, writes the run folder; gives the content of ``metrics.json``.

    In ``share`` stage-one models are looked for, and kept for other runs. ``keep`` says where photographs are kept that
    every epoch reads. Of several processes the first one writes.
    """
    learner_config = config.learner
    if config.protocol == "c-gcd" and config.mixed:
        raise InputError("--protocol c-gcd already brings old images back: leave out --mixed")
    images_a_class = len(train) // max(1, len(train.class_names))
    scenario = build_scenario(
        train,
        test,
        split=config.split,
        order=config.class_order,
        seed=learner_config.seed,
        supervised=learner_config.method.supervised,
        labelled_images=learner_config.method.labelled_images,
        mixed=config.mixed,
        draws=usual_draws(config.dataset, images_a_class) if config.protocol == "c-gcd" else None,
    )
    if config.is_open and (learner_config.method.supervised or learner_config.method.labelled_images):
        raise InputError(
            f"the method '{learner_config.method.name}' uses labels: leave out --mixed, --novel and --protocol"
        )
    for step in scenario.steps[1:]:
        check_novel(step.novel, len(step.images))
    # From the images of stage one alone: those of later steps are not there yet.
    first_images = scenario.steps[0].images
    config = replace(config, learner=resolve(config.learner, first_images, resolve_device(device)))
    learner = Learner.from_config(config.learner, device, compiled)
    processes = learner.runtime.processes
    for step in scenario.steps:
        schedule = config.learner.discover if step.index else config.learner.fit
        processes.share(schedule.batch_of(len(step.images), len(first_images)))
        check_enough(len(step.images), processes.count)
    if share is not None:
        processes.first(lambda: Shelf.check(share))
    folder = Run(out)
    with ExitStack() as at_work:
        content = config.describe(train, test)
        if processes.first(lambda: at_work.enter_context(folder.opened(content, resume=resume))):
            return processes.first(lambda: read_metrics(out / "metrics.json"))
        records = processes.first(lambda: folder.finished_stages(scenario))
        if records:
            learner = Learner.load(folder.stage_folder(len(records) - 1), device, compiled)
        shelf = None if share is None or records else Shelf(share, config.learner, scenario, learner.runtime)
        try:
            for step in scenario.steps[len(records) :]:
                assignment = assignment_of(records, scenario)
                found = processes.first(shelf.find) if shelf is not None and step.index == 0 else None
                if shelf is not None and found is not None:
                    try:
                        learner = Learner.load(shelf.folder, device, compiled)
                        learner.reconfigure(config.learner)  # of which all that decides stage one is in its name
                    except InputError:
                        raise shelf.damaged() from None
                    record, log = found
                    if processes.is_first:
                        folder.log.adopt(log)
                else:
                    watchers: list[Observer] = []
                    if not (config.is_open and step.index):  # whose clusters are no classes yet
                        watchers = [Watch(learner, step, truth=scenario.truths[step.index], assignment=assignment)]
                    if processes.is_first:
                        watchers += [folder.log, observer or Observer()]
                    learner.learn(
                        kept_for_epochs(step, config.learner, keep),
                        estimate=config.novel == "auto",
                        observer=Observers(watchers),
                        checkpoint=folder.checkpoint(step.index),
                    )
                    record = score(learner, scenario, step, assignment, is_open=config.is_open)
                    if shelf is not None and step.index == 0 and processes.is_first:
                        shelf.put(learner, record, folder.log)
                records.append(record)
                if processes.is_first:
                    folder.finish_stage(learner, step.index, record)
        except Exception:
            if processes.is_first:
                folder.abandon()
            raise
        return _finish(config, folder, learner, scenario, records)


def read_metrics(path: Path) -> dict[str, Any]:
    """What a finished run reached, checked."""
    content = store.read_json(path, "run folder", METRICS)
    if problem := misfit_of_steps(content):
        raise store.damaged(path, problem)
    return content


def assignment_of(records: Sequence[Record], scenario: Scenario) -> evaluation.Assignment:
    """Which clusters the discovered classes were matched to, in the steps that are done."""
    clusters = tuple(np.array(record["assignment"], dtype=np.int64) for record in records[1:])
    found = tuple(record["scores"]["found"] for record in records[1:] if "found" in record["scores"])
    return evaluation.Assignment(scenario.steps[0].novel, clusters, found)


def matched(learner: Learner, step: Step, truth: Truth, network: Network | None = None) -> evaluation.Ids:
    """Which clusters a discovery's classes are; who learned from labels has found them in their order."""
    if step.images.labels is not None:
        return np.arange(step.novel)
    return evaluation.match_step(learner.outputs(step.images, network).novel_scores[-1], truth, step)


def score(
    learner: Learner, scenario: Scenario, step: Step, assignment: evaluation.Assignment, *, is_open: bool = False
) -> Record:
    """The record of a finished stage: its scores, and for a discovery how classes and clusters were matched."""
    started = time.perf_counter()
    truth = scenario.truths[step.index]
    true = truth.test.labels
    assert true is not None
    tested = learner.outputs(truth.test)
    record: Record = {}
    if step.index == 0:
        record["stage_one"] = evaluation.stage_one_accuracy(tested, true)
    elif is_open:
        record["scores"] = evaluation.score_open_step(tested, learner.outputs(step.images), truth, step, assignment)
        record["assignment"] = record["scores"]["assignment"]
    else:
        clusters = matched(learner, step, truth)
        record["assignment"] = clusters.tolist()
        record["scores"] = evaluation.score_step(tested, true, assignment.with_step(clusters))
        norms = learner.network.weight_norms()
        if norms is not None:
            record["scores"]["weight_norms"] = [round(norm, 4) for norm in norms.tolist()]
    record["trained"] = learner.trained
    record["seconds"] = time.perf_counter() - started
    return record


def _finish(
    config: RunConfig, folder: Run, learner: Learner, scenario: Scenario, records: Sequence[Record]
) -> dict[str, Any]:
    processes = learner.runtime.processes
    log = processes.first(lambda: folder.whole_log(config.learner))
    trained = [sum(line["seconds"] for line in log if line["stage"] == index) for index in range(len(scenario))]
    scored = sum(record["seconds"] for record in records)
    content: dict[str, Any] = {
        "method": config.learner.method.name,
        "dataset": config.dataset,
        "split": config.split,
        "variant": config.variant,
        "class_order": config.class_order,
        "class_names": list(scenario.class_names),
        "seed": config.learner.seed,
        "hardware": learner.runtime.hardware,
        "compiled": learner.runtime.compiled,
        **provenance.describe(),
        "seconds": {
            "stage_one": round(trained[0], 3),
            "discovery": [round(seconds, 3) for seconds in trained[1:]],
            "scoring": round(scored, 3),
            "total": round(sum(trained) + scored, 3),
        },
        "trained": [record.get("trained") for record in records],
        "stage_one": records[0]["stage_one"],
        "steps": [{**record["scores"], "assignment": record["assignment"]} for record in records[1:]],
    }
    if config.protocol == "c-gcd":
        summary = evaluation.continual_summary(content["stage_one"], content["steps"])
        content |= {"protocol": config.protocol, "continual": summary}
    assignment = assignment_of(records, scenario)
    report = report_data(content, learner, scenario, assignment=assignment, log=log)

    def write() -> None:
        with store.replaced_folder(folder.out / "model") as new:
            learner.model.write_into(new)
        write_report(folder.out / "report.html", report)
        store.write_json(folder.out / "metrics.json", content)
        shutil.rmtree(folder.unfinished, ignore_errors=True)

    processes.first(write)
    return content
