"""Pipelines with a bottleneck that was put there on purpose, and what a report should say of each."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import plant_functions as functions
from PIL import Image

import aiostream_data as asd
from aiostream_data import Dataset, _native
from aiostream_data._engine.calls.pacing import Pace
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.storage.file_reads import FileReader
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.wire_model import WireModel

TINY_FILES = 10_000
IMAGES = 24
SHARDS = 32
FOREVER = 10**9


class Patch(Protocol):
    """The part of pytest's ``MonkeyPatch`` that plants need."""

    def setattr(self, target: Any, name: str, value: Any) -> None: ...


@dataclass(frozen=True)
class Soil:
    """What plants may use: files that are written once, and patches that end with the run."""

    folder: Path
    patch: Patch

    def files(self, name: str, write: Callable[[Path], None]) -> Path:
        """Return a folder with files, written when it is first asked for."""
        folder = self.folder / name
        if not folder.exists():
            folder.mkdir()
            write(folder)
        return folder


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A pipeline, and what limits it.

    Attributes:
        grow: Gives the data set, for as long as the block runs.
        stage, cause, detail: What the report has to name.
        what: The function or files of the stage, without the line.
        option: The option that it has to propose, or None for no option at all.
        value: Its value; None for any.
        mentions: A pattern that the advice has to contain.
        step_s: Seconds that the consumer takes for an element.
        options: Of ``open()``.
    """

    grow: Callable[[Soil], Any]
    stage: str
    cause: str
    detail: str = ""
    what: str = ""
    option: str | None = None
    value: Any = None
    mentions: str = ""
    step_s: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)


NUMBERS = Dataset.range(FOREVER)


@contextmanager
def grown(dataset: Dataset[Any]) -> Iterator[Dataset[Any]]:
    yield dataset


def alone(dataset: Dataset[Any]) -> Callable[[Soil], Any]:
    """Return a plant that needs nothing but itself."""
    return lambda soil: grown(dataset)


# -- files of this machine


def write_images(folder: Path) -> None:
    rng = np.random.default_rng(1)
    for number in range(IMAGES):
        pixels = np.kron(rng.integers(0, 255, (60, 80, 3), dtype=np.uint8), np.ones((12, 12, 1), np.uint8))
        Image.fromarray(pixels).save(folder / f"{number:03}.jpg", quality=90)


def write_tiny_files(folder: Path) -> None:
    for number in range(TINY_FILES):
        (folder / f"{number:05}.gz").write_bytes(gzip.compress(b"x" * 100))


def write_examples(folder: Path) -> None:
    example = {f"feature-{number}": np.arange(40.0) for number in range(60)}
    with asd.TFRecordWriter(folder / "examples.tfrecord") as writer:
        for number in range(2_000):
            writer.write(asd.encode_example(example | {"label": number}))


def write_gzip(folder: Path) -> None:
    digits = np.random.default_rng(1).integers(48, 58, 24 << 20, dtype=np.uint8)
    (folder / "digits.gz").write_bytes(gzip.compress(digits.tobytes(), 1))


def write_shards(folder: Path, records: int = 200) -> None:
    for number in range(16):
        (folder / f"{number:02}.tfrecord").write_bytes(frame(bytes(4_000)) * records)


def images(soil: Soil) -> Any:
    """Decode with more threads than there are cores, as AUTO chooses where functions wait at first."""
    soil.patch.setattr(Pace, "workers", lambda pace, cpus: 4 * cpus)
    folder = soil.files("images", write_images)
    return grown(Dataset.from_files(str(folder / "*.jpg")).repeat().map(functions.decode).batch(8))


def tiny_files(soil: Soil) -> Any:
    folder = soil.files("tiny", write_tiny_files)
    files = Dataset.from_files(str(folder / "*.gz"), compression="gzip")  # others of this size are read in groups
    return grown(files.repeat().batch(64))


def examples(soil: Soil) -> Any:
    pattern = str(soil.files("examples", write_examples) / "*.tfrecord")
    wanted = {"label": asd.FixedLen((), np.int64)}
    return grown(Dataset.from_tfrecord(pattern).parse_example(wanted).repeat().batch(1024))


def one_gzip_file(soil: Soil) -> Any:
    path = str(soil.files("gzip", write_gzip) / "digits.gz")
    return grown(Dataset.from_fixed_length(path, 1 << 16, compression="gzip").repeat().batch(4))


def slow_disk(soil: Soil) -> Any:
    read = FileReader.read

    def slow_read(reader: FileReader, request: Any) -> bool:
        time.sleep(0.03)
        read(reader, request)
        return False

    read_small = _native.read_small_files

    def slow_read_small(paths: list[bytes], *args: Any) -> Any:
        time.sleep(0.03 * len(paths))
        return read_small(paths, *args)

    soil.patch.setattr(FileReader, "read", slow_read)
    soil.patch.setattr(FileReader, "read_cached", lambda reader, request: 0)
    soil.patch.setattr(_native, "read_small_files", slow_read_small)
    folder = soil.files("shards", write_shards)
    return grown(Dataset.from_tfrecord(str(folder / "*.tfrecord")).repeat().map(len).batch(50))


# -- stores


@contextmanager
def far_shards(
    wire: WireModel, chain: Callable[[list[str], dict[str, Any]], Dataset[Any]], records: int, soil: Soil
) -> Iterator[Dataset[Any]]:
    """Serve shards, and lend what reads them."""
    with fault_server("http", where="process", wire=wire) as server:
        urls = [server.put(f"set/{number:02}.tfrecord", frame(bytes(4_000)) * records) for number in range(SHARDS)]
        yield chain(urls, server.storage_options)


def shards_in_turn(urls: list[str], options: dict[str, Any]) -> Dataset[Any]:
    return Dataset.from_tfrecord(urls, storage_options=options).repeat().batch(8)


def shards_together(urls: list[str], options: dict[str, Any]) -> Dataset[Any]:
    return Dataset.from_tfrecord(urls, storage_options=options, cycle_length=8).repeat().batch(8)


def interleaved(urls: list[str], options: dict[str, Any]) -> Dataset[Any]:
    reading = partial(Dataset.from_tfrecord, storage_options=options)
    return Dataset.from_tensor_slices(urls).repeat().interleave(reading, cycle_length=1).batch(8)


FAR = WireModel(first_byte_s=0.06)
FARTHER = WireModel(first_byte_s=0.25)
"""So far that reading groups of small shards ahead does not hide the distance."""

NARROW = WireModel(bytes_per_s=4e6)


def ragged_rows() -> Iterator[Any]:
    for length in np.random.default_rng(1).integers(100_000, 400_000, 16):
        yield np.zeros(int(length), np.float32)


PLANTS: dict[str, Plant] = {
    "a slow training loop": Plant(
        grow=alone(NUMBERS.map(abs).batch(100)), stage="consumer", cause="consumer", step_s=0.005
    ),
    "pure Python on threads": Plant(
        grow=alone(NUMBERS.map(functions.spin).batch(8)),
        stage="map",
        what="spin",
        cause="gil",
        option="executor",
        value="process",
    ),
    "pure Python in processes": Plant(
        grow=alone(NUMBERS.map(functions.spin, executor="process").batch(8)), stage="map", what="spin", cause="cpu"
    ),
    "hashing, one call at a time": Plant(
        grow=alone(NUMBERS.map(functions.digest, concurrency=1).batch(2)),
        stage="map",
        what="digest",
        cause="cpu",
        option="concurrency",
        value=asd.AUTO,
    ),
    "a function that waits, one call at a time": Plant(
        grow=alone(NUMBERS.map(functions.wait, concurrency=1).batch(2)),
        stage="map",
        what="wait",
        cause="waiting",
        option="concurrency",
    ),
    "a function that waits, as many calls at once as threads allow": Plant(
        grow=alone(NUMBERS.map(functions.wait, concurrency=128).batch(20)),
        stage="map",
        what="wait",
        cause="waiting",
        mentions="coroutine function",
    ),
    "a coroutine function that waits, few at a time": Plant(
        grow=alone(NUMBERS.map(functions.wait_async, concurrency=4).batch(2)),
        stage="map",
        what="wait_async",
        cause="waiting",
        option="concurrency",
    ),
    "JPEGs and more workers than cores": Plant(grow=images, stage="map", what="decode", cause="cpu", detail="decode"),
    "a coroutine function that blocks the event loop": Plant(
        grow=alone(NUMBERS.map(functions.block).batch(4)),
        stage="map",
        what="block",
        cause="loop",
        mentions=r"\(def\).*async client",
    ),
    "a coroutine function that blocks in a filter, before one that waits": Plant(
        grow=alone(NUMBERS.filter(functions.block_after_an_await).map(functions.wait_async).batch(4)),
        stage="filter",
        what="block_after_an_await",
        cause="loop",
        mentions=r"\(def\).*async client",
    ),
    "a coroutine function that computes": Plant(
        grow=alone(NUMBERS.map(functions.spin_async).batch(4)),
        stage="map",
        what="spin_async",
        cause="loop",
        mentions=r"\(def\)",
    ),
    "an async generator that blocks the event loop": Plant(
        grow=alone(Dataset.from_generator(functions.blocking_rows_async).batch(4)),
        stage="from_generator",
        what="blocking_rows_async",
        cause="loop",
        mentions=r"map\(\)",
    ),
    "a generator that waits": Plant(
        grow=alone(Dataset.from_generator(functions.slow_rows).batch(4)),
        stage="from_generator",
        what="slow_rows",
        cause="waiting",
        mentions=r"map\(\)",
    ),
    "an async generator that waits": Plant(
        grow=alone(Dataset.from_generator(functions.slow_rows_async).batch(4)),
        stage="from_generator",
        what="slow_rows_async",
        cause="waiting",
        mentions=r"map\(\)",
    ),
    "ten thousand tiny compressed files": Plant(
        grow=tiny_files, stage="read_whole_file", cause="files", mentions="TFRecord"
    ),
    "a store far away": Plant(
        grow=partial(far_shards, FAR, shards_in_turn, 25),
        stage="read_tfrecord",
        cause="network",
        detail="latency",
        option="cycle_length",
    ),
    "a narrow network": Plant(
        grow=partial(far_shards, NARROW, shards_in_turn, 250),
        stage="read_tfrecord",
        cause="network",
        detail="bandwidth",
        option="cycle_length",
    ),
    "a slow disk": Plant(grow=slow_disk, stage="read_tfrecord", cause="disk", option="cycle_length"),
    "one slow data set of zip": Plant(
        grow=alone(Dataset.zip((NUMBERS.map(abs), NUMBERS.map(functions.wait, concurrency=1))).batch(2)),
        stage="map",
        what="wait",
        cause="waiting",
        option="concurrency",
    ),
    "one slow data set of sample_from": Plant(
        grow=alone(
            Dataset.sample_from(
                {"quick": NUMBERS.map(abs), "slow": Dataset.from_generator(functions.slow_rows)},
                {"quick": 0.5, "slow": 0.5},
            ).batch(2)
        ),
        stage="from_generator",
        what="slow_rows",
        cause="waiting",
    ),
    "interleave, one data set at a time": Plant(
        grow=partial(far_shards, FARTHER, interleaved, 25),
        stage="interleave/read_tfrecord",
        cause="network",
        detail="latency",
        option="cycle_length",
    ),
    "Examples with many features": Plant(
        grow=examples, stage="read_tfrecord", cause="cpu", detail="parse", mentions="features"
    ),
    "one large gzip file": Plant(
        grow=one_gzip_file,
        stage="read_fixed_length",
        cause="cpu",
        detail="decompress",
        mentions="split the file|cheaper compression",
    ),
    "padding of large rows": Plant(
        grow=alone(Dataset.from_generator(ragged_rows).cache().repeat().padded_batch(16)),
        stage="padded_batch",
        cause="cpu",
        detail="padded_batch",
    ),
    "a memory limit in the way": Plant(
        grow=partial(far_shards, FAR, shards_together, 500),
        stage="read_tfrecord",
        cause="memory",
        option="memory_limit",
        options={"memory_limit": "3MB"},
    ),
    "a filter that drops nearly all rows": Plant(
        grow=alone(NUMBERS.map(functions.spin, executor="process").filter(functions.is_one_of_hundred).batch(1)),
        stage="map",
        what="spin",
        cause="cpu",
        mentions="filter before it",
    ),
    "pure Python in in_subprocess()": Plant(
        grow=alone(NUMBERS.map(functions.spin).batch(8).in_subprocess()),
        stage="in_subprocess/map",
        what="spin",
        cause="gil",
        option="executor",
        value="process",
    ),
}
