"""``hoarfrost discover``: new classes in unlabelled images."""

from __future__ import annotations

import argparse
from pathlib import Path

from hoarfrost.cli import options
from hoarfrost.errors import InputError
from hoarfrost.printing import printable

SUMMARY = "discover new classes in a folder of unlabelled images"
DESCRIPTION = (
    "Find --novel new classes in the images below DIR, whatever its sub-folders, and write a model that knows old and "
    "new classes. report.html in it shows images of each new class."
)
EXAMPLE = "example: hoarfrost discover model photos/unsorted --novel 5 --out model2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``discover``."""
    parser.add_argument("model", metavar="MODEL", help="a model folder, from fit or from an earlier discover")
    parser.add_argument("images", metavar="DIR", help="a folder of images of new classes, or an .npz file")
    parser.add_argument("--novel", type=int, required=True, metavar="N", help="how many new classes there are")
    parser.add_argument(
        "--mixed", action="store_true", help="images of known classes are among them: sort those out first"
    )
    parser.add_argument("--out", required=True, metavar="MODEL2", help="the model folder to write")
    parser.add_argument("--epochs", type=options.positive, metavar="N", help="how often every image is seen, this time")
    options.add_learning(parser, seed=None)
    options.add_reading(parser)
    options.add_compiling(parser)
    options.add_running(parser)


def main(args: argparse.Namespace) -> int:
    """Discovers, saves, and says how many images went where."""
    import numpy as np

    from hoarfrost import store
    from hoarfrost.cli.follow import Following
    from hoarfrost.report.gather import discovery_report, write_report
    from hoarfrost.settings import to_json
    from hoarfrost.training import work
    from hoarfrost.training.learner import Learner, check_novel
    from hoarfrost.training.observers import LogFile, Observers

    check_novel(args.novel)
    model, out = Path(args.model), Path(args.out)
    learner = Learner.load(model, args.device, args.compile)
    before = learner.config
    config = options.configured(before, args, discover_epochs=args.epochs)
    if config.method.design != before.method.design:
        raise InputError("method.design belongs to the model: choose it, or another --method, with hoarfrost fit")
    learner.reconfigure(config)
    learner.keep_features(f"{model.absolute()}.features")
    processes = learner.runtime.processes
    begins = processes.first(lambda: work.begins(out, resume=args.resume))
    with Following() as progress:
        learner.follow(progress)
        images = learner.prepare(Path(args.images), options.keeping(args), look=begins)
    check_novel(args.novel, len(images))
    content = {
        "format": store.FORMAT,
        "kind": "discover",
        "model": work.digest(model / "weights.safetensors"),
        "novel": args.novel,
        "config": to_json(learner.config),
        "images": images.digest(),
        **({"mixed": True} if args.mixed else {}),
    }
    if work.is_done(out, content, resume=args.resume, processes=processes):
        learner = Learner.load(out, args.device)
    else:
        beside = work.workspace(out, content, resume=args.resume, processes=processes)
        with beside as unfinished, Following() as progress:
            log = LogFile(unfinished / "log.jsonl")
            learner.discover(
                images,
                args.novel,
                only_new=not args.mixed,
                observer=Observers([log, progress] if processes.is_first else []),
                checkpoint=store.CheckpointFile(unfinished / work.CHECKPOINT),
            )
            report = discovery_report(learner, images, processes.first(log.entries))
            learner.reconfigure(before)  # what this command changed is in config.json, and not for the next discovery
            if processes.is_first:
                write_report(unfinished / "report.html", report)
                learner.model.write_into(unfinished)
    names = learner.class_names
    counts = np.bincount(learner.predict(images), minlength=len(names)).tolist()
    found = dict(zip(names[-args.novel :], counts[-args.novel :], strict=True))
    summary = {"model": str(out), "images": len(images), "new": found, "old": sum(counts[: -args.novel])}
    shown = printable(str(out))
    lines = [f"{shown}: {args.novel} new classes in {len(images)} images"]
    lines += [f"  {printable(name)}  {count} images" for name, count in found.items()]
    lines += [f"  taken for earlier classes  {summary['old']} images", f"report: {shown}/report.html"]
    return options.answer(args, summary, "\n".join(lines))
