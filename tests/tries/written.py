"""What was once written here, as a failing disk or a stranger would leave it: JSON, logs, tensors, kept pixels."""

from __future__ import annotations

import json
import math
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hoarfrost.cli import main
from hoarfrost.data.cache import ImageStorage
from hoarfrost.data.datasets import read_images
from hoarfrost.errors import InputError
from tools.results.__main__ import main as paper_main

from ..hostile import mutated
from .children import asked
from .hostile_values import NAMES, Random, value
from .judge import Try, Words
from .place import DISCOVER, EVALUATE, FIT, PREDICT, REPRODUCE, RUN, files_below

TEXTS = (
    b"",
    b"{}",
    b"[]",
    b"5",
    b"null",
    b"{",
    b'"text"',
    b"nan",
    b"\x00" * 100,
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b'{"a": "\xff"}',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"[" * 5000 + b"]" * 5000,
    b"9" * 6000,
    b'{"format": ' + b"9" * 6000 + b"}",
    b'{"format": 1e999}',
    b'{"format": NaN}',
    b'{"format": 1}',
    b'{"format": 1, "format": 2}',
    b'{"format": "\\ud800"}',
)


def places_in(content: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to everything within JSON content."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    found = [where] if where else []
    for key, item in items:
        found += places_in(item, (*where, key))
    return found


def changed_json(random: Random, content: Any) -> Any:
    """JSON content with one to three things replaced, removed or added."""
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        places = places_in(content)
        if not places:
            return content
        # What lies deep is not chosen more often, though there is more of it.
        depth = random.randrange(1, max(map(len, places)) + 1)
        *way, last = random.choice([place for place in places if len(place) <= depth])
        inside = content
        for key in way:
            inside = inside[key]
        match random.randrange(5):
            case 0:
                del inside[last]
            case 1 if isinstance(inside, dict):
                inside[random.choice(NAMES)] = value(random)
            case 2 if isinstance(inside, list):
                inside.append(value(random))
            case 3 if isinstance(inside[last], str):
                inside[last] = random.choice(NAMES)
            case _:
                inside[last] = value(random)
    return content


def changed_file(random: Random, path: Path) -> str:
    """Changes a file of JSON, or of lines of JSON; says how."""
    content = path.read_bytes()
    match random.randrange(7):
        case 0:
            path.write_bytes(content[: random.randrange(len(content))])
            return "cut short"
        case 1:
            path.write_bytes(mutated(content, random.getrandbits(32)))
            return "bytes changed"
        case 2:
            text = random.choice(TEXTS)
            if path.suffix == ".jsonl" and random.random() < 0.7:
                lines = content.splitlines()
                lines.insert(random.randrange(len(lines) + 1), text.replace(b"\n", b""))
                path.write_bytes(b"\n".join(lines) + b"\n")
            else:
                path.write_bytes(text)
            return f"replaced by {text[:20]!r}"
        case 3 if random.random() < 0.3:
            return no_file(random, path)
        case _:
            parts = [content] if path.suffix == ".json" else content.splitlines()
            which = random.randrange(len(parts))
            parts[which] = json.dumps(changed_json(random, json.loads(parts[which]))).encode()
            path.write_bytes(b"\n".join(parts) + b"\n")
            return "other values"


def no_file(random: Random, path: Path) -> str:
    """Puts something else in the place of a file."""
    path.unlink()
    match random.randrange(5):
        case 0:
            path.mkdir()
            return "a folder in its place"
        case 1:
            os.mkfifo(path)
            return "a pipe in its place"
        case 2:
            path.symlink_to(random.choice(["nowhere", path.name, "/dev/zero"]))
            return "a link in its place"
        case 3:
            path.write_bytes(b"{")
            os.truncate(path, 5 << 30)
            return "five GiB of nothing"
        case _:
            return "missing"


def _printed_if_finished(arguments: Words) -> object:
    """``reproduce``, but for runs that would have to be carried out."""
    from hoarfrost.paper.tables import get_table, planned

    if any(run.metrics(Path("all")) is None for run in planned(get_table("tableA3"), ("digits",), 1, 1)):
        arguments = (*arguments, "--dry-run")
    return main(arguments)


Main = Callable[[Words], object]

JSON_FILES: list[tuple[int, str, Words, Main | None]] = [
    (4, "model2/model.json", PREDICT, None),
    (3, "model2/model.json", EVALUATE, None),
    (1, "model/model.json", DISCOVER, None),
    (2, "model/config.json", (*FIT, "--out", "model", "--resume"), None),
    (2, "run/config.json", (*RUN, "--out", "run", "--resume"), None),
    (3, "run/metrics.json", (*RUN, "--out", "run", "--resume"), None),
    (3, "all/*/*/metrics.json", REPRODUCE, _printed_if_finished),
    (1, "all/*/*/config.json", REPRODUCE, _printed_if_finished),
    (3, "kept/*.json", ("page", "--results", "kept"), lambda arguments: paper_main(list(arguments))),
    (1, "kept/*.json", ("keep", "run", "--to", "kept"), lambda arguments: paper_main(list(arguments))),
    (1, "run/*.json", ("keep", "run", "--to", "new"), lambda arguments: paper_main(list(arguments))),
    (2, "made.unfinished/*.json*", (*FIT, "--epochs", "3", "--resume"), None),
    (1, "whole.unfinished/*.json*", (*FIT, "--out", "whole", "--resume"), None),
    (1, "made/log.jsonl", (*RUN, "--resume"), None),
    (1, "made/unfinished/stage-?/*.json", (*RUN, "--resume"), None),
    (1, "shelf/*/*.json*", (*RUN, "--out", "new", "--share", "shelf"), None),
]
"""how often, which file, and the command that reads it"""


def needs_of(command: Words, pattern: str) -> Words:
    """The parts of the place that a command needs."""
    if pattern.startswith("whole"):
        return ("stopped-at-the-end",)
    if pattern.startswith("made"):
        return ("stopped-run",) if command[0] == "run" else ("stopped-fit",)
    first = pattern.partition("/")[0]
    images = {"run": "checked", "fit": "known", "evaluate": "checked", "predict": "unsorted", "discover": "unsorted"}
    more = ("run",) if command[0] == "keep" else ()
    return tuple(dict.fromkeys((first, *more, *([images[command[0]]] if command[0] in images else []))))


def json_files(random: Random, place: Callable[[Words], None]) -> Try:
    """A file of JSON that was changed."""
    _, pattern, command, called = random.choices(JSON_FILES, weights=[weight for weight, *_ in JSON_FILES])[0]
    place(needs_of(command, pattern))
    path = random.choice(sorted(Path().glob(pattern)))
    what = changed_file(random, path)
    more = ("--json",) if random.random() < 0.2 and called is None else ()
    folder = pattern.partition("/")[0]
    return Try(
        (*command, *more),
        f"{' '.join(command[:2])}, {path}: {what}",
        blamed=(folder.removesuffix(".unfinished"), path.name),
        codes=(0, 1, 2) if command[0] == "reproduce" else (0, 2),
        main=called,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Tensors
# ---------------------------------------------------------------------------------------------------------------------

TENSOR_FILES: list[tuple[int, str, Words]] = [
    (5, "model2/weights.safetensors", PREDICT),
    (3, "model2/*.safetensors", EVALUATE),
    (2, "model2/prototypes.safetensors", PREDICT),
    (1, "model/*.safetensors", DISCOVER),
    (3, "made.unfinished/checkpoint.safetensors", (*FIT, "--epochs", "3", "--resume")),
    (1, "whole.unfinished/*.safetensors", (*FIT, "--out", "whole", "--resume")),
    (1, "made/unfinished/stage-1/*.safetensors", (*RUN, "--resume")),
    (1, "shelf/*/*.safetensors", (*RUN, "--out", "new", "--share", "shelf")),
]


ANSWERS = ("out of memory", "the loss became NaN or infinite")
"""what is said of numbers and sizes beyond all bounds that only show in use"""


def tensors(random: Random, place: Callable[[Words], None]) -> Try:
    """A file of tensors that was changed."""
    _, pattern, command = random.choices(TENSOR_FILES, weights=[weight for weight, *_ in TENSOR_FILES])[0]
    place(needs_of(command, pattern))
    path = random.choice(sorted(Path().glob(pattern)))
    content, refused = path.read_bytes(), False
    match random.randrange(7):
        case 0:
            what, refused = "cut short", True
            path.write_bytes(content[: random.randrange(len(content))])
        case 1:
            what = "bytes changed"
            path.write_bytes(mutated(content, random.getrandbits(32)))
        case 2:
            what = "bytes of its head changed"
            path.write_bytes(mutated(content[:200], random.getrandbits(32)) + content[200:])
        case 3:
            what = no_file(random, path)
            refused = not pattern.startswith("made.unfinished")
        case 4:
            what, refused = _not_finite(random, path)
        case 5:
            what = "another head"
            length = int.from_bytes(content[:8], "little")
            head = changed_json(random, json.loads(content[8 : 8 + length]))
            text = json.dumps(head).encode()
            path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
        case _:
            others = [other for other in files_below(path.parts[0]) if other.suffix == ".safetensors" and other != path]
            others = others or [path]
            what = "another file of tensors"
            path.write_bytes(random.choice(others).read_bytes())
    more = ("--json",) if random.random() < 0.2 else ()
    folder = pattern.partition("/")[0].removesuffix(".unfinished")
    return Try(
        (*command, *more),
        f"{command[0]}, {path}: {what}",
        blamed=(folder, path.name, *ANSWERS),
        refused=refused,
        may_leave=("new/",) if folder == "shelf" else (),  # with a stage one that was taken, --resume may go on
    )


def _not_finite(random: Random, path: Path) -> tuple[str, bool]:
    """Puts a number that is none into one of the tensors; such a thing is refused wherever it is used."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(path, framework="pt") as file:
        held, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata()  # noqa: SIM118
    real = sorted(key for key, tensor in held.items() if tensor.is_floating_point() and tensor.numel())
    if not real:  # a file of whole numbers alone
        path.write_bytes(mutated(path.read_bytes(), random.getrandbits(32)))
        return "bytes changed", False
    name = random.choice(real)
    number = random.choice([float("nan"), float("inf"), -float("inf"), 1e38, -3e38])
    held[name].reshape(-1)[random.randrange(held[name].numel())] = number
    if random.random() < 0.3:
        held[name] = torch.full_like(held[name], number)
    path.unlink()
    save_file(held, path, metadata)
    return f"{number} in {name}", not math.isfinite(number) and path.name == "weights.safetensors"


# ---------------------------------------------------------------------------------------------------------------------
# Kept pixels
# ---------------------------------------------------------------------------------------------------------------------


def caches(random: Random) -> Try:
    """Decoded images that were kept and then changed: what is predicted is the same as without."""
    command = (*PREDICT, "--cache", "cache")
    called = None if random.random() < 0.05 else _looked_at
    first = asked(lambda: (called or main)(command))
    path = next(files_below("cache"))
    content = path.read_bytes()
    match random.randrange(6):
        case 0:
            what = "cut short"
            path.write_bytes(content[: random.randrange(len(content))])
        case 1 | 2:
            what = "bytes changed"
            path.write_bytes(mutated(content, random.getrandbits(32)))
        case 3:
            what = no_file(random, path)
        case 4:
            what = "a note of files that cannot be read"
            rows = random.choice([[0], [0, 1], list(range(7)), ["0"], [1e400], [-1], {"0": 1}, None, [10**30], 5])
            path.with_suffix(".broken").write_text(json.dumps({"rows": rows}))
            if random.random() < 0.5:
                path.unlink()
        case _:
            what = "remains of others"
            path.with_name(f".{path.name}.abcd.part").write_bytes(content[:100])
            path.with_name(f"{random.choice(NAMES).replace('/', '')[:80]}.pixels").write_bytes(b"")
    return Try(command, f"{path}: {what}", blamed=("cache",), expected=first.out, main=called)


def _looked_at(_: Words) -> int:
    """Reads the images as ``predict`` does, and says which they are: much quicker, as no processes are begun."""
    try:
        print(read_images(Path("unsorted"), labelled=False, keep=ImageStorage(cache=Path("cache"))).digest())
    except InputError as error:
        print(f"hoarfrost: {error}", file=sys.stderr)
        return 2
    return 0
