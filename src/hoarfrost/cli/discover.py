"""``hoarfrost discover``: new classes in unlabelled images."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hoarfrost.cli import options
from hoarfrost.cli.table import few
from hoarfrost.errors import InputError
from hoarfrost.printing import in_a_hundred, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hoarfrost.models.model import Model
    from hoarfrost.report.data import Group

SUMMARY = "discover new classes in a folder of unlabelled images"
DESCRIPTION = (
    "Assign each image in DIR and its sub-folders to a known class, to a new class, or to none (unsure). Write a model "
    "that knows old and new classes. Its report.html shows what was found."
)
EXAMPLE = "example: hoarfrost discover model photos/unsorted --out model2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``discover``."""
    parser.add_argument("model", metavar="MODEL", help="a model folder, made by fit or an earlier discover")
    parser.add_argument("images", metavar="DIR", help="a folder of images, or an .npz file")
    parser.add_argument("--novel", type=int, metavar="N", help="number of new classes (default: estimated)")
    parser.add_argument(
        "--only-new",
        action="store_true",
        help="all images belong to new classes, as in the paper (default: known and new, mixed)",
    )
    parser.add_argument(
        "--method", metavar="NAME", help="the method of this and later discoveries (default: the model's)"
    )
    parser.add_argument("--out", required=True, metavar="MODEL2", help="the model folder to write")
    parser.add_argument(
        "--epochs",
        type=options.positive,
        metavar="N",
        help="training epochs of this discovery (default: chosen by the method)",
    )
    options.add_learning(parser, seed=None)
    options.add_reading(parser)
    options.add_compiling(parser)
    options.add_running(parser)


def main(args: argparse.Namespace) -> int:
    """Discovers, saves, and says how many images went where."""
    from hoarfrost import store
    from hoarfrost.cli.follow import Following
    from hoarfrost.methods import get_method
    from hoarfrost.report.gather import discovery_report, write_report
    from hoarfrost.settings import to_json
    from hoarfrost.training import work
    from hoarfrost.training.learner import Learner, check_novel
    from hoarfrost.training.observers import LogFile, Observers
    from hoarfrost.training.resolve import by_another_method

    if args.novel is not None:
        check_novel(args.novel)
    model, out = Path(args.model), Path(args.out)
    learner = Learner.load(model, args.device, args.compile)
    before = fitted = learner.config
    if args.method is not None and args.method != fitted.method.name:
        before = by_another_method(fitted, get_method(args.method), pretrained=learner.network.backbone.pretrained)
        if learner.novel_per_step and before.method.design != fitted.method.design:
            name = fitted.method.name
            raise InputError(f"{model} has classes discovered by {name}: leave --method out")
    config = options.configured(before, args, discover_epochs=args.epochs)
    if config.method.design != before.method.design:
        raise InputError("method.design cannot change after fit: set it with hoarfrost fit")
    changed = before.method.design != fitted.method.design
    learner.keep_features(options.features_of(model), options.features_of(out))
    processes = learner.runtime.processes
    begins = processes.first(lambda: work.begins(out, resume=args.resume))
    with Following() as progress:
        learner.follow(progress)
        images = learner.prepare(Path(args.images), options.keeping(args), compute=begins)
    if args.novel is not None:
        check_novel(args.novel, len(images))
    content = {
        "format": store.FORMAT,
        "kind": "discover",
        "model": work.digest(model / "weights.safetensors"),
        "novel": "auto" if args.novel is None else args.novel,
        "config": to_json(config),
        "images": images.digest(),
        **({} if args.only_new else {"mixed": True}),
    }
    groups: Sequence[Group] = ()
    if work.is_done(out, content, resume=args.resume, processes=processes):
        learner = Learner.load(out, args.device)
    else:
        beside = work.workspace(out, content, resume=args.resume, processes=processes)
        with beside as unfinished, Following() as progress:
            learner.follow(progress)
            log = LogFile(unfinished / "log.jsonl")
            novel: int | Literal["auto"] = "auto" if args.novel is None else args.novel
            # By what fit has learned to expect of folders, which is the model's method's.
            look = learner.look(images, novel, only_new=args.only_new) if changed else None
            learner.reconfigure(config)
            learner.discover(
                images,
                novel,
                only_new=args.only_new,
                look=look,
                observer=Observers([log, progress] if processes.is_first else []),
                checkpoint=store.CheckpointFile(unfinished / work.CHECKPOINT),
            )
            report = discovery_report(learner, images, processes.first(log.entries), mixed=not args.only_new)
            groups = report.new
            learner.reconfigure(before)  # what this command changed is in config.json, and not for the next discovery
            if processes.is_first:
                write_report(unfinished / "report.html", report)
                learner.model.write_into(unfinished)
    content, text = summary_of(learner.model, groups, mixed=not args.only_new)
    where = printable(str(out))
    onward = f"Next: hoarfrost predict {options.quoted(out)} {options.quoted(args.images)}"
    if content["new"]:
        first = options.quoted(next(iter(content["new"])))
        onward = f"Next: look at the report, then name the classes: hoarfrost name {options.quoted(out)} {first}=NAME"
    text = f"{where}: {text}\nreport: {where}/report.html\n{onward}"
    return options.answer(args, {"model": str(out), **content}, text)


def summary_of(model: Model, groups: Sequence[Group], *, mixed: bool) -> tuple[dict[str, Any], str]:
    """What was found, for ``--json`` and in words; ``groups`` are the new classes of its page, if that was made now."""
    found, expected = model.discovery, model.calibration.expected
    assert found is not None
    names = model.class_names[len(model.class_names) - len(found.new) :]
    error = expected.error if mixed and expected is not None else None
    content: dict[str, Any] = {
        "images": found.images,
        "new": dict(zip(names, found.new, strict=True)),
        "certainty": {group.name: group.probability for group in groups},
        "old": found.known,
        "unsure": found.unsure,
        "count": None if found.count is None else asdict(found.count),
        "expected_error": error,
    }
    lines = [found.in_words(mixed=mixed)]
    holds = {group.name: f", {group.holds}" for group in groups if group.holds}
    lines += [
        f"  {printable(name)}  {count} image{'' if count == 1 else 's'}{holds.get(name, '')}"
        for name, count in content["new"].items()
    ]
    if empty := [printable(name) for name, count in content["new"].items() if not count]:
        remedy = "reject them (hoarfrost reject MODEL CLASS), or discover again with a smaller --novel"
        lines.append(f"classes without sure images: {few(empty)}; {remedy}")
    if found.count is not None and names:
        lines.append(
            f"estimated number of new classes: {found.count.in_words()}{found.count.condition}; --novel N sets it"
        )
    if error is not None and names:
        lines.append(
            f"expect {in_a_hundred(error)} of these old/new decisions to be wrong (estimated by hiding known classes)"
        )
    if mixed and not names and found.known:
        lines.append("a new class with few images can be missed: look at the least sure images in the report")
    return content, "\n".join(lines)
