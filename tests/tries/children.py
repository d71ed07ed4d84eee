"""Work in forked children, so that a crash, a hang or a lack of memory ends a child and nothing else.

Nothing is imported anew: whoever forks has imported all that a child needs.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

MOST_MEMORY = 1 << 30
"""bytes that a case may take beside what the child had before"""

MOST_SPACE = 4 << 30
"""bytes of addresses that a child may take; what wants more is refused by the system"""

MOST_WRITTEN = 256 << 20
"""bytes of a file that a command may write"""


class Answer(NamedTuple):
    """What a command said."""

    code: object
    """its exit code, or the last line of a traceback"""
    out: bytes
    err: bytes


def asked(call: Callable[[], object]) -> Answer:
    """What a call writes to standard output and standard error, by whatever way, and how it ends."""
    with tempfile.TemporaryFile(buffering=0) as out, tempfile.TemporaryFile(buffering=0) as err:
        for stream, number in ((out, 1), (err, 2)):
            os.dup2(stream.fileno(), number)
        sys.stdout, sys.stderr = text_to(1), text_to(2)
        try:
            code = call()
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            places = [
                f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)
            ]
            code = f"{type(error).__name__}: {str(error)[:300]} (at {' < '.join(reversed(places[-4:]))})"
        sys.stdout.flush()
        sys.stderr.flush()
        return Answer(code, *(os.pread(stream.fileno(), 1 << 24, 0) for stream in (out, err)))


def text_to(number: int) -> io.TextIOWrapper:
    """A stream of text to an open file."""
    return io.TextIOWrapper(io.FileIO(number, "w", closefd=False), encoding="utf-8", write_through=True)


@contextmanager
def writing_little() -> Iterator[None]:
    """Within the block no file can become large."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


DEATH_OF_PARENT = 1
"""PR_SET_PDEATHSIG, the number of the question to Linux"""


def end_with(parent: int) -> None:
    """From now on the system ends this process when its parent ends, however that happens."""
    ctypes.CDLL(None).prctl(DEATH_OF_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


def cleaned_up() -> None:
    """A program that is asked to end removes its temporary folders: Python would leave them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class Child:
    """A forked process with a pipe from it."""

    def __init__(self, work: Callable[[int], None], *, limited: bool = True) -> None:
        """Forks; ``work`` gets the writing end. ``limited``: in memory."""
        self.heard, told = os.pipe()
        parent = os.getpid()
        self.number = os.fork()
        if self.number == 0:
            code = 1
            try:
                os.setsid()
                end_with(parent)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                if limited:
                    space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                    resource.setrlimit(resource.RLIMIT_AS, (space + MOST_SPACE, resource.RLIM_INFINITY))
                work(told)
                code = 0
            except BaseException:
                os.write(told, json.dumps({"broken": traceback.format_exc()}).encode() + b"\n")
            finally:
                os._exit(code)
        os.close(told)

    def lines(self, seconds: float) -> Iterator[bytes]:
        """What it tells, line by line; a ``TimeoutError`` where nothing comes for so long."""
        rest = b""
        while True:
            if not select.select([self.heard], [], [], seconds)[0]:
                raise TimeoutError
            if not (part := os.read(self.heard, 1 << 16)):
                return
            *whole, rest = (rest + part).split(b"\n")
            yield from whole

    def end(self, *, by_force: bool = False) -> str:
        """Waits for its end, ends all that it started, and says how it ended where that was not in order."""
        os.close(self.heard)
        if by_force:
            os.killpg(self.number, signal.SIGKILL)
        os.waitid(os.P_PID, self.number, os.WEXITED | os.WNOWAIT)  # its number stays its own until it is reaped
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.number, signal.SIGKILL)
        _, status = os.waitpid(self.number, 0)
        if os.WIFSIGNALED(status):
            return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
        return "" if os.WEXITSTATUS(status) == 0 else f"ended with {os.WEXITSTATUS(status)}"


def in_children(
    work: Callable[[int], str], cases: Sequence[int], *, seconds: float, batch: int, patience: float = 1.0
) -> Iterator[tuple[int, str]]:
    """Tries the cases, some in one child; gives for each its number and what is wrong, empty where nothing is.

    A case may take ``seconds`` of a processor's time; it is waited for ``patience`` times as long, since others may use
    the processor too.
    """
    left = list(cases)
    while left:
        some, current = left[:batch], left[0]

        def tell_all(told: int, some: list[int] = some) -> None:
            before = _peak()
            for case in some:
                os.write(told, json.dumps({"begun": case}).encode() + b"\n")
                began = time.process_time()
                problem = work(case)
                if not problem and (took := time.process_time() - began) > seconds:
                    problem = f"it took {took:.0f} s"
                if not problem and _peak() - before > MOST_MEMORY:
                    problem = f"it took {(_peak() - before) >> 20} MiB of memory"
                os.write(told, json.dumps({"done": problem}).encode() + b"\n")
                if problem:
                    return

        child, problem, over, late = Child(tell_all), "", False, False
        try:
            for line in child.lines(patience * seconds):
                content = json.loads(line)
                if "begun" in content:
                    current, over = content["begun"], False
                elif "done" in content:
                    left.remove(current)
                    over = True
                    yield current, content["done"]
                else:
                    raise RuntimeError(content["broken"])
        except TimeoutError:
            late, problem = True, f"it took more than {patience * seconds:.0f} s"
        ended = child.end(by_force=late)
        if not over:
            left.remove(current)
            yield current, problem or ended or "it ended without a word"


def _peak() -> int:
    """Bytes of memory at the highest."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
