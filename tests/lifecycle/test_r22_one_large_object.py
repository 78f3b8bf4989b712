"""R22: one large object at the end of a long line is read over as many connections as fill the line."""

from __future__ import annotations

import time

from leaks import leaves_nothing

from aiostream_data import Dataset
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.wire_model import WireModel

RECORD_NBYTES = 1 << 18
RECORDS = 640
FIRST_BYTE_S, BYTES_PER_S = 0.040, 25e6
RANGE_NBYTES = 4 << 20
OVER_ONE = RANGE_NBYTES / (FIRST_BYTE_S + RANGE_NBYTES / BYTES_PER_S)
"""Bytes per second over one connection."""

PASSES = 4
"""The best of so many counts: half of the object comes within half a second, and other programs only make it slower."""


def bytes_per_s(dataset: Dataset[bytes]) -> float:
    """Read everything, and return how fast the second half came: by then it is known how much to ask for ahead."""
    marks = []
    with dataset.open(memory_limit="1GB") as loader:
        for number, record in enumerate(loader):
            assert record == bytes([number % 251]) * RECORD_NBYTES
            marks.append(time.monotonic())
    assert len(marks) == RECORDS
    later = RECORDS // 2
    return (RECORDS - 1 - later) * RECORD_NBYTES / (marks[-1] - marks[later])


def test_r22_one_object_comes_eight_times_as_fast_as_over_one_connection() -> None:
    content = b"".join(bytes([number % 251]) * RECORD_NBYTES for number in range(RECORDS))
    wire = WireModel(first_byte_s=FIRST_BYTE_S, bytes_per_s=BYTES_PER_S)
    reached: list[float] = []
    with leaves_nothing(), fault_server("s3", where="process", wire=wire) as server:
        url = server.put("bucket/large", content)
        dataset = Dataset.from_fixed_length(url, record_nbytes=RECORD_NBYTES, storage_options=server.storage_options)
        while len(reached) < PASSES and max(reached, default=0.0) <= 8 * OVER_ONE:
            reached.append(bytes_per_s(dataset))
        connections = server.counters().max_open_connections
    assert max(reached) > 8 * OVER_ONE, ([each / OVER_ONE for each in reached], connections)
