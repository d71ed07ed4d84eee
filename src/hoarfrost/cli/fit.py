"""``hoarfrost fit``: a model of labelled images."""

from __future__ import annotations

import argparse
from pathlib import Path

from hoarfrost.cli import options
from hoarfrost.cli.table import few
from hoarfrost.printing import printable

SUMMARY = "learn the classes of a labelled image folder"
DESCRIPTION = (
    "Learn the classes of DIR, which has one sub-folder of images per class, and write a model folder. The model holds "
    "all that a discovery needs, so you may delete the images. Its report.html says how accurate the model is."
)
EXAMPLE = "example: hoarfrost fit photos/known --out model"

NAMED = 12
"""classes that the last lines name; JSON has all"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``fit``."""
    parser.add_argument("images", metavar="DIR", help="a folder with one sub-folder per class, or an .npz file")
    parser.add_argument("--out", required=True, metavar="MODEL", help="the model folder to write")
    options.add_method(parser)
    parser.add_argument(
        "--image-size",
        type=int,
        metavar="PX",
        help="resize images to PX pixels a side (default: chosen for the images)",
    )
    parser.add_argument(
        "--epochs", type=options.positive, metavar="N", help="training epochs (default: chosen by the method)"
    )
    options.add_learning(parser)
    options.add_reading(parser)
    options.add_compiling(parser)
    options.add_running(parser)


def main(args: argparse.Namespace) -> int:
    """Fits, saves, and says what was learned."""
    import warnings
    from dataclasses import replace

    from hoarfrost import store
    from hoarfrost.cli.follow import Following
    from hoarfrost.computing.runtime import Runtime
    from hoarfrost.data.doubts import doubts
    from hoarfrost.methods import get_method
    from hoarfrost.recipes import get_recipe
    from hoarfrost.report.gather import fit_report, measured, write_report
    from hoarfrost.settings import to_json
    from hoarfrost.training import work
    from hoarfrost.training.images import read_labelled
    from hoarfrost.training.learner import Learner
    from hoarfrost.training.observers import LogFile, Observers
    from hoarfrost.training.resolve import in_words, resolve, suited

    out = Path(args.out)
    config = get_recipe("folder").config(get_method(args.method), args.seed)
    if args.image_size is not None:
        config = replace(config, image_size=args.image_size)
    config = options.configured(config, args, fit_epochs=args.epochs)
    suited(config)  # refused before anything is read
    runtime = Runtime(args.device, config.precision, args.compile)
    processes = runtime.processes
    begins = processes.first(lambda: work.begins(out, resume=args.resume))
    with Following() as progress:
        images = read_labelled(
            Path(args.images), config, runtime, keep=options.keeping(args), compute=begins, observer=progress
        )
    doubtful = doubts(images, Path(args.images))
    for doubt in doubtful:
        warnings.warn(doubt, stacklevel=1)
    config, held_out = resolve(config, images, runtime.device), None
    images = images.fitted(config.image_size, len(config.mean or ()))
    content = {"format": store.FORMAT, "kind": "fit", "config": to_json(config), "images": images.digest()}
    learner = Learner.from_config(config, args.device, args.compile)
    if work.is_done(out, content, resume=args.resume, processes=processes):
        learner = Learner.load(out, args.device)
        with Following() as progress:
            learner.follow(progress)
            held_out = learner.held_out(images)
    else:
        beside = work.workspace(out, content, resume=args.resume, processes=processes)
        with beside as unfinished, Following() as progress:
            log = LogFile(unfinished / "log.jsonl")
            learner.fit(
                images,
                observer=Observers([log, progress] if processes.is_first else []),
                checkpoint=store.CheckpointFile(unfinished / work.CHECKPOINT),
            )
            held_out = learner.held_out(images)
            report = fit_report(learner, images, held_out, processes.first(log.entries), doubts=doubtful)
            if processes.is_first:
                write_report(unfinished / "report.html", report)
                learner.model.write_into(unfinished)
    accuracy = None if held_out is None else held_out.accuracy
    summary = {
        "model": str(out),
        "images": len(images),
        "classes": list(learner.class_names),
        "backbone": learner.config.backbone,
        "accuracy": None if accuracy is None else round(accuracy, 6),
    }
    names = few([printable(name) for name in learner.class_names], NAMED)
    text = f"{printable(str(out))}: learned {len(learner.class_names)} classes from {len(images)} images ({names})"
    expected = (
        "accuracy: not estimated, since no images were held out; measure it with hoarfrost evaluate on other images"
        if held_out is None
        else f"accuracy: about {held_out.accuracy:.1f} % on images like these ({measured(held_out, learner.config)})"
    )
    page = f"report: {printable(str(out))}/report.html"
    onward = f"Next: hoarfrost discover {options.quoted(out)} FOLDER --out {options.quoted(f'{out}2')}"
    return options.answer(args, summary, "\n".join([text, in_words(learner.config), expected, page, onward]))
