"""Folders as people have them, good and bad."""

from __future__ import annotations

import os
import struct
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from hoarfrost.data import images as images_module
from hoarfrost.data.arrays import as_images, fit_to
from hoarfrost.data.folder import read_folder
from hoarfrost.data.images import ImageFiles, decode
from hoarfrost.data.paths import PathList
from hoarfrost.errors import InputError, SkippedFiles


def picture(seed: int = 0, *, width: int = 16, height: int = 16, channels: int = 3) -> NDArray[np.uint8]:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, image: NDArray[np.uint8] | Image.Image | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = picture() if image is None else image
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path)


def truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


class TestLayouts:
    @pytest.fixture(autouse=True)
    def no_warnings(self) -> Iterator[None]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield

    def test_labelled(self, tmp_path: Path) -> None:
        expected = []
        for seed, name in enumerate(["ant/b.png", "ant/deep/er/a.png", "ant-eater/z.png", "cat/a.png"]):
            expected.append(picture(seed))
            save(tmp_path / name, expected[-1])
        images = read_folder(tmp_path, labelled=True)
        assert images.class_names == ("ant", "ant-eater", "cat")
        assert images.paths == ("ant/b.png", "ant/deep/er/a.png", "ant-eater/z.png", "cat/a.png")
        assert images.labels is not None
        assert images.labels.tolist() == [0, 0, 1, 2]
        np.testing.assert_array_equal(images.pixels(slice(None)), np.stack(expected))

    def test_unlabelled_in_the_order_of_paths(self, tmp_path: Path) -> None:
        for name in ["b.png", "a/2.png", "a/10.png", "c/d/e.png"]:
            save(tmp_path / name)
        images = read_folder(str(tmp_path), labelled=False)
        assert images.paths == ("a/10.png", "a/2.png", "b.png", "c/d/e.png")
        assert (images.labels, images.class_names) == (None, ())

    def test_paths_are_sorted_by_their_parts(self, tmp_path: Path) -> None:
        for name in ["a/z.png", "a/b/1.png", "a/b-c/1.png", "a/b.png", "a-b/1.png", "a.png", "a/b/c/1.png", "a/b!.png"]:
            save(tmp_path / name)
        expected = ("a/b/1.png", "a/b/c/1.png", "a/b!.png", "a/b-c/1.png", "a/b.png", "a/z.png", "a-b/1.png", "a.png")
        paths = read_folder(tmp_path, labelled=False).paths
        assert paths == expected
        assert paths == tuple(str(path) for path in sorted(map(PurePosixPath, expected)))

    def test_file_names_that_are_no_text(self, tmp_path: Path) -> None:
        names = [os.fsdecode(name) for name in (b"b/\xff.png", b"b/\xc3\xa9.png", b"a/\xe9.png")]
        try:
            for seed, name in enumerate(names):
                save(tmp_path / "1.png", picture(seed))
                (tmp_path / name).parent.mkdir(exist_ok=True)
                (tmp_path / "1.png").rename(tmp_path / name)
        except OSError:
            pytest.skip("this file system takes no such names")
        for on_disk in (False, True):
            images = read_folder(tmp_path, labelled=True, on_disk=on_disk)
            assert images.paths == tuple(sorted(names))
            np.testing.assert_array_equal(images.pixels([0]), picture(2)[None])

    def test_a_folder_that_memory_would_not_hold_stays_on_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("a/1.png", "b/1.png"):
            save(tmp_path / name)
        assert isinstance(read_folder(tmp_path, labelled=True).images, np.ndarray)
        size = read_folder(tmp_path, labelled=True).pixels(slice(None)).nbytes
        for free, on_disk in ((2 * size, False), (2 * size - 1, True), (None, False)):
            monkeypatch.setattr(images_module, "free_memory", lambda free=free: free)
            assert isinstance(read_folder(tmp_path, labelled=True).images, ImageFiles) == on_disk
            assert isinstance(read_folder(tmp_path, labelled=True, on_disk=False).images, np.ndarray)

    def test_hidden_things_are_passed_over_in_silence(self, tmp_path: Path) -> None:
        for name in ["a/1.png", "b/1.png", ".thumbs/1.png", "a/.hidden.png", "b/.deep/1.png", ".top.png"]:
            save(tmp_path / name)
        assert read_folder(tmp_path, labelled=True).paths == ("a/1.png", "b/1.png")
        assert read_folder(tmp_path, labelled=False).paths == ("a/1.png", "b/1.png")

    def test_content_counts_and_not_the_name(self, tmp_path: Path) -> None:
        save(tmp_path / "a.png")
        (tmp_path / "a.png").rename(tmp_path / "a.txt")
        assert read_folder(tmp_path, labelled=False).paths == ("a.txt",)

    def test_links_are_followed_and_loops_end(self, tmp_path: Path) -> None:
        save(tmp_path / "elsewhere" / "1.png")
        save(tmp_path / "images" / "a" / "1.png")
        save(tmp_path / "images" / "b" / "1.png")
        (tmp_path / "images" / "a" / "linked").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "images" / "a" / "up").symlink_to(tmp_path / "images")
        (tmp_path / "images" / "b" / "self").symlink_to(tmp_path / "images" / "b")
        expected = ("a/1.png", "a/linked/1.png", "b/1.png")
        assert read_folder(tmp_path / "images", labelled=True).paths == expected
        assert read_folder(tmp_path / "images", labelled=False).paths == expected

    def test_on_disk_gives_the_same_pixels(self, tmp_path: Path) -> None:
        for seed in range(40):
            save(tmp_path / f"{seed % 2}" / f"{seed}.jpg", picture(seed, width=20 + seed, height=30))
        in_memory = read_folder(tmp_path, labelled=True)
        on_disk = read_folder(tmp_path, labelled=True, on_disk=True)
        assert isinstance(on_disk.images, ImageFiles)
        assert on_disk.digest() == in_memory.digest()
        assert (on_disk.paths, on_disk.class_names) == (in_memory.paths, in_memory.class_names)
        assert isinstance(on_disk.take([3, 1]).paths, PathList)


class TestSizesAndModes:
    @pytest.mark.parametrize(
        ("sides", "size"),
        [([8], 16), ([16], 16), ([17], 24), ([33, 40, 200], 40), ([30, 35], 40), ([24, 24, 500], 24), ([300], 64)],
    )
    def test_default_size(self, tmp_path: Path, sides: list[int], size: int) -> None:
        for i, side in enumerate(sides):
            save(tmp_path / f"{i}.png", picture(width=side, height=side + 9 * i))
        assert read_folder(tmp_path, labelled=False).shape == (size, size, 3)

    def test_gray_folders_have_one_channel(self, tmp_path: Path) -> None:
        save(tmp_path / "1.png", picture(channels=1))
        save(tmp_path / "2.png", Image.fromarray(picture(channels=1)).convert("1"))
        assert read_folder(tmp_path, labelled=False).shape == (16, 16, 1)
        save(tmp_path / "3.png", picture())
        assert read_folder(tmp_path, labelled=False).shape == (16, 16, 3)
        assert read_folder(tmp_path, labelled=False, size=12, channels=1).shape == (12, 12, 1)

    def test_a_file_and_its_array_agree(self, tmp_path: Path) -> None:
        image = picture(width=50, height=23)
        save(tmp_path / "1.png", image)
        for size, channels in [(32, 3), (16, 1), (64, 3)]:
            pixels = read_folder(tmp_path, labelled=False, size=size, channels=channels).pixels([0])
            np.testing.assert_array_equal(pixels, fit_to(as_images(image[None]), size, channels))

    @pytest.mark.parametrize(
        ("mode", "extension"),
        [("RGBA", "png"), ("P", "png"), ("P", "gif"), ("LA", "png"), ("1", "png"), ("L", "jpg"), ("CMYK", "tiff")],
    )
    def test_modes_are_converted(self, tmp_path: Path, mode: str, extension: str) -> None:
        flat = Image.new("RGB", (16, 16), (255, 255, 255))
        flat.paste((0, 0, 0), (0, 0, 8, 16))
        save(tmp_path / f"1.{extension}", flat.convert(mode))
        pixels = read_folder(tmp_path, labelled=False, channels=3).pixels([0])[0]
        assert pixels[:, 0].max() <= 8
        assert pixels[:, -1].min() >= 247

    def test_colours_survive_a_palette_with_transparency(self, tmp_path: Path) -> None:
        image = Image.new("P", (16, 16), 1)
        image.putpalette([0, 0, 0, 200, 100, 50])
        image.save(tmp_path / "1.png", transparency=bytes([0, 128]))
        pixels = read_folder(tmp_path, labelled=False).pixels([0])
        assert (pixels == np.round(128 / 255 * np.array([200, 100, 50]) + 127)).all(), "half of it is the white page"

    def test_what_is_transparent_is_white(self, tmp_path: Path) -> None:
        """In all kinds of files, and in arrays."""
        pixels = np.random.default_rng(0).integers(0, 256, (300, 16, 4), dtype=np.uint8)
        pixels[:8, :, 3] = 0
        expected = pixels[..., :3] * (pixels[..., 3:] / 255) + 255 - pixels[..., 3:]
        save(tmp_path / "colour.png", Image.fromarray(pixels))
        save(tmp_path / "gray.png", Image.fromarray(pixels[..., 2:], mode="LA"))
        Image.fromarray(pixels[..., :3]).save(tmp_path / "key.png", transparency=tuple(pixels[0, 0, :3].tolist()))
        colour, gray, key = (decode(tmp_path / f"{name}.png") for name in ("colour", "gray", "key"))
        assert (colour.shape, gray.shape) == ((300, 16, 3), (300, 16, 1))
        np.testing.assert_allclose(colour, expected, atol=1)
        np.testing.assert_allclose(gray[..., 0], expected[..., 2], atol=1)
        np.testing.assert_allclose(as_images(pixels[None])[0], expected, atol=1)
        assert (colour[:8] == 255).all()
        assert (key[0, 0] == 255).all()
        assert (key[1:] == pixels[1:, :, :3]).mean() > 0.99

    @pytest.mark.parametrize("extension", ["png", "tiff"])
    def test_sixteen_bits_keep_the_high_byte(self, tmp_path: Path, extension: str) -> None:
        values = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
        Image.fromarray(values).save(tmp_path / f"1.{extension}")
        images = read_folder(tmp_path, labelled=False)
        np.testing.assert_array_equal(images.pixels([0])[0, ..., 0], values // 256)

    @pytest.mark.parametrize("bits", [8, 10, 12, 14, 16])
    def test_cameras_of_fewer_bits_use_their_range(self, tmp_path: Path, bits: int) -> None:
        values = np.linspace(0, 2**bits - 1, 512 * 16).astype(np.uint16).reshape(512, 16)
        Image.fromarray(values).save(tmp_path / "1.tiff")
        np.testing.assert_array_equal(decode(tmp_path / "1.tiff")[..., 0], values >> (bits - 8))

    @pytest.mark.parametrize(("orientation", "turn"), [(1, 0), (3, 2), (6, 3), (8, 1)])
    def test_photos_stand_upright(self, tmp_path: Path, orientation: int, turn: int) -> None:
        image = picture(width=16, height=24)
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(image).save(tmp_path / "1.png", exif=exif)
        pixels = read_folder(tmp_path, labelled=False, size=16).pixels([0])
        np.testing.assert_array_equal(pixels, fit_to(np.rot90(image, turn)[None].copy(), 16, 3))

    def test_first_frame_of_an_animation(self, tmp_path: Path) -> None:
        frames = [Image.new("L", (16, 16), value) for value in (40, 200)]
        frames[0].save(tmp_path / "1.gif", save_all=True, append_images=frames[1:])
        frames[0].save(tmp_path / "2.tif", save_all=True, append_images=frames[1:])
        frames[0].save(tmp_path / "3.gif")
        frames[0].save(tmp_path / "4.tif")
        with pytest.warns(SkippedFiles, match=r"^used only the first frame of 2 images in .* \(1.gif, 2.tif\)$"):
            images = read_folder(tmp_path, labelled=False)
        assert (images.pixels(slice(None)) == 40).all()
        assert len(images) == 4


class TestBadFiles:
    def test_unreadable_files_are_named_counted_and_skipped_in_one_warning(self, tmp_path: Path) -> None:
        for name in ["a/1.png", "a/2.png", "b/1.png", "b/2.png"]:
            save(tmp_path / name)
        truncate(tmp_path / "a" / "2.png")
        (tmp_path / "a" / "empty.png").touch()
        (tmp_path / "b" / "notes.txt").write_text("no image")
        (tmp_path / "b" / "zzz.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(40))
        os.mkfifo(tmp_path / "b" / "pipe")
        (tmp_path / "b" / "ring").symlink_to(tmp_path / "b" / "ring")
        for on_disk in (False, True):
            with pytest.warns(SkippedFiles) as caught:
                images = read_folder(tmp_path, labelled=True, on_disk=on_disk)
            assert images.paths == ("a/1.png", "b/1.png", "b/2.png")
            np.testing.assert_array_equal(images.pixels(slice(None)), np.stack([picture()] * 3))
            (warning,) = caught
            message = str(warning.message)
            assert "6 unreadable files (a/2.png, a/empty.png, b/zzz.jpg and 3 more)" in message
            assert warning.filename == __file__

    def test_damaged_files_do_not_decide_size_and_channels(self, tmp_path: Path) -> None:
        save(tmp_path / "1.png", picture(width=24, height=24, channels=1))
        save(tmp_path / "2.png", picture(width=64, height=64))
        truncate(tmp_path / "2.png")
        with pytest.warns(SkippedFiles, match=r"1 unreadable file \(2\.png\)"):
            images = read_folder(tmp_path, labelled=False)
        assert images.shape == (24, 24, 1)
        with pytest.warns(SkippedFiles, match=r"1 unreadable file \(2\.png\)"):
            on_disk = read_folder(tmp_path, labelled=False, on_disk=True)
        assert on_disk.digest() == images.digest()

    def test_loose_files_and_empty_classes(self, tmp_path: Path) -> None:
        for name in ["a/1.png", "b/1.png", "loose.png"]:
            save(tmp_path / name)
        (tmp_path / "aa").mkdir()
        with pytest.warns(SkippedFiles) as caught:
            images = read_folder(tmp_path, labelled=True)
        assert images.class_names == ("a", "b")
        assert images.labels is not None
        assert images.labels.tolist() == [0, 1]
        (warning,) = caught
        assert "1 file outside the class folders (loose.png)" in str(warning.message)
        assert "1 class folder without images (aa)" in str(warning.message)

    def test_a_class_without_a_readable_image_is_left_out(self, tmp_path: Path) -> None:
        for name in ["a/1.png", "b/1.png", "c/1.png"]:
            save(tmp_path / name)
        truncate(tmp_path / "b" / "1.png")
        with pytest.warns(SkippedFiles, match=r"\(b/1\.png\); 1 class folder without images \(b\)"):
            assert read_folder(tmp_path, labelled=True).class_names == ("a", "c")

    def test_decompression_bombs_are_skipped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        save(tmp_path / "1.png")
        save(tmp_path / "2.png", picture(width=40, height=40))
        save(tmp_path / "3.png", picture(width=90, height=90))
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)  # to be put back
        monkeypatch.setattr(images_module, "MOST_PIXELS", 1000)  # Pillow warns above it, and refuses twice as many
        with pytest.warns(SkippedFiles, match=r"\(2\.png, 3\.png\)"):
            assert len(read_folder(tmp_path, labelled=False)) == 1

    def test_large_photographs_are_no_bombs(self, tmp_path: Path) -> None:
        """Neither refused nor warned of: a warning is an error here."""
        save(tmp_path / "1.png")
        Image.new("L", (13_000, 11_000), 9).save(tmp_path / "2.jpg")
        images = read_folder(tmp_path, labelled=False, size=24)
        assert (images.pixels([1]) == 9).all()

    def test_float_pixels_are_skipped(self, tmp_path: Path) -> None:
        save(tmp_path / "1.png")
        Image.fromarray(np.zeros((16, 16), dtype=np.float32)).save(tmp_path / "2.tiff")
        with pytest.warns(SkippedFiles, match=r"\(2\.tiff\)"):
            assert len(read_folder(tmp_path, labelled=False)) == 1

    def test_too_small_images_are_named_and_skipped(self, tmp_path: Path) -> None:
        save(tmp_path / "1.png")
        save(tmp_path / "2.png", picture(width=40, height=7))
        save(tmp_path / "3.png", picture(width=5, height=5))
        with pytest.warns(SkippedFiles, match=r": 2 images with a side below 8 \(2\.png, 3\.png\)$"):
            assert read_folder(tmp_path, labelled=False).paths == ("1.png",)

    def test_telephones_photographs_say_what_to_install(self, tmp_path: Path) -> None:
        if find_spec("pillow_heif"):
            pytest.skip("it is installed")
        (tmp_path / "a.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
        with pytest.raises(InputError, match="pip install pillow-heif"):
            read_folder(tmp_path, labelled=False)
        save(tmp_path / "1.png")
        with pytest.warns(SkippedFiles, match=r"\(a\.HEIC\); to read HEIC images: pip install pillow-heif"):
            read_folder(tmp_path, labelled=False)

    def test_a_reader_of_heic_that_is_installed_is_asked_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a package of the same name, since the real one is not among those of the tests."""
        (tmp_path / "pillow_heif.py").write_text("asked = []\ndef register_heif_opener(): asked.append(True)\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "pillow_heif", raising=False)
        images_module.load_readers()
        assert sys.modules.pop("pillow_heif").asked

    def test_readers_say_nothing_of_their_own(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """Pillow and libtiff would write lines that name no file; the warning does."""
        pixels = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "good.png")
        Image.fromarray(pixels).save(tmp_path / "lzw.tif", compression="tiff_lzw")
        content = bytearray((tmp_path / "lzw.tif").read_bytes())
        content[1000:3000] = b"\xff" * 2000
        (tmp_path / "lzw.tif").write_bytes(content)
        entries = [(256, 4, 1, 64), (257, 4, 1, 64), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (277, 3, 1, 65535)]
        packed = b"".join(struct.pack("<HHII", *entry) for entry in entries)
        (tmp_path / "samples.tif").write_bytes(b"II*\0" + struct.pack("<IH", 8, len(entries)) + packed + bytes(4))
        with pytest.warns(SkippedFiles, match=r"2 unreadable files .*lzw.tif, samples.tif"):
            assert len(read_folder(tmp_path, labelled=False)) == 1
        assert capfd.readouterr().err == ""


class TestRefusals:
    def test_too_small_images_alone(self, tmp_path: Path) -> None:
        save(tmp_path / "2.png", picture(width=40, height=7))
        with pytest.raises(InputError, match=r"1 file, all with a side below 8 pixels \(2\.png\)"):
            read_folder(tmp_path, labelled=False)

    @pytest.mark.parametrize("labelled", [True, False])
    def test_missing_folder_and_file(self, tmp_path: Path, labelled: bool) -> None:
        with pytest.raises(InputError, match="there is no folder"):
            read_folder(tmp_path / "nowhere", labelled=labelled)
        save(tmp_path / "1.png")
        with pytest.raises(InputError, match="is a file, not a folder"):
            read_folder(tmp_path / "1.png", labelled=labelled)

    def test_empty_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no images in .* it is empty"):
            read_folder(tmp_path, labelled=False)
        with pytest.raises(InputError, match="no sub-folders with images"):
            read_folder(tmp_path, labelled=True)

    def test_loose_images_only(self, tmp_path: Path) -> None:
        save(tmp_path / "1.png")
        with pytest.raises(InputError, match="no sub-folders with images"):
            read_folder(tmp_path, labelled=True)

    @pytest.mark.parametrize("labelled", [True, False])
    def test_no_image_left(self, tmp_path: Path, labelled: bool) -> None:
        (tmp_path / "a").mkdir()
        for i in range(5):
            (tmp_path / "a" / f"{i}.png").write_text("no image")
        with pytest.raises(InputError, match=r"5 files, none readable \(a/0.png, a/1.png, a/2.png and 2 more\)"):
            read_folder(tmp_path, labelled=labelled)

    def test_one_class(self, tmp_path: Path) -> None:
        save(tmp_path / "ants" / "1.png")
        (tmp_path / "bees").mkdir()
        with (
            pytest.warns(SkippedFiles, match=r"1 class folder without images \(bees\)"),
            pytest.raises(InputError, match=r"only one class \('ants'\)"),
        ):
            read_folder(tmp_path, labelled=True)

    @pytest.mark.skipif(os.geteuid() == 0, reason="no folder is closed to the superuser")
    def test_closed_folder(self, tmp_path: Path) -> None:
        save(tmp_path / "a" / "1.png")
        save(tmp_path / "b" / "1.png")
        (tmp_path / "b").chmod(0)
        try:
            for labelled in (True, False):
                with pytest.raises(InputError, match=r"cannot open .*b: Permission denied"):
                    read_folder(tmp_path, labelled=labelled)
        finally:
            (tmp_path / "b").chmod(0o755)
