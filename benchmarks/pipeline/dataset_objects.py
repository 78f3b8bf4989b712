"""Objects of the benchmark of datasets: their contents, their files, and the checksums of their bytes.

Each size has three layouts: fixed-length records, TFRecord, and TFRecord in gzip. Every record starts with the number
of its object and its own number, so that a reader that returns the wrong bytes has the wrong checksum. Several names
are links to one file: a pass then reads more bytes than the folder needs memory.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from aiostream_data.formats.tfrecord_writer import frame
from benchmarks.pipeline.cloud_work import BUCKET, STAMP_NBYTES, Part

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"4KiB": 4 * KIB, "64KiB": 64 * KIB, "256KiB": 256 * KIB, "1MiB": MIB, "8MiB": 8 * MIB, "64MiB": 64 * MIB}
"""Bytes of an object, by the name of its size."""

FIXED, TFRECORD, GZIP = "fixed", "tfrecord", "gzip"
LAYOUTS = (FIXED, TFRECORD, GZIP)

RECORD, PART, CONTENT = "record", "part", "content"
"""What a contender returns: single records, the bytes of its requests, or decompressed objects."""

RECORD_NBYTES = 64 * KIB
"""Bytes of a record in a file, with its frame. A smaller object is one record."""

FRAME_NBYTES = 16
"""Bytes that the TFRecord format adds to a record."""

FILES_NBYTES = 128 * MIB
"""Bytes of all files of one size and layout, and ..."""

MOST_FILES, LEAST_FILES = 8_192, 2
"""... the number of the files."""

PASS_NBYTES = 4_096 * MIB
"""Maximum bytes of one pass, and ..."""

MOST_OBJECTS = 16_384
"""... the maximum number of its objects."""

MASK = bytes(value & 0x0F for value in range(256))
"""Reduces noise to half its entropy. Gzip then halves its size."""


@dataclass(frozen=True)
class Objects:
    """All objects of one size and layout.

    Attributes:
        size: A name of :data:`SIZES`.
        layout: One of :data:`LAYOUTS`.
    """

    size: str
    layout: str

    @property
    def files(self) -> int:
        """Number of different files."""
        return max(LEAST_FILES, min(MOST_FILES, FILES_NBYTES // SIZES[self.size]))

    @property
    def names(self) -> int:
        """Number of objects. Object ``number`` has the content of file ``number % files``."""
        return max(LEAST_FILES, min(MOST_OBJECTS, PASS_NBYTES // SIZES[self.size]))

    @property
    def record_nbytes(self) -> int:
        """Bytes of a record without its frame. The last record of an object can be shorter."""
        most = RECORD_NBYTES if self.layout == FIXED else RECORD_NBYTES - FRAME_NBYTES
        return min(most, self.content_nbytes)

    @property
    def content_nbytes(self) -> int:
        """Bytes of all records of an object, without frames."""
        nbytes = SIZES[self.size]
        if self.layout == FIXED:
            return nbytes
        content = nbytes - -(-nbytes // RECORD_NBYTES) * FRAME_NBYTES
        return content if self.layout == TFRECORD else int(content * _gzip_factor())

    @property
    def folder(self) -> str:
        """Folder of the objects, below the bucket."""
        return f"{self.layout}-{self.size}"

    def key(self, number: int) -> str:
        """Return the key of an object, below the bucket."""
        return f"{self.folder}/{number:05}"

    def records(self, number: int) -> Iterator[bytes]:
        """Yield the records of an object."""
        file = number % self.files
        noise = _compressible_noise() if self.layout == GZIP else _noise()
        for record, start in enumerate(range(0, self.content_nbytes, self.record_nbytes)):
            stop = min(self.record_nbytes, self.content_nbytes - start)
            yield file.to_bytes(4, "little") + record.to_bytes(4, "little") + noise[STAMP_NBYTES:stop]

    def content(self, number: int) -> bytes:
        """Return the bytes of an object before compression."""
        records = self.records(number)
        return b"".join(records if self.layout == FIXED else map(frame, records))

    def write(self, root: Path) -> None:
        """Write every object below ``root/bench``."""
        folder = root / BUCKET / self.folder
        folder.mkdir(parents=True)
        for number in range(self.files):
            content = self.content(number)
            (folder / f"{number:05}").write_bytes(gzip.compress(content, 1) if self.layout == GZIP else content)
        for number in range(self.files, self.names):
            os.link(folder / f"{number % self.files:05}", folder / f"{number:05}")

    def delete(self, root: Path) -> None:
        """Delete every object."""
        shutil.rmtree(root / BUCKET / self.folder)

    def parts(self, root: Path, count: int, part_nbytes: int | None) -> list[Part]:
        """Return requests for the first ``count`` objects, each for at most ``part_nbytes`` bytes."""
        sizes = [(root / BUCKET / self.key(file)).stat().st_size for file in range(min(count, self.files))]
        found = []
        for number in range(count):
            total = sizes[number % self.files]
            step = part_nbytes or total
            found += [Part(self.key(number), start, min(step, total - start), total) for start in range(0, total, step)]
        return found

    def nbytes(self, root: Path, count: int) -> int:
        """Return the bytes of the first ``count`` objects, as the server sends them."""
        return sum(part.nbytes for part in self.parts(root, count, None))

    def write_index(self, root: Path, count: int, target: Path) -> None:
        """Write an index file of the first ``count`` objects, with their sizes, for a dataset on S3."""
        parts = self.parts(root, count, None)
        lines: list[dict[str, Any]] = [{"format": "aiostream-data-index", "version": 1, "shards": count}]
        lines += [{"url": f"s3://{BUCKET}/{part.key}", "nbytes": part.total} for part in parts]
        target.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@dataclass
class Tally:
    """Count, bytes and, on request, checksum of the values of a pass, in any order.

    Attributes:
        first_at: Time of the first value, by :func:`time.perf_counter`.
    """

    with_checksum: bool
    count: int = 0
    nbytes: int = 0
    checksum: int = 0
    first_at: float = field(default=0.0, compare=False)

    def add(self, value: Any) -> None:
        """Add one value: an object with the buffer protocol."""
        if self.count == 0:
            self.first_at = perf_counter()
        self.count += 1
        self.nbytes += memoryview(value).nbytes
        if self.with_checksum:
            self.checksum += zlib.crc32(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Add many values, each with one byte per item."""
        left = iter(values)
        for value in left if self.with_checksum else islice(left, 1):
            self.add(value)
        count = nbytes = 0
        for value in left:
            count += 1
            nbytes += len(value)
        self.count += count
        self.nbytes += nbytes


def expected(objects: Objects, unit: str, count: int, root: Path, part_nbytes: int | None, *, checksum: bool) -> Tally:
    """Return the tally of the first ``count`` objects.

    Args:
        unit: RECORD for single records, PART for the bytes of the requests, CONTENT for decompressed objects.
        part_nbytes: Maximum bytes of one request; None for whole objects.
    """
    files = range(min(count, objects.files))
    of_file = [_tally_of(_units(objects, unit, file, root, part_nbytes), checksum) for file in files]
    total = Tally(checksum)
    for number in range(count):
        one = of_file[number % objects.files]
        total.count += one.count
        total.nbytes += one.nbytes
        total.checksum += one.checksum
    return total


def _tally_of(values: Iterable[bytes], checksum: bool) -> Tally:
    found = Tally(checksum)
    found.add_all(values)
    return found


def _units(objects: Objects, unit: str, file: int, root: Path, part_nbytes: int | None) -> Iterator[bytes]:
    if unit == RECORD:
        yield from objects.records(file)
        return
    if unit == CONTENT:
        yield objects.content(file)
        return
    content = (root / BUCKET / objects.key(file)).read_bytes()
    step = part_nbytes or len(content)
    yield from (content[start : start + step] for start in range(0, len(content), step))


@cache
def _noise() -> bytes:
    return random.Random(5).randbytes(RECORD_NBYTES)


@cache
def _compressible_noise() -> bytes:
    return _noise().translate(MASK)


@cache
def _gzip_factor() -> float:
    """Return the bytes that gzip compresses to one byte."""
    sample = _compressible_noise()
    return len(sample) / len(gzip.compress(sample, 1))
