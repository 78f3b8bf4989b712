"""A program that ends while other libraries hold its arrays, or it theirs: ``arrow_exit_program.py KERNELS CASE``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from arrow_producers import use_twins

from aiostream_data import ArrowBatch, _native
from aiostream_data._native.arrow_nodes import ArrowField
from aiostream_data.rows.arrow.importing import read_arrow

KEPT: list[Any] = []


class Late:
    """An object that drops what it holds when the modules are torn down."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __del__(self) -> None:
        self.held = None


def batch() -> ArrowBatch:
    return ArrowBatch({"x": np.arange(1_000), "t": np.array(["a", None] * 500, object)})


def fields() -> Iterator[ArrowField]:
    while True:
        yield batch()._field


def pyarrow_holds_a_batch() -> None:
    KEPT.append(pa.record_batch(batch()))


def polars_holds_a_batch() -> None:
    KEPT.append(pl.DataFrame(batch()))


def nobody_consumes_a_capsule() -> None:
    KEPT.extend([batch().__arrow_c_stream__(), batch().__arrow_c_array__(), batch().__arrow_c_schema__()])


def a_stream_is_read_half() -> None:
    capsule = _native.export_stream(fields(), batch()._field)
    reader = pa.RecordBatchReader._import_from_c_capsule(capsule)
    KEPT.extend([reader, reader.read_next_batch()])


def a_chunk_of_pyarrow_is_kept() -> None:
    source = read_arrow(pa.table({"x": range(1_000), "t": ["a"] * 1_000}))
    KEPT.extend([next(source), source])


def a_chunk_of_polars_is_kept() -> None:
    KEPT.append(list(read_arrow(pl.DataFrame({"x": range(1_000), "t": ["a"] * 1_000}))))


def arrays_go_round() -> None:
    KEPT.append(list(read_arrow(pa.record_batch(batch()))))


def an_object_drops_them_late() -> None:
    KEPT.append(Late([pa.record_batch(batch()), list(read_arrow(pl.DataFrame(batch())))]))


def a_thread_exchanges_until_the_end() -> None:
    begun = threading.Event()

    def exchange() -> None:
        while True:
            list(read_arrow(pa.record_batch(batch())))
            begun.set()

    threading.Thread(target=exchange, daemon=True).start()
    begun.wait()


CASES: dict[str, Callable[[], None]] = {
    case.__name__: case
    for case in (
        pyarrow_holds_a_batch,
        polars_holds_a_batch,
        nobody_consumes_a_capsule,
        a_stream_is_read_half,
        a_chunk_of_pyarrow_is_kept,
        a_chunk_of_polars_is_kept,
        arrays_go_round,
        an_object_drops_them_late,
        a_thread_exchanges_until_the_end,
    )
}

if __name__ == "__main__":
    if sys.argv[1] == "python":
        use_twins(pytest.MonkeyPatch())
    CASES[sys.argv[2]]()
    print("ready")  # noqa: T201
