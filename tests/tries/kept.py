"""What is kept of models: tables of classes, and features beside them; and files of one's own that are imported."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hoarfrost.cli import main
from hoarfrost.data.images import ImageFiles, OnDisk
from hoarfrost.models.classes import ClassTable, Edit, Row
from hoarfrost.models.model import Model
from hoarfrost.training.features import FeatureCache

from ..hostile import mutated
from .children import asked
from .hostile_values import NAMES, Random
from .judge import Try, Words
from .place import DISCOVER, EVALUATE, FIT, PREDICT
from .sorting import SORT
from .written import no_file

TABLE_READERS: tuple[Words, ...] = (
    PREDICT,
    EVALUATE,
    SORT,
    ("classes", "model2"),
    ("undo", "model2"),
    ("name", "model2", "new-1=rose"),
    (*DISCOVER[:1], "model2", *DISCOVER[2:]),
)


def tables(random: Random) -> Try:
    """A table of classes with decisions that nobody may have made."""
    path = Path("model2/model.json")
    content = json.loads(path.read_bytes())
    rows = [Row(row["name"], row["step"]) for row in content["classes"]["rows"]]
    edits = [_edit(random, len(rows)) for _ in range(random.choice([1, 2, 5, len(rows), 30]))]
    if random.random() < 0.2:
        edits = [Edit("reject", index) for index in range(len(rows))]
    table = ClassTable(tuple(rows), tuple(edits))
    try:
        names = list(table.names)
    except IndexError:
        names = content["class_names"]
    content |= {"classes": table.to_json(), "class_names": names}
    path.write_text(json.dumps(content))
    command = random.choice(TABLE_READERS)
    blamed = ("model2", "new-1", "rose", "'", "new ones")
    return Try(command, f"{command[0]}, a table of classes: {edits[:4]}", blamed=blamed)


def _edit(random: Random, rows: int) -> Edit:
    verb = random.choice(["rename", "merge", "merge", "reject", "reject"])
    id_, into = (random.choice([*range(rows), *range(rows), -1, rows, 10**9]) for _ in range(2))
    name = random.choice([*NAMES, None]) if verb == "rename" else None
    return Edit(verb, id_, name=name, into=into if verb == "merge" and random.random() < 0.9 else None)  # type: ignore


HEADERS = ("1+" * 5000, "(" * 9000, "-" * 9000 + "1", "[" * 4000, "{'descr': '<f4'}", "{'a':" * 3000, "9" * 9000, "")


def features(random: Random) -> Try:
    """Features that were kept and then changed: what is found is the same as without."""
    first = asked(lambda: _looked_at(()))
    (path,) = Path("kept").glob("*.npy")
    content = path.read_bytes()
    match random.randrange(6):
        case 0:
            what = "cut short"
            path.write_bytes(content[: random.randrange(len(content))])
        case 1:
            what = "bytes of its head changed"
            path.write_bytes(mutated(content[:128], random.getrandbits(32)) + content[128:])
        case 2:
            header = random.choice(HEADERS)
            what = f"another head, {header[:9]!r}"
            path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content[128:])
        case 3:
            what = no_file(random, path)
        case 4:
            what = "parts of an ended command"
            path.rename(path.with_name(f"{path.stem}.0.{random.choice([1, 3, 9, 10**11])}.part.npy"))
        case _:
            what = "remains of others"
            path.with_name(f".{path.name}.123.part").write_bytes(content[:100])
    return Try((), f"{path}: {what}", expected=first.out, main=_looked_at)


def _looked_at(_: Words) -> int:
    """Says which features the images have; they are those of no network, which is quicker."""
    network = Model.load(Path("model2")).network
    files = ImageFiles(sorted(Path("unsorted").iterdir()), 16, 1)
    cache = FeatureCache()
    cache.folders = (Path("kept"),)

    def compute(images: OnDisk) -> Iterator[NDArray[np.float32]]:
        pixels = images[np.arange(len(images))].reshape(len(images), -1).astype(np.float32)
        yield np.repeat(pixels.mean(axis=1, keepdims=True), network.decisive_width, axis=1)

    found = np.asarray(cache.of(files, network, compute))
    print(hashlib.sha256(found.tobytes()).hexdigest())
    return 0


LIES = (
    "raise ValueError('no')",
    "raise SystemExit(5)",
    "1 / 0",
    "def f(): f()\nf()",
    "import nothing_that_is_there",
    "def broken(:",
    "while True: pass",
    "import time\ntime.sleep(1000)",
    "from hoarfrost.models.backbones import BACKBONES\nBACKBONES['mine'] = lambda channels: 5",
    "from hoarfrost.models.backbones import BACKBONES\nBACKBONES['mine'] = 5",
    "import sys\nsys.modules['hoarfrost.errors'] = None",
    "raise ValueError('\\x1b[2J\\n\\nTraceback')",
    "from hoarfrost.methods import METHODS\nMETHODS['mine'] = None",
    "\0",
    "x = '\ud800'",
)


def plugins(random: Random) -> Try:
    """A file of one's own that raises, loops or is no Python."""
    code = random.choice(LIES)
    Path("mine.py").write_bytes(code.encode(errors="surrogatepass"))
    verb = random.choice([("--backbone", "mine"), ("--method", "mine"), ("--method", "frost")])

    def imported(arguments: Words) -> object:
        os.environ["HOARFROST_IMPORT"] = "mine.py"
        signal.setitimer(signal.ITIMER_REAL, 2)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        try:
            return main(arguments)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            del os.environ["HOARFROST_IMPORT"]

    return Try((*FIT, *verb), f"HOARFROST_IMPORT: {code[:40]!r}", main=imported, codes=(0, 2, 130))
