"""Tries thousands of hostile inputs and kills, and prints what was tried and what failed.

python -m tests.tries                                        10,000 inputs and 1,000 kills
python -m tests.tries --inputs 2000 --kills 0 --seed 7       others, and fewer
python -m tests.tries --only json --case 17                  one case again, with all that it said
python -m tests.tries --part 3/40 --jobs 16 --keep           a part of them; its results go into results/tries/
python -m tests.tries --write                                the table in docs/security.md, from all parts that are kept

A case follows from the seed, its kind and its number. So it is the same in every order, part and process.
A copy of the code without a repository needs its commit in HOARFROST_COMMIT.
Exit code 1 where anything failed.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import resource
import select
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from hoarfrost.provenance import describe

from . import inputs, kills, parts
from .children import Child, cleaned_up
from .parts import Part, Tried
from .place import build, in_memory
from .table import HEADER, KILLS, rows, with_rows, with_sentence

PAGE = Path(__file__).parents[2] / "docs" / "security.md"

AT_ONCE = {KILLS: 4}
"""cases of a kind that a process takes at once, where they are not as many as one child tries"""


def main() -> int:
    """Tries them all, in some processes."""
    parser = argparse.ArgumentParser(prog="python -m tests.tries", description="Hostile inputs and kills.")
    parser.add_argument("--seed", type=int, default=0, help="decides every case (default: 0)")
    parser.add_argument("--inputs", type=int, default=10_000, help="of all kinds together (default: 10000)")
    parser.add_argument("--kills", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--only", choices=[*inputs.KINDS, KILLS], help="one kind")
    parser.add_argument("--case", type=int, help="one case of --only, with all that it said")
    parser.add_argument("--part", type=part, default=(1, 1), metavar="K/N", help="part K of N of all these cases")
    parser.add_argument("--keep", action="store_true", help="keep the results in a file under --results")
    parser.add_argument("--results", type=Path, default=parts.FOLDER, metavar="DIR", help="(default: results/tries)")
    parser.add_argument("--write", action="store_true", help="only add up --results for the table in docs/security.md")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    given = parser.parse_args()
    if given.write:
        return write(given.results)
    cleaned_up()
    torch.set_num_threads(1)
    made_by = describe()
    os.environ["HOARFROST_COMMIT"] = "tried"  # the repository may move on in the meantime
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # forked processes cannot use a GPU that their parent has used
    with tempfile.TemporaryDirectory(prefix="tries-", dir=in_memory()) as folder:
        base = Path(folder, "base")
        build(base)
        gc.collect()
        gc.freeze()  # children write nothing into what is here
        if given.case is not None:
            return again(given, base, Path(folder))
        return try_all(given, made_by, base, Path(folder))


def part(text: str) -> tuple[int, int]:
    """Which part, counted from 1, and of how many, for argparse."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N, not '{text}'")
    return int(number), int(count)


def write(results: Path) -> int:
    """The table of the page, from all parts that are kept."""
    found = parts.read(results)
    if not found:
        print(f"{results} holds no parts: make some with --keep", file=sys.stderr)
        return 2
    counts = parts.added_up(found)
    PAGE.write_text(with_sentence(with_rows(PAGE.read_text(), rows(counts)), parts.made_by(found)))
    print("\n".join((*HEADER, *rows(counts))))
    return 1 if any(failed for _, failed in counts.values()) else 0


def again(given: argparse.Namespace, base: Path, folder: Path) -> int:
    """One case."""
    if given.only == KILLS:
        known = kills.all_whole(base, folder)
        (_, problem), *_ = kills.try_all(given.seed, [given.case], known, base=base, scratch=folder)
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


def planned(given: argparse.Namespace) -> dict[str, range]:
    """The cases of each kind; those that take longest come first."""
    each = -(-given.inputs // len(inputs.KINDS))
    counts = {KILLS: given.kills, **dict.fromkeys(inputs.KINDS, each)}
    if given.only is not None:
        counts = {given.only: given.kills if given.only == KILLS else given.inputs}
    return {kind: parts.share(count, *given.part) for kind, count in counts.items() if count}


def try_all(given: argparse.Namespace, made_by: dict[str, Any], base: Path, folder: Path) -> int:
    """All of them; prints the table."""
    began, plan = time.monotonic(), planned(given)
    kinds = {kind: Tried(cases.start, cases.stop) for kind, cases in plan.items()}
    for kind, case, problem, seconds in _in_processes(given, plan, base, folder):
        found = kinds[kind]
        found.processor_seconds += seconds
        if case is None:
            continue
        found.tried += 1
        if problem:
            found.failed.append((case, problem))
            print(f"failed: --seed {given.seed} --only {kind} --case {case}: {problem!r}", file=sys.stderr, flush=True)
    number, count = given.part
    took = time.monotonic() - began
    whole = Part(given.seed, number, count, made_by["versions"], made_by["commit"], kinds, took)
    counts = parts.added_up([whole])
    print("\n".join((*HEADER, *rows(counts))))
    print(f"\nseed {given.seed}, part {number} of {count}, {took:.0f} s")
    each = [f"{kind} {kinds[kind].processor_seconds / max(kinds[kind].tried, 1):.3f}" for kind in kinds]
    print(f"seconds of a processor, each: {', '.join(each)}")
    if given.keep:
        print(whole.write(given.results))
    return 1 if any(failed for _, failed in counts.values()) else 0


Result = tuple[str, int | None, str, float]
"""kind, case, problem, seconds of a processor; the case is None where only seconds are told"""


def _in_processes(given: argparse.Namespace, plan: dict[str, range], base: Path, folder: Path) -> Iterator[Result]:
    """The results of all cases. Each process takes the next few cases when it is done with some."""
    some = [
        (kind, cases[first : first + size])
        for kind, cases in plan.items()
        for size in [min(AT_ONCE.get(kind, inputs.BATCH), -(-len(cases) // given.jobs) or 1)]
        for first in range(0, len(cases), size)
    ]
    known = kills.all_whole(base, folder) if KILLS in plan else {}

    def work_on(which: int, scratch: Path) -> Iterator[Result]:
        kind, cases = some[which]
        before = _spent()
        if kind == KILLS:
            found = kills.try_all(given.seed, cases, known, base=base, scratch=scratch)
        else:
            found = inputs.try_all(given.seed, kind, cases, base=base, scratch=scratch)
        for case, problem in found:
            yield kind, case, problem, 0.0
        yield kind, None, "", _spent() - before

    if given.jobs == 1:
        for which in range(len(some)):
            yield from work_on(which, folder)
        return
    taking = _numbers(len(some))

    def work(number: int, told: int) -> None:
        scratch = folder / f"job-{number}"
        scratch.mkdir()
        while taken := os.read(taking, NUMBER):
            for result in work_on(int.from_bytes(taken), scratch):
                os.write(told, json.dumps(result).encode() + b"\n")

    children = [
        Child(lambda told, number=number: work(number, told), limited=False)  # type: ignore[misc]
        for number in range(given.jobs)
    ]
    waiting = {child.heard: (child, bytearray()) for child in children}
    while waiting:
        for handle in select.select(list(waiting), [], [])[0]:
            child, rest = waiting[handle]
            if told := os.read(handle, 1 << 16):
                rest += told
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


NUMBER = 4
"""bytes of a number in a queue"""


def _numbers(count: int) -> int:
    """A file of which processes take the numbers from 0 on, each once: they share the place where it is read."""
    with tempfile.TemporaryFile() as file:
        file.write(b"".join(number.to_bytes(NUMBER) for number in range(count)))
        file.flush()
        file.seek(0)
        return os.dup(file.fileno())


def _spent() -> float:
    """Seconds of a processor that this process and its children took, as far as those have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    sys.exit(main())
