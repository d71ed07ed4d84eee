"""What is kept of models: tables of classes, and features beside them; and files of one's own that are imported."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import traceback
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
from .written import no_file, places_in

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


NUMBERED = ("channels", "heads", "classes", "temperature", "calibration", "discovery")
OTHER_NUMBERS: tuple[object, ...] = (
    0,
    0.0,
    -1,
    -0.5,
    1.5,
    1e-308,
    1e-40,
    1e30,
    1e38,
    1e308,
    -1e308,
    2**62,
    10**9,
    [],
    None,
)


def numbers(random: Random) -> Try:
    """A model with numbers that no training makes: of what it expects, of what it found, of its classes."""
    path = Path("model2/model.json")
    content = json.loads(path.read_bytes())
    places = [place for place in places_in(content) if place[0] in NUMBERED]
    said = []
    # What lies deep comes first: it may be gone after what lies above.
    for *way, last in sorted(random.sample(places, random.choice([1, 1, 2, 4])), key=len, reverse=True):
        inside = content
        for key in way:
            inside = inside[key]
        before = inside[last]
        inside[last] = (
            before * 2 if isinstance(before, list) and random.random() < 0.5 else random.choice(OTHER_NUMBERS)
        )
        said.append(f"{'.'.join(map(str, (*way, last)))} {inside[last]}"[:60])
    path.write_text(json.dumps(content))
    discover = (*DISCOVER[:1], "model2", *DISCOVER[2:])
    commands: tuple[Words, ...] = (PREDICT, (*PREDICT, "--json"), EVALUATE, SORT, ("classes", "model2"))
    command = random.choice((*commands, discover, (*discover[:3], *discover[5:])))
    return Try(command, f"{command[0]}, {', '.join(said)}", blamed=("model2", "new ones", "images", "new class"))


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

NETWORK = """
import torch
from hoarfrost.models.backbone import Backbone, Input
from hoarfrost.models.backbones import BACKBONES
class Mine(Backbone):
    width = {width}
    input = Input({given})
    pretrained = {pretrained}
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(1, 4)
    @property
    def parts(self):
        return {parts}
    def forward(self, images):
        features = self.one(images.mean(dim=(1, 2, 3))[:, None])
        {forward}
BACKBONES['mine'] = lambda channels: Mine()
"""

WELL = {"width": "4", "given": "", "pretrained": "False", "parts": "{'one': self.one}", "forward": "return features"}

UNTRUE = {
    "width": ("5", "0", "-1", "2.5", "'4'", "10**12", "None"),
    "given": ("side=0", "side=-8", "channels=2", "channels=3", "mean=(0.5,)", "side=10**9", "side='8'"),
    "pretrained": ("True", "'yes'", "None"),
    "parts": ("{}", "None", "{'one': self}", "{'two': torch.nn.Linear(1, 1)}", "[self.one]", "1 / 0"),
    "forward": (
        "return features[:-1]",
        "return features[0]",
        "return features * float('nan')",
        "return features.double()",
        "return features.detach().numpy()",
        "return features.detach()",
        "return torch.randn(len(images), 4)",
        "return None",
        "raise ValueError('no')",
        "raise SystemExit(5)",
        "1 / 0",
        "while True: pass",
        "return features.to('meta')",
        "images.zero_(); return features",
    ),
}
"""what a backbone may say of itself that is not so"""


def _code(random: Random) -> str:
    """A file that cannot be imported, or a backbone that lies."""
    if random.random() < 0.4:
        return random.choice(LIES)
    some = random.choice(sorted(UNTRUE))
    return NETWORK.format(**{**WELL, some: random.choice(UNTRUE[some])})


def plugins(random: Random) -> Try:
    """A file of one's own that raises, loops, lies or is no Python; or a package that does."""
    code = _code(random)
    Path("mine.py").write_bytes(code.encode(errors="surrogatepass"))
    verb: Words = random.choice([*2 * [("--backbone", "mine")], ("--method", "mine"), ("--method", "frost")])
    if NETWORK[:40] in code:
        verb = ("--backbone", "mine", "--set", random.choice(["fit_frozen=[]", 'fit_frozen=["all"]']))
    as_package = NETWORK[:40] not in code and random.random() < 0.3
    if as_package:
        Path("mine-1.dist-info").mkdir()
        Path("mine-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
        points = "".join(f"[hoarfrost.{kind}]\nmine = mine:MINE\n" for kind in ("methods", "backbones", "datasets"))
        Path("mine-1.dist-info/entry_points.txt").write_text(points)

    def imported(arguments: Words) -> object:
        if as_package:
            sys.path.insert(0, str(Path().absolute()))
        else:
            os.environ["HOARFROST_IMPORT"] = "mine.py"
        signal.setitimer(signal.ITIMER_REAL, 2)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        try:
            return main(arguments)
        except Exception as error:
            *_, last = traceback.extract_tb(error.__traceback__)
            if not last.filename.endswith("mine.py"):
                raise
            print(f"hoarfrost: its author sees a traceback: {type(error).__name__}", file=sys.stderr)
            return 2
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.environ.pop("HOARFROST_IMPORT", None)
            if as_package:
                sys.path.pop(0)
                sys.modules.pop("mine", None)

    what = " ".join(line for line in code.splitlines() if line not in NETWORK) or code
    said = f"{'a package' if as_package else 'HOARFROST_IMPORT'}, {verb[0]}: {what[:120]!r}"
    return Try((*FIT, *verb), said, main=imported, codes=(0, 2, 130))
