"""From shards behind HTTP on this machine, through threads that decode, to the device; and the DataLoader beside it.

Both read the same TFRecords from the same server, decode the same pictures by the same function, and feed the same
step. The DataLoader's worker processes are given a reader, as it has none: one GET for a shard, then its records.
"""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import aiostream_data as asd
from benchmarks.gpu.computes import Compute, Computes
from benchmarks.gpu.hardware import DEVICE, Hardware
from benchmarks.gpu.recorder import Recorder
from benchmarks.gpu.spread import spread

BATCH = 128
SHARDS = 16
PICTURES = 8_192
WORKERS = 12
STEP_MS = 10
REPEATS = 3
SIDE = 224


def run(hardware: Hardware, recorder: Recorder) -> None:
    """Serve the shards and let the contenders take turns."""
    pictures, batch = hardware.scaled(PICTURES, 64), hardware.scaled(BATCH, 8)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), pictures) as urls:
        passes: dict[str, tuple[str, Callable[[], Iterator[Any]]]] = {
            "ours": ("cupy", lambda: ours(urls, batch)),
            "torch DataLoader": ("torch", lambda: by_torch(hardware, urls, batch)),
        }
        computes = Computes(hardware)
        seconds: dict[str, list[float]] = {}
        errors: dict[str, str] = {}
        missing: dict[str, str] = {}
        for _ in range(hardware.scaled(REPEATS, 1)):
            for name, (framework, begin) in passes.items():
                if name in errors or name in missing or recorder.left_s < 0:
                    continue
                try:
                    seconds.setdefault(name, []).append(one_pass(computes.of(framework), begin(), pictures))
                except ImportError as error:
                    missing[name] = str(error)
                except Exception:  # noqa: BLE001 - the finding
                    errors[name] = traceback.format_exc(limit=-4)[-2000:]
                rates = {who: spread([pictures / each for each in took], 1) for who, took in seconds.items() if took}
                recorder.put(pictures=pictures, pictures_per_s=rates, errors=errors, missing=missing)


def one_pass(compute: Compute, batches: Iterator[Any], pictures: int) -> float:
    """Return seconds for all pictures, from the asking for the first batch to the end of the last step.

    Raises:
        ValueError: There were more or fewer pictures.
    """
    count, seen = compute.count_for(STEP_MS), 0
    started = time.perf_counter()
    for batch in batches:
        compute.touch(batch)
        compute.work(count)
        seen += len(batch)
    compute.wait()
    took = time.perf_counter() - started
    if seen != pictures:
        raise ValueError(f"{seen} pictures came instead of {pictures}")
    return took


@contextmanager
def serving(folder: Path, pictures: int) -> Iterator[list[str]]:
    """Write the shards and serve them from a process of its own; gives their URLs."""
    write_shards(folder, pictures)
    command = [sys.executable, "-m", "benchmarks.gpu.shard_server", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            endpoint = server.stdout.readline().strip()
            yield [f"{endpoint}/{path.name}" for path in sorted(folder.iterdir())]
        finally:
            server.stdin.close()  # which ends it


def write_shards(folder: Path, pictures: int) -> None:
    """Write TFRecord files of Examples, each with a JPEG and its number."""
    jpegs = [jpeg(number) for number in range(min(pictures, 64))]
    for shard in range(SHARDS):
        with asd.TFRecordWriter(folder / f"{shard:02}.tfrecord") as writer:
            for number in range(shard, pictures, SHARDS):
                features = {"image": jpegs[number % len(jpegs)], "label": np.array([number])}
                writer.write(asd.encode_example(features))


def jpeg(number: int) -> bytes:
    """Return a picture with some detail, of about 20 KB."""
    image = importlib.import_module("PIL.Image")
    coarse = np.random.default_rng(number).integers(0, 256, (SIDE // 4, SIDE // 4, 3), np.uint8)
    file = io.BytesIO()
    image.fromarray(coarse.repeat(4, 0).repeat(4, 1)).save(file, "JPEG", quality=85)
    return file.getvalue()


def decode(content: bytes) -> NDArray[np.uint8]:
    """Return a JPEG's pixels, shape (224, 224, 3), uint8."""
    image = importlib.import_module("PIL.Image")
    return np.asarray(image.open(io.BytesIO(content)).convert("RGB"))


def ours(urls: list[str], batch: int) -> Iterator[Any]:
    """Yield batches of images on the device."""
    records = asd.Dataset.from_tfrecord(urls, cycle_length=SHARDS)
    examples = records.parse_example({"image": asd.FixedLen((), bytes)})
    images = examples.map(_decode_example, concurrency=WORKERS).batch(batch)
    with images.to_device(DEVICE).open() as loader:
        yield from loader


def _decode_example(example: dict[str, Any]) -> NDArray[np.uint8]:
    return decode(example["image"])


def by_torch(hardware: Hardware, urls: list[str], batch: int) -> Iterator[Any]:
    """Yield batches of images on the device."""
    torch, data = importlib.import_module("torch"), importlib.import_module("torch.utils.data")
    device = DEVICE if hardware.real else "cpu"

    class Pictures(data.IterableDataset):  # type: ignore[name-defined, misc]
        def __iter__(self) -> Iterator[Any]:
            worker = data.get_worker_info()
            for url in urls[worker.id :: worker.num_workers]:
                yield from (torch.from_numpy(decode(picture).copy()) for picture in pictures_of(url))

    workers = hardware.scaled(WORKERS, 2)
    loader = data.DataLoader(Pictures(), batch_size=batch, num_workers=workers, pin_memory=hardware.real)
    for images in loader:
        yield images.to(device, non_blocking=True)


def pictures_of(url: str) -> Iterator[bytes]:
    """Yield the JPEGs of a shard, fetched by one GET."""
    with closing(urllib.request.urlopen(url)) as answer:
        content = answer.read()
    at = 0
    while at < len(content):
        nbytes = int.from_bytes(content[at : at + 8], "little")
        example = asd.parse_example(content[at + 12 : at + 12 + nbytes], {"image": asd.FixedLen((), bytes)})
        yield example["image"]
        at += 16 + nbytes
