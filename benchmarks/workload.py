"""What is to be read: the size of a scenario, and what its consumer must have counted at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BATCH_SIZE = 256
SHUFFLE_BUFFER = 10_000
CYCLE_LENGTH = 4
"""Files read at once, where records of several files are interleaved."""

FEATURES = 32
LABELS = 1_000
_VALUES = 4_096
_SCALE = np.float32(64)


class Tally(NamedTuple):
    """What a consumer saw: rows, and sums that are exact whatever order they came in."""

    rows: int
    checksum: int


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One pass of a scenario.

    Attributes:
        rows: Elements in all.
        paths: The files to read, in order; empty where nothing is read.
        rows_per_file: Elements of each file.
    """

    rows: int
    paths: tuple[Path, ...] = ()
    rows_per_file: int = 0

    def part(self, rows: int) -> Workload:
        """Return the first rows of this workload; whole files of them, and one at least, where there are files."""
        if not self.paths:
            return Workload(rows=min(rows, self.rows))
        paths = self.paths[: max(1, rows // self.rows_per_file)]
        return Workload(rows=len(paths) * self.rows_per_file, paths=paths, rows_per_file=self.rows_per_file)


def example_columns(first: int, count: int) -> dict[str, NDArray[Any]]:
    """Return rows ``first`` to ``first + count`` of the Examples that the files hold.

    Features are multiples of 1/64 below 64, so that sums of them are exact in floating point.
    """
    ids = np.arange(first, first + count, dtype=np.int64)
    features = (ids[:, None] * 31 + np.arange(FEATURES) * 17) % _VALUES / _SCALE
    return {"features": features.astype(np.float32), "label": ids % LABELS, "id": ids}


def captions(ids: Iterable[int]) -> list[bytes]:
    """Return the captions of Examples: 40 bytes each."""
    return [b"caption of the example %017d" % number for number in ids]


def tally_examples(batches: Iterable[Any]) -> Tally:
    """Count the rows, and sum ids, labels and the first feature: what is timed."""
    count = checksum = 0
    for batch in batches:
        ids = batch["id"]
        count += len(ids)
        checksum += int(ids.sum()) + int(batch["label"].sum()) + int(batch["features"][:, 0].sum() * _SCALE)
    return Tally(count, checksum)


def tally_examples_fully(batches: Iterable[Any]) -> Tally:
    """Count the rows, and sum every value weighted by the id beside it: what is checked before timing."""
    count = checksum = 0
    for batch in batches:
        ids = batch["id"].astype(np.int64)
        values = batch["features"].sum(axis=1, dtype=np.float64) * _SCALE + batch["label"]
        count += len(ids)
        checksum += int(values.astype(np.int64) @ (ids % 1_009))
    return Tally(count, checksum)


def tally_captions_fully(batches: Iterable[Any]) -> Tally:
    """Count the rows, and compare every caption with the id beside it: what is checked before timing."""
    count = checksum = 0
    for batch in batches:
        ids = batch["id"].tolist()
        count += len(ids)
        checksum += sum(ids) * (list(batch["caption"]) == captions(ids))
    return Tally(count, checksum)


def tally_numbers(batches: Iterable[Any]) -> Tally:
    """Count and sum the numbers."""
    count = checksum = 0
    for batch in batches:
        count += len(batch)
        checksum += int(batch.sum())
    return Tally(count, checksum)


def batches_of_numbers(rows: int) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers from 0 on, in batches."""
    for first in range(0, rows, BATCH_SIZE):
        yield np.arange(first, min(first + BATCH_SIZE, rows), dtype=np.int64)
