"""Fetching the official archives: checked, unpacked without an escape, and whole or not there at all."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from hoarfrost.errors import InputError

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)
"""what unpacking an archive ends with that is damaged, or packed in a way that is not known"""


def fetch(name: str, folder: Path, *, url: str, md5: str, archive: str) -> None:
    """Download the archive of the data set `name`, check it, and put the part called like `folder` in its place."""
    import pooch

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            fetched = pooch.retrieve(url, known_hash=f"md5:{md5}", fname=archive, path=scratch)
            unpacked = Path(scratch) / "unpacked"
            unpack(Path(fetched), unpacked)
            (unpacked / folder.name).rename(folder)
    except (OSError, ValueError, *DAMAGED) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"could not download {name} from {url}: {reason}") from error


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .zip or .tar.gz; nothing can land outside the folder."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as members:
            members.extractall(folder)  # drops drive letters, leading slashes and ".." by itself
    else:
        with tarfile.open(archive) as members:
            _extract(members, folder)


def _extract(members: tarfile.TarFile, folder: Path) -> None:
    """Folders and files of a tar archive, with their contents alone; links, devices and ways out are refused.

    `extractall` has a filter for this, but not before Python 3.11.4.
    """
    for member in members:
        place = PurePosixPath(member.name)
        if place.is_absolute() or ".." in place.parts:
            raise tarfile.ExtractError(f"{member.name!r} would be outside the destination")
        if member.isdir():
            (folder / place).mkdir(parents=True, exist_ok=True)
            continue
        content = members.extractfile(member) if member.isreg() else None
        if content is None:
            raise tarfile.ExtractError(f"{member.name!r} is neither a file nor a folder")
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        with content, (folder / place).open("wb") as file:
            shutil.copyfileobj(content, file)
