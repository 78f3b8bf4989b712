"""Decode a random part of an image, resized: the augmentation of most image classifiers."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data.arguments import shown
from aiostream_data.codecs.exif import Box
from aiostream_data.codecs.images import MAX_PIXELS, Mode, Pixels, checked, decode_wanted
from aiostream_data.errors import ArgumentTypeError, PlanError

_ATTEMPTS: Final = 10
"""Number of parts to draw, of which the first one that the image contains is chosen."""

Bounds = tuple[float, float]
SCALE: Final[Bounds] = (0.08, 1.0)
RATIO: Final[Bounds] = (3 / 4, 4 / 3)


def decode_random_crop(
    data: bytes | bytearray | memoryview,
    rng: np.random.Generator,
    *,
    size: tuple[int, int],
    scale: Bounds = SCALE,
    ratio: Bounds = RATIO,
    mode: Mode = "RGB",
    max_pixels: int = MAX_PIXELS,
) -> Pixels:
    """Decode a random part of an image, and resize it, as torchvision's ``RandomResizedCrop`` does.

    The image is decoded as by :func:`decode_image`. A JPEG image is decoded at the smallest of the scales 1/8, 1/4, 1/2
    and 1 at which the part has at least the size of the result. In ``map()``, a parameter ``rng`` receives a generator.

    Args:
        data: The encoded image.
        rng: Generator. Each call draws 40 numbers.
        size: Height and width of the result.
        scale: Minimum and maximum area of the part, as a fraction of the area of the image.
        ratio: Minimum and maximum width of the part divided by its height.
        mode, max_pixels: As for :func:`decode_image`.

    Returns:
        A new, writable, contiguous array, ``uint8[height, width, channels]``.

    Raises:
        DecodeError: The image is damaged, truncated, too large or of an unsupported kind.
        PlanError: An argument is invalid.
        MissingExtraError: Pillow is not installed (extra ``images``).
    """
    if not isinstance(rng, np.random.Generator):
        raise ArgumentTypeError(f"rng must be a NumPy Generator, got {shown(rng)}")
    if size is None:
        raise PlanError("size must be height and width, got None")
    areas, ratios = _bounds("scale", scale), _bounds("ratio", ratio)
    if areas[1] > 1:
        raise PlanError(f"scale must be at most 1, got {shown(scale)}")
    draws = rng.random((_ATTEMPTS, 4))
    wanted = checked(mode, size, None, max_pixels)
    crop = wanted._replace(crop=lambda height, width: _drawn(draws, height, width, areas, ratios), gap=1)
    return decode_wanted(data, crop)


def part_of(rng: np.random.Generator, height: int, width: int) -> Box:
    """Return the part of an image of this size that :func:`decode_random_crop` decodes by default."""
    return _drawn(rng.random((_ATTEMPTS, 4)), height, width, SCALE, RATIO)


def _bounds(name: str, given: Any) -> Bounds:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise PlanError(f"{name} must be two numbers, got {shown(given)}")
    first, last = given
    if not all(isinstance(value, (int, float)) and 0 < value < math.inf for value in given) or first > last:
        raise PlanError(f"{name} must be a positive minimum and a maximum, got {shown(given)}")
    return float(first), float(last)


def _drawn(draws: NDArray[np.float64], height: int, width: int, areas: Bounds, ratios: Bounds) -> Box:
    """Return the first part that lies in the image, or else the largest part in the middle with an allowed ratio."""
    logs = math.log(ratios[0]), math.log(ratios[1])
    for area, shape, y, x in draws.tolist():
        pixels = height * width * (areas[0] + area * (areas[1] - areas[0]))
        ratio = math.exp(logs[0] + shape * (logs[1] - logs[0]))
        wide, tall = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            return Box(int(y * (height - tall + 1)), int(x * (width - wide + 1)), tall, wide)
    wide = min(width, max(1, round(height * ratios[1])))
    tall = min(height, max(1, round(width / ratios[0])))
    return Box((height - tall) // 2, (width - wide) // 2, tall, wide)
