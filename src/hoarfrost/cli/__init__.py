"""The command line: one file a verb. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import argparse
import errno
import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import hoarfrost
from hoarfrost.cli import (
    bench,
    classes,
    demo,
    discover,
    evaluate,
    fit,
    learn,
    merge,
    methods,
    move,
    name,
    predict,
    reject,
    reproduce,
    review,
    run,
    sort,
    split,
    undo,
)
from hoarfrost.cli.signals import Ended, ending, exit_code
from hoarfrost.errors import AllNewHelps, InputError, out_of_memory
from hoarfrost.launch import Launched
from hoarfrost.printing import printable

VERBS: dict[str, ModuleType] = {
    "demo": demo,
    "fit": fit,
    "discover": discover,
    "review": review,
    "name": name,
    "merge": merge,
    "reject": reject,
    "move": move,
    "split": split,
    "learn": learn,
    "undo": undo,
    "classes": classes,
    "sort": sort,
    "predict": predict,
    "evaluate": evaluate,
    "run": run,
    "reproduce": reproduce,
    "methods": methods,
    "bench": bench,
}


NO_MEMORY = "out of memory: close other programs, or use smaller images or batches (--set fit.batch_size=32)"

FULL = {
    errno.ENOSPC: "no space left on the disk{}: free some",
    errno.EDQUOT: "no space left on the disk{}: free some",
    errno.EFBIG: "the limit on file size is too small{}: raise it (ulimit -f), or choose another place",
}

REMEDIES = {
    errno.EACCES: "check the permissions",
    errno.EPERM: "check the permissions",
    errno.EROFS: "choose another place",
    errno.EMFILE: "raise the limit (ulimit -n)",
    errno.ENFILE: "close other programs, or raise the limit",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "check the disk",
}
"""what helps, where it is not another path"""


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line that name the nearest option."""

    def error(self, message: str) -> NoReturn:
        """One line on standard error, exit code 2."""
        launched = Launched.detect()
        launched.leave_it_to_the_first()
        for kind, words in (("int", "a whole number"), ("float", "a number")):
            message = message.replace(f"invalid {kind} value: ", f"expected {words}, not ")
        self.exit(2, f"{self.prog}: {printable(message)} (see {self.prog} --help)\n" if launched.is_first else None)

    def refuse_unknown(self, extras: Sequence[str]) -> NoReturn:
        """For arguments that no option takes."""
        given = extras[0].split("=")[0]
        if not given.startswith("-"):
            self.error(f"unexpected argument '{extras[0]}'")
        near = get_close_matches(given, self._option_string_actions, n=1)
        self.error(f"unknown option '{given}'" + (f": did you mean '{near[0]}'?" if near else ""))


def build_parser(only: str | None = None) -> tuple[Parser, dict[str, Parser]]:
    """The parser of all verbs, and that of each; ``only`` names the one verb whose options are needed, if it is one."""
    parser = Parser(
        prog="hoarfrost",
        description="Learn classes from labelled images. Then discover new ones without labels and without forgetting.",
        epilog="'hoarfrost COMMAND --help' lists the options of a command. Start with: hoarfrost demo",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"hoarfrost {hoarfrost.__version__}")
    verbs = parser.add_subparsers(title="commands", dest="verb", metavar="COMMAND", parser_class=Parser)
    parsers = {}
    for verb, module in VERBS.items():
        parsers[verb] = verbs.add_parser(
            verb, help=module.SUMMARY, description=module.DESCRIPTION, allow_abbrev=False, epilog=module.EXAMPLE
        )
        if only in (verb, None):
            module.add_arguments(parsers[verb])
    return parser, parsers


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, or an exit with one line."""
    verb = next((word for word in arguments if not word.startswith("-")), None)
    parser, parsers = build_parser(verb)
    if verb is not None and verb not in parsers:
        near = get_close_matches(verb, parsers, n=1)
        parser.error(f"unknown command '{verb}'" + (f": did you mean '{near[0]}'?" if near else ""))
    if verb is not None:
        options = parsers[verb]._option_string_actions
        given = [word for word in arguments[arguments.index(verb) :] if word.startswith("--") and word != "--"]
        if strange := [word for word in given if word.split("=")[0] not in options]:
            parsers[verb].refuse_unknown(strange)
    parsed, extras = parser.parse_known_args(arguments)
    if parsed.verb is None:
        if extras:
            parser.refuse_unknown(extras)
        parser.print_help()
        parser.exit(0)
    if "paths" in parsed:  # argparse takes those before the first option alone
        parsed.paths += [word for word in extras if not word.startswith("-")]
        extras = [word for word in extras if word.startswith("-")]
    if extras:
        parsers[parsed.verb].refuse_unknown(extras)
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code: 0, 2 for input that cannot be used, 130 or 143 after a signal."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show must not stop anything
            stream.reconfigure(errors="backslashreplace")
    parsed = parse(sys.argv[1:] if arguments is None else list(arguments))
    # Threads that wait for each other sleep: spinning, they would keep the cores from whoever has something to do, as a
    # thread that decodes images, or those of another library. What is computed is the same. It has to be said before
    # PyTorch and NumPy are loaded. OpenBLAS is told for how many cycles to spin, as a power of two.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    resumable = "resume" in parsed
    onward = "; continue with --resume" if resumable else ""
    warnings.showwarning = lambda message, *_, **__: _warn(str(message))

    def end(number: int) -> None:
        """The last line after a signal."""
        if Launched.detect().is_first:
            what = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
            then = onward if _has_begun(parsed) else ""
            print(f"\nhoarfrost: {what}{then}", file=sys.stderr, flush=True)

    try:
        with ending(end):
            code: int = VERBS[parsed.verb].main(parsed)
            sys.stdout.flush()
            return code
    except AllNewHelps as error:
        return _refuse(error.on_the_command_line() if hasattr(parsed, "only_new") else str(error))
    except InputError as error:
        return _refuse(str(error))
    except BrokenPipeError:
        # The reader has gone, as with "| head": nobody is left to be told. Python must not flush once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if out_of_memory(error):
            return _refuse(NO_MEMORY)
        place, named = (f" for {error.filename}", f"{error.filename}: ") if error.filename else ("", "")
        if error.errno in FULL:
            then = ", then continue with --resume" if resumable else ""
            return _refuse(f"{FULL[error.errno].format(place)}{then}")
        return _refuse(f"{named}{error.strerror or error}; {REMEDIES.get(error.errno or 0, 'check the path')}")
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, Ended) else int(signal.SIGINT)
        end(number)
        return exit_code(number)
    except Exception as error:
        if out_of_memory(error):
            return _refuse(NO_MEMORY)
        if str(error).startswith("DataLoader worker"):  # PyTorch's words, wherever it was when it heard of it
            return _refuse(f"a process that reads images was killed, perhaps because memory ran out{onward}")
        launched = Launched.detect()
        if launched.processes > 1 and _is_of_connection(error):
            _say(f"process {launched.rank}: another process of this run ended{onward}")
            return 1
        raise


def _has_begun(parsed: argparse.Namespace) -> bool:
    """Whether a command has written anything that it could go on with."""
    places = [Path(place) for place in (getattr(parsed, "out", None), getattr(parsed, "into", None)) if place]
    return any(place.exists() or place.with_name(f"{place.name}.unfinished").exists() for place in places)


def _is_of_connection(error: Exception) -> bool:
    """Whether PyTorch says that another process cannot be reached any more."""
    from torch.distributed import DistError

    words = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused", "remote process exited")
    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and any(w in str(error) for w in words))


def _refuse(message: str) -> int:
    launched = Launched.detect()
    launched.leave_it_to_the_first()
    if launched.is_first:
        _say(message)
    return 2


def _warn(message: str) -> None:
    if Launched.detect().is_first:
        _say(f"warning: {message}")


def _say(message: str) -> None:
    """One line on standard error."""
    print(f"hoarfrost: {printable(message.strip())}", file=sys.stderr, flush=True)
