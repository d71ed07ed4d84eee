"""One way to bring a set of images to a size and a number of channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hoarfrost.data.arrays import fit_to
from hoarfrost.data.images import ImageFiles, ImageSet

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)


def test_nothing_asked_is_nothing_done() -> None:
    images = ImageSet(PIXELS)
    assert images.fitted() is images
    assert images.fitted(12, 3) is images


@pytest.mark.parametrize(("size", "channels"), [(16, None), (None, 1), (9, 1), (12, 1)])
def test_each_where_asked_for(size: int | None, channels: int | None) -> None:
    expected = fit_to(PIXELS, size or 12, channels or 3)
    assert np.array_equal(ImageSet(PIXELS).fitted(size, channels).pixels(slice(None)), expected)


def test_an_image_that_is_not_square_becomes_so() -> None:
    assert ImageSet(PIXELS[:, :, :9]).fitted(12).shape == (12, 12, 3)
    assert ImageSet(PIXELS[:, :, :9]).fitted().shape == (12, 9, 3)


def test_files_stay_on_disk(tmp_path: Path) -> None:
    for index, image in enumerate(PIXELS):
        Image.fromarray(image).save(tmp_path / f"{index}.png")
    files = ImageSet(ImageFiles(tuple(sorted(tmp_path.iterdir())), size=12, channels=3))
    fitted = files.fitted(16, 1)
    assert isinstance(fitted.images, ImageFiles)
    assert np.array_equal(fitted.pixels(slice(None)), fit_to(PIXELS, 16, 1))
