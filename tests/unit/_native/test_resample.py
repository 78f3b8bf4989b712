"""Resizing images: the kernel, its twin and Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from aiostream_data._native import resample_py

native = pytest.importorskip("aiostream_data._native.resample")
both = pytest.mark.parametrize("kernels", [native, resample_py], ids=["native", "python"])

Box = tuple[float, float, float, float]

sides = st.one_of(st.integers(1, 8), st.integers(1, 70))
fractions = st.floats(0, 1)


def pixels_of(height: int, width: int, channels: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


def by_pillow(pixels: NDArray[np.uint8], box: Box, height: int, width: int) -> NDArray[np.uint8]:
    image = Image.fromarray(pixels if pixels.shape[2] > 1 else pixels[:, :, 0])
    resized = image.resize((width, height), Image.Resampling.BILINEAR, box)
    return np.asarray(resized).reshape(height, width, pixels.shape[2])


@given(sides, sides, st.sampled_from([1, 3]), sides, sides, st.integers(0, 5), st.tuples(*[fractions] * 4))
def test_parts_of_images_are_resized_as_by_the_twin_and_by_pillow(
    tall: int, wide: int, channels: int, height: int, width: int, seed: int, corners: tuple[float, ...]
) -> None:
    pixels = pixels_of(tall, wide, channels, seed)
    left, top = corners[0] * (wide - 1), corners[1] * (tall - 1)
    box = (left, top, left + max(0.25, corners[2] * (wide - left)), top + max(0.25, corners[3] * (tall - top)))
    found = native.resample(pixels, box, height, width)
    np.testing.assert_array_equal(found, resample_py.resample(pixels, box, height, width))
    expected = by_pillow(pixels, box, height, width)
    # Pillow from version 13 on resizes columns first for some heights that shrink, which rounds other sums.
    most = 1 if tall > height else 0
    np.testing.assert_allclose(found.astype(int), expected.astype(int), rtol=0, atol=most)


@both
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_views_of_larger_images_are_resized(kernels: Any, channels: int) -> None:
    whole = pixels_of(60, 80, channels, 1)
    part = whole[7:40, 11:70]
    expected = kernels.resample(part.copy(), (0, 0, 59, 33), 20, 30)
    np.testing.assert_array_equal(kernels.resample(part, (0, 0, 59, 33), 20, 30), expected)
    np.testing.assert_array_equal(kernels.resample(part[::-1], (0, 0, 59, 33), 20, 30)[::-1], expected)
    read_only = whole.view()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(kernels.resample(read_only[7:40, 11:70], (0, 0, 59, 33), 20, 30), expected)


@both
def test_an_image_of_the_same_size_is_unchanged(kernels: Any) -> None:
    pixels = pixels_of(9, 7, 3, 2)
    np.testing.assert_array_equal(kernels.resample(pixels, (0, 0, 7, 9), 9, 7), pixels)


@both
@pytest.mark.parametrize(
    ("shape", "box", "size", "why"),
    [
        ((4, 4), (0, 0, 4, 4), (2, 2), "pixels must be uint8"),
        ((4, 0, 3), (0, 0, 4, 4), (2, 2), "pixels must be uint8"),
        ((4, 4, 5), (0, 0, 4, 4), (2, 2), "pixels must be uint8"),
        ((4, 4, 3), (-1, 0, 4, 4), (2, 2), "is not part of the image"),
        ((4, 4, 3), (0, 0, 4, 5), (2, 2), "is not part of the image"),
        ((4, 4, 3), (2, 0, 2, 4), (2, 2), "is not part of the image"),
        ((4, 4, 3), (0, 0, float("nan"), 4), (2, 2), "is not part of the image"),
        ((4, 4, 3), (0, 0, 4, 4), (0, 2), "the result must have"),
        ((4, 4, 3), (0, 0, 4, 4), (1 << 20, 1 << 20), "the result must have"),
        ((4000, 4, 3), (0, 0, 4, 4000), (1, 1 << 20), "the result must have"),
    ],
)
def test_what_cannot_be_resized_is_refused(
    kernels: Any, shape: tuple[int, ...], box: Sequence[float], size: tuple[int, int], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        kernels.resample(np.zeros(shape, np.uint8), box, *size)
