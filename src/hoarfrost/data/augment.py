"""Random changes to a batch of images, drawn and applied for the whole batch at once, on its device.

Each augmentation is a frozen dataclass that is its own configuration. It takes uint8 images ``(B, H, W, C)`` and gives
floats in 0..1, ``(B, C, H, W)``; normalisation comes after, so that a zero border is black as in the sources. ``draw``
gets the random numbers, ``apply`` is a pure function of images and numbers: it can be compiled, and the numbers of a
batch can be shared out between processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from hoarfrost.errors import require

Border = Literal["zero", "reflect"]


def to_float(images: Tensor) -> Tensor:
    """uint8 ``(B, H, W, C)`` to float ``(B, C, H, W)`` in 0..1; the memory stays channels-last."""
    return images.permute(0, 3, 1, 2).float().div_(255)


@dataclass(frozen=True)
class Augment:
    """No change: the base of the augmentations."""

    kind: ClassVar[str] = "none"
    drawn: ClassVar[int] = 0
    """how many tensors of random numbers ``draw`` gives"""

    def __post_init__(self) -> None:
        for name in ("pad", "rotate", "shift", "scale", "flip"):
            value = getattr(self, name, 0)
            require(value >= 0, f"{name} of {self.kind} must not be below 0, as {value} is")
        for name in ("flip", "scale"):
            value = getattr(self, name, 0)
            require(value <= 1, f"{name} of {self.kind} must not be above 1, as {value} is")

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """The random numbers for ``count`` images, each ``(count, ...)``, on the generator's device."""
        return ()

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        """uint8 ``(B, H, W, C)`` to float ``(B, C, H, W)`` in 0..1, changed as ``drawn`` says."""
        return to_float(images)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Draws and applies."""
        return self.apply(images, *self.draw(len(images), generator))


@dataclass(frozen=True)
class Crop(Augment):
    """A shift by whole pixels and a mirror image: the padded random crop of the paper's CIFAR runs."""

    kind: ClassVar[str] = "crop"
    drawn: ClassVar[int] = 2
    pad: int = 4
    border: Border = "zero"
    flip: float = 0.5

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Shifts ``(count, 2)`` and what decides on the mirror image ``(count,)``."""
        device = generator.device
        shift = torch.randint(-self.pad, self.pad + 1, (2, count), generator=generator, device=device)
        return shift.T, torch.rand(count, generator=generator, device=device)

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        """One gather: each pixel is read from where it comes from."""
        count, height, width, _ = images.shape
        device = images.device
        shift, chance = drawn
        rows = torch.arange(height, device=device) + shift[:, :1]
        columns = torch.arange(width, device=device)
        columns = torch.where(chance[:, None] < self.flip, width - 1 - columns, columns) + shift[:, 1:]
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        rows, columns = _reflect(rows, height), _reflect(columns, width)
        batch = torch.arange(count, device=device)[:, None, None]
        moved = images[batch, rows[:, :, None], columns[:, None, :]]
        if self.border == "zero":
            moved = moved * inside[..., None]
        return to_float(moved)


@dataclass(frozen=True)
class Affine(Augment):
    """Rotation, shift and scale, bilinear; a mirror image only on request, since it may be another class."""

    kind: ClassVar[str] = "affine"
    drawn: ClassVar[int] = 1
    rotate: float = 0.25
    """largest angle, in radians"""
    shift: float = 0.15
    """largest shift, as a part of the side"""
    scale: float = 0.1
    """largest change of scale, as a part of 1"""
    flip: float = 0.0
    border: Border = "zero"

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Five numbers an image, ``(count, 5)``."""
        return (_uniform(5, count, generator),)

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        """One sampling grid an image."""
        count = len(images)
        angle, horizontal, vertical, scale = drawn[0][:, :4].T * 2 - 1
        zoom = 1 + scale * self.scale
        mirror = 1 - 2 * (drawn[0][:, 4] < self.flip).float()
        cosine, sine = torch.cos(angle * self.rotate) * zoom, torch.sin(angle * self.rotate) * zoom
        # A grid spans -1..1, so a shift of the whole side is 2.
        rows = [cosine * mirror, -sine, horizontal * self.shift * 2, sine * mirror, cosine, vertical * self.shift * 2]
        return _sample(images, torch.stack(rows, dim=1).view(count, 2, 3), border=self.border)


@dataclass(frozen=True)
class ResizedCrop(Augment):
    """A random part of the image, resized to the whole, and a mirror image (the paper's Tiny-ImageNet runs)."""

    kind: ClassVar[str] = "resized-crop"
    drawn: ClassVar[int] = 1
    area: tuple[float, float] = (0.5, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 < self.area[0] <= self.area[1] <= 1,
            f"area must be two rising numbers from above 0 to 1, not {self.area}",
        )
        require(0 < self.ratio[0] <= self.ratio[1], f"ratio must be two rising numbers above 0, not {self.ratio}")

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Five numbers an image, ``(count, 5)``."""
        return (_uniform(5, count, generator),)

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        """Area uniform, ratio log-uniform, the place uniform among those inside the image."""
        count = len(images)
        size, shape, across, down, chance = drawn[0].T
        area = self.area[0] + (self.area[1] - self.area[0]) * size
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = torch.exp(low + (high - low) * shape)
        # Deviation: a crop that would leave the image is cut to its side instead of being drawn again.
        width = torch.sqrt(area * ratio).clamp(max=1)
        height = torch.sqrt(area / ratio).clamp(max=1)
        mirror = 1 - 2 * (chance < self.flip).float()
        zero = torch.zeros_like(width)
        rows = [width * mirror, zero, (2 * across - 1) * (1 - width), zero, height, (2 * down - 1) * (1 - height)]
        return _sample(images, torch.stack(rows, dim=1).view(count, 2, 3), border="reflect")


@dataclass(frozen=True)
class Strong(Augment):
    """A random part of the image, resized to the whole, its mirror image, and other colours, for part of the images.

    The others are shifted by whole pixels, the image mirrored at its border, and perhaps mirrored as a whole.
    """

    kind: ClassVar[str] = "strong"
    drawn: ClassVar[int] = 1
    share: float = 1.0
    """of the images that are changed strongly"""
    area: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    pad: int = 4
    """largest shift of the others, in pixels"""
    jitter: float = 0.8
    """how often colours are changed"""
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    """each a factor of 1 minus this to 1 plus this"""
    gray: float = 0.2
    """how often colours are left out"""

    def __post_init__(self) -> None:
        super().__post_init__()
        ResizedCrop(area=self.area, ratio=self.ratio, flip=self.flip)
        for name in ("share", "jitter", "brightness", "contrast", "saturation", "gray"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} of {self.kind} must be from 0 to 1, not {value}")

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Eleven numbers an image, ``(count, 11)``."""
        return (_uniform(11, count, generator),)

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        """One sampling grid an image, then its colours."""
        chance, place, colours = drawn[0][:, 0], drawn[0][:, 1:6], drawn[0][:, 6:]
        strong = chance < self.share
        changed = _sample(images, self._transform(images, place, strong), border="reflect")
        return torch.where(strong[:, None, None, None], self._recoloured(changed, colours), changed)

    def _transform(self, images: Tensor, place: Tensor, strong: Tensor) -> Tensor:
        size, shape, across, down, mirrored = place.T
        height, width = images.shape[1:3]
        area = self.area[0] + (self.area[1] - self.area[0]) * size
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = torch.exp(low + (high - low) * shape)
        # Deviation: as in ResizedCrop. So crops are a little larger than torchvision's, and more of them touch a side.
        wide, tall = torch.sqrt(area * ratio).clamp(max=1), torch.sqrt(area / ratio).clamp(max=1)
        one = torch.ones_like(wide)
        wide, tall = torch.where(strong, wide, one), torch.where(strong, tall, one)
        shifts = [((2 * self.pad + 1) * number).floor().clamp(max=2 * self.pad) - self.pad for number in (across, down)]
        right = torch.where(strong, (2 * across - 1) * (1 - wide), 2 * shifts[0] / width)
        below = torch.where(strong, (2 * down - 1) * (1 - tall), 2 * shifts[1] / height)
        mirror = 1 - 2 * (mirrored < self.flip).float()
        zero = torch.zeros_like(wide)
        return torch.stack([wide * mirror, zero, right, zero, tall, below], dim=1).view(len(images), 2, 3)

    def _recoloured(self, pixels: Tensor, colours: Tensor) -> Tensor:
        """``(B, C, H, W)`` in 0..1 with other brightness, contrast and saturation, in this order."""
        often, bright, clear, coloured, left_out = (number[:, None, None, None] for number in colours.T)
        bright = 1 + self.brightness * (2 * bright - 1)
        clear = 1 + self.contrast * (2 * clear - 1)
        coloured = torch.where(
            left_out < self.gray, torch.zeros_like(coloured), 1 + self.saturation * (2 * coloured - 1)
        )
        changed = (pixels * bright).clamp(0, 1)
        mean = _luminance(changed).mean(dim=(2, 3), keepdim=True)
        changed = (mean + (changed - mean) * clear).clamp(0, 1)
        changed = torch.where(often < self.jitter, changed, pixels)
        keeps = (often >= self.jitter) & (left_out >= self.gray)
        luminance = _luminance(changed)
        return torch.where(keeps, changed, (luminance + (changed - luminance) * coloured).clamp(0, 1))


def _luminance(pixels: Tensor) -> Tensor:
    """``(B, C, H, W)`` to ``(B, 1, H, W)``: how bright each pixel looks."""
    if pixels.shape[1] == 1:
        return pixels
    return 0.299 * pixels[:, :1] + 0.587 * pixels[:, 1:2] + 0.114 * pixels[:, 2:]


def _uniform(numbers: int, count: int, generator: torch.Generator) -> Tensor:
    return torch.rand((numbers, count), generator=generator, device=generator.device).T


def _reflect(index: Tensor, size: int) -> Tensor:
    """Indices beyond the border come back from it: -1 is 1, ``size`` is ``size - 2``."""
    period = max(2 * (size - 1), 1)
    index = index.remainder(period)
    return torch.where(index < size, index, period - index)


def _sample(images: Tensor, transform: Tensor, *, border: Border) -> Tensor:
    """Reads the batch at the places that ``transform`` ``(B, 2, 3)`` maps each output pixel to."""
    pixels = to_float(images)
    grid = F.affine_grid(transform, list(pixels.shape), align_corners=False)
    mode = "zeros" if border == "zero" else "reflection"
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode=mode, align_corners=False)
