"""Write scikit-learn's digits as PNG images in ``tf.train.Example`` records, in gzip TFRecord shards."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from places import Place
from sklearn.datasets import load_digits

import aiostream_data as asd

TRAIN_SHARDS, TEST_SHARDS = 8, 2
TEST_EVERY = 4
"""Every fourth image is for testing."""


@dataclass(frozen=True)
class DigitShards:
    """What was written."""

    train_rows: int
    test_rows: int
    pixels: int
    classes: int


def write_digits(place: Place) -> DigitShards:
    """Write all digits under ``train/`` and ``test/`` of ``place``, and say what was written."""
    digits: Any = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    records = [encode(image, int(label)) for image, label in zip(images, digits.target, strict=True)]
    test = records[::TEST_EVERY]
    train = [record for number, record in enumerate(records) if number % TEST_EVERY]
    write_shards(place, "train", train, TRAIN_SHARDS)
    write_shards(place, "test", test, TEST_SHARDS)
    print(f"wrote {len(train)} images to {TRAIN_SHARDS} training shards and {len(test)} to {TEST_SHARDS} test shards")
    return DigitShards(len(train), len(test), images[0].size, len(digits.target_names))


def encode(image: NDArray[np.uint8], label: int) -> bytes:
    """Return one serialized Example: the image as PNG, and its label."""
    png = io.BytesIO()
    Image.fromarray(image).save(png, "PNG")
    return asd.encode_example({"image": png.getvalue(), "label": label})


def write_shards(place: Place, part: str, records: list[bytes], shards: int) -> None:
    """Deal the records out to ``shards`` files."""
    for shard in range(shards):
        url = f"{place.url}/{part}/{shard:03d}-of-{shards:03d}.tfrecord.gz"
        with asd.TFRecordWriter(url, "gzip", place.storage_options) as writer:
            for record in records[shard::shards]:
                writer.write(record)
