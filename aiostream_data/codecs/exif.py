"""Orientation of images: read it from Exif data, and turn crops and pixels."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

UPRIGHT: Final = 1

_TAG: Final = 0x0112
_SHORT: Final = 3
_MAX_ENTRIES: Final = 1000
_EXIF: Final = b"Exif\0\0"
_ORDERS: Final[dict[bytes, Any]] = {b"II*\0": "little", b"MM\0*": "big"}
_APP1: Final = 0xE1
_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD8)})  # markers without a length
_ENDS: Final = frozenset({0xD9, 0xDA})  # end of the image, start of the pixels


class Box(NamedTuple):
    """Rectangle in an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


def jpeg_orientation(data: bytes) -> int:
    """Return the orientation that the Exif segment of a JPEG file declares, 1 to 8; 1 if it declares none."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _ENDS:
            break
        if marker == 0xFF or marker in _ALONE:
            at += 1 if marker == 0xFF else 2
            continue
        stop = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == _APP1 and data.startswith(_EXIF, at + 4):
            return exif_orientation(data[at + 4 : stop])
        at = max(stop, at + 4)
    return UPRIGHT


def exif_orientation(exif: bytes) -> int:
    """Return the orientation in Exif data, 1 to 8. Damaged data, or data without an orientation, return 1."""
    tiff = exif.removeprefix(_EXIF)
    order = _ORDERS.get(tiff[:4])
    if order is None:
        return UPRIGHT
    at = int.from_bytes(tiff[4:8], order)
    count = min(int.from_bytes(tiff[at : at + 2], order), _MAX_ENTRIES)
    for entry in range(at + 2, at + 2 + 12 * count, 12):
        field = tiff[entry : entry + 12]
        if len(field) < 12:
            break
        if int.from_bytes(field[:2], order) == _TAG and int.from_bytes(field[2:4], order) == _SHORT:
            found = int.from_bytes(field[8:10], order)
            return found if 1 <= found <= 8 else UPRIGHT
    return UPRIGHT


def swaps_axes(orientation: int) -> bool:
    """Return True if width and height of the upright image are height and width of the stored image."""
    return orientation >= 5


def stored_box(box: Box, orientation: int, height: int, width: int) -> Box:
    """Return the place of a box in the stored image.

    Args:
        box: Box in the upright image.
        height, width: Size of the upright image.
    """
    top, left, tall, wide = box
    below, right = height - top - tall, width - left - wide
    corner = {
        1: (top, left),
        2: (top, right),
        3: (below, right),
        4: (below, left),
        5: (left, top),
        6: (right, top),
        7: (right, below),
        8: (left, below),
    }[orientation]
    return Box(*corner, wide, tall) if swaps_axes(orientation) else Box(*corner, tall, wide)


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return a view of the pixels ``[height, width, channels]`` of a stored image as the upright image."""
    if swaps_axes(orientation):
        pixels = pixels.transpose(1, 0, 2)
    flips_rows = orientation in (3, 4, 7, 8)
    flips_columns = orientation in (2, 3, 6, 7)
    return pixels[:: -1 if flips_rows else 1, :: -1 if flips_columns else 1]
