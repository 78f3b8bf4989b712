"""Time decoding JPEG images to 224 x 224 pixels, whole or a random part: ``python -m benchmarks.micro.image_decoding``.

Every way decodes the same images in a pool of two threads. The images of P3 have 500 x 375 pixels, the others are
enlarged copies. All ways decode with libjpeg-turbo (simplejpeg). "OpenCV" resizes without antialiasing, and "Pillow"
with antialiasing, as this package does. Random parts are those of ``decode_random_crop`` in all ways. "Dataset" reads
the files with ``from_files`` and decodes them in ``map`` with two threads.

Each figure is the median of ``--repetitions`` passes, the ways taking turns. ``--out`` writes them as JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import cv2
import numpy as np
import simplejpeg
from PIL import Image

import aiostream_data as asd
from aiostream_data.codecs import decode_image, decode_random_crop
from aiostream_data.codecs.random_crops import part_of
from benchmarks.dataset import default_root
from benchmarks.images import SIDE, WORKERS, image_files
from benchmarks.machine import circumstances, versions_of

cv2.setNumThreads(1)  # the pool has the threads

IMAGES = {"500 x 375": (1, 400), "1000 x 750": (2, 100), "2000 x 1500": (4, 25)}
"""Factor by which the images of P3 are enlarged, and number of images."""

SIZE = (SIDE, SIDE)
Decode = Callable[[bytes, int], Any]


def by_opencv(pixels: Any) -> Any:
    """Resize without antialiasing."""
    return cv2.resize(pixels, SIZE, interpolation=cv2.INTER_LINEAR)


def by_pillow(pixels: Any) -> Any:
    """Resize with antialiasing."""
    return np.asarray(Image.fromarray(pixels).resize(SIZE, Image.Resampling.BILINEAR))


def part(data: bytes, seed: int) -> Any:
    """Decode an image, and return its random part."""
    pixels = simplejpeg.decode_jpeg(data)
    top, left, height, width = part_of(np.random.default_rng(seed), *pixels.shape[:2])
    return pixels[top : top + height, left : left + width]


WAYS: dict[str, dict[str, Decode]] = {
    "whole": {
        "decode_image": lambda data, seed: decode_image(data, size=SIZE),
        "decode, resize with OpenCV": lambda data, seed: by_opencv(simplejpeg.decode_jpeg(data)),
        "decode, resize with Pillow": lambda data, seed: by_pillow(simplejpeg.decode_jpeg(data)),
    },
    "random part": {
        "decode_random_crop": lambda data, seed: decode_random_crop(data, np.random.default_rng(seed), size=SIZE),
        "decode, crop, resize with OpenCV": lambda data, seed: by_opencv(part(data, seed)),
        "decode, crop, resize with Pillow": lambda data, seed: by_pillow(part(data, seed)),
    },
}


def decoded_dataset(folder: Path, what: str) -> asd.Dataset[Any]:
    """Return the decoded images of a folder."""
    files = asd.Dataset.from_files(str(folder / "*.jpg"))
    if what == "whole":
        return files.map(lambda row: decode_image(row["data"], size=SIZE), concurrency=WORKERS)

    def decode(row: dict[str, Any], rng: np.random.Generator) -> Any:
        return decode_random_crop(row["data"], rng, size=SIZE)

    return files.map(decode, concurrency=WORKERS)


def in_pool(decode: Decode, images: list[bytes]) -> float:
    """Return the images per second that a pool decodes."""
    with ThreadPoolExecutor(WORKERS) as pool:
        began = perf_counter()
        count = sum(1 for _ in pool.map(decode, images, range(len(images))))
        return count / (perf_counter() - began)


def through(dataset: asd.Dataset[Any], images: int) -> float:
    """Return the images per second of a dataset."""
    began = perf_counter()
    with dataset.open() as loader:
        count = sum(1 for _ in loader)
    if count != images:
        raise RuntimeError(f"{count} of {images} images were decoded")
    return count / (perf_counter() - began)


def written(root: Path, name: str) -> Path:
    """Return the folder of the images of one size; write them if need be."""
    factor, count = IMAGES[name]
    folder = root / f"image-decoding-{factor}-v1"
    complete = folder / "complete"
    if not complete.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for path in image_files(root, count).paths:
            data = path.read_bytes()
            if factor > 1:
                pixels = cv2.resize(
                    simplejpeg.decode_jpeg(data), None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC
                )
                data = simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=90)
            (folder / path.name).write_bytes(data)
        complete.touch()
    return folder


def main() -> None:
    """Print a table, and write the figures where ``--out`` says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=default_root())
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    runs: dict[str, dict[str, list[float]]] = {}
    for name in IMAGES:
        folder = written(options.data, name)
        images = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
        for what, ways in WAYS.items():
            passes: dict[str, list[float]] = {way: [] for way in (*ways, "Dataset")}
            for _ in range(options.repetitions):
                for way, decode in ways.items():
                    passes[way].append(in_pool(decode, images))
                passes["Dataset"].append(through(decoded_dataset(folder, what), len(images)))
            runs[f"{name}, {what}"] = passes
            print(f"\n{name}, {what}")
            for way, rates in passes.items():
                print(f"  {way:36}{median(rates):8,.0f} images/s   {min(rates):8,.0f} to {max(rates):8,.0f}")
    if options.out is not None:
        result = {
            "scenario": "image_decoding",
            "title": f"JPEG images to {SIDE} x {SIDE} pixels in a pool of {WORKERS} threads, images per second",
            "circumstances": circumstances(),
            "parameters": {"repetitions": options.repetitions},
            "versions": versions_of(("numpy", "simplejpeg", "opencv-python-headless", "pillow")),
            "median": {
                cell: {way: round(median(rates), 1) for way, rates in each.items()} for cell, each in runs.items()
            },
            "runs": {
                cell: {way: [round(rate, 1) for rate in rates] for way, rates in each.items()}
                for cell, each in runs.items()
            },
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
