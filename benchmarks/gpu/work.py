"""Batches for everybody: rows of a pool in memory, in order, over and over; and who brings them to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.computes import Compute
from benchmarks.gpu.hardware import Hardware

IMAGE = (224, 224, 3)
BATCHES = 4
"""How many different batches the pool has."""


@dataclass(frozen=True)
class Work:
    """What every contender does.

    Attributes:
        pool: All rows, shape (:data:`BATCHES` x rows, ...).
        rows: Rows of a batch.
        compute: Who consumes the batches.
    """

    hardware: Hardware
    pool: NDArray[Any]
    rows: int
    compute: Compute

    @property
    def nbytes(self) -> int:
        """Bytes of a batch."""
        return self.pool.nbytes // BATCHES

    def batch(self, number: int) -> NDArray[Any]:
        """Return one batch, not copied."""
        first = number % BATCHES * self.rows
        return self.pool[first : first + self.rows]

    def batches(self) -> Iterator[NDArray[Any]]:
        """Yield batches without end, not copied."""
        number = 0
        while True:
            yield self.batch(number)
            number += 1


Opened = AbstractContextManager[Iterator[Any]]


@dataclass(frozen=True)
class Contender:
    """One way to bring batches to the device.

    Attributes:
        name: Row of the table.
        framework: In which its batches are consumed, and with whose headspace it is compared.
        open: Gives batches on the device without end; each is valid until the next is asked for.
        how: Its configuration in a few words.
        expected: Gives what must arrive for a batch; None: the batch as it is.
    """

    name: str
    framework: str
    open: Callable[[Work], Opened]
    how: str
    expected: Callable[[NDArray[Any]], NDArray[Any]] | None = None


def image_pool(rows: int, dtype: str = "uint8", image: tuple[int, ...] = IMAGE) -> NDArray[Any]:
    """Return the rows of :data:`BATCHES` batches, all different."""
    pool = np.empty((BATCHES * rows, *image), dtype)
    pattern = np.random.default_rng(0).integers(0, 256, image, np.uint8)
    for number, row in enumerate(pool):
        np.copyto(row, pattern, casting="unsafe")
        row.reshape(-1)[:8] = np.frombuffer(np.int64(number).tobytes(), np.uint8)
    return pool
