"""``.npz`` files as a stranger would make them."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..hostile import mutated
from .hostile_values import NAMES, NUMBERS, Random
from .judge import Try
from .place import EVALUATE, FIT, PREDICT

KINDS = ("u1", "i1", "u2", ">u2", "i8", "f2", "f4", "f8", "c8", "?", "U3", "S3", "V4", "M8[s]", "m8[ns]", "f16")

HEADERS = (
    "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999, 8, 8), }",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 8, 8), }",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 4294967296, 4294967296), }",
    "{'descr': '|u1', 'fortran_order': False, 'shape': 4, }",
    "{'descr': '|u1', 'fortran_order': False, 'shape': (True, 8, 8), }",
    "{'descr': '|u1', 'fortran_order': 1, 'shape': (4, 8, 8), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (4,), }",
    "{'descr': [('a', '|u1'), ('b', '|O')], 'fortran_order': False, 'shape': (4,), }",
    "{'descr': [('\\x1b[2J', '|u1')], 'fortran_order': False, 'shape': (256,), }",
    "{'descr': '<U99999999', 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '<U0', 'fortran_order': False, 'shape': (4,), }",
    "{'descr': 'no', 'fortran_order': False, 'shape': (4,), }",
    "{'descr': '|u1', 'shape': (4, 8, 8), }",
    "{'descr': ('|u1', (2, 2)), 'fortran_order': False, 'shape': (4, 8, 8), }",
    "{" * 300 + "}" * 300,
    "(" * 5000,
    "9" * 6000,
    "__import__('os').system('touch planted')",
    "",
    "\x00" * 100,
)


def arrays(random: Random) -> Try:
    """A hostile ``.npz`` file for one of the commands that take one."""
    path = Path("given.npz")
    what, content = _made(random)
    path.write_bytes(content)
    command = random.choice([PREDICT, PREDICT, EVALUATE, EVALUATE, FIT, RUN])
    position = {"predict": 2, "evaluate": 2, "fit": 1, "run": 4}[command[0]]
    arguments = (*command[:position], "given.npz", *command[position + 1 :])
    if random.random() < 0.2 and command[0] != "run":
        arguments = (*arguments, "--json")
    # Classes of few images, and the like, are refused by what they are; the file is named where it can be.
    return Try(arguments, f"{command[0]} given.npz: {what}", blamed=("given.npz", "memory", "split", "class", "images"))


RUN = ("run", "--dataset", "folder", "--data", "DIR", "--split", "99-99-99", "--out", "made")


def _made(random: Random) -> tuple[str, bytes]:
    members = {"images": _pixels(random, "u1", (8, 8, 8)), "labels": np.array([0, 0, 0, 0, 1, 1, 1, 1])}
    match random.randrange(8):
        case 0:
            members["images"] = _odd_images(random)
            return "odd images", _saved(random, members)
        case 1 | 2:
            members["labels"] = _odd_labels(random)
            return "odd labels", _saved(random, members)
        case 3:
            return "bytes changed", mutated(_saved(random, members), random.getrandbits(32))
        case 4:
            whole = _saved(random, members)
            return "cut short", whole[: random.randrange(len(whole))]
        case 5:
            return "odd header", _with_header(random, members)
        case 6:
            return "odd members", _odd_members(random, members)
        case _:
            names = random.choice([("x", "y"), ("x_train", "y_train"), ("x_test", "y_test"), ("pictures", "labels")])
            other = dict(zip(names, members.values(), strict=True))
            if random.random() < 0.7:
                other |= {
                    "x_test": _odd_images(random),
                    "y_test": _odd_labels(random),
                    "x_train": members["images"],
                    "y_train": members["labels"],
                }
                for name in random.sample(sorted(other), k=random.randrange(3)):
                    del other[name]
            return "other names", _saved(random, other)


def _pixels(random: Random, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(random.getrandbits(32)).integers(0, 100, shape).astype(kind)


def _odd_images(random: Random) -> np.ndarray:
    shape = random.choice(
        [
            *((8, 8, 8), (8, 8, 8, 3), (8, 8, 8, 4), (8, 8, 8, 2), (8, 3, 8, 8), (8, 7, 8), (8, 8), (8,), ()),
            *((0, 8, 8), (8, 0, 8), (1, 8, 8), (8, 8, 3000), (8, 1, 1, 1, 1), (8, 8, 8, 0), (2, 8, 8, 8, 1)),
        ]
    )
    made = _pixels(random, random.choice(KINDS), shape)
    if made.dtype.kind == "f" and made.size and random.random() < 0.5:
        made.reshape(-1)[0] = random.choice([np.nan, np.inf, -np.inf, 1e30 if made.dtype.itemsize > 2 else 1])
    return np.asfortranarray(made) if random.random() < 0.2 else made


def _odd_labels(random: Random) -> np.ndarray:
    count = random.choice([8, 8, 8, 8, 7, 0, 1])
    names = [random.choice(NAMES) for _ in range(count)]
    twice = (names[:4] * 2)[:count]
    makers: list[Callable[[], np.ndarray]] = [
        lambda: np.array(twice),
        lambda: np.array([name.encode() for name in twice]),
        lambda: np.array([b"\xff\xfe", b"a"] * 4)[:count],
        lambda: np.array(["\ud800", "a"] * 4)[:count],
        lambda: np.array([float(random.choice(NUMBERS[:14])) for _ in range(count)]),
        lambda: np.array([np.nan, 1.0] * 4)[:count],
        lambda: np.array([1e300, -0.0] * 4)[:count],
        lambda: np.zeros(count),
        lambda: np.arange(count),
        lambda: _pixels(random, random.choice(KINDS), (count,)),
        lambda: _pixels(random, "i8", (count, 1)),
        lambda: np.array(["NaT", "2020-01-01"] * 4, dtype="M8[D]")[:count],
        lambda: np.array([1 + 2j, np.nan] * 4)[:count],
        lambda: np.array([(1, 2.0)] * count, dtype=[("a", "i4"), ("b", "f4")]),
        lambda: np.array([True, False] * 4)[:count],
        lambda: np.array(["", "a"] * 4)[:count],
        lambda: np.array(["a\x00", "a"] * 4)[:count],
        lambda: np.array(["x" * 5000, "a"] * 4)[:count],
        lambda: np.array(5),
    ]
    return random.choice(makers)()


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _saved(random: Random, members: dict[str, np.ndarray]) -> bytes:
    return _zipped({f"{name}.npy": _npy(array) for name, array in members.items()}, random.choice([0, 8, 12, 14]))


def _zipped(members: dict[str, bytes], method: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return buffer.getvalue()


def _with_header(random: Random, members: dict[str, np.ndarray]) -> bytes:
    name = random.choice(sorted(members))
    header = random.choice(HEADERS).encode("latin1")
    version, form = random.choice([((1, 0), "<H"), ((2, 0), "<I"), ((3, 0), "<I"), ((9, 9), "<H")])
    length = random.choice([len(header)] * 4 + [2**16 - 1, 0])
    odd = b"\x93NUMPY" + bytes(version) + struct.pack(form, min(length, 2**16 - 1)) + header + bytes(512)
    contents = {f"{key}.npy": _npy(array) for key, array in members.items()}
    return _zipped(contents | {f"{name}.npy": odd})


def _odd_members(random: Random, members: dict[str, np.ndarray]) -> bytes:
    contents = {f"{key}.npy": _npy(array) for key, array in members.items()}
    match random.randrange(6):
        case 0:  # an array that nobody asked for, of which the zip says that it is huge
            contents["more.npy"] = _npy(np.zeros(1000, dtype="u1"))
            whole = bytearray(_zipped(contents))
            place = whole.rindex(b"more.npy")  # in the list at the end
            whole[place - 46 + 20 : place - 46 + 28] = struct.pack("<II", 0xFFFFFFF0, 0xFFFFFFF0)
            return bytes(whole)
        case 1:
            return _zipped({"../images.npy": contents["images.npy"], "/labels.npy": contents["labels.npy"]})
        case 2:
            return _zipped({"images": contents["images.npy"], "labels": b"\x80\x02cos\nsystem\n(S'touch planted'\ntR."})
        case 3:  # zeros that unpack to far more than they take
            bomb = b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (40000, 40, 40), }".ljust(
                127
            )
            return _zipped(contents | {"images.npy": bomb + b"\n" + bytes(40000 * 1600)}, 8)
        case 4:
            return _zipped({random.choice(NAMES)[:100] + ".npy": contents["images.npy"], "labels.npy": b""})
        case _:  # one name twice
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings(action="ignore"):
                for array in (members["images"], _odd_images(random)):
                    archive.writestr(zipfile.ZipInfo("images.npy"), _npy(array))
                archive.writestr(zipfile.ZipInfo("labels.npy"), contents["labels.npy"])
            return buffer.getvalue()
