"""Fetching the official archives: checked, unpacked without an escape, and whole or not there at all."""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
from pathlib import Path

from hoarfrost.errors import InputError


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
    except (OSError, ValueError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"could not fetch {name} from {url}: {reason}") from error


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .zip or .tar.gz; nothing can land outside the folder."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as members:
            members.extractall(folder)  # drops drive letters, leading slashes and ".." by itself
    else:
        with tarfile.open(archive) as members:
            members.extractall(folder, filter="data")
