"""What goes wrong for people: one class for it, shown as one line on the command line."""

from __future__ import annotations

import errno
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """Something the caller gave cannot be used. The message is one line: what, where, and what to do."""


class NotFitted(InputError, AttributeError):
    """A learner is asked for what it has not learned yet. An ``AttributeError`` too, so that ``hasattr`` says no."""


class Missing(InputError):
    """Something is named that no installed package brings."""


class Unavailable(InputError):
    """A package or a file is needed that is not on this machine. The message says how to get it."""


class AllNewHelps(InputError):
    """Known classes and new ones cannot be told apart. Each front end says in its own words that all images are new."""

    def __init__(self, problem: str, words: str = "only_new=True") -> None:
        super().__init__(f"{problem}, or say that all images are new ({words})")
        self.problem = problem

    def on_the_command_line(self) -> str:
        """The message with an option."""
        return str(AllNewHelps(self.problem, "--only-new"))


class DtypeError(InputError, TypeError):
    """An array has a type that is not converted silently. The message holds the line that converts it."""


class SkippedFiles(UserWarning):
    """Files in a folder that are no readable images were left out."""


def warn_caller(message: str, category: type[Warning]) -> None:
    """A warning that shows the line of the caller's own code, and none of this package's."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: in Python, in numpy, in PyTorch on a CPU, or on a GPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = (
        *("can't allocate memory", "Cannot allocate memory", "out of memory", "_ALLOC_FAILED", "bad_alloc"),
        "not enough memory",  # PyTorch on ARM, and on Windows
        "failed to map segment",  # of a library
    )
    return isinstance(error, RuntimeError | ImportError) and any(word in str(error) for word in words)


def require(holds: bool, message: str) -> None:
    """An ``InputError`` with the message where the condition does not hold."""
    if not holds:
        raise InputError(message)


LISTED = 24
"""names that an error lists"""


def unknown(what: str, given: str, choices: Iterable[str], *, near: bool = True) -> InputError:
    """An error for a name that does not exist, with the nearest one that does; with the first ones if not ``near``.

    >>> str(unknown("method", "frots", ["frost", "dtc"]))
    "unknown method 'frots': did you mean 'frost'?"
    >>> str(unknown("device", "x", ["cpu", "cuda"]))
    "unknown device 'x': choose from cpu, cuda"
    """
    names = list(choices)
    close = get_close_matches(given.lower(), names, n=1, cutoff=0.5) if near else []
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    hint = f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(names[:LISTED])}{more}"
    return InputError(f"unknown {what} '{given}': {hint}")
