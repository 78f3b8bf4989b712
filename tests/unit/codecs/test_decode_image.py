"""Images of all kinds become arrays of pixels; damaged, huge and unusual ones are refused."""

from __future__ import annotations

import io
import struct
from functools import partial
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aiostream_data import DecodeError, MissingExtraError, PlanError
from aiostream_data.codecs import decode_image, images
from aiostream_data.codecs.exif import exif_orientation, jpeg_orientation

HEIGHT, WIDTH = 40, 56
ROWS, COLUMNS = np.mgrid[:HEIGHT, :WIDTH]
PIXELS = np.stack([4 * COLUMNS, 6 * ROWS, 2 * (ROWS + COLUMNS)], axis=2).astype(np.uint8)


def encoded(kind: str, mode: str = "RGB", pixels: Any = PIXELS, **more: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **more)
    return file.getvalue()


def turned(orientation: int, kind: str = "JPEG", **more: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(kind, exif=exif, **more)


@pytest.fixture(params=["simplejpeg", "Pillow"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode JPEG images with and without simplejpeg."""
    if request.param == "Pillow":
        monkeypatch.setattr(images, "_simplejpeg", lambda: None)
    else:
        pytest.importorskip("simplejpeg")


@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM"])
def test_lossless_images_have_the_pixels_that_were_written(kind: str) -> None:
    more: Any = {"lossless": True} if kind == "WEBP" else {}
    found = decode_image(encoded(kind, **more))
    assert found.dtype == np.uint8
    assert found.shape == PIXELS.shape
    if kind != "GIF":  # has a palette
        np.testing.assert_array_equal(found, PIXELS)
    found[...] = 0


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("wanted", ["RGB", "L", "RGBA"])
def test_jpeg_images_have_the_pixels_that_pillow_decodes(mode: str, wanted: Any) -> None:
    data = encoded("JPEG", mode, quality=90)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert(wanted))
    found = decode_image(bytearray(data), mode=wanted)
    assert found.shape == (HEIGHT, WIDTH, images.CHANNELS[wanted])
    assert found.flags.writeable
    np.testing.assert_allclose(found, expected.reshape(found.shape), atol=2 if wanted == "L" else 0)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "1", "RGBA"])
def test_png_images_of_every_mode_are_converted(mode: str) -> None:
    grey = np.repeat(PIXELS[:, :, :1], 3, axis=2) // 51 * 51  # colours of the palette
    data = encoded("PNG", mode, grey)
    for wanted, channels in images.CHANNELS.items():
        found = decode_image(data, mode=wanted)  # type: ignore[arg-type]
        assert found.shape == (HEIGHT, WIDTH, channels)
        if mode != "1":
            np.testing.assert_array_equal(found[:, :, 0], grey[:, :, 0])


def test_a_transparent_palette_keeps_its_alpha() -> None:
    image = Image.fromarray(PIXELS).quantize(4)
    file = io.BytesIO()
    image.save(file, "PNG", transparency=0)
    found = decode_image(file.getvalue(), mode="RGBA")
    assert set(np.unique(found[:, :, 3])) == {0, 255}


def test_of_16_bit_values_the_upper_8_bits_are_kept_and_32_bit_values_are_refused() -> None:
    deep = (np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) * 29).astype(np.uint16)
    file = io.BytesIO()
    Image.fromarray(deep).save(file, "PNG")
    np.testing.assert_array_equal(decode_image(file.getvalue(), mode="L")[:, :, 0], deep >> 8)
    np.testing.assert_array_equal(decode_image(file.getvalue())[:, :, 2], deep >> 8)
    file = io.BytesIO()
    Image.fromarray(deep.astype(np.float32)).save(file, "TIFF")
    with pytest.raises(DecodeError, match="32-bit values"):
        decode_image(file.getvalue())


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_their_exif_data_declares(orientation: int) -> None:
    expected = {
        1: PIXELS,
        2: PIXELS[:, ::-1],
        3: PIXELS[::-1, ::-1],
        4: PIXELS[::-1],
        5: PIXELS.transpose(1, 0, 2),
        6: np.rot90(PIXELS, -1),
        7: PIXELS[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(PIXELS),
    }[orientation]
    crop = (3, 5, 20, 11)
    for data, off in ((turned(orientation), 12), (turned(orientation, "PNG"), 0), (turned(orientation, "TIFF"), 0)):
        found = decode_image(data)
        assert found.flags.c_contiguous
        np.testing.assert_allclose(found.astype(int), expected, atol=off)
        np.testing.assert_array_equal(decode_image(data, crop=crop), found[3:23, 5:16])
        np.testing.assert_array_equal(decode_image(data, crop=crop, size=(20, 11)), found[3:23, 5:16])
        np.testing.assert_allclose(decode_image(data, size=(8, 6)).astype(int), mean_of(expected, 8, 6), atol=14)


def mean_of(pixels: Any, height: int, width: int) -> Any:
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)).astype(int)


@pytest.mark.usefixtures("either")
def test_large_jpeg_images_are_decoded_at_a_smaller_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    y, x = np.mgrid[:400, :600]
    smooth = np.stack([x * 255 // 600, y * 255 // 400, (x + y) * 255 // 1000], axis=2).astype(np.uint8)
    seen: list[tuple[int, int]] = []
    resized = images._resized

    def noting(pixels: Any, *more: Any) -> Any:
        seen.append(pixels.shape[:2])
        return resized(pixels, *more)

    monkeypatch.setattr(images, "_resized", noting)
    data = encoded("JPEG", pixels=smooth, quality=95)
    found = decode_image(data, size=(50, 50), crop=(0, 200, 400, 400))
    assert seen == [(100, 150)]
    np.testing.assert_allclose(found.astype(int), mean_of(smooth[:, 200:600], 50, 50), atol=4)
    assert decode_image(data, size=(500, 700)).shape == (500, 700, 3)
    assert seen[-1] == (400, 600)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM"])
def test_truncated_images_are_refused_at_every_byte(kind: str) -> None:
    data = encoded(kind, pixels=PIXELS[:12, :12])
    whole = decode_image(data)
    refused = 0
    for stop in range(len(data)):
        try:
            found = decode_image(data[:stop])
        except DecodeError:
            refused += 1
        else:  # only bytes behind the pixels are missing
            np.testing.assert_array_equal(found, whole)
    assert refused > 0.7 * len(data)


def png_of(width: int, height: int) -> bytes:
    data = bytearray(encoded("PNG"))
    data[16:24] = struct.pack(">II", width, height)
    import zlib

    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("size", [(1 << 30, 1 << 30), (100_000, 100_000), (11_000, 11_000), (0, 5)])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_absurd_dimensions_are_refused_before_decoding(size: tuple[int, int]) -> None:
    with pytest.raises(DecodeError, match=r"pixels|cannot be decoded"):
        decode_image(png_of(*size))


@pytest.mark.usefixtures("either")
def test_a_crop_is_resized_without_the_pixels_around_it() -> None:
    for data in (encoded("JPEG"), encoded("PNG")):
        crop = np.ascontiguousarray(decode_image(data)[10:30, 4:38])
        np.testing.assert_array_equal(decode_image(data, crop=(10, 4, 20, 34), size=(9, 17)), mean_of(crop, 9, 17))


@pytest.mark.usefixtures("either")
def test_max_pixels_bounds_the_image_and_the_result() -> None:
    for kind in ("JPEG", "PNG"):
        data = encoded(kind)
        assert decode_image(data, max_pixels=HEIGHT * WIDTH).shape == PIXELS.shape
        with pytest.raises(DecodeError, match="40 x 56 pixels, more than max_pixels=2239"):
            decode_image(data, max_pixels=HEIGHT * WIDTH - 1, size=(4, 4))
    with pytest.raises(PlanError, match="at most max_pixels"):
        decode_image(b"", size=(1 << 20, 1 << 20))


def test_images_that_pillow_refuses_name_its_limit_and_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 10)
    with pytest.raises(DecodeError, match=r"DecompressionBombError.*also raise PIL\.Image\.MAX_IMAGE_PIXELS"):
        decode_image(encoded("PNG"))
    with pytest.raises(DecodeError, match=r"UnidentifiedImageError: cannot identify image file$"):
        decode_image(b"no image")


@pytest.mark.parametrize(
    "data", [b"", b"no image", b"\xff\xd8\xff", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"\x89PNG\r\n\x1a\n"]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="the image cannot be decoded"):
        decode_image(data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "CMYK"}, "mode must be one of 'RGB', 'L', 'RGBA'"),
        ({"size": 224}, "size must be height and width"),
        ({"size": (0, 3)}, "size must be at least 1"),
        ({"crop": (1, 2, 3)}, "crop must be top, left, height and width"),
        ({"crop": (-1, 0, 3, 3)}, "crop must be at least 0"),
        ({"max_pixels": 0}, "max_pixels must be at least 1"),
    ],
)
def test_invalid_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        decode_image(encoded("PNG"), **arguments)


@pytest.mark.usefixtures("either")
def test_a_crop_outside_of_the_image_is_refused() -> None:
    with pytest.raises(DecodeError, match=r"crop=\(0, 30, 40, 30\) is not part of the image, which has 40 x 56"):
        decode_image(encoded("JPEG"), crop=(0, 30, 40, 30))


def test_damaged_exif_data_leave_an_image_upright() -> None:
    data = turned(6)
    start = data.index(b"Exif\0\0")
    assert jpeg_orientation(data) == 6
    for at in range(start, start + 40):
        for value in (0, 0xFF):
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            assert 1 <= jpeg_orientation(changed) <= 8
    assert [jpeg_orientation(data[:stop]) in (1, 6) for stop in range(len(data))] == [True] * len(data)
    assert exif_orientation(b"II*\0\xff\xff\xff\xff") == 1
    assert jpeg_orientation(b"\xff\xd8" + b"\xff" * 50) == 1


def test_a_missing_pillow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"aiostream-data\[images\]"):
        decode_image(encoded_png)


encoded_png = encoded("PNG")


def test_the_function_with_arguments_can_be_pickled() -> None:
    import pickle

    decode = pickle.loads(pickle.dumps(partial(decode_image, size=(4, 4))))
    assert decode(encoded_png).shape == (4, 4, 3)
