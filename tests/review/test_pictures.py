"""Thumbnails keep the shape of their image, are made once, and lie beside the model."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hoarfrost.data.images import state_of
from hoarfrost.errors import InputError
from hoarfrost.review import pictures as shown
from hoarfrost.review.pictures import SIDE, Gone, Pictures


def pictures_of(folder: Path, cache: Path | None = None) -> Pictures:
    paths = sorted(path.name for path in folder.iterdir() if path.is_file())
    states = np.array([state_of((folder / name).stat()) for name in paths], dtype=np.int64)
    return Pictures(folder, paths, states, cache)


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A wide photograph, one that the camera turned, a tall one with an alpha channel, and one of 16 bits."""
    made = tmp_path / "images"
    made.mkdir()
    Image.linear_gradient("L").convert("RGB").resize((1600, 400)).save(made / "a.jpg")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (900, 600), "red").save(made / "b.jpg", exif=turned)
    Image.new("RGBA", (300, 900), (0, 0, 0, 0)).save(made / "c.png")
    Image.fromarray(np.full((40, 60), 65535, dtype=np.uint16)).save(made / "d.tiff")
    (made / "e.png").write_bytes(b"no image")
    return made


def test_they_have_the_shape_of_their_image(folder: Path) -> None:
    found = pictures_of(folder)
    assert found.shapes(np.arange(5)).tolist() == [[1600, 400], [600, 900], [300, 900], [60, 40], [1, 1]]
    sizes = [opened(found.thumbnail(index)).size for index in range(4)]
    assert sizes == [(SIDE, SIDE // 4), (SIDE * 2 // 3, SIDE), (SIDE // 3, SIDE), (60, 40)]
    assert opened(found.thumbnail(2)).convert("L").getpixel((5, 5)) == 255, "transparent is white"
    assert opened(found.thumbnail(3)).convert("L").getpixel((5, 5)) == 255, "16 bits are 8"
    with pytest.raises(Gone):
        found.thumbnail(4)


def test_originals_are_the_files_unless_browsers_cannot_show_them(folder: Path) -> None:
    found = pictures_of(folder)
    assert found.original(0) == ((folder / "a.jpg").read_bytes(), "image/jpeg")
    assert found.original(2) == ((folder / "c.png").read_bytes(), "image/png")
    content, kind = found.original(3)
    assert (opened(content).format, opened(content).size, kind) == ("JPEG", (60, 40), "image/jpeg")
    with pytest.raises(Gone):
        found.original(4)


def test_a_file_is_served_as_what_it_is_and_not_as_it_is_called(folder: Path) -> None:
    (folder / "a.jpg").write_text("<html><script>alert(1)</script>")
    (folder / "b.jpg").write_bytes((folder / "c.png").read_bytes())
    found = pictures_of(folder)
    assert found.original(1)[1] == "image/png"
    for read in (found.original, found.thumbnail):
        with pytest.raises(Gone):
            read(0)


@pytest.mark.parametrize("index", [-1, 5, 10**9])
def test_positions_that_are_none(folder: Path, index: int) -> None:
    for read in (pictures_of(folder).original, pictures_of(folder).thumbnail):
        with pytest.raises(Gone):
            read(index)


def test_they_are_made_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "model.thumbnails"
    first = pictures_of(folder, cache).thumbnail(0)
    monkeypatch.setattr(Pictures, "_make", None)
    assert pictures_of(folder, cache).thumbnail(0) == first
    assert len(list(cache.glob("??/*.jpg"))) == 1
    monkeypatch.undo()
    Image.new("RGB", (50, 50)).save(folder / "a.jpg")
    assert opened(pictures_of(folder, cache).thumbnail(0)).size == (50, 50), "of a file that changed it is another"


def test_shapes_are_found_some_at_first_and_then_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "model.thumbnails"
    found = pictures_of(folder, cache)
    assert found.shapes(np.array([3, 1, 0]), most=2).tolist() == [[60, 40], [600, 900], [0, 0]]
    found.keep_shapes()
    Image.new("RGB", (50, 50)).save(folder / "d.tiff")
    monkeypatch.setattr(Pictures, "_shape", lambda *_: (7, 7))
    assert pictures_of(folder, cache).shapes(np.arange(4)).tolist() == [[7, 7], [600, 900], [7, 7], [7, 7]]
    for content in (b"", b"x" * 5, (cache / "shapes").read_bytes() + b"x"):
        (cache / "shapes").write_bytes(content)
        assert pictures_of(folder, cache).shapes(np.arange(4)).tolist() == [[7, 7]] * 4


def test_they_are_made_ahead_in_an_order_while_nobody_asks(folder: Path, tmp_path: Path) -> None:
    cache, quiet = tmp_path / "model.thumbnails", threading.Event()
    found = pictures_of(folder, cache)
    work = threading.Thread(target=found.make_ahead, args=([4, 2, 1], quiet))
    work.start()
    assert not list(tmp_path.glob("model.thumbnails/??/*.jpg")), "somebody asks"
    quiet.set()
    work.join(30)
    assert len(list(cache.glob("??/*.jpg"))) == 2


def test_there_is_an_end_to_their_room(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, quiet = tmp_path / "model.thumbnails", threading.Event()
    quiet.set()
    found = pictures_of(folder, cache)
    sizes = [len(found.thumbnail(index)) for index in range(4)]
    monkeypatch.setattr(shown, "ROOM", sum(sizes) - 1)
    assert found.make_room() <= 0.9 * (sum(sizes) - 1)
    assert len(list(cache.glob("??/*.jpg"))) < 4
    found.make_ahead(range(4), quiet)
    assert found.make_room() <= sum(sizes)


def test_no_link_is_followed_where_thumbnails_are_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "a.jpg").write_bytes(b"years of work")
    (tmp_path / "linked").symlink_to(precious)
    with pytest.raises(InputError, match="it is a link"):
        pictures_of(folder, tmp_path / "linked")
    cache = tmp_path / "model.thumbnails"
    cache.mkdir()
    for number in range(256):
        (cache / f"{number:02x}").symlink_to(precious)
    monkeypatch.setattr(shown, "ROOM", 1)
    found = pictures_of(folder, cache)
    assert found.make_room() == 0
    with pytest.raises(InputError, match="it is a link"):
        found.thumbnail(0)
    assert [path.name for path in precious.iterdir()] == ["a.jpg"]
