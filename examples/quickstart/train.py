"""Train a small model on handwritten digits, streamed as TFRecord shards from an object store.

python examples/quickstart/train.py --store s3      (or gcs, or local)
"""

from __future__ import annotations

import argparse
import io
import sys
from typing import Any

import numpy as np
from leftovers import no_process_left, no_thread_left
from make_data import DigitShards, write_digits
from model import Model
from numpy.typing import NDArray
from PIL import Image
from places import STORES, Place, open_place
from progress import Progress

import aiostream_data as asd

EPOCHS, BATCH, SEED, WANTED_ACCURACY = 12, 64, 7, 0.9
FEATURES = {"image": asd.FixedLen((), bytes), "label": asd.FixedLen((), np.int64)}
Batch = tuple[NDArray[np.float32], NDArray[np.int64]]


def decode(record: dict[str, Any]) -> tuple[NDArray[np.float32], int]:
    """Return pixels between 0 and 1, and the label."""
    pixels = np.asarray(Image.open(io.BytesIO(record["image"])), np.float32)
    return pixels.ravel() / np.float32(255), int(record["label"])


def decode_and_augment(record: dict[str, Any], rng: np.random.Generator) -> tuple[NDArray[np.float32], int]:
    """Decode, and add noise: the same for a record in an epoch, whichever thread runs this."""
    pixels, label = decode(record)
    return pixels + rng.normal(0, 0.05, pixels.shape).astype(np.float32), label


def training_data(place: Place) -> asd.Dataset[Batch]:
    files = asd.Dataset.from_tfrecord(
        f"{place.url}/train/*", cycle_length=4, shuffle_shards=True, seed=SEED, storage_options=place.storage_options
    )
    examples = files.parse_example(FEATURES).shuffle(1000, seed=SEED)
    return examples.map(decode_and_augment, seed=SEED).batch(BATCH, drop_remainder=True).repeat(EPOCHS).prefetch(4)


def test_data(place: Place) -> asd.Dataset[Batch]:
    files = asd.Dataset.from_tfrecord(f"{place.url}/test/*", storage_options=place.storage_options)
    return files.parse_example(FEATURES).map(decode).batch(BATCH)


def train(place: Place, shards: DigitShards) -> float:
    """Train, say how it goes and where the time went, and return the accuracy on the test set."""
    model = Model(shards.pixels, shards.classes, seed=SEED)
    with training_data(place).open() as loader, Progress(loader, shards.train_rows // BATCH) as progress:
        for images, labels in loader:
            progress.step(model.learn(images, labels), len(images))
    print(f"\nwhere the time went:\n{loader.report()}\n")
    hits = [model.predict(images) == labels for images, labels in test_data(place)]
    return float(np.concatenate(hits).mean())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=STORES, default="s3", help="where the shards lie (default: %(default)s)")
    parser.add_argument("--endpoint-url", help="use this S3 server instead of starting one")
    arguments = parser.parse_args()
    with no_process_left(), open_place(arguments.store, arguments.endpoint_url) as place:
        shards = write_digits(place)
        with no_thread_left():
            accuracy = train(place, shards)
    print(f"test accuracy {accuracy:.3f} (wanted: {WANTED_ACCURACY}); no thread and no process is left running")
    return 0 if accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
