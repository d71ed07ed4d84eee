"""``hoarfrost bench``: speed and memory."""

from __future__ import annotations

import argparse
import time
from typing import Any

from hoarfrost.cli import options
from hoarfrost.errors import InputError

SUMMARY = "measure speed and memory on this machine"
DESCRIPTION = (
    "Train both stages for a few epochs on synthetic images of a data set's size. Print seconds per epoch, start-up "
    "time, memory, and the time that the multiplications alone would take."
)
EXAMPLE = "example: hoarfrost bench --dataset cifar10 --batch 128"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``bench``."""
    parser.add_argument(
        "--dataset",
        metavar="NAME",
        help="digits, cifar10, cifar100 or tiny-imagenet: sets sizes and settings (default: cifar10, digits on a CPU)",
    )
    parser.add_argument(
        "--images", type=options.positive, metavar="N", help="images per stage (default: the data set's)"
    )
    parser.add_argument("--classes", metavar="A-B", help="old and new classes, as in 80-20 (default: the data set's)")
    parser.add_argument(
        "--batch", type=options.positive, metavar="N", help="batch size of discovery (default: the data set's)"
    )
    parser.add_argument(
        "--epochs", type=options.positive, default=3, metavar="N", help="epochs measured per stage (default: 3)"
    )
    parser.add_argument(
        "--compile", default="on", choices=["on", "off"], help="compile training steps on a GPU (default: on)"
    )
    options.add_method(parser, default="frost")  # whose speed is compared
    options.add_learning(parser)
    options.add_running(parser, resume=False)


def main(args: argparse.Namespace) -> int:
    """Measures and prints a table."""
    began = time.perf_counter()
    from dataclasses import replace

    from hoarfrost.bench import LOADS, measure
    from hoarfrost.computing.runtime import resolve_device
    from hoarfrost.errors import unknown
    from hoarfrost.methods import get_method
    from hoarfrost.recipes import get_recipe
    from hoarfrost.scenario import parse_split
    from hoarfrost.training.resolve import suited

    on_gpu = resolve_device(args.device).type == "cuda"
    name = args.dataset or ("cifar10" if on_gpu else "digits")
    if name not in LOADS:
        raise unknown("data set", name, LOADS)
    load, recipe = LOADS[name], get_recipe(name)
    if args.images is not None:
        load = replace(load, images=args.images)
    if args.classes is not None:
        parts = [part for part in args.classes.split("-") if part.isdigit()]
        sizes = parse_split(args.classes, sum(map(int, parts)))
        if len(sizes) != 2:
            raise InputError(f"--classes '{args.classes}' is not of the form 80-20")
        load = replace(load, known=sizes[0], novel=sizes[1])
    config = suited(options.configured(recipe.config(get_method(args.method), args.seed), args))
    if args.batch is not None:
        config = replace(config, discover=replace(config.discover, batch_size=args.batch))
    content = {"dataset": name, "method": config.method.name}
    content |= measure(
        config,
        load,
        size=config.image_size or 32,
        channels=len(config.mean or (0.5,)),
        epochs=args.epochs,
        device=args.device,
        compiled=args.compile,
        began=began,
    )
    return options.answer(args, content, describe(content))


def describe(content: dict[str, Any]) -> str:
    """What a person reads."""
    image = "x".join(map(str, content["image"]))
    lines = [
        f"{content['hardware']}, {content['precision']}, {content['backbone']}, {content['images']} images {image},"
        f" classes {content['classes'][0]} + {content['classes'][1]}",
        "",
        f"{'':12}{'batch':>7}{'s/epoch':>10}{'images/s':>11}{'floor s':>9}{'x floor':>9}",
    ]
    for name, key in (("stage one", "stage_one"), ("discovery", "discovery")):
        part = content[key]
        lines.append(
            f"{name:12}{part['batch']:>7}{part['seconds_per_epoch']:>10.3f}{part['images_per_second']:>11,.0f}"
            f"{part['floor_seconds']:>9.3f}{part['times_floor']:>9.1f}"
        )
    evaluation, start, memory, first = (content[key] for key in ("evaluation", "start_up", "memory", "stage_one"))
    lines.append(f"{'evaluation':12}{'':7}{evaluation['seconds']:>10.3f}{evaluation['images_per_second']:>11,.0f}")
    device = memory["device_peak_mib"]
    lines += [
        "",
        f"start-up      {start['to_first_step']:.1f} s to the first step ({start['imports']:.1f} s of them imports);"
        f" warm-up {start['stage_one_warm_up']:.1f} s in"
        f" stage one, {start['discovery_warm_up']:.1f} s in discovery",
        f"memory        {memory['host_peak_mib']:,.0f} MiB"
        + (f", {device:,.0f} MiB on the device" if device is not None else ""),
    ]
    if first["bare_loop_seconds"] is not None:
        lines.append(
            f"bare loop     {first['bare_loop_seconds']:.3f} s per epoch of stage one in plain PyTorch;"
            f" overhead of hoarfrost {first['overhead_percent']:+.1f} %"
        )
    lines.append(
        f"floor         the multiplications at {content['floor']['multiplication_tflop_per_second']:.3g} TFLOP/s,"
        " the speed of a large matrix product here"
    )
    return "\n".join(lines)
