"""Tries thousands of hostile inputs and kills, and prints what was tried and what failed.

python -m tests.tries                                        10,000 inputs and 1,000 kills
python -m tests.tries --inputs 2000 --kills 0 --seed 7       others, and fewer
python -m tests.tries --only json --case 17                  one case again, with all that it said
python -m tests.tries --only kills --kills 1000 --write      that row of the table in docs/security.md

All that is tried follows from the seed. Exit code 1 where anything failed.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from . import inputs, kills
from .children import Child
from .place import build
from .table import with_rows

KILLS = "kills"
PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def main() -> int:
    """Tries them all, in some processes."""
    parser = argparse.ArgumentParser(prog="python -m tests.tries", description="Hostile inputs and kills.")
    parser.add_argument("--seed", type=int, default=0, help="decides every case (default: 0)")
    parser.add_argument("--inputs", type=int, default=10_000, help="of all kinds together (default: 10000)")
    parser.add_argument("--kills", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--only", choices=[*inputs.KINDS, KILLS], help="one kind")
    parser.add_argument("--case", type=int, help="one case of --only, with all that it said")
    parser.add_argument("--write", action="store_true", help="renew these rows of the table in docs/security.md")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["HOARFROST_COMMIT"] = "tried"  # the repository may move on in the meantime
    with tempfile.TemporaryDirectory(prefix="tries-", dir=in_memory()) as folder:
        base = Path(folder, "base")
        build(base)
        gc.collect()
        gc.freeze()  # children write nothing into what is here
        if given.case is not None:
            return again(given, base, Path(folder))
        return try_all(given, base, Path(folder))


def in_memory() -> str | None:
    """A place where files cost no disk, if there is one with room."""
    place = "/dev/shm"
    if os.access(place, os.W_OK) and shutil.disk_usage(place).free > 2 << 30:
        return place
    return None


def again(given: argparse.Namespace, base: Path, folder: Path) -> int:
    """One case."""
    if given.only == KILLS:
        (_, problem), *_ = kills.try_all(given.seed, [given.case], base=base, scratch=folder)
        print(problem or "well")
        return bool(problem)

    def work(told: int) -> None:
        def say(what: object) -> None:
            os.write(told, str(what).encode(errors="backslashreplace") + b"\n")

        faulthandler.dump_traceback_later(inputs.PATIENCE * inputs.SECONDS - 1, file=told)
        say(inputs.tried(given.seed, given.only, given.case, base=base, scratch=folder, say=say) or "well")

    child, line = Child(work), b""
    try:
        for line in child.lines(inputs.PATIENCE * inputs.SECONDS):
            print(line.decode())
    except TimeoutError:
        child.end(by_force=True)
        return 1
    return 1 if child.end() or line != b"well" else 0


def planned(given: argparse.Namespace) -> dict[str, int]:
    """How many of each kind."""
    each = -(-given.inputs // len(inputs.KINDS))
    counts = {**dict.fromkeys(inputs.KINDS, each), KILLS: given.kills}
    if given.only is not None:
        return {given.only: given.kills if given.only == KILLS else given.inputs}
    return {kind: count for kind, count in counts.items() if count}


def try_all(given: argparse.Namespace, base: Path, folder: Path) -> int:
    """All of them; prints the table."""
    began, plan = time.monotonic(), planned(given)
    failures: dict[str, list[tuple[int, str]]] = {kind: [] for kind in plan}
    counted = dict.fromkeys(plan, 0)
    for kind, case, problem in _in_processes(given, plan, base, folder):
        counted[kind] += 1
        if problem:
            failures[kind].append((case, problem))
            print(f"failed: --seed {given.seed} --only {kind} --case {case}: {problem!r}", file=sys.stderr, flush=True)
    rows = [f"| {'kind':10} | {'what':34} | {'tried':>6} | {'failed':>6} |", "|---|---|--:|--:|"]
    for kind, count in plan.items():
        what = inputs.KINDS[kind].summary if kind in inputs.KINDS else "killed, and gone on with"
        if counted[kind] != count:
            failures[kind].append((-1, f"{count - counted[kind]} were not tried"))
        rows.append(f"| {kind:10} | {what:34} | {counted[kind]:>6} | {len(failures[kind]):>6} |")
    print("\n".join(rows))
    print(f"\nseed {given.seed}, {time.monotonic() - began:.0f} s")
    if given.write:
        PAGE.write_text(with_rows(PAGE.read_text(), rows[2:]))
    return 1 if any(failures.values()) else 0


def _in_processes(
    given: argparse.Namespace, plan: dict[str, int], base: Path, folder: Path
) -> Iterator[tuple[str, int, str]]:
    """Kind, case and problem of every case. With several processes each has its own share of the cases."""

    def share(number: int) -> Iterator[tuple[str, int, str]]:
        scratch = folder / f"job-{number}"
        scratch.mkdir()
        for kind, count in plan.items():
            cases = range(number, count, given.jobs)
            if kind == KILLS:
                found = kills.try_all(given.seed, cases, base=base, scratch=scratch)
            else:
                found = inputs.try_all(given.seed, kind, cases, base=base, scratch=scratch)
            for case, problem in found:
                yield kind, case, problem

    if given.jobs == 1:
        yield from share(0)
        return
    import select

    def work(number: int, told: int) -> None:
        for result in share(number):
            os.write(told, json.dumps(result).encode() + b"\n")

    children = [
        Child(lambda told, number=number: work(number, told), limited=False)  # type: ignore[misc]
        for number in range(given.jobs)
    ]
    waiting = {child.heard: (child, bytearray()) for child in children}
    while waiting:
        for handle in select.select(list(waiting), [], [])[0]:
            child, rest = waiting[handle]
            if part := os.read(handle, 1 << 16):
                rest += part
                *whole, last = rest.split(b"\n")
                rest[:] = last
                for line in whole:
                    content = json.loads(line)
                    if isinstance(content, dict):
                        raise RuntimeError(content["broken"])
                    yield tuple(content)
            else:
                del waiting[handle]
                if ended := child.end():
                    raise RuntimeError(ended)


if __name__ == "__main__":
    sys.exit(main())
