"""Augmentations against their definitions, pixel by pixel."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from hoarfrost.data.augment import Affine, Augment, Border, Crop, ResizedCrop, Strong, to_float
from hoarfrost.errors import InputError

ALL = [
    Augment(),
    Crop(),
    Crop(border="reflect"),
    Affine(),
    Affine(border="reflect", flip=0.5),
    ResizedCrop(),
    Strong(),
    Strong(share=0.5),
]
RANDOM = ALL[1:]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(*shape: int, seed: int = 0) -> Tensor:
    """No black pixels, so that a black border stands out."""
    return torch.randint(1, 256, shape, generator=seeded(seed), dtype=torch.uint8)


def ramp(count: int, height: int, width: int, *, axis: int) -> Tensor:
    """Gray images with the value 8 times the row (axis 0) or the column (axis 1)."""
    position = torch.arange(height)[:, None] if axis == 0 else torch.arange(width)[None, :]
    return (8 * position).expand(height, width).to(torch.uint8)[None, :, :, None].repeat(count, 1, 1, 1)


def fix_draws(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """All uniform draws give ``value``: 0 and 1 are the ends of every range."""
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, value))


def pixel(image: NDArray[np.uint8], row: int, column: int, border: Border) -> NDArray[np.uint8]:
    height, width, channels = image.shape
    if border == "zero" and not (0 <= row < height and 0 <= column < width):
        return np.zeros(channels, dtype=np.uint8)
    while not 0 <= row < height:
        row = -row if row < 0 else 2 * (height - 1) - row
    while not 0 <= column < width:
        column = -column if column < 0 else 2 * (width - 1) - column
    result: NDArray[np.uint8] = image[row, column]
    return result


def naive_crops(image: NDArray[np.uint8], pad: int, border: Border) -> dict[bytes, tuple[int, int, bool]]:
    """All that can come of an image: the bytes of each padded, cropped and perhaps mirrored version."""
    height, width, _ = image.shape
    crops = {}
    for down in range(-pad, pad + 1):
        for right in range(-pad, pad + 1):
            cropped = np.empty_like(image)
            for row in range(height):
                for column in range(width):
                    cropped[row, column] = pixel(image, row + down, column + right, border)
            crops[cropped.tobytes()] = (down, right, False)
            crops[np.ascontiguousarray(cropped[:, ::-1]).tobytes()] = (down, right, True)
    assert len(crops) == 2 * (2 * pad + 1) ** 2, "two crops look the same: the test could not tell them apart"
    return crops


def as_bytes(outputs: Tensor) -> list[bytes]:
    """Each output (C, H, W) in 0..1 as the bytes of a uint8 image (H, W, C)."""
    pixels = outputs.mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    return [image.tobytes() for image in pixels]


class TestEvery:
    @pytest.mark.parametrize("augment", ALL, ids=repr)
    @pytest.mark.parametrize("channels", [1, 3])
    def test_shape_and_range(self, augment: Augment, channels: int) -> None:
        outputs = augment(random_images(6, 9, 12, channels), seeded())
        assert outputs.shape == (6, channels, 9, 12)
        assert outputs.dtype == torch.float32
        assert outputs.min() >= 0
        assert outputs.max() <= 1 + 1e-6
        assert outputs.max() > 0.9, "the brightest pixels come through"

    @pytest.mark.parametrize("augment", RANDOM, ids=repr)
    def test_the_generator_decides(self, augment: Augment) -> None:
        images = random_images(6, 8, 8, 3)
        first = augment(images, seeded(1))
        assert torch.equal(first, augment(images, seeded(1)))
        assert not torch.equal(first, augment(images, seeded(2)))

    @pytest.mark.parametrize("augment", RANDOM, ids=repr)
    def test_two_views_of_a_batch_differ(self, augment: Augment) -> None:
        first, second = augment(random_images(6, 8, 8, 3).repeat(2, 1, 1, 1), seeded()).chunk(2)
        assert not torch.equal(first, second)

    @pytest.mark.parametrize("augment", ALL, ids=repr)
    def test_the_images_given_stay_as_they_were(self, augment: Augment) -> None:
        images = random_images(4, 8, 8, 3)
        before = images.clone()
        augment(images, seeded()).zero_()
        assert torch.equal(images, before)


class TestNone:
    def test_only_converts(self) -> None:
        images = random_images(2, 4, 5, 3)
        outputs = Augment()(images, seeded())
        for image in range(2):
            for row in range(4):
                for column in range(5):
                    for channel in range(3):
                        expected = int(images[image, row, column, channel]) / 255
                        assert float(outputs[image, channel, row, column]) == pytest.approx(expected, abs=1e-7)

    def test_draws_nothing(self) -> None:
        generator = seeded()
        before = generator.get_state()
        Augment()(random_images(2, 4, 5, 3), generator)
        assert torch.equal(generator.get_state(), before)


class TestCrop:
    @pytest.mark.parametrize("border", ["zero", "reflect"])
    @pytest.mark.parametrize("channels", [1, 3])
    def test_every_output_is_a_padded_crop_of_its_own_image(self, border: Border, channels: int) -> None:
        images = random_images(4, 5, 6, channels)
        crops = [naive_crops(image.numpy(), 2, border) for image in images]
        outputs = as_bytes(Crop(pad=2, border=border)(images.repeat(5, 1, 1, 1), seeded()))
        assert all(output in crops[position % 4] for position, output in enumerate(outputs))

    def test_all_shifts_and_mirror_images_are_equally_frequent(self) -> None:
        image = random_images(1, 5, 6, 1)
        crops = naive_crops(image[0].numpy(), 2, "zero")
        outputs = Crop(pad=2)(image.repeat(3000, 1, 1, 1), seeded())
        times = Counter(crops[output] for output in as_bytes(outputs))
        # 60 expected of each of the 50 possible ones, with a standard deviation below 8.
        assert len(times) == 50
        assert min(times.values()) > 25
        assert max(times.values()) < 100
        mirrored = sum(count for (_, _, flipped), count in times.items() if flipped)
        assert mirrored / 3000 == pytest.approx(0.5, abs=0.04)

    @pytest.mark.parametrize(("flip", "mirrored"), [(0.0, False), (1.0, True)])
    def test_flip_never_and_always(self, flip: float, mirrored: bool) -> None:
        image = random_images(1, 5, 6, 3)
        crops = naive_crops(image[0].numpy(), 1, "reflect")
        outputs = as_bytes(Crop(pad=1, border="reflect", flip=flip)(image.repeat(100, 1, 1, 1), seeded()))
        assert {crops[output][2] for output in outputs} == {mirrored}

    def test_without_pad_and_flip_nothing_changes(self) -> None:
        images = random_images(3, 5, 6, 3)
        assert torch.equal(Crop(pad=0, flip=0)(images, seeded()), to_float(images))


class TestAffine:
    @pytest.mark.parametrize("border", ["zero", "reflect"])
    def test_without_amplitudes_nothing_changes(self, border: Border) -> None:
        images = random_images(3, 8, 11, 3)
        outputs = Affine(rotate=0, shift=0, scale=0, border=border)(images, seeded())
        torch.testing.assert_close(outputs, to_float(images), atol=1e-5, rtol=0)

    @pytest.mark.parametrize(("value", "pixels"), [(0.0, -2), (1.0, 2)])
    @pytest.mark.parametrize("border", ["zero", "reflect"])
    def test_largest_shift(self, monkeypatch: pytest.MonkeyPatch, value: float, pixels: int, border: Border) -> None:
        images = random_images(2, 8, 8, 3)
        fix_draws(monkeypatch, value)
        outputs = Affine(rotate=0, shift=2 / 8, scale=0, border=border)(images, seeded())
        expected = torch.zeros(2, 3, 8, 8)
        inside = torch.zeros(8, 8, dtype=torch.bool)
        for row in range(8):
            for column in range(8):
                if 0 <= row + pixels < 8 and 0 <= column + pixels < 8:
                    expected[:, :, row, column] = images[:, row + pixels, column + pixels].float() / 255
                    inside[row, column] = True
        torch.testing.assert_close(outputs[:, :, inside], expected[:, :, inside], atol=1e-5, rtol=0)
        if border == "zero":
            torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=0)
        else:
            assert outputs[:, :, ~inside].min() > 0, "the border holds the image again, which has no black pixel"

    @pytest.mark.parametrize(("axis", "side"), [(0, 20), (1, 30)])
    def test_shifts_are_spread_up_to_the_largest(self, axis: int, side: int) -> None:
        """A ramp that moves is as much brighter or darker; the middle is far enough from the border."""
        images = ramp(400, 20, 30, axis=axis)
        outputs = Affine(rotate=0, shift=0.2, scale=0)(images, seeded())
        moved = (outputs - to_float(images))[:, 0, 10, 15] * 255 / 8
        assert moved.abs().max() <= 0.2 * side + 1e-3
        assert moved.max() > 0.18 * side
        assert moved.min() < -0.18 * side
        assert abs(float(moved.mean())) < 0.02 * side

    @pytest.mark.parametrize("channels", [1, 3])
    def test_quarter_turns(self, monkeypatch: pytest.MonkeyPatch, channels: int) -> None:
        images = random_images(2, 8, 8, channels)
        turn = Affine(rotate=math.pi / 2, shift=0, scale=0)
        fix_draws(monkeypatch, 0.0)
        one_way = turn(images, seeded())
        fix_draws(monkeypatch, 1.0)
        other_way = turn(images, seeded())
        quarter, back = (torch.rot90(to_float(images), times, dims=(2, 3)) for times in (1, -1))
        if not torch.allclose(one_way, quarter, atol=1e-4):
            quarter, back = back, quarter
        torch.testing.assert_close(one_way, quarter, atol=1e-4, rtol=0)
        torch.testing.assert_close(other_way, back, atol=1e-4, rtol=0)

    @pytest.mark.parametrize(("value", "zoom"), [(0.0, 0.5), (1.0, 1.5)])
    def test_largest_scale(self, monkeypatch: pytest.MonkeyPatch, value: float, zoom: float) -> None:
        """The steps of a ramp grow or shrink by the scale."""
        fix_draws(monkeypatch, value)
        outputs = Affine(rotate=0, shift=0, scale=0.5)(ramp(1, 16, 16, axis=1), seeded())
        steps = outputs[0, 0, 4:12, 4:12].diff(dim=1) * 255 / 8
        torch.testing.assert_close(steps, torch.full_like(steps, zoom), atol=1e-3, rtol=0)

    def test_flip(self) -> None:
        images = random_images(3, 8, 8, 3)
        outputs = Affine(rotate=0, shift=0, scale=0, flip=1)(images, seeded())
        torch.testing.assert_close(outputs, to_float(images).flip(3), atol=1e-5, rtol=0)


class TestResizedCrop:
    @pytest.mark.parametrize("channels", [1, 3])
    def test_the_whole_image_is_the_identity(self, channels: int) -> None:
        images = random_images(3, 8, 11, channels)
        outputs = ResizedCrop(area=(1, 1), ratio=(1, 1), flip=0)(images, seeded())
        torch.testing.assert_close(outputs, to_float(images), atol=1e-5, rtol=0)

    def test_the_whole_image_mirrored(self) -> None:
        images = random_images(3, 8, 11, 3)
        outputs = ResizedCrop(area=(1, 1), ratio=(1, 1), flip=1)(images, seeded())
        torch.testing.assert_close(outputs, to_float(images).flip(3), atol=1e-5, rtol=0)

    def test_constant_images_stay_constant(self) -> None:
        images = torch.full((50, 8, 8, 3), 200, dtype=torch.uint8)
        outputs = ResizedCrop()(images, seeded())
        torch.testing.assert_close(outputs, torch.full_like(outputs, 200 / 255), atol=1e-5, rtol=0)

    @pytest.mark.parametrize("axis", [0, 1])
    def test_crops_stay_inside(self, axis: int) -> None:
        """A crop beyond the border would read the ramp backwards there."""
        outputs = ResizedCrop(flip=0)(ramp(200, 16, 16, axis=axis), seeded())
        assert outputs.diff(dim=2 + axis).min() >= -1e-5
        assert outputs[:, 0, 8, 8].std() > 0.01, "the crops lie at different places"

    def test_area_and_ratio(self) -> None:
        """The steps of a ramp, seen through a crop, shrink with the crop's side."""
        crop = ResizedCrop(flip=0)
        height, width = (
            crop(ramp(500, 16, 16, axis=axis), seeded())[:, 0, 4:12, 4:12].diff(dim=1 + axis).mean(dim=(1, 2)) * 255 / 8
            for axis in (0, 1)
        )
        area, ratio = width * height, width / height
        assert max(float(width.max()), float(height.max())) <= 1 + 1e-4
        assert 0.5 - 1e-3 <= float(area.min()) < 0.52
        assert 0.9 < float(area.max()) <= 1 + 1e-3
        assert 3 / 4 - 1e-3 <= float(ratio.min()) < 0.78
        assert 1.3 < float(ratio.max()) <= 4 / 3 + 1e-3

    def test_half_are_mirrored(self) -> None:
        outputs = ResizedCrop()(ramp(1000, 8, 8, axis=1), seeded())
        mirrored = outputs[:, 0, 4, 6] < outputs[:, 0, 4, 1]
        assert float(mirrored.float().mean()) == pytest.approx(0.5, abs=0.06)


class TestStrong:
    PLAIN = Strong(jitter=0, gray=0, flip=0)

    @pytest.mark.parametrize("channels", [1, 3])
    def test_without_a_share_images_are_shifted_by_whole_pixels(self, channels: int) -> None:
        images = random_images(40, 9, 12, channels)
        outputs = as_bytes(Strong(share=0, pad=2)(images, seeded()))
        for image, output in zip(images.numpy(), outputs, strict=True):
            padded = np.pad(image, ((2, 2), (2, 2), (0, 0)), mode="symmetric")
            crops = [padded[down : down + 9, right : right + 12] for down in range(5) for right in range(5)]
            assert output in {part.tobytes() for crop in crops for part in (crop, crop[:, ::-1])}
        assert len(set(outputs)) == 40

    def test_the_whole_image_in_its_own_colours_is_the_identity(self) -> None:
        images = random_images(5, 9, 12, 3)
        whole = replace(self.PLAIN, area=(1.0, 1.0), ratio=(1.0, 1.0))
        torch.testing.assert_close(whole(images, seeded()), to_float(images), atol=1e-5, rtol=0)

    def test_gray_leaves_no_colour(self) -> None:
        outputs = Strong(gray=1)(random_images(5, 9, 12, 3), seeded())
        torch.testing.assert_close(outputs, outputs[:, :1].expand_as(outputs), atol=1e-5, rtol=0)

    @pytest.mark.parametrize("value", [0.0, 1.0])
    def test_brightness_contrast_and_saturation_at_their_ends(self, value: float) -> None:
        """As their definitions have it, one after the other, each cut to 0..1; the whole image is taken."""
        images = random_images(3, 8, 8, 3)
        strong = Strong(
            area=(1.0, 1.0), ratio=(1.0, 1.0), flip=0, jitter=1, gray=0, brightness=0.3, contrast=0.2, saturation=0.1
        )
        drawn = torch.full((3, 11), value)
        drawn[:, 0], drawn[:, 3:5], drawn[:, 6], drawn[:, 10] = 0.0, 0.5, 0.0, 0.5
        sign = 2 * value - 1
        outputs = strong.apply(images, drawn)
        for image, output in zip(to_float(images), outputs, strict=True):
            bright = (image * (1 + 0.3 * sign)).clamp(0, 1)
            looks = 0.299 * bright[0] + 0.587 * bright[1] + 0.114 * bright[2]
            clear = (looks.mean() + (bright - looks.mean()) * (1 + 0.2 * sign)).clamp(0, 1)
            looks = 0.299 * clear[0] + 0.587 * clear[1] + 0.114 * clear[2]
            expected = (looks + (clear - looks) * (1 + 0.1 * sign)).clamp(0, 1)
            torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)

    def test_parts_stay_inside_and_have_their_area(self) -> None:
        """A ramp shows which columns a part spans; its mean stays within the image."""
        images = ramp(400, 32, 32, axis=1)
        outputs = replace(self.PLAIN, area=(0.25, 0.25), ratio=(1.0, 1.0))(images, seeded())
        columns = outputs[:, 0, 0] * 255 / 8
        span = columns[:, -1] - columns[:, 0]
        torch.testing.assert_close(span, torch.full_like(span, 15.5), atol=0.3, rtol=0)
        assert columns.min() >= -0.01
        assert columns.max() <= 31.01

    def test_a_share_of_the_images_is_changed_strongly(self) -> None:
        images = ramp(600, 16, 16, axis=1)
        outputs = replace(self.PLAIN, share=0.5, area=(0.25, 0.25), ratio=(1.0, 1.0), pad=0)(images, seeded())
        unchanged = (outputs - to_float(images)).abs().amax(dim=(1, 2, 3)) < 1e-5
        assert 0.42 < float(unchanged.float().mean()) < 0.58

    @pytest.mark.parametrize("wrong", [{"share": 1.5}, {"gray": -0.1}, {"area": (0.5, 0.2)}, {"jitter": 2.0}])
    def test_what_cannot_be_is_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(InputError):
            Strong(**wrong)
