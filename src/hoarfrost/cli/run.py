"""``hoarfrost run``: a whole scenario, scored."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Literal

from hoarfrost import plugins
from hoarfrost.cli import options
from hoarfrost.errors import InputError
from hoarfrost.printing import printable

PROTOCOLS = ("class-incd", "c-gcd")
SUMMARY = "run and score a whole scenario on a data set"
DESCRIPTION = (
    "Learn the first classes of a data set with labels. Discover the others step by step, without labels. Score each "
    "step."
)
EXAMPLE = "example: hoarfrost run --dataset cifar100 --method frost --out runs/frost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``run``."""
    parser.add_argument(
        "--dataset",
        required=True,
        metavar="NAME",
        help=options.listed("digits", "cifar10", "cifar100", "tiny-imagenet", "folder", group=plugins.DATASETS),
    )
    parser.add_argument("--data", default="data", metavar="DIR", help="the folder of the data set (default: data)")
    parser.add_argument("--download", action="store_true", help="download a missing data set into --data")
    parser.add_argument(
        "--split", metavar="A-B-…", help="classes per step, as in 5-5 or 80-10-10 (default: the paper's)"
    )
    parser.add_argument(
        "--protocol",
        default="class-incd",
        metavar="NAME",
        choices=PROTOCOLS,
        help="class-incd (default), or c-gcd: old classes come back in each stage",
    )
    parser.add_argument(
        "--class-order",
        metavar="ORDER",
        help="natural (default), seeded, or shuffled (default with c-gcd)",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="the run folder to write")
    options.add_method(parser)
    options.add_variant(parser)
    parser.add_argument(
        "--mixed",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the labelled images that come back without labels (default: 0)",
    )
    parser.add_argument(
        "--novel",
        default="given",
        choices=["given", "auto"],
        help="number of new classes: given (default), or auto to estimate it",
    )
    parser.add_argument(
        "--epochs", type=options.positive, metavar="N", help="epochs of each discovery; the schedules are scaled to it"
    )
    parser.add_argument("--fit-epochs", type=options.positive, metavar="N", help="epochs of stage one")
    parser.add_argument(
        "--share", metavar="DIR", type=options.place, help="keep stage-one models in DIR and reuse those that are there"
    )
    parser.add_argument("--tensorboard", action="store_true", help="also log for TensorBoard, in DIR/tensorboard")
    options.add_learning(parser)
    options.add_reading(parser)
    options.add_compiling(parser)
    options.add_running(parser)


def main(args: argparse.Namespace) -> int:
    """Runs it and prints the table."""
    out = Path(args.out)
    content = execute(args, out)
    return options.answer(args, content, describe(content, out))


def describe(content: dict[str, Any], out: Path) -> str:
    """What a person reads at the end."""
    from hoarfrost.cli.table import score_table

    return f"{score_table(content)}\nreport: {printable(str(out / 'report.html'))}"


def execute(args: argparse.Namespace, out: Path, *, kind: Literal["run", "demo"] = "run") -> dict[str, Any]:
    """The run itself, followed on standard error."""
    from hoarfrost.cli.follow import Following, TensorBoard
    from hoarfrost.computing.runtime import resolve_device
    from hoarfrost.data.datasets import load_dataset
    from hoarfrost.errors import unknown
    from hoarfrost.experiment import Protocol, RunConfig, run
    from hoarfrost.methods import get_method
    from hoarfrost.recipes import get_recipe
    from hoarfrost.scenario import ClassOrder, usual_stages
    from hoarfrost.training.observers import Observer, Observers
    from hoarfrost.training.resolve import storage, suited

    variant = getattr(args, "variant", "code")
    recipe, method = get_recipe(args.dataset, variant, args.split), get_method(args.method)
    resolve_device(args.device)  # refused before anything is read
    protocol: Protocol = getattr(args, "protocol", "class-incd")
    order: ClassOrder = args.class_order or ("shuffled" if protocol == "c-gcd" else "natural")
    if order not in options.CLASS_ORDERS:
        raise unknown("class order", order, options.CLASS_ORDERS)
    config = options.configured(
        recipe.config(method, args.seed), args, fit_epochs=args.fit_epochs, discover_epochs=args.epochs
    )
    usual = recipe.split
    if usual is not None and protocol == "c-gcd":
        usual = usual_stages(sum(map(int, usual.split("-"))))
    split = args.split or usual
    if split is None:
        raise InputError(f"the data set '{args.dataset}' has no default split: give one, as in --split 5-5")
    keep = options.keeping(args)
    train, test = load_dataset(
        args.dataset,
        Path(args.data),
        download=args.download,
        size=suited(config).image_size,
        keep=storage(config, keep),
    )
    run_config = RunConfig(
        dataset=args.dataset,
        split=split,
        class_order=order,
        learner=config,
        variant=variant,
        kind=kind,
        mixed=getattr(args, "mixed", 0.0),
        novel=getattr(args, "novel", "given"),
        protocol=protocol,
    )
    with Following() as progress:
        observers: list[Observer] = [progress]
        if getattr(args, "tensorboard", False):
            observers.append(TensorBoard(out / "tensorboard"))
        return run(
            run_config,
            train,
            test,
            out=out,
            device=args.device,
            compiled=args.compile,
            resume=args.resume,
            observer=Observers(observers),
            share=getattr(args, "share", None),
            keep=keep,
        )
