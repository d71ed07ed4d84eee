"""Batches hold each image, with its label, as often as promised."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from hoarfrost.data import sources
from hoarfrost.data.augment import Augment, Crop
from hoarfrost.data.cache import cached
from hoarfrost.data.images import ImageFiles, ImageSet
from hoarfrost.data.sources import (
    WHOLE,
    Batch,
    ImageSource,
    Normaliser,
    ResidentPixels,
    Share,
    StreamedPixels,
    plain_batches,
)
from hoarfrost.errors import InputError

CPU = torch.device("cpu")
CLASSES = 4


def numbered_images(count: int, channels: int = 1) -> NDArray[np.uint8]:
    """Image i has the value i in all its pixels."""
    return np.arange(count, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2).repeat(channels, 3)


def numbered(count: int) -> ImageSet:
    """Image i is of the class i modulo ``CLASSES``."""
    labels = np.arange(count, dtype=np.int64) % CLASSES
    return ImageSet(numbered_images(count), labels, tuple("abcd"))


def numbers(images: Tensor) -> list[int]:
    """Which of ``numbered_images`` these are."""
    return [round(float(image[0, 0, 0]) * 255) for image in images]


def unchanged(channels: int = 1) -> Normaliser:
    return Normaliser((0.0,) * channels, (1.0,) * channels, CPU)


def source(
    images: ImageSet,
    *,
    batch_size: int,
    views: int = 1,
    augment: Augment | None = None,
    mixed_in: ImageSet | None = None,
    share: Share = WHOLE,
) -> ImageSource:
    return ImageSource(
        images,
        views=(augment or Augment(),) * views,
        batch_size=batch_size,
        normaliser=unchanged(images.shape[2]),
        device=CPU,
        share=share,
        mixed_in=mixed_in,
    )


def epoch(batches: ImageSource, seed: int = 0) -> list[Batch]:
    return list(batches.epoch(torch.Generator().manual_seed(seed)))


def random_images(count: int, channels: int = 3) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (count, 8, 8, channels), dtype=np.uint8)


def save_pngs(folder: Path, images: NDArray[np.uint8]) -> ImageFiles:
    paths = tuple(folder / f"{position:03d}.png" for position in range(len(images)))
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image.squeeze()).save(path)
    return ImageFiles(paths, images.shape[1], images.shape[3])


class TestMixedBatches:
    """New images are 0 to 9, labelled ones 100 and on."""

    def mixed(self, labelled: int, batch_size: int, share: Share = WHOLE, views: int = 2) -> ImageSource:
        pixels = numbered_images(labelled) + 100
        others = ImageSet(pixels, np.arange(labelled) % CLASSES, tuple("abcd"))
        return source(numbered(10), batch_size=batch_size, views=views, mixed_in=others, share=share)

    @pytest.mark.parametrize(
        ("labelled", "batch_size", "expected"), [(10, 4, 4), (40, 5, 20), (7, 4, 3), (1, 2, 1), (14, 10, 14)]
    )
    def test_every_batch_has_as_many_of_both(self, labelled: int, batch_size: int, expected: int) -> None:
        batches = epoch(self.mixed(labelled, batch_size))
        assert len(batches) == -(-10 // batch_size)
        came: Counter[int] = Counter()
        for batch in batches:
            drawn = numbers(batch.images)
            whole = batch_size + expected
            assert len(drawn) == 2 * whole
            assert drawn[:whole] == drawn[whole:], "both views are of the same images"
            assert all(number < 10 for number in drawn[:batch_size])
            assert all(number >= 100 for number in drawn[batch_size:whole])
            assert batch.labels is not None
            assert batch.labels.tolist() == [(number - 100) % CLASSES for number in drawn[batch_size:whole]]
            came.update(drawn[:whole])
        assert {number for number in came if number < 10} == set(range(10))
        times = [came[number] for number in range(100, 100 + labelled)]
        assert max(times) - min(times) <= 1, "labelled images come equally often"

    def test_the_new_images_come_as_they_would_alone_and_labelled_ones_anew_in_each_epoch(self) -> None:
        mixed, alone = self.mixed(20, 5, views=1), source(numbered(10), batch_size=5)
        (first, *_), (alike, *_) = epoch(mixed), epoch(alone)
        assert numbers(first.images)[:5] == numbers(alike.images)
        generator = torch.Generator().manual_seed(0)
        one, two = ([numbers(batch.images)[5:] for batch in mixed.epoch(generator)] for _ in range(2))
        assert one != two

    def test_processes_share_both_kinds(self) -> None:
        whole = epoch(self.mixed(14, 4, Share(0, 1)))
        parts = [epoch(self.mixed(14, 4, Share(rank, 2))) for rank in range(2)]
        for batch, *shared in zip(whole, *parts, strict=True):
            assert batch.labels is not None
            assert all(part.labels is not None and part.labels.tolist() == batch.labels.tolist() for part in shared)
            views, halves = batch.images.chunk(2), [part.images.chunk(2) for part in shared]
            for view in range(2):
                first, second = (numbers(half[view]) for half in halves)
                assert len(first) == len(second) == 5
                assert first[:2] + second[:2] + first[2:] + second[2:] == numbers(views[view])


class TestImageSource:
    @pytest.mark.parametrize(
        ("count", "batch_size", "batches"), [(12, 4, 3), (13, 4, 4), (15, 4, 4), (5, 4, 2), (7, 1, 7), (4, 4, 1)]
    )
    def test_every_image_in_batches_of_one_size(self, count: int, batch_size: int, batches: int) -> None:
        batched = source(numbered(count), batch_size=batch_size)
        drawn = [numbers(batch.images) for batch in epoch(batched)]
        assert len(drawn) == len(batched) == batches
        assert {len(batch) for batch in drawn} == {batch_size}
        assert all(len(set(batch)) == batch_size for batch in drawn), "an image came twice within a batch"
        times = Counter(number for batch in drawn for number in batch)
        assert set(times) == set(range(count))
        assert sum(times.values()) - count < batch_size, "no more images come again than fill the last batch"

    def test_a_batch_larger_than_the_data_is_the_data(self) -> None:
        batched = source(numbered(5), batch_size=128)
        (batch,) = epoch(batched)
        assert len(batched) == 1
        assert sorted(numbers(batch.images)) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("views", [1, 2])
    def test_labels_belong_to_images(self, views: int) -> None:
        for batch in epoch(source(numbered(10), batch_size=4, views=views)):
            assert batch.labels is not None
            assert len(batch.labels) == 4
            assert batch.labels.tolist() == [number % CLASSES for number in numbers(batch.images)[:4]]

    def test_no_labels_where_there_are_none(self) -> None:
        assert all(batch.labels is None for batch in epoch(source(numbered(6).without_labels(), batch_size=4)))

    def test_two_views_are_of_the_same_images_in_the_same_order(self) -> None:
        for batch in epoch(source(numbered(10), batch_size=4, views=2)):
            drawn = numbers(batch.images)
            assert len(drawn) == 8
            assert drawn[:4] == drawn[4:]

    def test_two_views_are_changed_apart(self) -> None:
        images = ImageSet(random_images(6))
        (batch,) = epoch(source(images, batch_size=6, views=2, augment=Crop(pad=2)))
        first, second = batch.images.chunk(2)
        assert not torch.equal(first, second)

    def test_the_generator_decides_the_order(self) -> None:
        batched = source(numbered(20), batch_size=20)
        first, again, other = (numbers(epoch(batched, seed)[0].images) for seed in (1, 1, 2))
        assert first == again
        assert first != other
        assert first != sorted(first)

    def test_epochs_from_one_generator_differ(self) -> None:
        batched = source(numbered(20), batch_size=20)
        generator = torch.Generator().manual_seed(0)
        first, second = (numbers(next(batched.epoch(generator)).images) for _ in range(2))
        assert first != second

    def test_batches_are_normalised(self) -> None:
        mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
        pixels = random_images(5)
        batched = ImageSource(
            ImageSet(pixels, np.arange(5), tuple("abcde")),
            views=(Augment(),),
            batch_size=5,
            normaliser=Normaliser(mean, std, CPU),
            device=CPU,
        )
        (batch,) = epoch(batched)
        assert batch.labels is not None
        for image, label in zip(batch.images, batch.labels.tolist(), strict=True):
            for channel in range(3):
                expected = (pixels[label, :, :, channel] / 255 - mean[channel]) / std[channel]
                np.testing.assert_allclose(image[channel].numpy(), expected, atol=1e-5)

    def test_a_second_epoch_finds_the_images_unchanged(self) -> None:
        """Normalising works in place; it must not reach the stored pixels."""
        pixels = random_images(4)
        images = ImageSet(pixels.copy())
        batched = source(images, batch_size=4)
        first, second = epoch(batched, 3)[0].images, epoch(batched, 3)[0].images
        assert torch.equal(first, second)
        np.testing.assert_array_equal(images.pixels(slice(None)), pixels)

    @pytest.mark.parametrize("channels", [1, 3])
    def test_wherever_images_are_the_batches_are_the_same(self, tmp_path: Path, channels: int) -> None:
        """In memory, in image files, in a file of decoded pixels, in a memory map: two epochs, through workers."""
        pixels = random_images(7, channels)
        labels, names = np.arange(7) % 2, ("a", "b")
        np.save(tmp_path / "images.npy", pixels)
        files = save_pngs(tmp_path, pixels)
        decoded = cached(ImageSet(files), tmp_path / "cache").images
        expected: list[Batch] = []
        for kind in (pixels, files, decoded, np.load(tmp_path / "images.npy", mmap_mode="r")):
            batched = source(ImageSet(kind, labels, names), batch_size=3, views=2, augment=Crop(pad=2))
            found = [*epoch(batched, 0), *epoch(batched, 1)]
            assert isinstance(batched.store, ResidentPixels if kind is pixels else StreamedPixels)
            expected = expected or found
            for one, two in zip(expected, found, strict=True):
                assert one.labels is not None
                assert two.labels is not None
                assert torch.equal(one.images, two.images)
                assert torch.equal(one.labels, two.labels)

    def test_an_image_that_vanishes_is_named_in_one_line(self, tmp_path: Path) -> None:
        files = save_pngs(tmp_path, random_images(6))
        batched = source(ImageSet(files), batch_size=2)
        gone = files.paths[3]
        gone.unlink()
        with pytest.raises(InputError) as refusal:
            epoch(batched)
        assert str(refusal.value) == f"cannot read the image {gone}: restore or remove the file"

    def test_arrays_too_large_for_the_device_are_streamed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        images = numbered(9)
        expected = epoch(source(images, batch_size=3))
        monkeypatch.setattr(sources, "fits", lambda size, _: size <= 8)
        batched = source(images, batch_size=3)
        assert isinstance(batched.store, StreamedPixels)
        for one, two in zip(expected, epoch(batched), strict=True):
            assert torch.equal(one.images, two.images)


class TestNormaliser:
    def test_naive_formula(self) -> None:
        mean, std = (0.1, 0.5, 0.9), (0.2, 0.3, 0.5)
        images = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
        expected = torch.empty_like(images)
        for image in range(2):
            for channel in range(3):
                for row in range(4):
                    for column in range(5):
                        value = float(images[image, channel, row, column])
                        expected[image, channel, row, column] = (value - mean[channel]) / std[channel]
        torch.testing.assert_close(Normaliser(mean, std, CPU)(images.clone()), expected, atol=1e-5, rtol=1e-5)


class TestPlainBatches:
    @pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
    def test_order_and_count_stay(self, batch_size: int) -> None:
        batches = list(plain_batches(numbered_images(7), batch_size=batch_size, normaliser=unchanged(), device=CPU))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        assert [number for batch in batches for number in numbers(batch)] == list(range(7))

    @pytest.mark.parametrize("channels", [1, 3])
    def test_in_place_they_are_the_same_one_after_the_other(self, channels: int) -> None:
        pixels, normaliser = random_images(5)[..., :channels], Normaliser((0.5,) * channels, (0.2,) * channels, CPU)
        given = {"batch_size": 2, "normaliser": normaliser, "device": CPU}
        expected, places = list(plain_batches(pixels, **given)), set()  # type: ignore[arg-type]
        for one, other in zip(plain_batches(pixels, in_place=True, **given), expected, strict=True):  # type: ignore[arg-type]
            assert torch.equal(one, other)
            assert one.stride() == other.stride()
            places.add(one.data_ptr())
        assert len(places) == 1

    def test_files_give_the_same_batches(self, tmp_path: Path) -> None:
        pixels = random_images(5)
        normaliser = Normaliser((0.5, 0.4, 0.3), (0.2, 0.25, 0.3), CPU)
        in_memory, from_files = (
            torch.cat(list(plain_batches(images, batch_size=2, normaliser=normaliser, device=CPU)))
            for images in (pixels, save_pngs(tmp_path, pixels))
        )
        assert torch.equal(in_memory, from_files)
        expected = (pixels / 255 - np.array([0.5, 0.4, 0.3])) / np.array([0.2, 0.25, 0.3])
        np.testing.assert_allclose(in_memory.permute(0, 2, 3, 1).numpy(), expected, atol=1e-5)
