"""Command lines that nobody means."""

from __future__ import annotations

import argparse
from itertools import pairwise

from hoarfrost import cli
from hoarfrost.cli import main
from hoarfrost.cli.follow import Following

from .hostile_values import NAMES, NUMBERS, Random
from .judge import Try, Words
from .place import DISCOVER, EVALUATE, FIT, PREDICT, RUN

VALUES = (
    *(str(number) for number in NUMBERS if len(str(number)) < 50),
    *(name for name in NAMES if "\0" not in name),
    *("made", "model", "model2", "known", "checked", "unsorted", "nowhere", "/", ".", "..", "/dev/null", "/dev/zero"),
    *("known/0/0.png", "model/model.json", "model/new", "~", "1e3", "0x10", "1_000", "٣", "²", "9" * 5000, "-", "--"),
    *(
        "cpu",
        "cuda",
        "cuda:7",
        "cuda:-1",
        "cpu:0",
        "mps",
        "meta",
        "5-5",
        "3-2",
        "0-5",
        "5",
        "1-1-1-1-1",
        "3--2",
        "-3-2",
    ),
    *("digits", "folder", "cifar10", "frost", "dtc", "auto", "on", "small", "resnet18", "seeded", "paper", "table1"),
)

KEYS = (
    *("fit.learning_rate", "fit.momentum", "fit.weight_decay", "fit.batch_size", "fit.drops", "fit.drop_factor"),
    *("fit.warm_up", "fit.warm_up_rate", "fit.nesterov", "fit.mixed_batch", "fit_augment.kind", "fit_augment.rotate"),
    *("fit_augment.scale", "fit_augment.shift", "fit_augment.flip", "fit_augment.border", "image_size", "mean", "std"),
    *("precision", "views", "seed", "backbone", "method.frozen", "method.start", "method.design.novel", "nothing"),
    *(
        "method.stage_one.cross-entropy.weight",
        "learner.seed",
        "config.seed",
        "method",
        "fit",
        "",
        ".",
        "fit.",
        "a.b.c",
    ),
)

SETTINGS = (
    *(str(number) for number in NUMBERS if len(str(number)) < 50),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "null",
        "true",
        "[]",
        "{}",
        "[1,2]",
        '"text"',
        "text",
        "",
        "[0.5]",
        "[1e999]",
    ),
    *("[[[[[]]]]]", "9" * 5000, "[" * 5000, '{"weight": 1}', "[0]", "[NaN]", "\ud800", "\x1b[2J"),
)

GOOD: tuple[Words, ...] = (FIT, DISCOVER, PREDICT, EVALUATE, RUN, ("methods",), ("bench",), ("demo", "--out", "made"))


def command_lines(random: Random) -> Try:
    """A command with options and values at random; it may begin to train, and is then stopped."""
    if random.random() < 0.25:
        return settings(random)
    verb, *rest = random.choice([*GOOD, ("reproduce", "table4", "--dry-run", "--dataset", "digits", "--out", "made")])
    words = list(rest)
    _, parsers = cli.build_parser()
    actions = [action for action in parsers[verb]._actions if action.option_strings]
    for _ in range(random.randrange(1, 4)):
        match random.randrange(6):
            case 0 if words:
                words[random.randrange(len(words))] = random.choice(VALUES)
            case 1 if words:
                del words[random.randrange(len(words))]
            case 2:
                words.insert(random.randrange(len(words) + 1), random.choice(VALUES))
            case _:
                action = random.choice(actions)
                option = random.choice(action.option_strings)
                if isinstance(action, argparse._HelpAction):
                    continue
                words += [option] if action.nargs == 0 else [option, random.choice(VALUES)]
    if verb == "reproduce" and "--dry-run" not in words:
        words.append("--dry-run")
    if random.random() < 0.03:
        verb = random.choice(NAMES)
    given = tuple(word for word in (verb, *words) if "\0" not in word)
    kept = tuple(f"{after}/" for word, after in pairwise(given) if word in ("--cache", "--share"))
    what = " ".join(map(repr, given))[:300]
    return Try(given, what, codes=(0, 2, 130), main=_stopped_at_work, may_leave=kept)


def settings(random: Random) -> Try:
    """``fit`` with settings at random, which really trains; an epoch and a few images long."""
    words = ["--epochs", "1"]
    for _ in range(random.choice([1, 1, 2, 3])):
        words += ["--set", f"{random.choice(KEYS)}={random.choice(SETTINGS)}"]
    if random.random() < 0.2:
        words += [
            "--image-size",
            random.choice(["8", "0", "-1", "7", "9", "100000", "1000000000", "99999999999999999999"]),
        ]
    given = (*FIT, *words)
    return Try(given, " ".join(map(repr, given[4:]))[:300])


def _stopped_at_work(arguments: Words) -> object:
    """The command line, which is interrupted where it would begin to train."""
    from hoarfrost import bench

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    enter, measure = Following.__enter__, bench.measure
    Following.__enter__, bench.measure = stop, stop  # type: ignore[method-assign, assignment]
    try:
        return main(arguments)
    finally:
        Following.__enter__, bench.measure = enter, measure  # type: ignore[method-assign]
