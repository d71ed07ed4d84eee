"""Three processes work on one model folder for a while; then what was said to be done has to be done.

python -m tests.soak --minutes 60
python -m tests.soak --minutes 2 --seed 7

They fit, discover, name, merge, reject, undo, sort and predict, and decide on the page of a review, in random order.
The order of each process follows from the seed; how they meet does not. Exit code 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from hoarfrost.cli import main as hoarfrost
from hoarfrost.models.description import read_classes

from ..tries.children import Answer, Child, cleaned_up, text_to
from ..tries.deciding import Gone, Page
from ..tries.judge import Words
from ..tries.kills import done
from ..tries.place import build, in_memory
from .checks import wrong_in

SECONDS = 300.0
"""within which a command must answer"""

OFTEN = {
    **{"name": 8, "merge": 4, "reject": 4, "undo": 9, "classes": 3, "predict": 3, "sort": 5, "fit": 1, "discover": 2},
    "review": 3,
}
"""how often each is done"""

VERBS = ("rename", "rename", "merge", "reject", "undo", "undo", "redo")
"""what is decided on a page"""

Told = dict[str, Any]
"""did: a verb; code: of its exit, or the status of an answer; wrong: what was wrong, in words; name: the new one of a
class; version: of the classes after a decision on a page"""


def main() -> int:
    """Lets them work, and checks."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Processes on one model folder.")
    parser.add_argument("--minutes", type=float, default=60, help="(default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="decides what each process does (default: 0)")
    parser.add_argument("--processes", type=int, default=3, help="(default: 3)")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where to work, and what to leave (default: none)")
    given = parser.parse_args()
    cleaned_up()
    torch.set_num_threads(1)
    os.environ["HOARFROST_COMMIT"] = "tried"  # the repository may move on in the meantime
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # forked processes cannot use a GPU that their parent has used
    with tempfile.TemporaryDirectory(prefix="soak-", dir=in_memory()) as scratch:
        build(Path(scratch, "base"))
        folder = given.folder or Path(scratch, "soak")
        folder.mkdir(parents=True)
        for part in ("known", "unsorted", "model", "model2"):
            shutil.copytree(Path(scratch, "base", part), folder / part)
        gc.collect()
        gc.freeze()  # children write nothing into what is here
        before = read_classes(folder / "model2")
        told = list(at_work(given, folder.absolute()))
        wrong = [*(f"{one['did']}: {one['wrong']}" for one in told if "wrong" in one), *wrong_in(folder, before, told)]
        counts = Counter((one["did"], "done" if one["code"] in (0, 200) else "refused") for one in told)
        for did in sorted({did for did, _ in counts}):
            print(f"{did:14} {counts[did, 'done']:5} done {counts[did, 'refused']:5} refused")
        if not load(folder):
            wrong.append("the model does not load")
    print(f"{given.minutes:g} minutes, seed {given.seed}: {len(told)} done or refused, {len(wrong)} wrong")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def load(folder: Path) -> bool:
    """Whether the model is loaded by a command, and decides."""
    while True:
        answer, _ = done(folder, lambda: hoarfrost(("predict", "model2", "unsorted", "--device", "cpu")))
        if answer is not None and answer.code == 0:
            return True
        again, _ = done(folder, lambda: hoarfrost(("undo", "model2")))  # all of its classes may be rejected
        if again is None or again.code != 0:
            return False


def at_work(given: argparse.Namespace, folder: Path) -> Iterator[Told]:
    """What the processes tell, until the time is up."""
    until = time.monotonic() + 60 * given.minutes

    def work(number: int, told: int) -> None:
        chance = random.Random(f"{given.seed} soak {number}")
        while time.monotonic() < until:
            for one in something(chance, folder, number):
                os.write(told, json.dumps(one).encode() + b"\n")

    children = [
        Child(lambda told, number=number: work(number, told), limited=False)  # type: ignore[misc]
        for number in range(given.processes)
    ]
    waiting = {child.heard: child for child in children}
    rests = dict.fromkeys(waiting, b"")
    while waiting:
        for handle in select.select(list(waiting), [], [])[0]:
            if part := os.read(handle, 1 << 16):
                *whole, rests[handle] = (rests[handle] + part).split(b"\n")
                for line in whole:
                    one = json.loads(line)
                    if "broken" in one:
                        raise RuntimeError(one["broken"])
                    yield one
            elif ended := waiting.pop(handle).end():
                raise RuntimeError(ended)


def something(chance: random.Random, folder: Path, number: int) -> Iterator[Told]:
    """Does one thing, and tells what came of it."""
    verb = chance.choices(list(OFTEN), weights=list(OFTEN.values()))[0]
    if verb == "review":
        yield from review(chance, folder)
        return
    words, told = words_of(verb, chance, folder, number)
    answer, ended = done(folder, lambda: hoarfrost(words))
    told["code"] = None if answer is None else answer.code
    if problem := wrong_with(answer, ended, may_fail=verb != "classes"):
        told["wrong"] = f"{' '.join(words)}: {problem}"
    for made in (f"fitted-{number}", f"next-{number}"):
        if verb in ("fit", "discover") and told["code"] == 0 and (folder / made).exists():
            read_classes(folder / made)
            shutil.rmtree(folder / made)
    yield told


def words_of(verb: str, chance: random.Random, folder: Path, number: int) -> tuple[Words, Told]:
    """A command, and what is to be told of it. What it names may be gone before it begins."""
    names = read_classes(folder / "model2").names
    some, other = chance.choice(names), chance.choice(names)
    new = f"class {chance.randrange(10**12)}"
    few = ("--epochs", "1", "--device", "cpu")
    commands: dict[str, Words] = {
        "name": ("name", "model2", f"{some}={new}"),
        "merge": ("merge", "model2", some, other),
        "reject": ("reject", "model2", some),
        "undo": ("undo", "model2"),
        "classes": ("classes", "model2", "--json"),
        "predict": ("predict", "model2", "unsorted", "--device", "cpu"),
        "sort": ("sort", "model2", "unsorted", "--into", "sorted", "--device", "cpu", "--resume"),
        "fit": ("fit", "known", "--out", f"fitted-{number}", *few),
        "discover": ("discover", "model2", "unsorted", "--novel", "2", "--out", f"next-{number}", *few),
    }
    return commands[verb], {"did": verb, **({"name": new} if verb == "name" else {})}


def wrong_with(answer: Answer | None, ended: str, *, may_fail: bool = True) -> str:
    """What is wrong with an answer; a command may be refused, since others decide meanwhile."""
    if answer is None:
        return ended
    err = answer.err.decode()
    if answer.code not in ((0, 2) if may_fail else (0,)) or "Traceback" in err:
        return f"{answer.code}: {err[-400:]!r}"
    return ""


def review(chance: random.Random, folder: Path) -> Iterator[Told]:
    """Decides on a page, whose server is then ended, by force too."""
    err = folder.with_name(f"{folder.name}.review-{os.getpid()}")

    def serve(told: int) -> None:
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(told, 1)
        os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.stdout, sys.stderr = text_to(1), text_to(2)
        if code := hoarfrost(("review", "model2", "--folder", "unsorted", "--no-browser", "--device", "cpu")):
            raise RuntimeError(f"exit code {code}")

    child, forced, lines = Child(serve, limited=False), chance.random() < 0.3, list[bytes]()
    told: Told = {"did": "review", "code": 0}
    try:
        heard = child.lines(SECONDS)
        page = Page(next(heard, b"").decode())
        for _ in range(chance.randrange(1, 12)):
            verb, status, content = page.decide(chance, VERBS)
            yield decided(verb, status, content)
            time.sleep(chance.random() / 5)
        if not forced:
            os.kill(child.number, signal.SIGINT)
            lines = list(heard)
    except (TimeoutError, RuntimeError, *Gone) as error:
        told["wrong"] = f"{type(error).__name__}: {error}"
    ended = child.end(by_force=forced or "wrong" in told)
    said = err.read_text() if err.exists() else ""
    if not forced and "wrong" not in told and (ended or not any(b"Next: hoarfrost sort" in line for line in lines)):
        told["wrong"] = f"{ended}: {lines}, {said[-400:]!r}"
    if "Traceback" in said:
        told["wrong"] = said[-600:]
    err.unlink(missing_ok=True)
    yield told


def decided(verb: str, status: int, content: Any) -> Told:
    """What came of a decision on a page; a refusal or an older version is in order."""
    told: Told = {"did": f"page {verb}", "code": status}
    if status == 200:
        told["version"] = content["version"]
    elif status not in (409, 422):
        told["wrong"] = f"{status}: {content}"
    return told


if __name__ == "__main__":
    sys.exit(main())
