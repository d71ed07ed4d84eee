"""Reading pickles from strangers: arrays and plain containers, and nothing that can run code."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from hoarfrost.errors import InputError

# What an array refers to in a pickle, under the module names of numpy 1 and numpy 2. The function that rebuilds an
# array is private to numpy, so it is taken from where numpy itself puts it into a pickle.
REBUILD_ARRAY = np.empty(0).__reduce__()[0]
ADMITTED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): REBUILD_ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): REBUILD_ARRAY,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler to which the classes in `ADMITTED` are the only ones that exist."""

    def find_class(self, module_name: str, global_name: str, /) -> object:
        """The admitted object of this name; nothing is imported."""
        try:
            return ADMITTED[module_name, global_name]
        except KeyError:
            raise InputError(f"it refers to {module_name}.{global_name}, which is neither data nor an array") from None


def load_pickle(path: Path) -> object:
    """What is in a pickle of Python 2 or 3 made of arrays, containers, numbers and strings; else an `InputError`."""
    try:
        with path.open("rb") as file:
            # latin1 maps each byte of a Python 2 string, array contents among them, to one character.
            return ArrayUnpickler(file, encoding="latin1").load()
    except InputError as error:
        raise InputError(f"refused to load {path}: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # garbage makes the pickle machine fail in nearly any way
        raise InputError(f"{path} is damaged or not a pickle: fetch it again") from error
