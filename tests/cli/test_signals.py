"""Signals: one line, the exit code that shells expect, within seconds, and nothing that goes on alone."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ..forked import Forked

RUN = [sys.executable, "-m", "hoarfrost", "run", "--dataset", "digits", "--device", "cpu", "--fit-epochs", "500"]


def started(command: list[str], *, when: Callable[[], bool], ignored: Sequence[int] = ()) -> Forked:
    """A process that has got so far; it has the signals as a terminal has them."""
    process = Forked(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, ignored=ignored)
    until = time.monotonic() + 60
    while not when():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "it did not get so far"
        time.sleep(0.05)
    return process


def trained(out: Path) -> Callable[[], bool]:
    """Whether an epoch of the run is finished."""
    return lambda: (out / "log.jsonl").is_file() and (out / "log.jsonl").stat().st_size > 0


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGINT, 130, "hoarfrost: interrupted; continue with --resume"),
        (signal.SIGTERM, 143, "hoarfrost: stopped by SIGTERM; continue with --resume"),
        (signal.SIGHUP, 129, "hoarfrost: stopped by SIGHUP; continue with --resume"),
    ],
)
def test_a_signal_ends_a_command_with_one_line(tmp_path: Path, number: int, code: int, words: str) -> None:
    process = started([*RUN, "--out", str(tmp_path / "out")], when=trained(tmp_path / "out"))
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == code
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith(words)
    assert sum(line.startswith("hoarfrost:") for line in said.splitlines()) == 1


@pytest.mark.parametrize("begun", [False, True])
def test_resume_is_promised_only_where_something_was_written(
    tmp_path: Path, begun: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hoarfrost import cli

    out = tmp_path / "out"
    if begun:
        (tmp_path / "out.unfinished").mkdir()

    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("hoarfrost.cli.fit.main", interrupted)
    with suppress(SystemExit):
        assert cli.main(["fit", "photographs", "--out", str(out)]) == 130
    assert ("--resume" in capsys.readouterr().err) == begun


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = started([*RUN, "--out", str(out)], when=trained(out), ignored=[signal.SIGHUP])
    process.send_signal(signal.SIGHUP)
    lines = len((out / "log.jsonl").read_text().splitlines())
    until = time.monotonic() + 30
    while len((out / "log.jsonl").read_text().splitlines()) < lines + 3:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    process.terminate()
    assert process.wait(20) == 143


def test_a_long_computation_does_not_keep_a_command_alive(tmp_path: Path) -> None:
    """Python cannot hear of the signal before the product is there, which is minutes away."""
    script = tmp_path / "long.py"
    script.write_text(
        "import sys, torch\n"
        "from hoarfrost.cli import signals\n"
        "signals.PATIENCE = 0.5\n"
        "def say(number):\n"
        "    print('ended', number, file=sys.stderr, flush=True)\n"
        "torch.set_num_threads(1)\n"
        "a = torch.rand(30_000, 3_000, dtype=torch.float64)\n"
        "with signals.ending(say):\n"
        f"    open({str(tmp_path / 'begun')!r}, 'w').close()\n"
        "    a @ a.T\n"
    )
    process = started([sys.executable, str(script)], when=(tmp_path / "begun").exists)
    time.sleep(0.5)
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - asked < 10
    assert process.returncode == 130
    assert said == f"ended {int(signal.SIGINT)}\n"


def test_an_interrupt_that_somebody_swallows_ends_the_command_all_the_same(tmp_path: Path) -> None:
    script = tmp_path / "deaf.py"
    script.write_text(
        "import time\n"
        "from hoarfrost.cli import signals\n"
        "signals.PATIENCE = 0.5\n"
        "with signals.ending(lambda number: None):\n"
        f"    open({str(tmp_path / 'begun')!r}, 'w').close()\n"
        "    for _ in range(60):\n"
        "        try:\n"
        "            time.sleep(1)\n"
        "        except BaseException:\n"
        "            pass\n"
    )
    process = started([sys.executable, str(script)], when=(tmp_path / "begun").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 143


def test_an_interrupt_during_imports_is_one_line(tmp_path: Path) -> None:
    script = tmp_path / "early.py"  # the module that is imported first raises what Ctrl-C would
    script.write_text(
        "import builtins, sys\n"
        "real = builtins.__import__\n"
        "def importing(name, *rest):\n"
        "    if name == 'hoarfrost.cli':\n"
        "        raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "from hoarfrost.__main__ import main\n"
        "builtins.__import__ = importing\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "\nhoarfrost: interrupted\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_processes_end_with_the_launcher_that_started_them(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(
        "import os, time\n"
        "from hoarfrost.launch import end_with_parent\n"
        "end_with_parent()\n"
        f"open({str(tmp_path / 'pid')!r} + '.part', 'w').write(str(os.getpid()))\n"
        f"os.rename({str(tmp_path / 'pid')!r} + '.part', {str(tmp_path / 'pid')!r})\n"
        "time.sleep(60)\n"
    )
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, {str(script)!r}])"
    process = started([sys.executable, "-c", launcher], when=(tmp_path / "pid").exists)
    child = int((tmp_path / "pid").read_text())
    process.kill()
    process.wait(10)
    until = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0] != "Z":
        assert time.monotonic() < until, "it goes on alone"
        time.sleep(0.05)
