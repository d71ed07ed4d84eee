"""Commands in processes of their own that import nothing anew: they are forked from one that has imported it all.

``Forked`` and ``run`` take what ``subprocess.Popen`` and ``subprocess.run`` take, as far as it is needed here, for
``[sys.executable, "-m", module, …]``, ``[sys.executable, "-c", code, …]`` or ``[sys.executable, script, …]``. What they
start is what Python would start, some seconds of imports later.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from . import few_draws

PRELOADED = [
    *("lightning_fabric", "sklearn.cluster", "sklearn.datasets._base", "scipy.cluster.hierarchy", "scipy.optimize"),
    *("jinja2.loaders", "matplotlib.backends.backend_svg", "matplotlib.figure", "safetensors.torch"),
    *(f"PIL.{kind}ImagePlugin" for kind in ("Avif", "Bmp", "Gif", "Jpeg", "Pdf", "Png", "Ppm", "Tiff", "WebP")),
    *("hoarfrost.cli.follow", "hoarfrost.experiment", "hoarfrost.paper.tables", "hoarfrost.report.gather"),
    *("hoarfrost.report.html", "hoarfrost.training.learner", "hoarfrost.training.work", "hoarfrost.data.doubts"),
    "hoarfrost.computing.processes",
]

CHILD = """
import os, runpy, signal, sys, types, torch
for number, handle in handles.items():
    os.dup2(handle.detach(), number)
sys.stdout = open(1, "w", closefd=False)
sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
for number in ignored:
    signal.signal(number, signal.SIG_IGN)
torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", "1")))
for module, counts in few_draws.items():
    vars(sys.modules[module]).update(counts)
given = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
sys.path[:0] = [path for path in given if path not in sys.path]
if command[0] == "-m":
    sys.argv = command[1:]
    runpy.run_module(command[1], run_name="__main__", alter_sys=True)
elif command[0] == "-c":
    sys.argv = ["-c", *command[2:]]
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(command[1], vars(sys.modules["__main__"]))
else:
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")
"""


class Forked:
    """A process that was started."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        ignored: Sequence[int] = (),
        preexec_fn: object = None,
    ) -> None:
        """``ignored``: signals; ``preexec_fn`` is left out: the parent of such a process is another one."""
        python, *words = command
        assert python == sys.executable
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        ours: list[int] = []
        self.stdout, out = _way(stdout, 1, ours)
        self.stderr, err = _way(stderr, 2, ours)
        given = {
            "handles": {1: DupFd(out), 2: DupFd(err)},
            "environment": dict(os.environ if env is None else env),
            "folder": str(cwd or Path.cwd()),
            "ignored": list(ignored),
            "few_draws": few_draws.now,
            "command": words,
        }
        self._process = context.Process(target=exec, args=(CHILD, given))
        self._process.start()
        self.pid = self._process.pid or 0
        for handle in ours:
            os.close(handle)

    @property
    def returncode(self) -> int | None:
        """As it was when last asked for."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code, None where it goes on."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("hoarfrost", timeout or 0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All that it said, once it has ended."""
        with ThreadPoolExecutor(2) as pool:
            heard = [pool.submit(_read, stream) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            out, err = (part.result().decode() for part in heard)
        return out, err

    def send_signal(self, number: int) -> None:
        """Sends it a signal."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait()


def _read(stream: IO[bytes] | None) -> bytes:
    return b"" if stream is None else stream.read()


def _way(given: int | IO[Any] | None, number: int, ours: list[int]) -> tuple[IO[bytes] | None, int]:
    """What is read here of what is written there, and the end for there; ``ours`` are to be closed after the start."""
    if given == subprocess.PIPE:
        heard, told = os.pipe()
        ours.append(told)
        return os.fdopen(heard, "rb"), told
    if given == subprocess.DEVNULL:
        ours.append(os.open(os.devnull, os.O_WRONLY))
        return None, ours[-1]
    if given is None:
        return None, number
    return None, given if isinstance(given, int) else given.fileno()


def run(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | Path | None = None
) -> subprocess.CompletedProcess[str]:
    """What it says, and how it ends."""
    process = Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd)
    out, err = process.communicate()
    return subprocess.CompletedProcess(command, process.wait(), out, err)
