"""Folders of image files: one sub-folder per class, or no labels at all.

A folder may hold millions of files, so that what is kept of each is a few numbers in arrays, and no object.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hoarfrost.data.arrays import MIN_SIDE, Ids, Pixels, default_size
from hoarfrost.data.cache import ImageStorage, keep_decoded
from hoarfrost.data.images import (
    GRAY_MODES,
    SIXTEEN_BIT_MODES,
    ImageFiles,
    ImageSet,
    in_threads,
    load_readers,
    refuse_strange,
    state_of,
)
from hoarfrost.data.paths import FileList, PathList
from hoarfrost.data.unsure import UNSURE
from hoarfrost.errors import InputError, SkippedFiles, warn_caller
from hoarfrost.reading import open_regular

NAMED = 3
"""How many left-out files a warning names; the rest is counted."""


@dataclass(frozen=True)
class Headers:
    """What the first bytes of N files tell; of those that are no images, nothing."""

    is_image: NDArray[np.bool_]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    gray: NDArray[np.bool_]
    frames: NDArray[np.bool_]
    """whether there are several, of which the first is used"""
    states: NDArray[np.int64]
    """`state_of` each file: one that changes from now on is refused when it is read"""

    @classmethod
    def empty(cls, count: int) -> Headers:
        """Of `count` files that were not looked at yet."""
        return cls(
            is_image=np.zeros(count, dtype=np.bool_),
            width=np.zeros(count, dtype=np.int32),
            height=np.zeros(count, dtype=np.int32),
            gray=np.zeros(count, dtype=np.bool_),
            frames=np.zeros(count, dtype=np.bool_),
            states=np.zeros(count, dtype=np.int64),
        )

    def take(self, rows: NDArray[np.integer]) -> Headers:
        """Those of some of the files."""
        return Headers(**{part.name: getattr(self, part.name)[rows] for part in fields(self)})

    @property
    def short_sides(self) -> NDArray[np.int32]:
        """The shorter side of each image."""
        return np.minimum(self.width, self.height)

    @property
    def small(self) -> NDArray[np.bool_]:
        """Whether an image holds too little to learn from; what is no image has no side."""
        return (self.short_sides > 0) & (self.short_sides < MIN_SIDE)


@dataclass(frozen=True)
class LeftOut:
    """What was found in a folder and not read, as paths relative to it."""

    unreadable: Sequence[str]
    loose: Sequence[str]
    empty: Sequence[str]
    small: Sequence[str] = ()
    frames: Sequence[str] = ()
    unsure: Sequence[str] = ()

    def in_words(self, folder: str) -> str:
        """All of it; empty where nothing was left out."""
        parts = [
            f"{_counted(paths, one, many)} ({_named(paths)})"
            for paths, one, many in (
                (_images_first(self.unreadable), "unreadable file", "unreadable files"),
                (self.small, f"image with a side below {MIN_SIDE}", f"images with a side below {MIN_SIDE}"),
                (self.loose, "file outside the class folders", "files outside the class folders"),
                (self.empty, "class folder without images", "class folders without images"),
                (self.unsure, "folder of unsure images", "folders of unsure images"),
            )
            if paths
        ]
        said = [f"ignored in {folder}: {'; '.join(parts)}{for_heic(self.unreadable)}"] if parts else []
        if self.frames:
            count = _counted(self.frames, "image", "images")
            said.append(f"used only the first frame of {count} in {folder} ({_named(self.frames)})")
        return "; ".join(said)


def for_heic(unreadable: Sequence[str]) -> str:
    """What to do where photographs of a telephone are among the files, in words."""
    if any(path.lower().endswith((".heic", ".heif")) for path in unreadable) and find_spec("pillow_heif") is None:
        return "; to read HEIC images: pip install pillow-heif"
    return ""


def _images_first(paths: Sequence[str]) -> Sequence[str]:
    """Files that are called as images are before others: a damaged photograph is missed, a text is not."""
    from PIL import Image

    load_readers()
    known = (*Image.registered_extensions(), ".heic", ".heif")
    is_image = np.fromiter((path.lower().endswith(known) for path in paths), dtype=np.bool_, count=len(paths))
    return PathList(paths).take(np.argsort(~is_image, kind="stable"))


def _counted(paths: Sequence[str], one: str, many: str) -> str:
    return f"{len(paths)} {one if len(paths) == 1 else many}"


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more


def read_folder(
    folder: str | Path | Sequence[str | Path],
    *,
    labelled: bool,
    size: int | None = None,
    channels: int | None = None,
    on_disk: bool | None = None,
    cache: Path | None = None,
    photographs: int | None = None,
    first_read: Callable[[ImageFiles, int], Sequence[int]] | None = None,
    least_classes: int = 2,
) -> ImageSet:
    """Read the images under `folder`, resized to (size, size, channels).

    labelled: the sub-folders are the classes, in sorted order; images may lie deeper inside them. One that is called
    `unsure`, as by `hoarfrost sort`, is no class. Otherwise all images anywhere under the folder are read, in the order
    of their paths; of several folders and files in the order given.
    size: by default the median of the short sides, rounded up to a multiple of 8, from 16 to 64; that of
    `photographs`, where they are such.
    channels: by default 1 where every image is gray, else 3.
    on_disk: verify the files now, but decode them when they are used; by default where they would take more than half
    of the free memory, and where they have the side of `photographs`.
    first_read: see `ImageStorage`.
    least_classes: of labelled images, fewer are refused.
    cache: verify files on disk by keeping their decoded pixels there (`hoarfrost.data.cache`), or by finding them.

    Files that are no readable images, or too small ones, are left out with one `SkippedFiles` warning.
    """
    given = None if isinstance(folder, str | Path) else folder
    root = Path(folder) if isinstance(folder, str | Path) else Path()
    check_folder_of_images(root)
    loose: list[str] = []
    classes: list[str] = []
    unsure: list[str] = []
    if labelled:
        names, folders = _list_folder(root, "")
        classes, loose = [name for name in names if name in folders], [name for name in names if name not in folders]
        unsure = [name for name in classes if name == UNSURE]
        classes = [name for name in classes if name != UNSURE]
        _check_names(root, classes)
        found = PathList(chain.from_iterable(_find_files(root, f"{name}/") for name in classes))
    else:
        found = PathList(_find_files(root, "") if given is None else _find_given(given))

    headers = _read_headers(root, found)
    keep = ImageStorage(on_disk, cache, photographs, first_read)
    place = str(root) if given is None else "the paths given"

    def check(kept: Ids) -> tuple[PathList, set[str], str]:
        """The paths of those files, their classes, and what was left out; refuses what cannot be used."""
        paths = found.take(kept)
        present = {_class_of(path) for path in paths}
        others = np.delete(np.arange(len(found)), kept)
        left_out = LeftOut(
            unreadable=found.take(others[~headers.small[others]]),
            small=found.take(others[headers.small[others]]),
            frames=found.take(kept[headers.frames[kept]]),
            loose=loose,
            empty=[name for name in classes if name not in present],
            unsure=unsure,
        )
        _check_any(place, paths, left_out, labelled=labelled)
        if said := left_out.in_words(place):
            warn_caller(said, SkippedFiles)  # before the next refusals, which it may explain
        if labelled and len(present) < least_classes:
            raise InputError(f"{root} has only one class ('{present.pop()}'): at least two are needed")
        return paths, present, said

    def find_broken(files: ImageFiles, kept: Ids) -> Sequence[int]:
        """What cannot be read of the files; where that takes long, after what can be refused before."""
        if first_read is None or not files.photographs:
            return files.decode_into(None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SkippedFiles)  # it comes at the end, with all that is left out
            _, present, _ = check(kept)
        return first_read(files, len(present))

    images, kept = _read_images(root, found, headers, size=size, channels=channels, keep=keep, find_broken=find_broken)
    paths, present, said = check(kept)
    paths = images.files.names if isinstance(images, ImageFiles) else paths
    states = headers.states[kept]
    if not labelled:
        return ImageSet(images, paths=paths, left_out=said, states=states)
    class_names = tuple(name for name in classes if name in present)
    ids = {name: class_id for class_id, name in enumerate(class_names)}
    labels = np.fromiter((ids[_class_of(path)] for path in paths), dtype=np.int64, count=len(paths))
    return ImageSet(images, labels, class_names, paths, said, states)


def _class_of(path: str) -> str:
    return path.partition("/")[0]


def check_folder_of_images(root: Path) -> None:
    """Refuses what is no folder."""
    with looking_into(root):
        exists, is_folder = root.exists(), root.is_dir()
    if not exists:
        raise InputError(f"there is no folder {root}: check the path")
    if not is_folder:
        raise InputError(f"{root} is a file, not a folder: give the folder of the images")


def _check_names(root: Path, classes: list[str]) -> None:
    """Class names go into files and reports, so they have to be text."""
    for name in classes:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError(f"the class folder {name!r} in {root} has a name that is not UTF-8: rename it") from None


def _check_any(root: str, paths: PathList, left_out: LeftOut, *, labelled: bool) -> None:
    """Raise where no image could be read."""
    files = [*left_out.unreadable, *left_out.small]
    if labelled and not paths and not files:
        raise InputError(
            f"{root} has no sub-folders with images: put the images of each class in a sub-folder of its own"
        )
    if not paths:
        how = "none readable" if left_out.unreadable else f"all with a side below {MIN_SIDE} pixels"
        reason = f"{_counted(files, 'file', 'files')}, {how} ({_named(files)})" if files else "it is empty"
        remedy = "give JPEG, PNG or other image files" if left_out.unreadable else "check the path"
        raise InputError(f"there are no images in {root}: {reason}; {remedy}{for_heic(files)}")


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
        raise InputError(f"cannot open {folder}: {reason}; change its permissions, or move it away") from error


def _list_folder(root: Path, inside: str) -> tuple[list[str], set[str]]:
    """The names of all entries of root / inside, sorted, and of the folders among them; hidden ones left out."""
    names, folders = list[str](), set[str]()
    with looking_into(root / inside), os.scandir(root / inside) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                names.append(entry.name)
                if _is_folder(entry):
                    folders.add(entry.name)
    names.sort()
    return names, folders


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # Path takes a link to itself for no folder, where DirEntry would raise.
    return Path(entry).is_dir() if entry.is_symlink() else entry.is_dir()


def _find_files(root: Path, start: str) -> Iterator[str]:
    """Everything that is no folder under root / start, at any depth, relative to root, sorted by the parts of the path.

    start: empty, or a folder with a slash behind it.

    Links are followed, but each real folder is entered once, so that a link to a folder above ends.
    """
    entered = {_identity(root)} if start else set()
    levels = [iter([start])]  # what is still to come in each folder on the way down
    while levels:
        path = next(levels[-1], None)
        if path is None:
            levels.pop()
        elif path and not path.endswith("/"):
            yield path
        elif (identity := _identity(root / path)) not in entered:
            entered.add(identity)
            levels.append(_entries(root, path))


def _find_given(paths: Sequence[str | Path]) -> Iterator[str]:
    """The files among some paths, and all below the folders among them."""
    for path in map(Path, paths):
        with looking_into(path):
            exists, is_folder = path.exists(), path.is_dir()
        if not exists:
            raise InputError(f"there is no file or folder '{path}': check the path")
        yield from (str(path / name) for name in _find_files(path, "")) if is_folder else [str(path)]


def _entries(root: Path, inside: str) -> Iterator[str]:
    """What is in root / inside, relative to root and sorted; folders have a slash behind them."""
    names, folders = _list_folder(root, inside)
    return (f"{inside}{name}/" if name in folders else f"{inside}{name}" for name in names)


def _identity(folder: Path) -> tuple[int, int]:
    with looking_into(folder):
        status = folder.stat()
    return (status.st_dev, status.st_ino)


# ---------------------------------------------------------------------------------------------------------------------
# What is in it
# ---------------------------------------------------------------------------------------------------------------------


def _read_headers(root: Path, paths: PathList) -> Headers:
    """What the files begin with."""
    from PIL import Image

    load_readers()
    files, headers = FileList(root, paths), Headers.empty(len(paths))

    def read_rows(rows: range) -> None:
        for row in rows:
            _read_header(files.text(row), headers, row)

    # Pillow only warns of a file that claims more pixels than any picture has. The filter is set around the threads,
    # not within them, because filters belong to the whole process.
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        in_threads(read_rows, len(paths), chunk=64)
    return headers


def _read_header(path: str, headers: Headers, row: int) -> None:
    """Fill a row in; leave it as it is where the file is no image."""
    from PIL import Image

    try:
        with open_regular(path) as file, Image.open(file) as image:
            refuse_strange(image)
            headers.states[row] = state_of(os.fstat(file.fileno()))
            headers.width[row], headers.height[row] = image.size
            headers.gray[row] = image.mode in GRAY_MODES | SIXTEEN_BIT_MODES
            headers.is_image[row] = min(image.size) >= MIN_SIDE
            if image.format in ("GIF", "TIFF"):  # the second picture in a JPEG of a telephone is no frame
                headers.frames[row] = getattr(image, "is_animated", False)
    except MemoryError:
        raise
    except Exception:  # Pillow's readers raise nearly anything on a broken file
        return


def _read_images(
    root: Path,
    paths: PathList,
    headers: Headers,
    *,
    size: int | None,
    channels: int | None,
    keep: ImageStorage,
    find_broken: Callable[[ImageFiles, Ids], Sequence[int]],
) -> tuple[Pixels | ImageFiles, Ids]:
    """The images, and the positions of those files that can be decoded to the end.

    A damaged file shows only in decoding, and the default size must not depend on it: all is then read once more.
    """

    def files_at(rows: Ids) -> ImageFiles:
        some = headers.take(rows)
        gray, sides = bool(some.gray.all()), cast(Sequence[int], some.short_sides)
        side = default_size(sides, None if gray else keep.photographs) if size is None else size
        return ImageFiles(
            FileList(root, paths.take(rows)),
            size=side,
            channels=(1 if gray else 3) if channels is None else channels,
            states=some.states,
            photographs=side == keep.photographs,
        )

    kept, on_disk, broken = np.flatnonzero(headers.is_image), None, list[int]()
    while True:
        files = files_at(kept)
        on_disk = keep.stay_on_disk(files) if on_disk is None else on_disk
        if on_disk and keep.cache is not None:
            with suppress(InputError):  # it is found out later what is wrong with the cache
                _, broken = keep_decoded(files, keep.cache)
                kept = np.delete(kept, broken)
                others = files_at(kept) if broken else files
                if others.shape[1:] == files.shape[1:]:
                    return others, kept
                continue
        if on_disk:
            broken = list(find_broken(files, kept))
            if not broken:
                return files, kept
            good, kept = np.delete(np.arange(len(kept)), broken), np.delete(kept, broken)
            others = files_at(kept)
            # The others were decoded all the same. What was made of them stays, unless they have another size now.
            return (files.take(good) if others.shape[1:] == files.shape[1:] else others), kept
        pixels = np.empty(files.shape, dtype=np.uint8)
        broken = files.decode_into(pixels)
        if not broken:
            return pixels, kept
        kept = np.delete(kept, broken)
