"""Time each native kernel in a bare loop beside its pure-Python twin: ``python -m benchmarks.micro.kernels``.

One row is what P1 moves per record: 32 float32. Figures are the best of several rounds on one thread, data in
the cache, so they are ceilings and not expectations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import thread_time

import numpy as np
from numpy.typing import NDArray

import aiostream_data as asd
from aiostream_data._native import example_py, framing, framing_py, gather, gather_py
from aiostream_data.formats.example import ExampleParser
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import records_chunk
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.randomness import draws_below
from benchmarks.workload import FEATURES, SHUFFLE_BUFFER, example_columns

ROWS = 8_192
ROUNDS = 7
ROUND_S = 0.05
_MAX_NBYTES = 1 << 30


def best_s(function: Callable[[], object]) -> float:
    """Return the CPU seconds of one call: the best round of calls that fill a twentieth of a second."""
    calls, best = 1, float("inf")
    for _ in range(ROUNDS):
        started = thread_time()
        for _ in range(calls):
            function()
        spent = (thread_time() - started) / calls
        best = min(best, spent)
        calls = max(1, int(ROUND_S / max(spent, 1e-9)))
    return best


def framed_examples() -> NDArray[np.uint8]:
    """Return a TFRecord stream of ``ROWS`` Examples."""
    columns = example_columns(0, ROWS)
    rows = zip(*columns.values(), strict=True)
    records = (asd.encode_example(dict(zip(columns, row, strict=True))) for row in rows)
    return np.frombuffer(b"".join(map(frame, records)), np.uint8)


def kernels() -> dict[str, tuple[Callable[[], object], Callable[[], object] | None]]:
    """Return (native, twin) calls by name; each does ``ROWS`` rows."""
    stream = framed_examples()
    starts, lengths, _, _ = framing.frame_tfrecords(stream, 0, len(stream), True, _MAX_NBYTES)
    chunk = records_chunk(VarColumn(stream, starts, lengths), RowIds.run(0, 0, len(starts)))
    features = {"features": asd.FixedLen((FEATURES,), np.float32), "id": asd.FixedLen((), np.int64)}
    parser = ExampleParser(features)
    twin_wanted = [
        example_py.Wanted(b"features", example_py.FLOAT, FEATURES, True),
        example_py.Wanted(b"id", example_py.INT64, 1, True),
    ]
    rng = np.random.default_rng(1)
    rows = rng.random((SHUFFLE_BUFFER, FEATURES), np.float32)
    at = rng.integers(0, SHUFFLE_BUFFER, ROWS)
    which = np.zeros(ROWS, np.int32)
    incoming = rows[:ROWS].copy()
    return {
        "crc32c of the stream": (
            partial(framing.crc32c, bytes(stream)),
            partial(framing_py.crc32c, bytes(stream)),
        ),
        "frame TFRecords, CRC checked": (
            partial(framing.frame_tfrecords, stream, 0, len(stream), True, _MAX_NBYTES),
            partial(framing_py.frame_tfrecords, stream, 0, len(stream), True, _MAX_NBYTES),
        ),
        "parse Examples into columns": (
            partial(parser.parse, chunk, lambda row: ("", row)),
            partial(example_py.parse_examples, stream, starts, lengths, twin_wanted),
        ),
        "gather 128-byte rows": (partial(gather.take_rows, rows, at), partial(gather_py.take_rows, rows, at)),
        "gather from several arrays": (
            partial(gather.take_rows_many, [rows], which, at),
            partial(gather_py.take_rows_many, [rows], which, at),
        ),
        "shuffle: draw slots": (partial(draws_below, np.uint64(1), 0, SHUFFLE_BUFFER, ROWS), None),
        "shuffle: exchange 128-byte rows": (
            partial(gather.exchange_rows, rows, at, incoming),
            partial(gather_py.exchange_rows, rows, at, incoming),
        ),
        "copy 128-byte rows (memory's own speed)": (incoming.copy, None),
    }


def main() -> None:
    """Print million rows a second, native and twin."""
    print(f"{'kernel':42}{'M rows/s':>10}{'twin':>10}{'ratio':>9}")
    for name, (native, twin) in kernels().items():
        native_s = best_s(native)
        line = f"{name:42}{ROWS / native_s / 1e6:10.1f}"
        if twin is not None:
            twin_s = best_s(twin)
            line += f"{ROWS / twin_s / 1e6:10.3f}{twin_s / native_s:8.0f}x"
        print(line)


if __name__ == "__main__":
    main()
