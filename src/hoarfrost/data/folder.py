"""Folders of image files: one sub-folder per class, or no labels at all."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from hoarfrost.data.arrays import MIN_SIDE, Pixels, default_size
from hoarfrost.data.images import GRAY_MODES, SIXTEEN_BIT_MODES, ImageFiles, ImageSet, load_readers, refuse_mode
from hoarfrost.errors import InputError, SkippedFiles

NAMED = 3
"""How many left-out files a warning names; the rest is counted."""


@dataclass(frozen=True)
class Header:
    """What the first bytes of an image file tell."""

    width: int
    height: int
    gray: bool


@dataclass(frozen=True)
class LeftOut:
    """What was found in a folder and not read, as paths relative to it."""

    unreadable: list[PurePosixPath]
    loose: list[PurePosixPath]
    empty: list[PurePosixPath]

    def warn(self, folder: Path) -> None:
        """One warning for all of it; none where nothing was left out."""
        parts = [
            f"{_counted(paths, one, many)} ({_named(paths)})"
            for paths, one, many in (
                (self.unreadable, "file that is no readable image", "files that are no readable images"),
                (self.loose, "file outside the class folders", "files outside the class folders"),
                (self.empty, "class folder without images", "class folders without images"),
            )
            if paths
        ]
        if parts:
            warnings.warn(f"left out of {folder}: {'; '.join(parts)}", SkippedFiles, stacklevel=3)


def _counted(paths: list[PurePosixPath], one: str, many: str) -> str:
    return f"{len(paths)} {one if len(paths) == 1 else many}"


def _named(paths: list[PurePosixPath]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(map(str, paths[:NAMED])) + more


def read_folder(
    folder: str | Path,
    *,
    labelled: bool,
    size: int | None = None,
    channels: int | None = None,
    on_disk: bool = False,
) -> ImageSet:
    """Read the images under `folder`, resized to (size, size, channels).

    labelled: the sub-folders are the classes, in sorted order; images may lie deeper inside them. Otherwise all images
    anywhere under the folder are read, in the order of their paths.
    size: by default the median of the short sides, rounded up to a multiple of 8, from 16 to 64.
    channels: by default 1 where every image is gray, else 3.
    on_disk: verify the files now, but decode them when they are used.

    Files that are no readable images are left out with one `SkippedFiles` warning.
    """
    root = Path(folder)
    _check_folder(root)
    loose: list[PurePosixPath] = []
    classes: list[PurePosixPath] = []
    if labelled:
        classes, loose = _list_folder(root, PurePosixPath())
        _check_names(root, classes)
        found = [path for name in classes for path in _find_files(root, name)]
    else:
        found = _find_files(root, PurePosixPath())

    headers = _read_headers(root, found)
    images, headers = _read_images(root, headers, size=size, channels=channels, on_disk=on_disk)
    present = {path.parts[0] for path in headers}
    left_out = LeftOut(
        unreadable=[path for path in found if path not in headers],
        loose=loose,
        empty=[name for name in classes if str(name) not in present],
    )
    _check_any(root, headers, left_out, labelled=labelled)
    left_out.warn(root)  # before the next refusals, which it may explain
    _check_sides(root, headers)
    if labelled and len(present) < 2:
        raise InputError(f"{root} is a folder with one class ('{present.pop()}'): at least two are needed")

    paths = tuple(map(str, headers))
    if not labelled:
        return ImageSet(images, paths=paths)
    class_names, labels = np.unique([path.parts[0] for path in headers], return_inverse=True)
    return ImageSet(images, labels.astype(np.int64), tuple(map(str, class_names)), paths)


def _check_folder(root: Path) -> None:
    with looking_into(root):
        exists, is_folder = root.exists(), root.is_dir()
    if not exists:
        raise InputError(f"there is no folder {root}: check the path")
    if not is_folder:
        raise InputError(f"{root} is a file, not a folder: give the folder that holds the images")


def _check_names(root: Path, classes: list[PurePosixPath]) -> None:
    """Class names go into files and reports, so they have to be text."""
    for name in classes:
        try:
            str(name).encode()
        except UnicodeEncodeError:
            raise InputError(f"the class folder {str(name)!r} in {root} has no UTF-8 name: give it another") from None


def _check_any(root: Path, headers: dict[PurePosixPath, Header], left_out: LeftOut, *, labelled: bool) -> None:
    """Raise where no image could be read."""
    if labelled and not headers and not left_out.unreadable:
        raise InputError(f"{root} has no class folders with images: put the images of each class in its own sub-folder")
    if not headers:
        files = left_out.unreadable
        reason = f"{_counted(files, 'file', 'files')}, none readable ({_named(files)})" if files else "it is empty"
        raise InputError(f"there are no images in {root}: {reason}; check the path")


def _check_sides(root: Path, headers: dict[PurePosixPath, Header]) -> None:
    """Raise where an image is too small."""
    small = [(path, header) for path, header in headers.items() if min(header.width, header.height) < MIN_SIDE]
    if small:
        path, header = small[0]
        raise InputError(
            f"{root / path} is too small ({header.width}x{header.height} pixels, {len(small)} such in all):"
            f" remove images with a side below {MIN_SIDE}"
        )


# ---------------------------------------------------------------------------------------------------------------------
# What is there
# ---------------------------------------------------------------------------------------------------------------------


@contextmanager
def looking_into(folder: Path) -> Iterator[None]:
    """Say which folder could not be looked into, and why."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot look into {folder}: {reason}; change its rights, or move it away") from error


def _list_folder(root: Path, inside: PurePosixPath) -> tuple[list[PurePosixPath], list[PurePosixPath]]:
    """The sub-folders and the other entries of root / inside, relative to root and sorted; hidden ones left out."""
    with looking_into(root / inside), os.scandir(root / inside) as entries:
        visible = [(inside / entry.name, _is_folder(entry)) for entry in entries if not entry.name.startswith(".")]
    visible.sort()
    return [path for path, is_folder in visible if is_folder], [path for path, is_folder in visible if not is_folder]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # Path takes a link to itself for no folder, where DirEntry would raise.
    return Path(entry).is_dir() if entry.is_symlink() else entry.is_dir()


def _find_files(root: Path, start: PurePosixPath) -> list[PurePosixPath]:
    """Everything that is no folder under root / start, at any depth, sorted, relative to root.

    Links are followed, but each real folder is entered once, so that a link to a folder above ends.
    """
    found: list[PurePosixPath] = []
    entered = {_identity(root)} if start.parts else set()
    waiting = [start]
    while waiting:
        inside = waiting.pop()
        identity = _identity(root / inside)
        if identity not in entered:
            entered.add(identity)
            folders, files = _list_folder(root, inside)
            found.extend(files)
            waiting.extend(reversed(folders))  # the last is taken first
    return sorted(found)


def _identity(folder: Path) -> tuple[int, int]:
    with looking_into(folder):
        status = folder.stat()
    return (status.st_dev, status.st_ino)


# ---------------------------------------------------------------------------------------------------------------------
# What is in it
# ---------------------------------------------------------------------------------------------------------------------


def _read_headers(root: Path, paths: list[PurePosixPath]) -> dict[PurePosixPath, Header]:
    """The headers of those files that begin like images."""
    from PIL import Image

    load_readers()
    # Pillow only warns of a file that claims more pixels than any picture has. The filter is set around the threads,
    # not within them, because filters belong to the whole process.
    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as pool:
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        headers = list(pool.map(_read_header, (root / path for path in paths)))
    return {path: header for path, header in zip(paths, headers, strict=True) if header is not None}


def _read_header(path: Path) -> Header | None:
    from PIL import Image

    try:
        if not path.is_file():  # opening a pipe would wait for ever
            return None
        with Image.open(path) as image:
            refuse_mode(image.format, image.mode)
            return Header(image.width, image.height, gray=image.mode in GRAY_MODES | SIXTEEN_BIT_MODES)
    except Exception:  # Pillow's readers raise nearly anything on a broken file
        return None


def _read_images(
    root: Path, headers: dict[PurePosixPath, Header], *, size: int | None, channels: int | None, on_disk: bool
) -> tuple[Pixels | ImageFiles, dict[PurePosixPath, Header]]:
    """The images, and the headers of those files that can be decoded to the end.

    A damaged file shows only in decoding, and the default size must not depend on it: all is then read once more.
    """
    while True:
        files = ImageFiles(
            tuple(root / path for path in headers),
            size=default_size([min(h.width, h.height) for h in headers.values()]) if size is None else size,
            channels=_default_channels(headers) if channels is None else channels,
        )
        pixels = None if on_disk else np.empty(files.shape, dtype=np.uint8)
        broken = set(files.decode_into(pixels))
        if not broken:
            return (files if pixels is None else pixels), headers
        headers = {path: header for row, (path, header) in enumerate(headers.items()) if row not in broken}


def _default_channels(headers: dict[PurePosixPath, Header]) -> int:
    return 1 if all(header.gray for header in headers.values()) else 3
