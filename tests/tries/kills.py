"""Commands that are killed, at places that a seed decides, and gone on with: what they leave must not tell.

There are four ways to die: at once before a file operation; in the midst of writing a file; at once at any call of a
function; and by a signal that asks to end. A quota that is used up, so that no file can be made any more, ends a
command too. In between people may rename folders and move files, and the clock may have gone back.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from hoarfrost.cli import main

from .children import Answer, Child, asked, text_to
from .deciding import Page, gone_on_with, reviewed, wrong_after
from .judge import Words
from .place import DISCOVER, FIT_FEW, PREDICT, REPRODUCE, RUN, copied
from .sorting import images_in

PATHS_OF = {"open": 1, "os.rename": 2, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1, "os.truncate": 1, "os.link": 2}
"""what Python tells of before it is done to files, and how many of its arguments are paths"""

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

TIME = re.compile(rb"<dt>(?:training )?time</dt>\s*<dd>\d+ s</dd>")
"""what a report says of how long things took"""

OF_RUNS = re.compile(r"\[\d+/\d+\] |\d+ of \d+ runs to do|about .* in total|run the same command again")
"""what ``reproduce`` says of its runs"""

SORT: Words = ("sort", "model2", "unsorted", "--into", "made", "--device", "cpu")

SECONDS = 300.0

Event = Callable[[str, tuple[Any, ...]], None]


@dataclass(frozen=True)
class Work:
    """A command to be killed."""

    often: int
    parts: Words
    command: Words
    again: Words = ()
    """what is added to go on"""
    between: Callable[[random.Random, Path], None] | None = None
    """what people do to the folder after a kill; then what is left has to be right, and not the same"""
    wrong: Callable[[Path], str] | None = None
    """what is wrong with the folder in the end, where it need not be the same"""
    finished: Callable[[Path, Path], bool] = lambda folder, _base: (folder / "made").exists()
    """whether all is done in a folder that was copied from another one"""

    def do(self, words: Words = ()) -> object:
        """Carries it out in the current folder."""
        if self.command[0] != "save":
            return main((*self.command, *words))
        from hoarfrost import Learner

        Learner.load("model2").save("made")
        return 0


def moved(chance: random.Random, folder: Path) -> None:
    """Folders of sorted images under other names, images in other folders, and one more image to be sorted."""
    folders = sorted(path for path in (folder / "made").glob("*") if path.is_dir() and path.name != ".sorted")
    for path in folders:
        if chance.random() < 0.5 and not (other := path.with_name(f"{path.name} renamed")).exists():
            path.rename(other)
    for path in sorted((folder / "made").glob("[!.]*/*")):
        if chance.random() < 0.2:
            (folder / "made" / "moved").mkdir(exist_ok=True)
            path.rename(folder / "made" / "moved" / f"{len(list((folder / 'made' / 'moved').iterdir()))}{path.suffix}")
    more = sorted((folder / "unsorted").iterdir())
    if chance.random() < 0.3:
        (folder / "unsorted" / f"more-{len(more)}.png").write_bytes(more[0].read_bytes() + bytes(len(more)))


def decided(folder: Path, base: Path) -> bool:
    """Whether a model has other classes than before."""
    (model,) = folder.glob("model*")
    return (model / "model.json").read_bytes() != (base / model.name / "model.json").read_bytes()


def never(_folder: Path, _base: Path) -> bool:
    """Of what may be done again."""
    return False


def not_sorted_once(folder: Path) -> str:
    """What is wrong with sorted images: each has to be there once, and nothing else but a note."""
    made, given = images_in(folder / "made"), images_in(folder / "unsorted")
    left = sorted(path.name for path in (folder / "made" / ".sorted").iterdir())
    if left != ["config.json", "images.jsonl"]:
        return f"left behind: {left}"
    return "" if made == given else f"doubled: {sum((made - given).values())}, lost: {sum((given - made).values())}"


WORKS = {
    "fit": Work(24, ("few",), FIT_FEW, ("--resume",)),
    "discover": Work(3, ("model", "unsorted"), DISCOVER, ("--resume",)),
    "run": Work(1, ("checked",), RUN, ("--resume",)),
    "run --share": Work(1, ("checked",), (*RUN, "--share", "shelf"), ("--resume",)),
    "predict": Work(7, ("model2", "unsorted"), (*PREDICT, "--out", "made")),
    "sort": Work(9, ("model2", "unsorted"), SORT, ("--resume",), moved, not_sorted_once),
    "save": Work(7, ("model", "model2"), ("save",), finished=never),
    "name": Work(3, ("model2",), ("name", "model2", "new-1=rose"), finished=decided),
    "merge": Work(3, ("model2",), ("merge", "model2", "new-1", "new-2"), finished=decided),
    "reject": Work(3, ("model2",), ("reject", "model2", "new-1"), finished=decided),
    "undo": Work(3, ("model3",), ("undo", "model3"), finished=decided),
    "reproduce": Work(1, (), REPRODUCE, finished=never),
}

REVIEW: Words = ("review", "model2", "--folder", "unsorted", "--no-browser", "--device", "cpu")
REVIEWED = "review"
OFTEN = 6
"""as in ``Work``: how often a review is killed"""


@dataclass(frozen=True)
class Whole:
    """A work that was not killed: what it left, and how long the way there was."""

    left: dict[str, object]
    operations: int
    writes: int
    calls: int
    answers: bool
    """whether it is a command, which answers to signals"""


def install(hook: Event) -> None:
    """Has Python tell of all that is done to files in the current folder, before it is done."""
    here = f"{Path.cwd()}/"

    def told(event: str, given: tuple[Any, ...]) -> None:
        if event not in PATHS_OF or (event == "open" and not (isinstance(given[2], int) and given[2] & WRITES)):
            return
        path = os.fsdecode(given[0]) if isinstance(given[0], str | bytes | os.PathLike) else None
        if path is not None and (not path.startswith("/") or path.startswith(here)):
            hook(event, (path, *given[1:]))

    sys.addaudithook(told)


def left_in(folder: Path) -> dict[str, object]:
    """Every file below a folder and what is in it, but for how long things took."""
    found: dict[str, object] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix != ".log"):
        name, content = str(path.relative_to(folder)), path.read_bytes() if path.is_file() else None
        if content is not None and path.suffix in (".json", ".jsonl"):
            parts = [content] if path.suffix == ".json" else content.splitlines()
            found[name] = [_timeless(json.loads(part)) for part in parts if part]
        elif content is not None and path.suffix == ".html":
            found[name] = TIME.sub(b"", content)
        else:
            found[name] = content
    return found


def _timeless(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _timeless(item) for key, item in content.items() if key not in ("seconds", "time")}
    return [_timeless(item) for item in content] if isinstance(content, list) else content


def prepare(folder: Path, work: Work, base: Path) -> None:
    """The folder before the work."""
    copied(base, work.parts, folder)
    if work.command[0] == "save":
        shutil.copytree(folder / "model", folder / "made")


def whole(name: str, base: Path, scratch: Path) -> Whole:
    """Does a work to the end and counts."""
    work, folder = WORKS[name], scratch / f"whole {name}"
    prepare(folder, work, base)

    def count(told: int) -> None:
        os.chdir(folder)
        counts = {"operations": 0, "writes": 0, "calls": 0}

        def seen(event: str, _: tuple[Any, ...]) -> None:
            counts["operations"] += 1
            counts["writes"] += event == "open"

        def called(*_: object) -> None:
            counts["calls"] += 1

        install(seen)
        answer = asked(lambda: _profiled(work.do, called))
        os.write(told, json.dumps(counts | {"answer": str(answer)} if answer.code != 0 else counts).encode() + b"\n")

    child = Child(count, limited=False)
    (line,) = child.lines(SECONDS)
    child.end()
    content = json.loads(line)
    if "answer" in content:
        raise RuntimeError(f"{name}: {content['answer']}")
    found = Whole(left_in(folder), **content, answers=work.command[0] != "save")
    shutil.rmtree(folder)
    return found


def _profiled(call: Callable[[], object], called: Callable[[FrameType, str, object], None]) -> object:
    sys.setprofile(called)
    try:
        return call()
    finally:
        sys.setprofile(None)


class Way:
    """A way to die, at a place."""

    def __init__(self, random: random.Random, known: Whole) -> None:
        answered = ["signal", "quota"] if known.answers else []
        self.kind = random.choice(["operation", "operation", "writing", "call", *answered])
        most = {"operation": known.operations, "writing": known.writes, "call": known.calls, "signal": known.operations}
        most["quota"] = known.writes
        self.place = random.randrange(1, most[self.kind] + 1)
        self.bytes = random.choice([0, 1, 10, 100, 1000, 10_000])
        self.signal = random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])

    def __str__(self) -> str:
        more = {"writing": f" after {self.bytes} bytes", "signal": f" by {self.signal.name}"}
        return f"{self.kind} {self.place}{more.get(self.kind, '')}"

    def apply(self, call: Callable[[], object]) -> object:
        """Does what is to be killed."""
        counted = 0

        def die() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def seen(event: str, given: tuple[Any, ...]) -> None:
            nonlocal counted
            if self.kind in ("writing", "quota") and event != "open":
                return
            counted += 1
            if self.kind == "quota" and counted >= self.place:
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), given[0])
            if counted != self.place:
                return
            if self.kind == "operation":
                die()
            elif self.kind == "signal":
                os.kill(os.getpid(), self.signal)
            else:
                die_while_writing(given, self.bytes)

        def called(*_: object) -> None:
            nonlocal counted
            counted += 1
            if counted == self.place:
                die()

        if self.kind == "call":
            return _profiled(call, called)
        install(seen)
        return call()


def turn_back_the_clock() -> None:
    """From now on, in this process, it is a day earlier whenever somebody looks."""
    days = itertools.count(1)
    now = time.time()
    time.time = lambda: now - 86_400 * next(days)


def done(
    folder: Path, call: Callable[[], object], way: Way | None = None, *, backwards: bool = False
) -> tuple[Answer | None, str]:
    """What a child answers that does the work, None where it died; and how it ended."""

    def work(told: int) -> None:
        os.chdir(folder)
        if backwards:
            turn_back_the_clock()
        answer = asked(call if way is None else lambda: way.apply(call))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        said = answer.code, answer.out.decode(errors="replace"), answer.err.decode(errors="replace")
        os.write(told, json.dumps(said).encode() + b"\n")

    child = Child(work, limited=False)
    try:
        lines = list(child.lines(SECONDS))
    except TimeoutError:
        child.end(by_force=True)
        return None, f"it took more than {SECONDS:.0f} s"
    ended = child.end()
    if not lines:
        return None, ended
    code, out, err = json.loads(lines[0])
    return Answer(code, out.encode(), err.encode()), ""


def tried(seed: int, case: int, known: dict[str, Whole], *, base: Path, scratch: Path) -> str:
    """One work, killed once, twice or three times, and gone on with; what is wrong, or nothing."""
    chance = random.Random(f"{seed} kills {case}")
    often = {name: work.often for name, work in WORKS.items()} | {REVIEWED: OFTEN}
    name = chance.choices(list(often), weights=list(often.values()))[0]
    if name == REVIEWED:
        return _review(chance, base, scratch / f"kill-{case}")
    work, folder = WORKS[name], scratch / f"kill-{case}"
    prepare(folder, work, base)
    ways = [Way(chance, known[name]) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
    backwards = chance.random() < 0.2
    said = f"{name}, {', then '.join(map(str, ways))}{', the clock goes back' if backwards else ''}"
    try:
        for number, way in enumerate(ways):
            words = work.again if number else ()
            if number and not work.again and work.finished(folder, base):
                break
            answer, ended = done(folder, lambda words=words: work.do(words), way)  # type: ignore[misc]
            if answer is None and ended not in ("ended by SIGKILL", "ended by SIGXFSZ"):
                return f"{said}: {ended}"
            if answer is not None and (problem := _after_signal(answer, way)):
                return f"{said}: {problem}"
            if work.between is not None and (folder / "made" / ".sorted").exists():
                work.between(chance, folder)
        if work.again or not work.finished(folder, base):
            answer, ended = done(folder, lambda: work.do(work.again), backwards=backwards)
            if answer is None or answer.code != 0:
                return f"{said}: going on, {ended or answer}"
        if problem := work.wrong(folder) if work.wrong else different(known[name].left, left_in(folder)):
            return f"{said}: {problem}"
        return ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _review(chance: random.Random, base: Path, folder: Path) -> str:
    """The server of a review, killed while it writes decisions; what is wrong then, or nothing."""
    copied(base, ("model2", "unsorted"), folder)
    kind, place, size = (
        chance.choice(["operation", "writing"]),
        chance.randrange(1, 30),
        chance.choice([0, 1, 100, 1000]),
    )
    said = f"review, {kind} {place}{f' after {size} bytes' if kind == 'writing' else ''}"

    def serve(told: int) -> None:
        os.chdir(folder)
        counted = 0

        def seen(event: str, given: tuple[Any, ...]) -> None:
            nonlocal counted
            if "model2/" not in given[0] or (kind == "writing" and event != "open"):
                return
            counted += 1
            if counted == place and kind == "operation":
                os.kill(os.getpid(), signal.SIGKILL)
            elif counted == place:
                die_while_writing(given, size)

        install(seen)
        os.dup2(told, 1)
        os.dup2(os.open("err", os.O_WRONLY | os.O_CREAT), 2)
        sys.stdout, sys.stderr = text_to(1), text_to(2)
        main(REVIEW)

    try:
        child, ended = Child(serve, limited=False), ""
        try:
            line = next(child.lines(SECONDS), b"")
            versions = reviewed(chance, Page(line.decode()), 10)
        except TimeoutError:
            return f"{said}: it does not begin"
        finally:
            ended = child.end(by_force=True)
        err = (folder / "err").read_text()
        if ended not in ("ended by SIGKILL", "ended by SIGXFSZ") or "Traceback" in err:
            return f"{said}: {ended}, {err[-400:]!r}"
        model = folder / "model2"
        problem = wrong_after(model, versions)
        problem = problem or gone_on_with(model, versions, lambda words: done(folder, lambda: main(words)))
        return f"{said}: {problem}" if problem else ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def die_while_writing(given: tuple[Any, ...], size: int) -> None:
    """Has the system end this process where it writes so many bytes more of a file that it opens now."""
    path = Path(given[0])
    before = path.stat().st_size if path.exists() and given[2] & os.O_APPEND else 0
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + size, resource.RLIM_INFINITY))


def _after_signal(answer: Answer, way: Way) -> str:
    """What is wrong with the answer of a command that was not ended by force."""
    if answer.code == 0:
        return ""  # all was done
    err = answer.err.decode()
    lines = [line for line in err.splitlines() if line and "  epoch " not in line and not OF_RUNS.match(line)]
    lines = [line for line in lines if not line.startswith("hoarfrost: warning: ")]
    code = {"signal": 128 + way.signal, "quota": 2}.get(way.kind)
    if answer.code != code or len(lines) != 1 or "Traceback" in err:
        return f"it answered {answer.code}: {err[-400:]!r}"
    return ""


def different(expected: dict[str, object], found: dict[str, object]) -> str:
    """What differs, in words."""
    if more := sorted(found.keys() - expected.keys()):
        return f"left behind: {', '.join(more[:4])}"
    if less := sorted(expected.keys() - found.keys()):
        return f"missing: {', '.join(less[:4])}"
    other = [name for name, content in expected.items() if found[name] != content]
    return f"another content: {', '.join(other[:4])}" if other else ""


def all_whole(base: Path, scratch: Path) -> dict[str, Whole]:
    """What each work leaves that is not killed."""
    return {name: whole(name, base, scratch) for name in WORKS}


def try_all(
    seed: int, cases: Sequence[int], known: dict[str, Whole], *, base: Path, scratch: Path
) -> Iterator[tuple[int, str]]:
    """The cases with what is wrong with each."""
    for case in cases:
        yield case, tried(seed, case, known, base=base, scratch=scratch)
