"""Reading pickles from strangers: numbers, text, plain containers and arrays of numbers.

A pickle is a list of instructions for a small machine with a stack. The machine here knows the instructions that such
data need and no other. It calls nothing and imports nothing: what a pickle says of an array is only recorded (its
shape, its type and its bytes), and the array is made from that by itself, after all has been checked.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hoarfrost.errors import InputError
from hoarfrost.reading import read_bytes

MOST_BYTES = 1 << 30
"""of a file; the largest of CIFAR has 155 million"""

MOST_INSTRUCTIONS = 4_000_000
"""of a file; the largest of CIFAR has 200,000, and one of them may take a hundred bytes of memory"""


@dataclass
class ArrayRecord:
    """What a pickle says of an array."""

    made: NDArray[np.generic] | None = None
    """the array, once all was said of it"""


@dataclass
class TypeRecord:
    """What a pickle says of the type of an array's numbers."""

    name: str
    order: str = "|"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[iu][1248]|f[248]", self.name):
            raise InputError("it has an array whose elements are not plain numbers")

    def describe(self, order: Any, *more: Any) -> None:
        """In which order the bytes of a number are; nothing more is believed."""
        if order not in ("|", "<", ">", "=") or more[:3] != (None, None, None):
            raise InputError("it has an array of structured elements")
        self.order = order


# What the words of numpy 1 and numpy 2 are to the machine: marks, and nothing that could be called.
MAKES_ARRAY, ARRAY, TYPE = object(), object(), object()
WORDS: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): MAKES_ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): MAKES_ARRAY,
    ("numpy", "ndarray"): ARRAY,
    ("numpy", "dtype"): TYPE,
}

MARK = object()
"""on the stack: where a list of things begins"""


def load_pickle(path: Path) -> object:
    """What is in a pickle of Python 2 or 3 made of arrays, containers, numbers and strings; else an `InputError`."""
    try:
        content = read_bytes(path, MOST_BYTES)
        return Machine().run(content)
    except InputError as error:
        raise InputError(f"refused to load {path}: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError:
        raise
    except Exception as error:  # garbage makes the machine fail in nearly any way
        raise InputError(f"{path} is damaged or not a pickle: download it again") from error


class Machine:
    """Carries out the instructions of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: bytes) -> object:
        """What the pickle holds."""
        # Strings of Python 2, an array's bytes among them, come as text with one character a byte.
        for count, (instruction, argument, _) in enumerate(pickletools.genops(content)):
            if count >= MOST_INSTRUCTIONS:
                raise InputError(f"it has more than {MOST_INSTRUCTIONS:,} objects")
            name = instruction.name
            if name in PUSHED:
                self.stack.append(argument)
            elif name in PUT:
                self.memo[len(self.memo) if name == "MEMOIZE" else _number(argument)] = self.stack[-1]
            elif name in DONE:
                DONE[name](self, argument)
            elif name not in LEFT_OUT:
                raise InputError(f"it has the instruction {name}, which is not allowed in plain data")
        (whole,) = self.stack
        return whole

    def since_mark(self) -> list[Any]:
        """What was put on the stack since the last mark, which goes too."""
        place = next(place for place in reversed(range(len(self.stack))) if self.stack[place] is MARK)
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found

    def top(self, count: int) -> list[Any]:
        """The last things of the stack, taken off it."""
        if len(self.stack) < count:
            raise IndexError("an instruction needs more values than there are")
        found = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return found

    def get(self, argument: Any) -> None:
        """Something that was put aside; an array, where it is made by now."""
        found = self.memo[_number(argument)]
        self.stack.append(found.made if isinstance(found, ArrayRecord) and found.made is not None else found)

    def extend(self, items: list[Any]) -> None:
        """More items for the list or the set on the stack."""
        target = self.stack[-1]
        if type(target) is set:
            target.update(map(_key, items))
        elif type(target) is list:
            target.extend(items)
        else:
            raise TypeError("items are added to something other than a list or a set")

    def assign(self, items: list[Any]) -> None:
        """More keys with their values for the dictionary on the stack."""
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise TypeError("keys are added to something other than a dictionary")
        target.update(zip(map(_key, items[::2]), items[1::2], strict=True))

    def assign_new(self, items: list[Any]) -> None:
        """A new dictionary of keys with their values."""
        self.stack.append({})
        self.assign(items)

    def word(self, module: Any, name: Any) -> None:
        """The mark of a word that is known here."""
        found = WORDS.get((module, name)) if isinstance(module, str) and isinstance(name, str) else None
        if found is None:
            raise InputError(f"it uses {module}.{name}, which is neither data nor an array")
        self.stack.append(found)

    def reduce(self) -> None:
        """The record of an array or of a type, about which nothing more is known yet."""
        word, arguments = self.top(2)
        if word is MAKES_ARRAY and arguments[0] is ARRAY:
            self.stack.append(ArrayRecord())
        elif word is TYPE:
            self.stack.append(TypeRecord(arguments[0]))
        else:
            raise TypeError("a function is called that makes no array")

    def build(self) -> None:
        """What is said of the record on the stack."""
        record, state = self.top(2)
        if isinstance(record, TypeRecord):
            record.describe(*state[1:])
        elif isinstance(record, ArrayRecord) and record.made is None:
            _, shape, kind, by_columns, content = state
            record.made = made_array(shape, kind, content, by_columns=by_columns)
            record = record.made
        else:
            raise TypeError("a state is given to something other than an array or a type")
        self.stack.append(record)


def made_array(shape: Any, kind: Any, content: Any, *, by_columns: Any) -> NDArray[np.generic]:
    """An array of numbers, made from what a pickle says of it; refused where that does not fit together."""
    if type(shape) is not tuple or not all(type(side) is int and side >= 0 for side in shape) or len(shape) > 8:
        raise ValueError("the shape of an array is invalid")
    if not isinstance(kind, TypeRecord):
        raise TypeError("the type of an array is missing")
    if isinstance(content, str):
        content = content.encode("latin1")
    dtype = np.dtype(kind.order + kind.name)
    if type(content) is not bytes or len(content) != math.prod(shape) * dtype.itemsize:
        raise ValueError("an array has more or fewer bytes than its shape")
    return np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if by_columns is True else "C")


def _number(argument: Any) -> int:
    number = int(argument)  # in the oldest pickles it is text
    if number < 0:
        raise ValueError("a stored value has a negative number")
    return number


def _key(value: Any) -> Any:
    """Keys are plain: to compare others may take for ever."""
    if not isinstance(value, str | bytes | int | float | None):
        raise TypeError("a key is not plain")
    return value


PUSHED = frozenset(
    {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
    | {"STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
    | {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
)
"""instructions whose argument is the value"""

PUT = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})

LEFT_OUT = frozenset({"PROTO", "FRAME", "STOP"})

DONE: dict[str, Callable[[Machine, Any], None]] = {
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "MARK": lambda machine, _: machine.stack.append(MARK),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_SET": lambda machine, _: machine.stack.append(set()),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.stack.append(tuple(machine.top(1))),
    "TUPLE2": lambda machine, _: machine.stack.append(tuple(machine.top(2))),
    "TUPLE3": lambda machine, _: machine.stack.append(tuple(machine.top(3))),
    "LIST": lambda machine, _: machine.stack.append(machine.since_mark()),
    "DICT": lambda machine, _: machine.assign_new(machine.since_mark()),
    "APPEND": lambda machine, _: machine.extend(machine.top(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "ADDITEMS": lambda machine, _: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.assign(machine.top(2)),
    "SETITEMS": lambda machine, _: machine.assign(machine.since_mark()),
    "GET": lambda machine, argument: machine.get(argument),
    "BINGET": lambda machine, argument: machine.get(argument),
    "LONG_BINGET": lambda machine, argument: machine.get(argument),
    "GLOBAL": lambda machine, argument: machine.word(*argument.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.word(*machine.top(2)),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
}
