"""Images and labels as people give them, and what every reader shares."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from hoarfrost.data.arrays import as_images, encode_labels, fit_to
from hoarfrost.data.images import ImageFiles, ImageSet, OnDisk, in_threads
from hoarfrost.data.paths import FileList, PathList
from hoarfrost.errors import DtypeError, InputError


def random_images(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save_pngs(folder: Path, images: NDArray[np.uint8]) -> tuple[Path, ...]:
    paths = tuple(folder / f"{i:03d}.png" for i in range(len(images)))
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image.squeeze()).save(path)
    return paths


class TestAsImages:
    def test_gray_gets_a_channel_axis(self) -> None:
        images = random_images((3, 8, 9))
        np.testing.assert_array_equal(as_images(images), images[..., None])

    def test_right_arrays_are_not_copied(self) -> None:
        images = random_images((3, 8, 9, 3))
        assert np.shares_memory(as_images(images), images)

    def test_memory_map_stays_one(self, tmp_path: Path) -> None:
        np.save(tmp_path / "images.npy", random_images((3, 8, 8, 3)))
        assert isinstance(as_images(np.load(tmp_path / "images.npy", mmap_mode="r")), np.memmap)

    def test_alpha_is_laid_on_white(self) -> None:
        images = random_images((3, 8, 9, 4))
        images[0, ..., 3], images[1, ..., 3] = 0, 255
        made = as_images(images)
        assert (made[0] == 255).all()
        np.testing.assert_array_equal(made[1], images[1, ..., :3])
        share = images[2, ..., 3:] / 255
        np.testing.assert_allclose(made[2], images[2, ..., :3] * share + 255 * (1 - share), atol=0.51)

    def test_array_likes(self) -> None:
        class Tensor:
            def __array__(self, dtype: object = None, copy: object = None) -> NDArray[np.uint8]:
                return random_images((2, 8, 8))

        assert as_images(Tensor()).shape == (2, 8, 8, 1)

    @pytest.mark.parametrize(
        ("images", "low", "high"),
        [
            (np.ones((2, 8, 8), dtype=bool), 255, 255),
            (np.linspace(0.2, 0.8, 128, dtype=np.float32).reshape(2, 8, 8), 51, 204),
            (np.linspace(4, 16, 128).reshape(2, 8, 8), 4, 16),
            (np.linspace(0, 1000, 128).reshape(2, 8, 8), 0, 255),
            (np.linspace(-3, 3, 128, dtype=np.float16).reshape(2, 8, 8), 0, 255),
            (np.arange(128).reshape(2, 8, 8), 0, 127),
            (np.linspace(0, 60000, 128, dtype=np.uint16).reshape(2, 8, 8), 0, 233),
            (np.linspace(0, 60000, 128, dtype=np.int32).reshape(2, 8, 8), 0, 255),
            (np.arange(-128, 128, dtype=np.int8).reshape(4, 8, 8), 0, 255),
            (np.arange(128).reshape(2, 8, 8).tolist(), 0, 127),
        ],
        ids=[
            "bool",
            "unit float",
            "float",
            "wide float",
            "negative float",
            "int",
            "16 bits",
            "wide int",
            "negative int",
            "list",
        ],
    )
    def test_other_dtypes_are_refused_with_a_line_that_works(
        self, images: NDArray[np.generic], low: int, high: int
    ) -> None:
        with pytest.raises(DtypeError, match="convert them with ") as caught:
            as_images(images)
        converted = as_images(eval(str(caught.value).split("convert them with ")[1], {"images": images, "np": np}))
        assert (converted.min(), converted.max()) == (low, high)

    def test_int_line_keeps_the_values(self) -> None:
        with pytest.raises(DtypeError, match=r'images\.astype\("uint8"\)$'):
            as_images(np.arange(128).reshape(2, 8, 8))

    def test_unit_floats_are_scaled_by_255(self) -> None:
        with pytest.raises(DtypeError, match=r'\(images \* 255\)\.round\(\)\.astype\("uint8"\)$'):
            as_images(np.full((2, 8, 8), 0.5))

    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (np.full((2, 8, 8), np.nan), "NaN or infinite"),
            (np.full((2, 8, 8), "a"), "numbers from 0 to 255"),
        ],
    )
    def test_what_no_line_converts(self, images: NDArray[np.generic], message: str) -> None:
        with pytest.raises(DtypeError, match=message):
            as_images(images)

    @pytest.mark.parametrize(
        ("shape", "message"),
        [
            ((8, 8), "shape"),
            ((2, 8, 8, 3, 1), "shape"),
            ((0, 8, 8), "no images"),
            ((2, 8, 8, 2), "channels"),
            ((2, 3, 32, 32), r"transpose\(0, 2, 3, 1\)"),
            ((2, 7, 32), "32x7 pixels are too small"),
        ],
    )
    def test_wrong_shapes(self, shape: tuple[int, ...], message: str) -> None:
        with pytest.raises(InputError, match=message):
            as_images(np.zeros(shape, dtype=np.uint8))

    def test_ragged_lists(self) -> None:
        with pytest.raises(InputError, match="the nested lists differ in length"):
            as_images([[[1, 2], [3]]])


class TestEncodeLabels:
    @given(st.lists(st.integers(-20, 20), min_size=2).filter(lambda labels: len(set(labels)) > 1))
    def test_numbers_sort_as_numbers(self, labels: list[int]) -> None:
        ids, names = encode_labels(labels, len(labels))
        assert [int(names[i]) for i in ids] == labels
        assert [int(name) for name in names] == sorted(set(labels))

    @given(st.lists(st.text("abcA", min_size=1), min_size=2).filter(lambda labels: len(set(labels)) > 1))
    def test_names_sort_as_names(self, labels: list[str]) -> None:
        for given_labels in (labels, np.array(labels), np.array(labels, dtype=object)):
            ids, names = encode_labels(given_labels, len(labels))
            assert [names[i] for i in ids] == labels
            assert list(names) == sorted(set(labels))
            assert ids.dtype == np.int64

    def test_bytes_become_names(self) -> None:
        assert encode_labels(np.array([b"cat", b"ant"]), 2)[1] == ("ant", "cat")

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            ([1, 2], "2 labels for 3 images"),
            ([[1], [2], [3]], "one axis"),
            ([[1], [2, 3], [4]], "a flat list"),
            ([5, 5, 5], r"labels name one class \('5'\)"),
            ([1.0, float("nan"), 2.0], "1 of 3 labels are missing"),
            (["a", float("nan"), "b"], "1 of 3 labels are missing"),
            (np.array(["a", None, None], dtype=object), "2 of 3 labels are missing"),
            (np.array(["a", 1, "b"], dtype=object), "mixed types"),
            (np.array([b"a", b"\xff", b"b"]), "UTF-8"),
            (np.array(["a", "\ud800", "b"]), "class name .* cannot be written"),
            (np.array([(1, 2), (3, 4), (5, 6)], dtype="i4,i4"), "names or numbers"),
            (np.array([b"ab", b"cd", b"ef"]).view("V2"), "names or numbers"),
            (np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="M8[D]"), "names or numbers"),
        ],
    )
    def test_bad_labels(self, labels: NDArray[np.generic], message: str) -> None:
        with pytest.raises(InputError, match=message):
            encode_labels(labels, 3)


class TestFitTo:
    @settings(max_examples=30)
    @given(st.integers(8, 20), st.integers(8, 20), st.sampled_from([1, 3]), st.integers(8, 20), st.sampled_from([1, 3]))
    def test_equals_pillow_image_by_image(self, height: int, width: int, channels: int, size: int, wanted: int) -> None:
        images = random_images((3, height, width, channels))
        naive = []
        for image in images:
            picture = Image.fromarray(image.squeeze(-1) if channels == 1 else image)
            picture = picture.convert("L" if wanted == 1 else "RGB").resize((size, size), Image.Resampling.BILINEAR)
            naive.append(np.asarray(picture).reshape(size, size, wanted))
        np.testing.assert_array_equal(fit_to(images, size, wanted), np.stack(naive))

    def test_no_copy_where_nothing_changes(self) -> None:
        images = random_images((3, 16, 16, 3))
        assert fit_to(images, 16, 3) is images

    def test_chunks_join(self, monkeypatch: pytest.MonkeyPatch) -> None:
        images = random_images((5, 8, 8, 3))
        whole = fit_to(images, 8, 1)
        monkeypatch.setattr("hoarfrost.data.images.CHUNK", 2)
        np.testing.assert_array_equal(fit_to(images, 8, 1), whole)

    @pytest.mark.parametrize(("size", "channels"), [(4, 3), (0, 3), (16, 2)])
    def test_impossible_targets(self, size: int, channels: int) -> None:
        with pytest.raises(InputError):
            fit_to(random_images((1, 8, 8, 3)), size, channels)


class TestInThreads:
    @pytest.mark.parametrize("threads", [None, 1, 3])
    @pytest.mark.parametrize("count", [0, 1, 4, 5, 103])
    def test_every_position_once(self, count: int, threads: int | None) -> None:
        seen: list[int] = []
        in_threads(seen.extend, count, chunk=4, threads=threads)
        assert sorted(seen) == list(range(count))

    @pytest.mark.parametrize("threads", [1, 3])
    def test_a_failure_ends_the_work(self, threads: int) -> None:
        seen: list[range] = []

        def work(rows: range) -> None:
            seen.append(rows)
            if rows.start == 8:
                raise KeyError(rows.start)

        with pytest.raises(KeyError, match="8"):
            in_threads(work, 1_000_000, chunk=4, threads=threads)
        assert len(seen) < 250_000


class TestImageFiles:
    def test_equals_the_arrays_the_files_were_made_from(self, tmp_path: Path) -> None:
        images = random_images((70, 10, 12, 3))
        files = ImageFiles(save_pngs(tmp_path, images), size=16, channels=1)
        expected = fit_to(images, 16, 1)
        assert files.shape == expected.shape
        np.testing.assert_array_equal(files[:], expected)
        np.testing.assert_array_equal(files[np.array([5, 3, 3, -1])], expected[[5, 3, 3, -1]])
        np.testing.assert_array_equal(files.take(slice(10, 20))[[0, 4]], expected[[10, 14]])

    def test_a_vanished_file_is_named(self, tmp_path: Path) -> None:
        files = ImageFiles(save_pngs(tmp_path, random_images((3, 8, 8))), size=8, channels=1)
        files.paths[1].unlink()
        assert files[[0, 2]].shape == (2, 8, 8, 1)
        with pytest.raises(InputError, match=r"001\.png"):
            files[:]

    def test_paths_are_kept_below_a_folder(self, tmp_path: Path) -> None:
        paths = save_pngs(tmp_path, random_images((3, 8, 8)))
        given_as_paths = ImageFiles(paths, size=8, channels=1)
        below = ImageFiles(FileList(tmp_path, PathList(path.name for path in paths)), size=8, channels=1)
        assert isinstance(below, OnDisk)
        for files in (given_as_paths, below, pickle.loads(pickle.dumps(below))):
            assert isinstance(files, ImageFiles)
            assert tuple(files.paths) == paths
            assert tuple(files.take([2, 0]).paths) == (paths[2], paths[0])
            assert tuple(files.fitted(16, 3).paths) == paths
            np.testing.assert_array_equal(files[:], given_as_paths[:])

    def test_names_that_are_no_text(self, tmp_path: Path) -> None:
        (path,) = save_pngs(tmp_path, random_images((1, 8, 8)))
        odd = tmp_path / os.fsdecode(b"\xff.png")
        try:
            path.rename(odd)
        except OSError:
            pytest.skip("this file system takes no such name")
        assert ImageFiles((odd,), size=8, channels=1)[:].shape == (1, 8, 8, 1)


class TestImageSet:
    @pytest.fixture
    def images(self) -> ImageSet:
        labels = np.array([0, 1, 2, 0, 1, 2])
        return ImageSet(random_images((6, 8, 8, 3)), labels, ("a", "b", "c"), tuple("uvwxyz"))

    def test_take_keeps_what_belongs_together(self, images: ImageSet) -> None:
        part = images.take([4, 0])
        assert len(part) == 2
        assert part.shape == (8, 8, 3)
        assert part.class_names == ("a", "b", "c")
        assert part.paths == ("y", "u")
        assert part.labels is not None
        assert part.labels.tolist() == [1, 0]
        np.testing.assert_array_equal(part.pixels(slice(None)), images.pixels([4, 0]))

    def test_take_by_mask(self, images: ImageSet) -> None:
        assert images.labels is not None
        assert images.take(images.labels == 1).paths == ("v", "y")

    def test_compact_paths_stay_compact(self, images: ImageSet) -> None:
        compact = replace(images, paths=PathList("uvwxyz")).take([4, 0])
        assert isinstance(compact.paths, PathList)
        assert compact.paths == ("y", "u")

    def test_nothing_tells_the_class_without_labels(self, images: ImageSet) -> None:
        bare = images.without_labels()
        assert (bare.labels, bare.class_names, bare.paths) == (None, (), None)
        assert bare.images is images.images

    @pytest.mark.parametrize(
        ("labels", "class_names", "paths"),
        [([0], ("a", "b"), None), ([0, 2], ("a", "b"), None), ([-1, 0], ("a", "b"), None), (None, (), ("u",))],
    )
    def test_what_does_not_fit_is_refused(
        self, labels: list[int] | None, class_names: tuple[str, ...], paths: tuple[str, ...] | None
    ) -> None:
        ids = None if labels is None else np.array(labels)
        with pytest.raises(InputError):
            ImageSet(random_images((2, 8, 8, 1)), ids, class_names, paths)

    def test_digest_tells_pixels_shape_labels_and_order(self, images: ImageSet) -> None:
        pixels, labels = images.pixels(slice(None)), images.labels
        assert labels is not None
        changed = pixels.copy()
        changed[3, 2, 1, 0] ^= 1
        others = [
            ImageSet(changed, labels, images.class_names),
            ImageSet(pixels.reshape(6, 16, 4, 3), labels, images.class_names),
            ImageSet(pixels, labels[::-1].copy(), images.class_names),
            images.without_labels(),
            images.take([1, 0, 2, 3, 4, 5]),
        ]
        assert len({images.digest(), *(other.digest() for other in others)}) == 6
        assert ImageSet(pixels.copy(), labels.copy(), images.class_names).digest() == images.digest()

    def test_digest_is_the_same_on_disk(self, images: ImageSet, tmp_path: Path) -> None:
        files = ImageFiles(save_pngs(tmp_path, images.pixels(slice(None))), size=8, channels=3)
        on_disk = ImageSet(files, images.labels, images.class_names)
        assert on_disk.digest() == images.digest()
        np.testing.assert_array_equal(on_disk.canonical_order(), images.canonical_order())
        assert on_disk.take([2]).shape == (8, 8, 3)

    @settings(max_examples=20)
    @given(st.permutations(range(12)))
    def test_canonical_order_forgets_the_given_order(self, order: list[int]) -> None:
        pixels = np.concatenate([random_images((9, 8, 8, 1)), random_images((3, 8, 8, 1))])  # three images twice
        reference = ImageSet(pixels)
        shuffled = ImageSet(pixels[order], np.arange(12), tuple(map(str, range(12))))
        np.testing.assert_array_equal(
            shuffled.pixels(shuffled.canonical_order()), reference.pixels(reference.canonical_order())
        )

    def test_canonical_order_keeps_the_order_of_equal_images(self) -> None:
        order = ImageSet(np.zeros((2000, 8, 8, 1), dtype=np.uint8)).canonical_order()
        np.testing.assert_array_equal(order, np.arange(2000))
