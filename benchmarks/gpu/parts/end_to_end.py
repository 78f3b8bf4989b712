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
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

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


Begin = Callable[[], Iterator[Any]]


@dataclass
class Entrant:
    """One way from the shards to the device, and what was measured of it.

    Attributes:
        begin: Begins a pass over all pictures.
        first_batch_s: Seconds until the first batch of each pass was there, processes started and all.
        pictures_per_s: From then on.
        longest_s: Seconds of the longest pass, ending included.
        missing, error: Why there is nothing more.
    """

    framework: str
    begin: Begin
    first_batch_s: list[float] = field(default_factory=list)
    pictures_per_s: list[float] = field(default_factory=list)
    longest_s: float = 0.0
    missing: str = ""
    error: str = ""

    def run(self, computes: Computes, pictures: int, step_ms: float) -> None:
        """Make one more pass, unless one has failed."""
        if self.missing or self.error:
            return
        started = time.perf_counter()
        try:
            first_s, rate = one_pass(computes.of(self.framework), self.begin(), pictures, step_ms)
        except ImportError as error:
            self.missing = str(error)
        except Exception:  # noqa: BLE001 - the finding
            self.error = traceback.format_exc(limit=-4)[-2000:]
        else:
            self.first_batch_s.append(first_s)
            self.pictures_per_s.append(rate)
            self.longest_s = max(self.longest_s, time.perf_counter() - started)


def run(hardware: Hardware, recorder: Recorder) -> None:
    """Serve the shards and let the contenders take turns, while there is time for one more pass."""
    pictures, batch = hardware.scaled(PICTURES, 64), hardware.scaled(BATCH, 8)
    computes, step_ms = Computes(hardware), hardware.scaled(float(STEP_MS), 0.1)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), pictures) as urls:
        entrants = {
            "ours, threads": Entrant("cupy", lambda: ours(urls, batch)),
            "ours, worker processes": Entrant("cupy", lambda: ours(urls, batch, executor="process")),
            "ours, in_subprocess": Entrant("cupy", lambda: ours(urls, batch, apart=True)),
            "torch DataLoader": Entrant("torch", lambda: by_torch(hardware, urls, batch)),
        }
        for _ in range(hardware.scaled(REPEATS, 1)):
            for entrant in entrants.values():
                if recorder.left_s > entrant.longest_s:
                    entrant.run(computes, pictures, step_ms)
                    recorder.put(pictures=pictures, **found(entrants))


def found(entrants: dict[str, Entrant]) -> dict[str, Any]:
    """Return what was measured so far, as JSON-safe data."""
    ran = {name: entrant for name, entrant in entrants.items() if entrant.pictures_per_s}
    return {
        "pictures_per_s": {name: spread(entrant.pictures_per_s, 1) for name, entrant in ran.items()},
        "first_batch_s": {name: spread(entrant.first_batch_s, 3) for name, entrant in ran.items()},
        "errors": {name: entrant.error for name, entrant in entrants.items() if entrant.error},
        "missing": {name: entrant.missing for name, entrant in entrants.items() if entrant.missing},
    }


def one_pass(compute: Compute, batches: Iterator[Any], pictures: int, step_ms: float) -> tuple[float, float]:
    """Return seconds until the first batch was there, and pictures per second from then to the end of the last step.

    Raises:
        ValueError: There were more or fewer pictures.
    """
    count, started = compute.count_for(step_ms), time.perf_counter()
    first = next(batches)
    there = time.perf_counter()
    seen = 0
    for batch in chain([first], batches):
        compute.touch(batch)
        compute.work(count)
        seen += len(batch)
    compute.wait()
    took = time.perf_counter() - there
    if seen != pictures:
        raise ValueError(f"{seen} pictures came instead of {pictures}")
    return there - started, (pictures - len(first)) / took


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


def ours(
    urls: list[str], batch: int, apart: bool = False, executor: Literal["thread", "process"] = "thread"
) -> Iterator[Any]:
    """Yield batches of images on the device, made in this process or ``apart`` in one of their own.

    Args:
        executor: Where pictures are decoded: on threads, or in worker processes, as the DataLoader does.
    """
    records = asd.Dataset.from_tfrecord(urls, cycle_length=SHARDS)
    examples = records.parse_example({"image": asd.FixedLen((), bytes)})
    images = examples.map(_decode_example, executor=executor, concurrency=WORKERS).batch(batch)
    made = images.in_subprocess() if apart else images
    with made.to_device(DEVICE).open() as loader:
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
