"""Random parts of images: their distribution, the scale at which they are decoded, and invalid arguments."""

from __future__ import annotations

import io
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aiostream_data import Dataset, DecodeError, PlanError
from aiostream_data.codecs import decode_image, decode_random_crop, images
from aiostream_data.codecs.exif import Box
from aiostream_data.codecs.random_crops import _drawn

HEIGHT, WIDTH = 300, 400
ROWS, COLUMNS = np.mgrid[:HEIGHT, :WIDTH]
PIXELS = np.stack([COLUMNS * 255 // WIDTH, ROWS * 255 // HEIGHT, 0 * ROWS], axis=2).astype(np.uint8)


def encoded(kind: str = "JPEG", pixels: Any = PIXELS, **more: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **more)
    return file.getvalue()


@pytest.fixture(params=["simplejpeg", "Pillow"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode JPEG images with and without simplejpeg."""
    if request.param == "Pillow":
        monkeypatch.setattr(images, "_simplejpeg", lambda: None)
    else:
        pytest.importorskip("simplejpeg")


def drawn(seed: int, height: int = HEIGHT, width: int = WIDTH, scale: Any = (0.08, 1.0)) -> Box:
    return _drawn(np.random.default_rng(seed).random((10, 4)), height, width, scale, (3 / 4, 4 / 3))


def test_parts_have_the_areas_and_ratios_of_random_resized_crops() -> None:
    boxes = [drawn(seed) for seed in range(4_000)]
    assert all(box.top + box.height <= HEIGHT and box.left + box.width <= WIDTH for box in boxes)
    areas = np.array([box.height * box.width / (HEIGHT * WIDTH) for box in boxes])
    ratios = np.array([box.width / box.height for box in boxes])
    assert areas.min() > 0.075
    assert 0.4 < areas.mean() < 0.56
    assert 0.74 < ratios.min() < ratios.max() < 1.35
    tops = np.array([box.top / max(1, HEIGHT - box.height) for box in boxes])
    assert abs(tops.mean() - 0.5) < 0.02


def test_an_image_without_an_allowed_part_gives_its_middle() -> None:
    assert drawn(1, 10, 1_000, (0.9, 1.0)) == (0, 493, 10, 13)
    assert drawn(1, 1_000, 10, (0.9, 1.0)) == (493, 0, 13, 10)
    assert drawn(1, 1, 1) == (0, 0, 1, 1)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_the_part_is_that_of_decode_image(kind: str) -> None:
    data = encoded(kind)
    for seed in range(20):
        found = decode_random_crop(data, np.random.default_rng(seed), size=(30, 40))
        expected = decode_image(data, crop=drawn(seed), size=(30, 40))
        assert found.shape == (30, 40, 3)
        assert found.flags.writeable
        np.testing.assert_allclose(found.astype(int), expected, atol=6)


@pytest.mark.usefixtures("either")
def test_the_part_is_drawn_from_the_upright_image() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(exif=exif)
    found = decode_random_crop(data, np.random.default_rng(3), size=(30, 40))
    expected = decode_image(data, crop=drawn(3, WIDTH, HEIGHT), size=(30, 40))
    np.testing.assert_allclose(found.astype(int), expected, atol=6)


@pytest.mark.usefixtures("either")
def test_a_jpeg_image_is_decoded_at_the_smallest_scale_with_enough_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    resized = images._resized

    def noting(pixels: Any, *more: Any) -> Any:
        seen.append(pixels.shape[:2])
        return resized(pixels, *more)

    monkeypatch.setattr(images, "_resized", noting)
    for side, scale in ((301, 8), (300, 4), (151, 4), (150, 2), (76, 2), (75, 1), (10, 1)):
        data = encoded(pixels=np.zeros((600, 600, 3), np.uint8))
        decode_random_crop(data, np.random.default_rng(0), size=(side, side), scale=(1.0, 1.0), ratio=(1.0, 1.0))
        assert seen[-1] == (75 * scale, 75 * scale), side


@pytest.mark.usefixtures("either")
def test_no_scale_is_used_that_takes_longer_than_the_whole_image(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    resized = images._resized

    def noting(pixels: Any, *more: Any) -> Any:
        seen.append(pixels.shape[:2])
        return resized(pixels, *more)

    monkeypatch.setattr(images, "_resized", noting)
    for side in range(10, 300, 7):
        decode_image(encoded(), size=(side, side))
    assert {size[1] for size in seen} <= {math.ceil(WIDTH * eighths / 8) for eighths in (1, 2, 4, 8)}


def test_map_passes_a_generator_and_a_seed_repeats_the_parts(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(encoded("PNG"))
    decode = partial(decode_random_crop, size=(8, 8))
    dataset = Dataset.from_files(f"{tmp_path}/*.png").map(lambda file: file["data"]).map(decode, seed=5).batch(4)
    first, second, other = (next(iter(dataset.open(epoch=epoch))) for epoch in (0, 0, 1))
    assert first.shape == (4, 8, 8, 3)
    np.testing.assert_array_equal(first, second)
    assert len({image.tobytes() for image in np.concatenate([first, other])}) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": None}, "size must be height and width, got None"),
        ({"size": (0, 1)}, "size must be at least 1"),
        ({"size": (5, 5), "scale": (0.0, 1.0)}, "scale must be a positive minimum and a maximum"),
        ({"size": (5, 5), "scale": (0.5, 0.1)}, "scale must be a positive minimum and a maximum"),
        ({"size": (5, 5), "scale": (0.5, 1.5)}, "scale must be at most 1"),
        ({"size": (5, 5), "ratio": 1.0}, "ratio must be two numbers"),
        ({"size": (5, 5), "rng": 7}, "rng must be a NumPy Generator, got 7"),
    ],
)
def test_invalid_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        decode_random_crop(encoded(), **{"rng": np.random.default_rng(0), **arguments})


@pytest.mark.usefixtures("either")
def test_truncated_and_huge_images_are_refused() -> None:
    data = encoded()
    for stop in range(0, len(data) // 2, 40):
        with pytest.raises(DecodeError, match="the image"):
            decode_random_crop(data[:stop], np.random.default_rng(0), size=(5, 5))
    with pytest.raises(DecodeError, match="more than max_pixels"):
        decode_random_crop(data, np.random.default_rng(0), size=(5, 5), max_pixels=HEIGHT * WIDTH - 1)
