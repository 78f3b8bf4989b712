"""The ceiling of P1: the native kernels in a bare loop on one thread, with nothing around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import aiostream_data as asd
from aiostream_data._native import frame_tfrecords
from aiostream_data.formats.example import ExampleParser
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import records_chunk
from aiostream_data.rows.row_ids import RowIds
from benchmarks.workload import FEATURES, Workload

_ROWS = 8_192
_MAX_RECORD_NBYTES = 1 << 30


def batches(workload: Workload, variant: str | None) -> Iterator[Any]:
    """Yield dicts of arrays, 8,192 rows at a time and in file order."""
    parser = ExampleParser(
        {
            "features": asd.FixedLen((FEATURES,), np.float32),
            "label": asd.FixedLen((), np.int64),
            "id": asd.FixedLen((), np.int64),
        }
    )
    for path in workload.paths:
        data = np.fromfile(path, np.uint8)
        starts, lengths, consumed, problem = frame_tfrecords(data, 0, len(data), True, _MAX_RECORD_NBYTES)
        if problem is not None or consumed != len(data):
            raise ValueError(f"{path}: {problem}")
        for first in range(0, len(starts), _ROWS):
            column = VarColumn(data, starts[first : first + _ROWS], lengths[first : first + _ROWS])
            rows = parser.parse(records_chunk(column, RowIds.run(0, first, len(column))), lambda row: ("", row))
            yield dict(zip(parser.features, rows.leaves, strict=True))
