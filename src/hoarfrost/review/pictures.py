"""The images of a folder as the page shows them: thumbnails in their own shape, made once, and the originals."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hoarfrost import store
from hoarfrost.data.images import (
    ChangedImage,
    UnreadableImage,
    check_state,
    decode,
    in_threads,
    load_readers,
    refuse_strange,
)
from hoarfrost.errors import InputError
from hoarfrost.reading import check_own_folder, open_regular

if TYPE_CHECKING:
    from PIL import Image

SIDE = 384
"""pixels of the longer side of a thumbnail"""
ROOM = 1 << 30
"""bytes of thumbnails that are kept; then those that were made first go"""
SHOWN = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}
"""formats of files that browsers show as they are"""
LARGEST = 4096
"""pixels of the longer side of an original of another format"""
UNKNOWN = (1, 1)
"""the shape of what cannot be read"""


class Gone(Exception):
    """An image is not there any more, or is not what was looked at."""


class Pictures:
    """N image files of a folder, asked for by their position alone.

    cache: a folder for thumbnails, which may be removed at any time; None where they are kept nowhere.
    """

    def __init__(self, folder: Path, paths: Sequence[str], states: NDArray[np.int64], cache: Path | None) -> None:
        load_readers()
        self.folder, self.paths, self.states, self.cache = folder, paths, states, cache
        self._shapes = np.zeros((len(paths), 2), dtype=np.int32)
        self._stopped = threading.Event()
        if cache is not None:
            check_own_folder(cache)
            self._find_shapes()

    def __len__(self) -> int:
        return len(self.paths)

    def are(self, paths: Sequence[str], states: NDArray[np.int64]) -> bool:
        """Whether these are the very same files."""
        return list(self.paths) == list(paths) and np.array_equal(self.states, states)

    def path(self, index: int) -> str:
        """Where an image is."""
        if not 0 <= index < len(self):
            raise Gone
        return os.path.join(self.folder, self.paths[index])  # noqa: PTH118 - see FileList.text

    def shapes(self, indices: NDArray[np.int64], *, most: int | None = None) -> NDArray[np.int32]:
        """``(n, 2)``: width and height of images as they are seen, by what their files begin with.

        most: so many are looked at, if they were not before; the others are 0.
        """
        missing = indices[:most][self._shapes[indices[:most], 0] == 0]

        def read(rows: range) -> None:
            for row in rows:
                index = int(missing[row])
                self._shapes[index] = self._shape(index)

        in_threads(read, len(missing), chunk=32)
        found: NDArray[np.int32] = self._shapes[indices]
        return found

    def _find_shapes(self) -> None:
        """Those that were found before of the very same files."""
        assert self.cache is not None
        with suppress(OSError, InputError), open_regular(self.cache / "shapes") as file:
            held = file.read(8 * len(self) * 3 + 1)
            if len(held) == 8 * len(self) * 3:
                rows = np.frombuffer(held, dtype="<i8").reshape(len(self), 3)
                same = rows[:, 0] == self.states
                self._shapes[same] = rows[same, 1:].clip(0, 1 << 20)

    def keep_shapes(self) -> None:
        """Keeps the shapes that were found, beside the thumbnails."""
        if self.cache is not None and self._shapes.any():
            rows = np.column_stack([self.states, self._shapes.astype(np.int64)]).astype("<i8")
            with suppress(OSError):
                self.cache.mkdir(exist_ok=True)
                store.write_bytes(self.cache / "shapes", rows.tobytes())

    def _shape(self, index: int) -> tuple[int, int]:
        from PIL import Image

        with suppress(Exception), open_regular(self.path(index)) as file, Image.open(file) as image:
            turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            return (image.height, image.width) if turned else image.size
        return UNKNOWN

    def thumbnail(self, index: int) -> bytes:
        """A JPEG file of an image, made now or before."""
        place = self._place(index)
        if place is not None:
            with suppress(OSError, InputError), open_regular(place) as file:
                return file.read()
        made = self._make(index)
        if place is not None:
            with suppress(OSError):
                self._keep(place, made)
        return made

    def _place(self, index: int) -> Path | None:
        if self.cache is None:
            return None
        told = f"{SIDE} {self.states[index]} ".encode() + os.fsencode(os.path.abspath(self.path(index)))  # noqa: PTH100
        name = hashlib.blake2b(told, digest_size=16).hexdigest()
        return self.cache / name[:2] / f"{name}.jpg"

    def _keep(self, place: Path, content: bytes) -> None:
        check_own_folder(place.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        with store.replaced_file(place, mark=f".{os.getpid()}.{threading.get_ident()}") as part:
            part.write_bytes(content)

    def _make(self, index: int) -> bytes:
        buffer = io.BytesIO()
        image = self._small(self.path(index), int(self.states[index]))
        image.save(buffer, "JPEG", quality=82)
        return buffer.getvalue()

    def _small(self, path: str, state: int) -> Image.Image:
        """The image upright, in its own shape, at most `SIDE` wide and high; a JPEG is decoded in part."""
        from PIL import Image, ImageOps

        try:
            with open_regular(path) as file, Image.open(file) as image:
                check_state(file, state, path)
                refuse_strange(image)
                if image.format == "JPEG" and image.mode in ("L", "RGB"):
                    image.draft(None, (2 * SIDE, 2 * SIDE))
                    image.thumbnail((SIDE, SIDE), reducing_gap=2.0)
                    return ImageOps.exif_transpose(image)
            whole = decode(path, state=state)  # on white where it is transparent, 8 bits of 16
        except (ChangedImage, UnreadableImage, OSError):
            raise Gone from None
        except MemoryError:
            raise
        except Exception:  # Pillow's readers raise nearly anything on a broken file
            raise Gone from None
        small = Image.fromarray(whole[..., 0] if whole.shape[2] == 1 else whole)
        small.thumbnail((SIDE, SIDE))
        return small

    def original(self, index: int) -> tuple[bytes, str]:
        """An image file as it is, with its type; one that browsers do not show as a JPEG file."""
        from PIL import Image

        path, state = self.path(index), int(self.states[index])
        try:
            with open_regular(path) as file:
                check_state(file, state, path)
                with Image.open(file) as image:
                    refuse_strange(image)
                    kind = SHOWN.get(image.format or "")
                if kind is not None:
                    file.seek(0)
                    return file.read(), kind
            whole = decode(path, state=state)
        except (ChangedImage, UnreadableImage, OSError):
            raise Gone from None
        except MemoryError:
            raise
        except Exception:
            raise Gone from None
        shown, buffer = Image.fromarray(whole[..., 0] if whole.shape[2] == 1 else whole), io.BytesIO()
        shown.thumbnail((LARGEST, LARGEST))
        shown.save(buffer, "JPEG", quality=90)
        return buffer.getvalue(), "image/jpeg"

    def make_ahead(self, order: Iterable[int], quiet: threading.Event) -> None:
        """Makes thumbnails that nobody has asked for yet, in an order, one at a time.

        It waits while ``quiet`` is not set.
        """
        room = ROOM - self.make_room()
        for index in order:
            place = self._place(index)
            if place is None or self._stopped.is_set():
                return
            while not quiet.wait(1.0):
                if self._stopped.is_set():
                    return
            if not place.exists():
                with suppress(Gone, OSError):
                    room -= len(self.thumbnail(index))
                if room < 0:
                    return

    def make_room(self) -> int:
        """Removes the oldest thumbnails where there are too many; gives the bytes that are left."""
        if self.cache is None or not self.cache.is_dir():
            return 0
        found = []
        for part in (self.cache / f"{number:02x}" for number in range(256)):
            if part.is_symlink() or not part.is_dir():
                continue
            for place in part.glob("*.jpg"):
                with suppress(OSError):
                    told = place.lstat()
                    found.append((told.st_mtime, told.st_size, place))
        kept = sum(size for _, size, _ in found)
        for _, size, place in sorted(found, key=lambda one: one[0]):
            if kept <= ROOM * 9 // 10:
                break
            with suppress(OSError):
                place.unlink()
                kept -= size
        return kept

    def stop(self) -> None:
        """Makes no more ahead."""
        self._stopped.set()
