"""Decoded pixels in a file are those of the image files, and stay so."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from hoarfrost.data import images as images_module
from hoarfrost.data.arrays import fit_to
from hoarfrost.data.cache import DecodedFile, ImageStorage, cached, keep_decoded
from hoarfrost.data.datasets import read_images
from hoarfrost.data.folder import read_folder
from hoarfrost.data.images import ImageFiles, ImageSet, OnDisk, decode
from hoarfrost.errors import InputError

COUNT = 20


def save(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for seed in range(COUNT):
        save(tmp_path / "source" / "ab"[seed % 2] / f"{seed:02d}.png", seed)
    return tmp_path / "source"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "cache"


def on_disk(source: Path) -> ImageSet:
    return read_folder(source, labelled=True, on_disk=True)


def made(cache: Path) -> list[Path]:
    return sorted(cache.iterdir())


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_: int, **__: int | None) -> NDArray[np.uint8]:
        raise AssertionError(f"{path} was decoded")

    monkeypatch.setattr(images_module, "decode", refuse)


class TestCached:
    def test_of_several_at_once_one_decodes(self, source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        images, decoded = [on_disk(source) for _ in range(3)], list[str]()

        def slowly(path: str, size: int, channels: int, **noted: int | None) -> NDArray[np.uint8]:
            decoded.append(path)
            time.sleep(0.01)
            return decode(path, size, channels, **noted)

        monkeypatch.setattr(images_module, "decode", slowly)
        with ThreadPoolExecutor(3) as pool:
            first, *others = pool.map(lambda given: cached(given, cache).images[:], images)
        assert len(decoded) == COUNT
        for other in others:
            np.testing.assert_array_equal(other, first)

    def test_the_same_images(self, source: Path, cache: Path) -> None:
        images = on_disk(source)
        decoded = cached(images, cache)
        assert isinstance(decoded.images, DecodedFile)
        assert isinstance(decoded.images, OnDisk)
        assert len(decoded) == COUNT
        assert decoded.images.shape == images.images.shape
        assert (decoded.class_names, decoded.paths) == (images.class_names, images.paths)
        assert decoded.digest() == images.digest()
        np.testing.assert_array_equal(decoded.canonical_order(), images.canonical_order())

    def test_in_chunks(self, source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hoarfrost.data.cache.in_chunks", lambda count: images_module.in_chunks(count, 7))
        monkeypatch.setattr("hoarfrost.data.cache.PIECE", 1000)
        images = on_disk(source)
        assert cached(images, cache).digest() == images.digest()
        assert cached(images, cache).digest() == images.digest()
        assert len(made(cache)) == 1

    def test_the_image_files_are_needed_once(self, source: Path, cache: Path) -> None:
        images = on_disk(source)
        expected = images.pixels(slice(None))
        decoded = cached(images, cache)
        for path in source.rglob("*.png"):
            path.unlink()
        np.testing.assert_array_equal(decoded.pixels(slice(None)), expected)

    def test_a_second_call_decodes_nothing(
        self, source: Path, cache: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        images = on_disk(source)
        expected = cached(images, cache).digest()
        request.getfixturevalue("no_decoding")
        assert cached(images, cache).digest() == expected
        monkeypatch.chdir(source.parent)
        relative = ImageFiles([path.relative_to(source.parent) for path in files_of(images).paths], 24, 3)
        again = cached(ImageSet(relative, images.labels, images.class_names), "deep/cache")
        assert again.digest() == expected
        assert len(made(cache)) == 1

    def test_another_state_order_or_size_is_another_file(self, source: Path, cache: Path) -> None:
        images = on_disk(source)
        cached(images, cache)
        changed = source / "a" / "04.png"
        save(changed, seed=99)
        images = on_disk(source)
        assert cached(images, cache).digest() == images.digest()
        assert len(made(cache)) == 2
        os.utime(changed, ns=(0, 0))
        images = on_disk(source)
        cached(images, cache)
        assert len(made(cache)) == 3
        for other in (images.take([3, 1, 2]), images.take([1, 3, 2]), images.fitted(16), images.fitted(24, 1)):
            assert cached(other, cache).digest() == other.digest()
        assert len(made(cache)) == 7

    @pytest.mark.parametrize("damage", ["shorter", "longer", "empty", "changed", "other footer", "folder"])
    def test_a_damaged_file_is_made_again(self, source: Path, cache: Path, damage: str) -> None:
        images = on_disk(source)
        decoded = cached(images, cache)
        (path,) = made(cache)
        content = path.read_bytes()
        if damage == "folder":
            path.unlink()
            path.mkdir()
            with pytest.raises(InputError, match=path.name):
                cached(images, cache)
            assert made(cache) == [path]
            return
        path.write_bytes(
            {
                "shorter": content[:-1],
                "longer": content + b"\0",
                "empty": b"",
                "changed": content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
                "other footer": content[:-20] + bytes(20),
            }[damage]
        )
        assert cached(images, cache).digest() == images.digest()
        assert decoded.digest() == images.digest()
        assert path.read_bytes() == content
        assert made(cache) == [path]

    def test_what_a_killed_process_left_is_removed_by_the_next_that_writes(self, source: Path, cache: Path) -> None:
        killed = (
            "import os, sys; from hoarfrost.data import cache; from tests.data.test_cache import files_of, on_disk\n"
            "cache._pour = lambda *_: os.kill(os.getpid(), 9)\n"
            "cache.keep_decoded(files_of(on_disk(cache.Path(sys.argv[1]))), sys.argv[2])"
        )
        done = subprocess.run(
            [sys.executable, "-c", killed, str(source), str(cache)], cwd=Path(__file__).parents[2], check=False
        )
        assert done.returncode == -signal.SIGKILL
        (left,) = made(cache)
        assert left.name.endswith(".part")
        path, _ = keep_decoded(files_of(on_disk(source)), cache)
        assert made(cache) == [path]

    def test_nothing_is_left_of_a_failure(self, source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(view: memoryview, file: FileIO) -> None:
            file.write(view[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("hoarfrost.data.cache._pour", full)
            with pytest.raises(InputError, match="No space left on device; free space there"):
                keep_decoded(files_of(on_disk(source)), cache)
        assert made(cache) == []

    def test_an_image_that_cannot_be_decoded_is_named_and_the_others_are_kept(
        self, source: Path, cache: Path, request: pytest.FixtureRequest
    ) -> None:
        images = on_disk(source)
        (source / "b" / "07.png").write_bytes(b"no image")
        with pytest.raises(InputError, match=r"07\.png"):
            cached(images, cache)
        assert sorted(path.suffix for path in made(cache)) == [".broken", ".pixels"]
        row = [path.name for path in files_of(images).paths].index("07.png")
        others = images.take(np.delete(np.arange(COUNT), row))
        expected = others.digest()
        request.getfixturevalue("no_decoding")
        assert cached(others, cache).digest() == expected
        with pytest.raises(InputError, match=r"07\.png"):
            cached(images, cache)
        (source / "b" / "07.png").unlink()
        with pytest.raises(InputError, match=r"cannot read the image .*07\.png"):
            cached(images, cache)

    def test_what_is_not_decoded_stays_as_it_is(self, source: Path, cache: Path) -> None:
        in_memory = read_folder(source, labelled=True)
        assert cached(in_memory, cache) is in_memory
        assert not cache.exists()
        decoded = cached(on_disk(source), cache)
        assert cached(decoded, cache) is decoded


def files_of(images: ImageSet) -> ImageFiles:
    assert isinstance(images.images, ImageFiles)
    return images.images


class TestDecodedFile:
    @pytest.fixture
    def images(self, source: Path, cache: Path) -> ImageSet:
        return cached(on_disk(source), cache)

    @pytest.fixture
    def pixels(self, source: Path) -> NDArray[np.uint8]:
        return read_folder(source, labelled=True).pixels(slice(None))

    @pytest.mark.parametrize(
        "rows", [[], [7], [-1], [3, 4, 5, 6], [6, 5, 4], [5, 3, 3, -1, 4, 0], [0, 2, 1, 3, 4], list(range(20)) * 2]
    )
    def test_rows_in_any_order(self, images: ImageSet, pixels: NDArray[np.uint8], rows: list[int]) -> None:
        decoded = images.images
        assert isinstance(decoded, DecodedFile)
        np.testing.assert_array_equal(decoded[rows], pixels[rows])
        np.testing.assert_array_equal(decoded.read(np.array(rows, dtype=np.int64), threads=1), pixels[rows])

    def test_slices_and_masks(self, images: ImageSet, pixels: NDArray[np.uint8]) -> None:
        np.testing.assert_array_equal(images.images[3:9:2], pixels[3:9:2])
        assert images.labels is not None
        np.testing.assert_array_equal(images.images[images.labels == 1], pixels[images.labels == 1])
        np.testing.assert_array_equal(images.rows(range(4, 9))[:], pixels[4:9])

    def test_take_after_take(self, images: ImageSet, pixels: NDArray[np.uint8]) -> None:
        order = np.random.default_rng(0).permutation(COUNT)
        part = images.take(order).take(slice(5, 15))
        assert isinstance(part.images, DecodedFile)
        assert part.shape == (24, 24, 3)
        np.testing.assert_array_equal(part.pixels(slice(None)), pixels[order][5:15])
        np.testing.assert_array_equal(part.pixels([9, 0]), pixels[order][[14, 5]])

    def test_fitted_like_an_array(self, images: ImageSet, pixels: NDArray[np.uint8]) -> None:
        fitted = images.fitted(16, 1)
        assert fitted.shape == (16, 16, 1)
        np.testing.assert_array_equal(fitted.take([4, 2]).pixels(slice(None)), fit_to(pixels[[4, 2]], 16, 1))
        np.testing.assert_array_equal(fitted.fitted(24, 3).pixels(slice(None)), pixels)

    def test_it_can_be_sent_to_another_process(self, images: ImageSet, pixels: NDArray[np.uint8]) -> None:
        content = pickle.dumps(images.images)
        assert len(content) < 2000, "more than places went along"
        np.testing.assert_array_equal(pickle.loads(content)[[2, 1]], pixels[[2, 1]])

    def test_a_file_that_vanishes_or_shrinks_is_named(self, images: ImageSet, cache: Path) -> None:
        (path,) = made(cache)
        os.truncate(path, 24 * 24 * 3 * 10)
        images.pixels(slice(0, 10))
        with pytest.raises(InputError, match=rf"{path.name}: its end is missing; run the command again"):
            images.pixels([3, 10])
        path.unlink()
        with pytest.raises(InputError, match=rf"{path.name}: No such file or directory; run the command again"):
            images.pixels([0])


@pytest.mark.filterwarnings("ignore::hoarfrost.errors.SkippedFiles")
@pytest.mark.parametrize("broken", [False, True])
def test_a_folder_with_a_cache_is_decoded_once(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    if broken:
        path = source / "a" / "00.png"
        path.write_bytes(path.read_bytes()[:-200])
    decoded = list[str]()

    def counting(path: str, size: int, channels: int, **noted: int | None) -> NDArray[np.uint8]:
        decoded.append(path)
        return decode(path, size, channels, **noted)

    monkeypatch.setattr(images_module, "decode", counting)

    def read() -> ImageSet:
        return read_images(source, labelled=True, keep=ImageStorage(cache=cache))

    first = read()
    assert isinstance(first.images, DecodedFile)
    assert len(first) == COUNT - broken
    assert len(decoded) == COUNT
    decoded.clear()
    assert read().digest() == first.digest()
    assert not decoded
    monkeypatch.undo()
    assert first.digest() == read_images(source, labelled=True).digest()
    if broken:
        save(path, seed=0)
        assert len(read()) == COUNT, "mended, it is one of them again"


@pytest.mark.filterwarnings("ignore::hoarfrost.errors.SkippedFiles")
@pytest.mark.parametrize("note", ["", "[1]", '{"rows": [99]}', '{"rows": "x"}', '{"rows": [1.5, null]}', "{}"])
def test_a_note_of_broken_files_that_is_damaged_is_made_again(source: Path, cache: Path, note: str) -> None:
    path = source / "a" / "00.png"
    path.write_bytes(path.read_bytes()[:-200])
    expected = read_images(source, labelled=True, keep=ImageStorage(cache=cache)).digest()
    (kept,) = cache.glob("*.broken")
    content = kept.read_bytes()
    kept.write_text(note)
    assert read_images(source, labelled=True, keep=ImageStorage(cache=cache)).digest() == expected
    assert kept.read_bytes() == content


@pytest.mark.filterwarnings("ignore::hoarfrost.errors.SkippedFiles")
def test_a_broken_file_that_decided_the_size(tmp_path: Path, cache: Path) -> None:
    for number, side in enumerate((16, 16, 40, 40, 40)):
        place = tmp_path / "source" / "ab"[number % 2] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=np.uint8)).save(place)
    for number in (3, 4):
        path = tmp_path / "source" / "ab"[number % 2] / f"{number}.png"
        path.write_bytes(path.read_bytes()[:-200])
    plain = read_images(tmp_path / "source", labelled=True)
    decoded = read_images(tmp_path / "source", labelled=True, keep=ImageStorage(cache=cache))
    assert plain.shape == (16, 16, 3)
    assert decoded.digest() == plain.digest()


def test_a_folder_of_broken_files_is_refused_with_a_cache_too(tmp_path: Path, cache: Path) -> None:
    for name in "ab":
        save(tmp_path / "source" / name / "0.png", 0)
        path = tmp_path / "source" / name / "0.png"
        path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError) as plain:
        read_images(tmp_path / "source", labelled=True)
    with pytest.raises(InputError) as kept:
        read_images(tmp_path / "source", labelled=True, keep=ImageStorage(cache=cache))
    assert str(kept.value) == str(plain.value)
