"""Files of a published network: in a folder, in the cache of the Hugging Face Hub, or fetched from there.

Nothing here runs what a repository holds, and nothing reads a pickle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from hoarfrost.errors import InputError, Unavailable, out_of_memory
from hoarfrost.reading import read_json

FOLDER = "folder of a backbone"
INDEX = "model.safetensors.index.json"
"""names the files of weights that are in several"""


@contextmanager
def in_one_line(name: str) -> Iterator[None]:
    """Whatever another package raises about the backbone of this name is an ``InputError`` of one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # those packages raise nearly anything on a damaged or a strange file
        if out_of_memory(error):
            raise
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise InputError(
            f"the backbone '{name}' cannot be loaded ({reason.rstrip('.:')}): check its name, or give a folder"
        ) from error


def importable(package: str) -> Any:
    """An installed package; one that cannot be imported is refused in a line."""
    try:
        return import_module(package)
    except Exception as error:  # such as a torchvision that was built for another PyTorch
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise Unavailable(
            f"{package} cannot be imported ({reason}): install the torchvision that fits this PyTorch"
        ) from error


def file_of(name: str, file: str, *, fetch: bool) -> Path | None:
    """A file of a repository of the hub, or of a folder; None where there is none of that name.

    What was fetched before is taken without asking the network. Otherwise that is asked only if ``fetch``.
    """
    if Path(name).is_dir():
        return path if (path := Path(name, file)).is_file() else None
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    found = try_to_load_from_cache(name, file)
    if isinstance(found, str):
        return Path(found)
    if found is not None or not fetch:  # it is known not to be there
        return None
    try:
        return Path(hf_hub_download(name, file))
    except LocalEntryNotFoundError as error:
        raise InputError(f"{file} of '{name}' cannot be fetched: connect to the network, or give a folder") from error
    except EntryNotFoundError:
        return None


def weights_of(name: str, file: str = "model.safetensors") -> list[Path]:
    """The files of published weights, fetched where they are not on this machine; no pickle is among them."""
    if (whole := file_of(name, file, fetch=True)) is not None:
        return [whole]
    index = file_of(name, INDEX, fetch=True)
    if index is None:
        raise InputError(
            f"'{name}' has no {file}, and pickled weights (.bin, .pt) are not read: choose a checkpoint with that file"
        )
    parts = set(read_json(index, FOLDER, {"weight_map": {str: str}})["weight_map"].values())
    files = {part: file_of(name, part, fetch=True) for part in sorted(parts) if _is_plain(part)}
    missing = sorted(parts - files.keys()) or [part for part, path in files.items() if path is None]
    if missing:
        raise InputError(f"'{name}' lacks {missing[0]}, which {INDEX} names: download it again")
    return [path for path in files.values() if path is not None]


def _is_plain(part: str) -> bool:
    """Whether a file of weights lies beside its index."""
    return part.endswith(".safetensors") and Path(part).name == part
