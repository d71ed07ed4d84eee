"""What is read of files: no more than is asked for, no pipe, nothing that has changed, nothing elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hoarfrost.data import images as images_module
from hoarfrost.data.arrays import fit_to
from hoarfrost.data.cache import ImageStorage
from hoarfrost.data.datasets import load_dataset, read_images, read_npz
from hoarfrost.data.images import ImageFiles, decode
from hoarfrost.errors import InputError

from .test_datasets import WORDNET_IDS, write_tiny_imagenet


class StillWaiting(BaseException):
    """Not an Exception, which decoding takes for a broken image."""


@contextmanager
def in_time(seconds: int = 10) -> Iterator[None]:
    """Fails where the block waits for something that never comes."""

    def fail(*_: object) -> None:
        raise StillWaiting(f"after {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def save(path: Path, seed: int, side: int = 20) -> None:
    """A file of the same length for every seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)


def save_folder(folder: Path) -> Path:
    for seed in range(8):
        save(folder / "ab"[seed % 2] / f"{seed}.bmp", seed)
    return folder


def swap_unseen(path: Path, seed: int) -> None:
    """Another image in its place, of the same length and with the same time."""
    before = path.stat()
    save(path, seed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


class TestArrays:
    def test_an_array_that_is_not_asked_for_is_not_read(self, tmp_path: Path) -> None:
        images = np.arange(2 * 8 * 8, dtype=np.uint8).reshape(2, 8, 8)
        np.savez_compressed(tmp_path / "some.npz", images=images, labels=[0, 1], other=np.zeros(64 << 20, np.uint8))
        tracemalloc.start()
        try:
            found = read_npz(tmp_path / "some.npz")
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
        np.testing.assert_array_equal(found.pixels(slice(None))[..., 0], images)

    @pytest.mark.parametrize("keys", [("images", "labels"), ("x_train", "y_train", "x_test", "y_test")])
    def test_a_broken_array_that_is_not_asked_for_does_not_matter(self, tmp_path: Path, keys: tuple[str, ...]) -> None:
        given = {key: np.zeros((8, 8, 8), np.uint8) if key[0] in "ix" else np.arange(8) % 2 for key in keys}
        np.savez(tmp_path / "some.npz", other=np.array([{}, {}], dtype=object), **given)  # type: ignore[arg-type]
        train, _ = load_dataset("folder", tmp_path / "some.npz")
        assert train.class_names == ("0", "1")

    def test_more_than_fits_is_refused_before_it_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        np.savez_compressed(tmp_path / "some.npz", images=np.zeros((100, 64, 64), np.uint8))
        monkeypatch.setattr("hoarfrost.data.datasets.free_memory", lambda: 300_000)
        with pytest.raises(InputError, match=r"'images' in .*some\.npz need 0 MiB, but only 0 MiB are free"):
            read_npz(tmp_path / "some.npz")

    def test_a_shape_beyond_all_memory(self, tmp_path: Path) -> None:
        path = tmp_path / "some.npz"
        np.savez(path, images=np.zeros((2, 8, 8), np.uint8))
        # The header is padded, so that nothing moves; the checksum of the archive is that of the other header.
        path.write_bytes(path.read_bytes().replace(b"(2, 8, 8), }          ", b"(2000000000000, 8, 8),}"))
        with pytest.raises(InputError, match=r"some\.npz"):
            read_npz(path)

    def test_a_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "some.npz")
        with in_time(), pytest.raises(InputError, match=r"some\.npz: Not a regular file"):
            read_images(tmp_path / "some.npz", labelled=False)


MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I"]


def save_mode(folder: Path, mode: str) -> Path:
    values = np.random.default_rng(3).integers(0, 256, (700, 90, 3), dtype=np.uint8)
    if mode.startswith("I"):
        wide = values[..., 0].astype(np.uint16) * 256 + values[..., 1]
        image = Image.fromarray(wide.astype(np.int32) if mode == "I" else wide)
    else:
        image = Image.fromarray(values).convert(mode)
    assert image.mode == mode
    path = folder / ("image.tif" if mode in ("CMYK", "I") else "image.png")
    image.save(path)
    return path


class TestImages:
    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("mode", MODES)
    def test_decoded_to_a_size_as_an_array_would_be_resized(self, tmp_path: Path, mode: str, channels: int) -> None:
        path = save_mode(tmp_path, mode)
        np.testing.assert_array_equal(decode(path, 24, channels), fit_to(decode(path)[None], 24, channels)[0])

    def test_a_large_png_takes_little_more_than_its_own_memory(self, tmp_path: Path) -> None:
        path = tmp_path / "large.png"
        Image.new("RGB", (9380, 9380), (10, 200, 30)).save(path, compress_level=1)
        program = (
            "import resource, sys; from hoarfrost.data.images import ImageFiles; from PIL import Image; Image.init()\n"
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "pixels = ImageFiles([sys.argv[1]], 64, 1)[:]\n"
            "print(pixels.min(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
        )
        done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
        gray, peak = map(int, done.stdout.split())
        assert gray == decode(path, 64, 1).max()
        own = 9380 * 9380 * 4 / 1024  # Pillow has four bytes a pixel
        assert peak < 1.5 * own

    def test_of_a_large_jpeg_a_part_is_decoded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "large.jpg"
        rows, columns = np.mgrid[:640, :800]
        Image.fromarray(np.stack([rows // 3, columns // 4, (rows + columns) // 8], axis=-1).astype(np.uint8)).save(path)
        whole = decode(path, 16, 3)
        monkeypatch.setattr(images_module, "DETAILED", 640 * 800 - 1)
        loaded = list[tuple[int, int]]()

        def resized(image: Image.Image, size: int) -> Image.Image:
            loaded.append(image.size)
            return image.resize((size, size), Image.Resampling.BILINEAR)

        monkeypatch.setattr(images_module, "resized", resized)
        part = decode(path, 16, 3)
        assert loaded == [(100, 80)], "an eighth, and still more than twice the size that is needed"
        assert np.abs(part.astype(int) - whole).max() <= 4

    def test_a_pipe_in_the_place_of_an_image(self, tmp_path: Path) -> None:
        save_folder(tmp_path / "images")
        images = read_images(tmp_path / "images", labelled=True, keep=ImageStorage(on_disk=True))
        (tmp_path / "images" / "a" / "2.bmp").unlink()
        os.mkfifo(tmp_path / "images" / "a" / "2.bmp")
        with in_time(), pytest.raises(InputError, match=r"2\.bmp"):
            images.pixels(slice(None))

    def test_memory_that_runs_out_is_not_a_broken_image(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise MemoryError

        save_folder(tmp_path)
        monkeypatch.setattr(Image.Image, "load", fail)
        monkeypatch.setattr("PIL.ImageFile.ImageFile.load", fail)
        with pytest.raises(MemoryError):
            read_images(tmp_path, labelled=True)

    @pytest.mark.parametrize("unseen", [False, True])
    def test_an_image_that_changes_while_it_is_in_use(self, tmp_path: Path, unseen: bool) -> None:
        save_folder(tmp_path)
        images = read_images(tmp_path, labelled=True, keep=ImageStorage(on_disk=True))
        assert isinstance(images.images, ImageFiles)
        images.pixels(slice(None))
        (swap_unseen if unseen else save)(tmp_path / "b" / "3.bmp", 99)
        images.take([0, 1, 2]).fitted(16).pixels(slice(None))
        with pytest.raises(InputError, match=r"b/3\.bmp has changed since it was first read: run the command again"):
            images.take(slice(4, 8)).fitted(16).pixels(slice(None))
        read_images(tmp_path, labelled=True, keep=ImageStorage(on_disk=True)).pixels(slice(None))

    def test_decoded_images_are_those_of_the_files_even_where_size_and_time_are_unchanged(self, tmp_path: Path) -> None:
        folder, keep = save_folder(tmp_path / "images"), ImageStorage(cache=tmp_path / "cache")
        before = read_images(folder, labelled=True, keep=keep).digest()
        swap_unseen(folder / "b" / "3.bmp", 99)
        after = read_images(folder, labelled=True, keep=keep).digest()
        assert after == read_images(folder, labelled=True).digest() != before


class TestTinyImageNet:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "val_annotations.txt lists no images"),
            (
                f"../images/val_0.JPEG\t{WORDNET_IDS[0]}\n",
                "val_annotations.txt has '../images/val_0.JPEG' instead of a file name",
            ),
            (f"/etc/passwd\t{WORDNET_IDS[0]}\n", "val_annotations.txt has '/etc/passwd' instead of a file name"),
            (f"..\t{WORDNET_IDS[0]}\n", "val_annotations.txt has '..' instead of a file name"),
            (f"\t{WORDNET_IDS[0]}\n", "val_annotations.txt has '' instead of a file name"),
            (f"a\0b\t{WORDNET_IDS[0]}\n", "val_annotations.txt has 'a.x00b' instead of a file name"),
            (f"{'x' * 256}\t{WORDNET_IDS[0]}\n", f"val_annotations.txt has '{'x' * 80}…' instead of a file name"),
            (f"val_0.JPEG\t{'x' * 256}\n", f"val_annotations.txt names the class '{'x' * 80}', which"),
        ],
    )
    def test_annotations(self, tmp_path: Path, text: str, words: str) -> None:
        folder = write_tiny_imagenet(tmp_path)
        (folder / "val" / "val_annotations.txt").write_text(text)
        with pytest.raises(InputError, match=words):
            load_dataset("tiny-imagenet", tmp_path)

    @pytest.mark.parametrize("name", ["../../elsewhere", "/elsewhere", "", "..", "é" * 128])
    def test_classes(self, tmp_path: Path, name: str) -> None:
        folder = write_tiny_imagenet(tmp_path)
        save(tmp_path / "elsewhere" / "images" / "1.JPEG", 1)
        (folder / "wnids.txt").write_text(f"{WORDNET_IDS[0]}\n{name}\n{WORDNET_IDS[2]}\n")
        with pytest.raises(InputError, match=r"wnids\.txt has '.*' instead of a file name"):
            load_dataset("tiny-imagenet", tmp_path)

    @pytest.mark.parametrize("name", ["wnids.txt", "val/val_annotations.txt"])
    def test_a_pipe(self, tmp_path: Path, name: str) -> None:
        path = write_tiny_imagenet(tmp_path) / name
        path.unlink()
        os.mkfifo(path)
        with in_time(), pytest.raises(InputError, match=rf"{name}: Not a regular file"):
            load_dataset("tiny-imagenet", tmp_path)

    def test_what_is_not_text(self, tmp_path: Path) -> None:
        path = write_tiny_imagenet(tmp_path) / "val" / "val_annotations.txt"
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(InputError, match=r"val_annotations\.txt, which is not text"):
            load_dataset("tiny-imagenet", tmp_path)
