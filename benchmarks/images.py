"""The JPEGs of P3: as large and as costly to decode as photographs of that size, each with its number written on it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.pipeline.cloud_listing import LISTING, write_listing
from benchmarks.workload import Tally, Workload

IMAGES = 1_200
WIDTH, HEIGHT = 500, 375
SIDE = 224
"""Pixels of a decoded image, each way."""

IMAGE_BATCH = 64
WORKERS = 2
"""Threads or processes that decode, for everyone who can be told."""

BITS = 12
STRIP_ROWS = 40
"""Pixel rows at the lower edge, where the number stands in black and white blocks, the lowest bit first."""

LAYOUT = 1
"""Raised when the files' contents change, so that older ones are written anew."""

_QUALITY = 90
_OCTAVES = range(1, 9)
_SMOOTHNESS = 0.2
"""Photographs have about as much contrast in every octave of detail, and a little less in the finest."""

_BLOCK_CENTRES = ((np.arange(BITS) + 0.5) * SIDE / BITS).astype(np.intp)
_STRIP_CENTRE = int((HEIGHT - STRIP_ROWS / 2) * SIDE / HEIGHT)
_WEIGHTS = 1 << np.arange(BITS)


def image_files(root: Path, rows: int) -> Workload:
    """Return the workload over ``rows`` files below ``root``, the same 1,200 over and over; write them if need be."""
    folder = root / f"images-{IMAGES}-v{LAYOUT}"
    complete = folder / "complete"
    paths = [folder / f"{number:05}.jpg" for number in range(IMAGES)]
    if not complete.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for number, path in enumerate(paths):
            _write(path, number)
        complete.write_text(f"{sum(path.stat().st_size for path in paths)} bytes\n")
    return Workload(rows=rows, paths=tuple(paths[row % IMAGES] for row in range(rows)), rows_per_file=1)


def folders_root(data: Path) -> Path:
    """Return the folder with all folders of images; it is served as a bucket."""
    return data / f"image-folders-v{LAYOUT}"


def image_folder(data: Path, rows: int) -> Workload:
    """Return the workload over a folder of ``rows`` files; write it if need be.

    Each file is a link to one of the 1,200. A file has the number of its row as its name.
    """
    folder = folders_root(data) / str(rows)
    paths = tuple(folder / f"{row:06}.jpg" for row in range(rows))
    if not (folder / LISTING).exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for image, path in zip(image_files(data, rows).paths, paths, strict=True):
            os.link(image, path)
        write_listing(folder, paths)
    return Workload(rows=rows, paths=paths, rows_per_file=1)


def _write(path: Path, number: int) -> None:
    from PIL import Image

    rng = np.random.default_rng(number)
    luma = _noise(rng, _OCTAVES) * 50 + 128
    luma[-STRIP_ROWS:] = np.repeat(number >> np.arange(BITS) & 1, -(-WIDTH // BITS))[:WIDTH] * 255
    chroma = [_noise(rng, _OCTAVES[:4]) * 15 + 128 for _ in range(2)]
    pixels = np.clip(np.stack([luma, *chroma], axis=-1), 0, 255).astype(np.uint8)
    colour = Image.merge("YCbCr", [Image.fromarray(np.ascontiguousarray(pixels[..., plane])) for plane in range(3)])
    colour.save(path, "JPEG", quality=_QUALITY)


def _noise(rng: np.random.Generator, octaves: Iterable[int]) -> NDArray[np.float32]:
    """Return smooth noise of unit variance with detail at every octave."""
    from PIL import Image

    total = np.zeros((HEIGHT, WIDTH), np.float32)
    for octave in octaves:
        cells = (max(2, HEIGHT * 2**octave // 256), max(2, WIDTH * 2**octave // 256))
        grid = Image.fromarray(rng.standard_normal(cells, dtype=np.float32))
        total += np.asarray(grid.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)) * 2.0 ** (-_SMOOTHNESS * octave)
    total /= total.std()
    return total


def numbers_on(images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the numbers that are written on decoded images: shape (n,) of (n, 224, 224, 3)."""
    return (images[:, _STRIP_CENTRE, _BLOCK_CENTRES, 0] > 127) @ _WEIGHTS


def tally_images(batches: Iterable[Any]) -> Tally:
    """Count the images whose label is the number written on them, and sum those: what is timed."""
    count = checksum = 0
    for batch in batches:
        numbers = numbers_on(batch["image"])
        right = numbers == batch["label"]
        count += int(right.sum())
        checksum += int(numbers[right].sum())
    return Tally(count, checksum)


def tally_images_fully(batches: Iterable[Any]) -> Tally:
    """Count the images, and sum every value weighted by its column and the label beside it: what is checked."""
    count = checksum = 0
    weights = np.arange(1, SIDE + 1)
    for batch in batches:
        sums = batch["image"].sum(axis=(1, 3), dtype=np.int64) @ weights
        count += len(sums)
        checksum += int(sums @ (batch["label"].astype(np.int64) + 1))
    return Tally(count, checksum)
