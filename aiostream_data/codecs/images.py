"""Decode images to arrays of pixels, and resize them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from io import BytesIO
from types import ModuleType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.arguments import integer, shown
from aiostream_data.codecs.encoded_bytes import encoded_bytes
from aiostream_data.codecs.exif import (
    UPRIGHT,
    Box,
    exif_orientation,
    jpeg_orientation,
    stored_box,
    swaps_axes,
    upright,
)
from aiostream_data.errors import DecodeError, MissingExtraError, PlanError
from aiostream_data.safe_url import shorten

Mode: TypeAlias = Literal["RGB", "L", "RGBA"]
Pixels: TypeAlias = NDArray[np.uint8]

MAX_PIXELS: Final = (1 << 30) // 4 // 3
"""Default maximum number of pixels of an image, as in Pillow. A small file can declare far more."""

CHANNELS: Final[dict[str, int]] = {"RGB": 3, "L": 1, "RGBA": 4}

_FORMATS: Final = ("JPEG", "MPO", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM")
_JPEG: Final = b"\xff\xd8\xff"
_OBJECT: Final = re.compile(r" ?<_io\.BytesIO object at 0x[0-9a-fA-F]+>")
"""Regular expression for the file object in messages of Pillow. Its address in memory tells the user nothing."""

_OF_SIMPLEJPEG: Final = {"RGB": "RGB", "L": "GRAY", "RGBA": "RGBA"}
_SIXTEEN_BIT: Final = ("I;16", "I;16L", "I;16B", "I;16N")
_EIGHTHS: Final = (1, 2, 4)
"""Scales of a JPEG image in eighths. Other scales, such as 5 eighths, take longer than the whole image."""

CropOf: TypeAlias = Callable[[int, int], Box]
"""Function from the height and width of an upright image to the part to return."""


class ImageOptions(NamedTuple):
    """Checked arguments of a decoder.

    Attributes:
        mode: Mode of the result.
        size: Height and width of the result, or None to keep the size.
        crop: Part of the upright image, a function that returns it, or None for the whole image.
        max_pixels: Maximum number of pixels that the image declares.
        gap: A JPEG image is decoded at a smaller scale if it stays larger than the result by this factor.
    """

    mode: str
    size: tuple[int, int] | None
    crop: Box | CropOf | None
    max_pixels: int
    gap: int = 2


class _View(NamedTuple):
    """The part of a stored image that becomes the result, and its size, before the image is turned upright."""

    box: Box
    size: tuple[int, int] | None
    gap: int

    def inside(self) -> _View:
        """Return the view of an image that has been cropped to the box."""
        return self._replace(box=Box(0, 0, self.box.height, self.box.width))

    def eighths(self) -> int | None:
        """Return the smallest scale of the stored image with enough pixels for the result; None for the full size."""
        if self.size is None:
            return None
        tall, wide = 8 * self.gap * self.size[0], 8 * self.gap * self.size[1]
        return next((e for e in _EIGHTHS if self.box.height * e >= tall and self.box.width * e >= wide), None)


def decode_image(
    data: bytes | bytearray | memoryview,
    *,
    mode: Mode = "RGB",
    size: tuple[int, int] | None = None,
    crop: Sequence[int] | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Pixels:
    """Decode a JPEG, PNG, WebP, BMP, GIF, TIFF or PNM image to ``uint8[height, width, channels]``.

    JPEG images are decoded with simplejpeg if it is installed, and all others with Pillow. The pixels are turned as the
    Exif orientation declares. Of an animation, the first frame is decoded. CMYK and palette images are converted, the
    alpha channel is dropped for ``"RGB"`` and ``"L"``, and of 16-bit values the upper 8 bits are kept.

    With ``size``, a JPEG image that is at least four times as large is decoded at a half, a quarter or an eighth of its
    scale. This takes less time, and the pixels differ slightly. Safe to call from any thread.

    Args:
        data: The encoded image.
        mode: ``"RGB"``, ``"L"`` (grey, one channel) or ``"RGBA"``.
        size: Height and width of the result; None to keep the size. Resizing is bilinear with antialiasing.
        crop: Top, left, height and width of the part to return, in pixels of the upright image, before resizing.
        max_pixels: Maximum number of pixels that the image declares, and that the result has.

    Returns:
        A new, writable, contiguous array.

    Raises:
        DecodeError: The image is damaged, truncated, too large or of an unsupported kind, or lacks a part of ``crop``.
        PlanError: An argument is invalid.
        MissingExtraError: Pillow is not installed (extra ``images``).
    """
    return decode_wanted(data, checked(mode, size, crop, max_pixels))


def decode_wanted(data: bytes | bytearray | memoryview, wanted: ImageOptions) -> Pixels:
    """Decode an image; see :func:`decode_image`."""
    content = encoded_bytes(data, "an image file")
    pixels = _by_simplejpeg(content, wanted) if content.startswith(_JPEG) else None
    if pixels is None:
        pixels = _by_pillow(content, wanted)
    return pixels if pixels.flags.writeable and pixels.flags.c_contiguous else np.array(pixels, order="C")


def checked(mode: Any, size: Any, crop: Any, max_pixels: Any) -> ImageOptions:
    """Check arguments of decoders.

    Raises:
        PlanError: An argument is invalid.
    """
    if mode not in CHANNELS:
        raise PlanError(f"mode must be one of {', '.join(map(repr, CHANNELS))}, got {shown(mode)}")
    most = integer("max_pixels", max_pixels, 1)
    box = None if crop is None else Box(*_integers("crop", crop, (0, 0, 1, 1), "top, left, height and width"))
    if size is None:
        return ImageOptions(mode, None, box, most)
    height, width = _integers("size", size, (1, 1), "height and width")
    if height * width > most:
        raise PlanError(f"size must be at most max_pixels={most} pixels, got {height} x {width}")
    return ImageOptions(mode, (height, width), box, most)


def _integers(name: str, given: Any, least: Sequence[int], what: str) -> list[int]:
    if not isinstance(given, (tuple, list)) or len(given) != len(least):
        raise PlanError(f"{name} must be {what}, got {shown(given)}")
    return [integer(name, value, minimum) for value, minimum in zip(given, least, strict=True)]


def _view(wanted: ImageOptions, height: int, width: int, orientation: int) -> _View:
    """Return what to take from a stored image of this size.

    Raises:
        DecodeError: The image is too large, or does not contain the crop.
    """
    if height * width > wanted.max_pixels or min(height, width) < 1:
        raise DecodeError(f"the image declares {height} x {width} pixels, more than max_pixels={wanted.max_pixels}")
    turned = swaps_axes(orientation)
    tall, wide = (width, height) if turned else (height, width)
    box = wanted.crop(tall, wide) if callable(wanted.crop) else wanted.crop or Box(0, 0, tall, wide)
    if box.top + box.height > tall or box.left + box.width > wide:
        raise DecodeError(f"crop={tuple(box)} is not part of the image, which has {tall} x {wide} pixels")
    size = wanted.size[::-1] if wanted.size is not None and turned else wanted.size
    return _View(stored_box(box, orientation, tall, wide), size, wanted.gap)


# -- JPEG with simplejpeg


def _by_simplejpeg(data: bytes, wanted: ImageOptions) -> Pixels | None:
    """Decode a JPEG image. Return None if Pillow has to decode it, or to find the error."""
    simplejpeg = _simplejpeg()
    if simplejpeg is None:
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    if colours in ("CMYK", "YCCK"):
        return None
    orientation = jpeg_orientation(data)
    view = _view(wanted, height, width, orientation)
    eighths = view.eighths()
    least = {"min_height": -(-height * eighths // 8), "min_width": -(-width * eighths // 8)} if eighths else {}
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(
            data, _OF_SIMPLEJPEG[wanted.mode], fastdct=False, fastupsample=False, min_factor=1, **least
        )
    except ValueError:
        return None
    if pixels.shape[:2] == (height, width):
        top, left, tall, wide = view.box
        pixels = pixels[top : top + tall, left : left + wide]
        view, height, width = view.inside(), tall, wide
    return upright(_resized(pixels, view, height, width), orientation)


@cache
def _simplejpeg() -> ModuleType | None:
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        return None


# -- all formats with Pillow


def _by_pillow(data: bytes, wanted: ImageOptions) -> Pixels:
    image_module, formats = _image_module(), _formats()
    try:
        with image_module.open(BytesIO(data), formats=formats) as image:
            return _decoded(image, data, wanted)
    except (DecodeError, MissingExtraError):
        raise
    except Exception as error:  # hostile bytes make Pillow raise errors of many classes
        reason = f"{type(error).__name__}: {shorten(_OBJECT.sub('', str(error)))}"
        if isinstance(error, image_module.DecompressionBombError):
            reason += ". For images of this size, also raise PIL.Image.MAX_IMAGE_PIXELS"
        raise DecodeError(f"the image cannot be decoded: {reason}") from error


def _decoded(image: Any, data: bytes, wanted: ImageOptions) -> Pixels:
    is_jpeg = data.startswith(_JPEG)
    width, height = image.size
    if is_jpeg:
        orientation = jpeg_orientation(data)
        view = _view(wanted, height, width, orientation)
        eighths = view.eighths()
        if eighths:
            image.draft(image.mode, (max(1, width * eighths // 8), max(1, height * eighths // 8)))
        image.load()
    else:
        _view(wanted._replace(crop=None), height, width, UPRIGHT)  # raises if the image is too large
        image.load()
        width, height = image.size  # TIFF images are turned upright when they are loaded
        orientation = UPRIGHT if image.format == "TIFF" else exif_orientation(image.info.get("exif", b""))
        view = _view(wanted, height, width, orientation)
    image = _converted(image, wanted.mode)
    top, left, tall, wide = view.box
    if image.size == (width, height) and view.box != (0, 0, height, width):
        image = image.crop((left, top, left + wide, top + tall))
        view, height, width = view.inside(), tall, wide
    pixels: Pixels = np.asarray(image)
    return upright(_resized(pixels if pixels.ndim == 3 else pixels[:, :, None], view, height, width), orientation)


def _converted(image: Any, mode: str) -> Any:
    """Return an image in another mode.

    Raises:
        DecodeError: The pixels have more than 16 bits.
    """
    if image.mode in _SIXTEEN_BIT:
        image = _image_module().fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DecodeError("images with 32-bit values per channel are not supported. Store such data as .npy arrays.")
    if image.mode in ("P", "PA") and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == mode else image.convert(mode)


def _resized(pixels: Pixels, view: _View, height: int, width: int) -> Pixels:
    """Return the part of an image, resized.

    Args:
        pixels: The stored image, or the image at a smaller scale.
        height, width: Size of the stored image, to which the box of the view refers.
    """
    if view.size is None:
        return pixels
    top, left, tall, wide = view.box
    y, x = pixels.shape[0] / height, pixels.shape[1] / width
    box = (left * x, top * y, (left + wide) * x, (top + tall) * y)
    if pixels.shape[2] < CHANNELS["RGBA"]:
        try:
            return _native.resample(pixels, box, *view.size)
        except ValueError as error:
            raise DecodeError(f"the image cannot be resized: {error}") from error
    image = _image_module().fromarray(pixels)  # resizes colours by their alpha
    resized: Pixels = np.asarray(image.resize(view.size[::-1], _image_module().Resampling.BILINEAR, box))
    return resized


def _image_module() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise MissingExtraError("decoding images needs Pillow: pip install 'aiostream-data[images]'") from error


@cache
def _formats() -> tuple[str, ...]:
    """Return the formats to open. Other plugins of Pillow start programs, or are rarely tested."""
    module = _image_module()
    module.init()
    return tuple(name for name in _FORMATS if name in module.OPEN)
