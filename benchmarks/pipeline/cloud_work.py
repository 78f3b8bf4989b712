"""What the clients of an object store have to read: the objects, the requests of each kind, and the cells of the table.

Every 256 KiB of an object are the same noise with the object's number and the place's on it, so that bytes of a wrong
object or place are seen, and nobody has to keep a second copy of a gigabyte.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

PIECE_NBYTES = 256 << 10
STAMP_NBYTES = 8
MEMORY = "BENCH_MEMORY"
"""Environment variable with the path of a file in memory, whose pages are the buffers of clients that reuse theirs."""

BUCKET = "bench"
"""Of paths such as ``/bench/large/00003``."""


class Part(NamedTuple):
    """One request: ``nbytes`` of an object from ``start`` on.

    Attributes:
        key: ``kind/number``, below the bucket.
        total: Bytes of the whole object.
    """

    key: str
    start: int
    nbytes: int
    total: int

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the object."""
        return self.nbytes == self.total


@dataclass(frozen=True)
class Kind:
    """Objects of one size, and how they are read.

    Attributes:
        objects: How many there are; they are read over and over.
        nbytes: Of an object.
        part_nbytes: Of a request.
    """

    folder: str
    objects: int
    nbytes: int
    part_nbytes: int

    def parts(self) -> Iterator[Part]:
        """Yield requests without end: every part of every object, and again."""
        for turn in count():
            for number in range(self.objects):
                for start in range(0, self.nbytes, self.part_nbytes):
                    yield Part(
                        f"{self.folder}/{(number + turn) % self.objects:05}", start, self.part_nbytes, self.nbytes
                    )


KINDS = {
    "256 KiB objects": Kind("small", 1_024, 256 << 10, 256 << 10),
    "8 MiB ranges": Kind("large", 8, 64 << 20, 8 << 20),
    "64 MiB objects": Kind("large", 8, 64 << 20, 64 << 20),
}


@dataclass(frozen=True)
class Cell:
    """One column of one table.

    Attributes:
        kind: A name of :data:`KINDS`.
        tls: The server speaks TLS.
        latency_ms: From a request to the first byte of its answer.
        at_once: Requests on their way.
    """

    kind: str
    tls: bool
    latency_ms: int
    at_once: int

    @property
    def name(self) -> str:
        """As in ``8 MiB ranges/tls/20ms/c16``, which ``--cells`` takes the parts of."""
        return f"{self.kind}/{'tls' if self.tls else 'plain'}/{self.latency_ms}ms/c{self.at_once}"

    @property
    def part_nbytes(self) -> int:
        """Bytes of one request."""
        return KINDS[self.kind].part_nbytes

    def requests(self, number: int) -> list[Part]:
        """Return so many requests."""
        return list(islice(KINDS[self.kind].parts(), number))

    def data(self) -> dict[str, Any]:
        """Return it as JSON-safe data, for :class:`Cell` to be made of."""
        return asdict(self)


def all_cells(at_once: Sequence[int] = (1, 4, 16, 64)) -> list[Cell]:
    """Return every cell of the table, those that depend on each other least first."""
    return [
        Cell(kind, tls, latency_ms, number)
        for tls in (False, True)
        for latency_ms in (0, 20)
        for kind in KINDS
        for number in at_once
    ]


@dataclass(frozen=True)
class Place:
    """Where a client reads.

    Attributes:
        url: ``http://127.0.0.1:port`` or ``https://...``; objects are below it at ``/bench/<key>``.
        authority: File with the certificate to trust; "" without TLS.
    """

    url: str
    authority: str = ""


Check: TypeAlias = Callable[[Part, Any], None]
"""Given a part and the bytes that came for it; raises where they are not the right ones."""

Pass: TypeAlias = Callable[[Sequence[Part], "Check | None"], None]
"""Reads these parts, as many at once as the cell says; with a check, every body is held against it."""

Client: TypeAlias = AbstractContextManager[Pass]


class CannotError(Exception):
    """The client cannot do this cell; the message is the reason."""


@cache
def _noise() -> bytes:
    return random.Random(5).randbytes(PIECE_NBYTES)


def content(part: Part) -> bytes:
    """Return the bytes of a part, which must begin and end where a piece does."""
    object_number = int(part.key.rpartition("/")[2])
    first = part.start // PIECE_NBYTES
    return b"".join(
        object_number.to_bytes(4, "little") + piece.to_bytes(4, "little") + _noise()[STAMP_NBYTES:]
        for piece in range(first, first + part.nbytes // PIECE_NBYTES)
    )


def check_bytes(part: Part, body: Any) -> None:
    """Hold a body against what it must be.

    Raises:
        ValueError: It is something else.
    """
    if memoryview(body).nbytes != part.nbytes or bytes(body) != content(part):
        raise ValueError(f"{part} came with other bytes")


def write_objects(folder: Path) -> int:
    """Write every object below ``folder/bench``; return how many bytes they have."""
    written = 0
    for kind in {kind.folder: kind for kind in KINDS.values()}.values():
        (folder / BUCKET / kind.folder).mkdir(parents=True)
        for number in range(kind.objects):
            key = f"{kind.folder}/{number:05}"
            written += (folder / BUCKET / key).write_bytes(content(Part(key, 0, kind.nbytes, kind.nbytes)))
    return written
