"""Options that several verbs share, and what they mean for the configuration."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoarfrost import plugins
from hoarfrost.launch import Launched
from hoarfrost.printing import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from hoarfrost.config import Config
    from hoarfrost.data.cache import ImageStorage
    from hoarfrost.models.classes import ClassTable

CLASS_ORDERS = ("natural", "seeded", "shuffled")


def listed(*own: str, group: str) -> str:
    """Names to choose from, in words, with those that other packages bring."""
    *names, last = plugins.names(dict.fromkeys(own), group)
    return f"{', '.join(names)} or {last}"


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, not '{text}'")
    return value


def probability(text: str) -> float:
    """A number from 0 to 1, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, not '{text}'")
    return value


def add_threshold(parser: argparse.ArgumentParser, default: float | None) -> None:
    """From when on an image has no class."""
    usual = "none" if default is None else default
    parser.add_argument(
        "--threshold",
        type=probability,
        default=default,
        metavar="P",
        help=f"call an image unsure if its best class has a probability below P (default: {usual})",
    )


def add_running(parser: argparse.ArgumentParser, *, resume: bool = True) -> None:
    """Where to compute, how to answer, whether to go on."""
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N (default: auto)")
    add_json(parser)
    if resume:
        parser.add_argument("--resume", action="store_true", help="continue an interrupted run in --out, or start one")


def add_json(parser: argparse.ArgumentParser) -> None:
    """How to answer."""
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object on standard output")


def add_compiling(parser: argparse.ArgumentParser) -> None:
    """Whether training steps are compiled."""
    parser.add_argument(
        "--compile",
        default="auto",
        choices=["auto", "on", "off"],
        help="compile the training step (default: auto: long stages on a GPU)",
    )


def place(text: str) -> Path:
    """The name of a folder, for argparse."""
    if not text:
        raise argparse.ArgumentTypeError("'' does not name a folder")
    return Path(text)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Where decoded images are kept."""
    parser.add_argument(
        "--from-disk",
        action="store_true",
        help="decode images each time they are used (default: only if memory is short)",
    )
    parser.add_argument("--cache", metavar="DIR", type=place, help="cache decoded images in a file in DIR")


def keeping(args: argparse.Namespace) -> ImageStorage:
    """What ``add_reading``'s options mean."""
    from hoarfrost.data.cache import ImageStorage

    return ImageStorage(True if getattr(args, "from_disk", False) else None, getattr(args, "cache", None))


def add_learning(parser: argparse.ArgumentParser, *, seed: int | None = 0) -> None:
    """What decides the training."""
    default = "the model's" if seed is None else str(seed)
    parser.add_argument(
        "--seed", type=int, default=seed, metavar="N", help=f"seed of all random numbers (default: {default})"
    )
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Single settings."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="change one setting of config.json, as in --set discover.learning_rate=0.05; may be repeated",
    )


def add_method(parser: argparse.ArgumentParser, default: str = "hoarfrost") -> None:
    """The method and the backbone."""
    parser.add_argument(
        "--method",
        default=default,
        metavar="NAME",
        help=f"a method that 'hoarfrost methods' lists (default: {default})",
    )
    names = listed("resnet18", "small", "efficientnet-lite0", "hf:NAME", group=plugins.BACKBONES)
    parser.add_argument("--backbone", default="auto", metavar="NAME", help=f"{names} (default: automatic)")


def add_variant(parser: argparse.ArgumentParser) -> None:
    """Whose settings a run begins with."""
    parser.add_argument(
        "--variant",
        default="code",
        metavar="NAME",
        help="settings: code (default), released (the first scripts) or paper",
    )


def configured(
    config: Config, args: argparse.Namespace, *, fit_epochs: int | None = None, discover_epochs: int | None = None
) -> Config:
    """The configuration with the command line's changes."""
    from dataclasses import replace

    from hoarfrost.models.backbones import find_backbone
    from hoarfrost.settings import override, parse_setting

    if getattr(args, "backbone", "auto") != "auto":
        find_backbone(args.backbone)
        config = replace(config, backbone=args.backbone)
    if args.seed is not None:
        config = replace(config, seed=args.seed)
    config = config.with_epochs(fit=fit_epochs, discover=discover_epochs)
    settings = dict(parse_setting(text) for text in args.settings)
    # A run's config.json has these keys below "learner", a model's below "config".
    return override(config, {re.sub(r"^(learner|config)\.", "", key): value for key, value in settings.items()})


def change_classes(args: argparse.Namespace, decide: Callable[[ClassTable], ClassTable], said: list[str]) -> int:
    """Changes the table of classes of ``args.model`` in place, and prints what is ``said`` by then."""
    from hoarfrost.models import description

    table = description.change_classes(Path(args.model), decide)
    names = [table.own_names[class_id] for class_id in table.present]
    return answer(args, {"model": str(args.model), "classes": names}, "\n".join(said))


def features_of(model: str | Path) -> str:
    """Where the features of photographs that a model was given are kept, for others that are given them too."""
    return f"{Path(model).absolute()}.features"


def quoted(path: str | Path) -> str:
    """A path as a command that a person copies has it."""
    return shlex.quote(printable(str(path)))


def print_raw(text: str) -> int:
    """Prints text as it is, whatever is in it."""
    if Launched.detect().is_first:
        print(text)
    return 0


def answer(args: argparse.Namespace, content: dict[str, Any], text: str) -> int:
    """Prints the JSON object or the text for people; of several processes the first one speaks.

    Names in the text are printable already: here nobody could tell their ends of lines from its own.
    """
    if not Launched.detect().is_first:
        return 0
    if args.json:
        print(printable_json(content))
    elif text:
        print(printable_lines(text))
    return 0
