"""CIFAR's files as a stranger would make them."""

from __future__ import annotations

import pickle
import pickletools
import struct

import numpy as np

from ..hostile import mutated
from .hostile_values import NAMES, NUMBERS, Random, value
from .judge import Try
from .place import files_below

LOOKED_AT = "99-99-99"
"""a split that no data set has: it is refused once all is read"""

PIECES = (
    b"\x80\x02",
    b"\x80\xff",
    b"}",
    b"]",
    b"(",
    b".",
    b"0",
    b"2",
    b"q\x00",
    b"h\x00",
    b"r\xff\xff\xff\x7f",
    b"j\xff\xff\xff\xff",
    b"p99999999999999999999\n",
    b"g-1\n",
    b"T\xff\xff\xff\x7fabc",
    b"T\xff\xff\xff\xffabc",
    b"B\xff\xff\xff\xffabc",
    b"X\xff\xff\xff\x7fabc",
    b"\x8e" + struct.pack("<Q", 2**62) + b"abc",
    b"\x8d" + struct.pack("<Q", 2**63) + b"abc",
    b"\x95" + struct.pack("<Q", 2**60),
    b"\x96" + struct.pack("<Q", 2**40) + b"a",
    b"\x8b\xff\xff\xff\x7f\x01",
    b"\x8a\xff" + b"\x7f" * 255,
    b"I" + b"9" * 6000 + b"\n",
    b"L" + b"9" * 6000 + b"L\n",
    b"Fnan\n",
    b"F1e999\n",
    b"V\\ud800\n",
    b"S'\\x00'\n",
    b"cos\nsystem\n(S'touch planted'\ntR",
    b"cposix\nsystem\n",
    b"c__builtin__\neval\n(S'1'\ntR",
    b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI63\ntb",
    b"cnumpy\ndtype\n(S'V8'\nI0\nI1\ntR(I3\nS'|'\n(I1\nI2\ntNNI64\nI1\nI0\ntb",
    b"cnumpy\nndarray\n(I-1\nt\x81",
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR",
    b"cnumpy.core.multiarray\nscalar\n",
    b"cnumpy\nmemmap\n(S'planted'\ntR",
    b"ios\nsystem\n",
    b"(cos\nsystem\no",
    b"P1\n",
    b"Q",
    b"\x82\x01",
    b"\x97",
    b"\x98",
    b"\x92",
    b"\x94" * 50,
    b"N" * 50,
    b"(" * 2000 + b"t" * 2000,
    b"]" * 3000 + b"a" * 2999,
    b"s",
    b"u",
    b"a",
    b"e",
    b"b",
    b"R",
    b"\x93",
    b"\x85" * 3000,
)
"""instructions, of which most are wrong in one way or another"""


def pickles(random: Random) -> Try:
    """A data set of CIFAR with one hostile file."""
    name, folder = random.choice([("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python")])
    path = random.choice(list(files_below(folder)))
    content = path.read_bytes()
    way = random.randrange(8)
    refused = False
    if way == 0:
        what, made = "cut short", content[: random.randrange(len(content))]
        refused = True
    elif way <= 2:
        what, made = "bytes changed", mutated(content, random.getrandbits(32))
    elif way == 3:
        what, made = "instructions changed", shuffled(random, content)
    elif way == 4:
        what, made = "instructions put in", put_in(random, content)
    elif way == 5:
        what, made = "instructions of our own", b"".join(random.choices(PIECES, k=random.randrange(1, 12))) + b"."
        if random.random() < 0.3:
            made = b"\x80\x02}q\x00(" + made
    elif way == 6:
        what, made = "other values", other_values(random, content)
    else:
        what, made = "lists that hold each other", laughs(random, path.name)
    path.write_bytes(made)
    blamed = (path.name, LOOKED_AT, "memory")
    arguments = ("run", "--dataset", name, "--data", ".", "--split", LOOKED_AT, "--out", "made")
    if refused:
        return Try(arguments, f"{path}: {what}", blamed=(path.name,), refused=True)
    return Try(arguments, f"{path}: {what}", blamed=blamed)


def _instructions(content: bytes) -> list[bytes]:
    """The instructions of a pickle, each with its argument."""
    starts = [place for _, _, place in pickletools.genops(content) if place is not None]
    return [content[start:end] for start, end in zip(starts, [*starts[1:], len(content)], strict=True)]


def shuffled(random: Random, content: bytes) -> bytes:
    """The instructions with some removed, repeated, exchanged or replaced."""
    parts = _instructions(content)
    for _ in range(random.randrange(1, 6)):
        one, other = random.randrange(len(parts)), random.randrange(len(parts))
        match random.randrange(4):
            case 0:
                del parts[one]
            case 1:
                parts.insert(other, parts[one])
            case 2:
                parts[one], parts[other] = parts[other], parts[one]
            case _:
                parts[one] = bytes([random.randrange(256)]) + parts[one][1:]
        parts = parts or [b"."]
    return b"".join(parts)


def put_in(random: Random, content: bytes) -> bytes:
    """The instructions with some of ours between them."""
    parts = _instructions(content)
    for _ in range(random.randrange(1, 4)):
        parts.insert(random.randrange(len(parts) + 1), random.choice(PIECES))
    return b"".join(parts)


def other_values(random: Random, content: bytes) -> bytes:
    """The dictionary with other values at some keys."""
    held = pickle.loads(content)
    for key in random.sample(sorted(held), k=random.randrange(1, len(held) + 1)):
        count = len(held[key])
        numbers = np.zeros(
            (count, 3072), dtype=random.choice(["u1", "i1", ">u2", "f2", "f8", "?", "c8", "U3", "M8[s]"])
        )
        held[key] = random.choice(
            [
                value(random),
                [value(random) for _ in range(count)],
                [random.choice(NUMBERS) for _ in range(count)],
                [random.choice(NAMES) for _ in range(count)],
                ["same"] * count,
                [[0]] + [0] * (count - 1),
                [[0, 1]] * count,
                numbers,
                numbers[:, : random.randrange(3072)],
                numbers[:0],
                np.zeros(count, dtype="i8"),
                np.full(count, random.choice([-1, 2**40, 1])),
                np.zeros((1,) * random.randrange(2, 12), dtype="u1"),
                np.asfortranarray(numbers),
            ]
        )
    whole = random.choice([held, held, held, list(held.items()), tuple(held), held | {"more": value(random)}])
    return pickle.dumps(whole, protocol=random.randrange(5) if _plain(whole) else 4)


def _plain(content: object) -> bool:
    try:
        pickle.dumps(content, protocol=0)
    except (ValueError, UnicodeError, pickle.PicklingError):
        return False
    return True


def laughs(random: Random, name: str) -> bytes:
    """A list that holds another twice, which holds another twice, and so on: few bytes that mean a great deal."""
    key = {"batches.meta": "label_names", "meta": "fine_label_names"}.get(name)
    key = key or ("labels" if "batch" in name else "fine_labels")
    levels = random.choice([3, 20, 30, 60, 200])
    inner: object = random.choice([[0, 1], ["a"], [], [0.5], [b"x"], (0, 1)])
    many = random.choice([2, 2, 10])
    for _ in range(levels):
        inner = [inner] * many if random.random() < 0.8 else (inner,) * many
    rows = random.choice([np.zeros((2, 3072), dtype="u1"), inner])
    return pickle.dumps({"data": rows, key: inner}, protocol=2)
