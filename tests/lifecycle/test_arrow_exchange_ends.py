"""Exchanged arrays take no memory when they are dropped, in any thread, and a program that still has them ends well."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from arrow_exit_program import CASES
from arrow_producers import use_twins
from arrow_reading import only_chunk, rows_of

from aiostream_data import ArrowBatch, _native
from aiostream_data._native.arrow_nodes import ArrowField
from aiostream_data._native.arrow_structs import ARRAY_NAME, CArray, pointer_of
from aiostream_data.rows.arrow.importing import read_arrow

FOLDERS = ("tests/fakes", "tests/lifecycle", ".")
EXCHANGES = 1_000
WORKERS = 8
WIDTH = 250


@pytest.fixture(params=["native", "python"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "python":
        use_twins(monkeypatch)
    return name


def batch(rows: int) -> dict[str, Any]:
    words = np.array(["text", None] * (rows // 2), object)
    return {"x": np.ones((rows, WIDTH)), "t": words, "s": (np.ones(rows),)}


def export_and_read(rows: int) -> None:
    only_chunk(pa.record_batch(ArrowBatch(batch(rows))))


def never_consume(rows: int) -> None:
    made = ArrowBatch(batch(rows))
    made.__arrow_c_array__()
    made.__arrow_c_stream__()


def fail_to_read(rows: int) -> None:
    bad = pa.array([b"\xff" * rows * WIDTH], pa.binary()).view(pa.string())
    with pytest.raises(ValueError, match="not valid UTF-8"):
        only_chunk(bad)


def read_half(rows: int) -> None:
    table = pa.table({"x": np.ones(rows * WIDTH)})
    next(read_arrow(pa.concat_tables([table] * 3)))


EXCHANGE = pytest.mark.parametrize("exchange", [export_and_read, never_consume, fail_to_read, read_half])


@EXCHANGE
def test_a_thousand_exchanges_leave_no_memory(kernels: str, exchange: Callable[[int], None]) -> None:
    rows, limit = 400, 30 << 20  # one in three that leaked would take more
    process = psutil.Process()
    for _ in range(50):
        exchange(rows)
    gc.collect()
    before = process.memory_info().rss
    for _ in range(EXCHANGES // 4):
        exchange(rows)
    gc.collect()
    assert process.memory_info().rss - before < limit


@EXCHANGE
def test_a_thousand_exchanges_leave_no_objects(kernels: str, exchange: Callable[[int], None]) -> None:
    def grown() -> int:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(EXCHANGES):
            exchange(2)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        for _ in range(500):  # until NumPy's own caches are full
            exchange(2)
        growth = [grown(), grown(), grown()]  # a cache that fills late, or another thread, grows one of them only
    finally:
        tracemalloc.stop()
    assert min(growth) < 16 * EXCHANGES  # the smallest object for each would be twice as much


@EXCHANGE
def test_small_exchanges_leave_no_memory_of_the_kernels(kernels: str, exchange: Callable[[int], None]) -> None:
    process = psutil.Process()
    for _ in range(500):
        exchange(2)
    gc.collect()
    before = process.memory_info().rss
    for _ in range(3 * EXCHANGES):
        exchange(2)
    gc.collect()
    assert process.memory_info().rss - before < 400 * 3 * EXCHANGES  # less than one array of columns for each


def test_threads_exchange_beside_each_other(kernels: str) -> None:
    shared = ArrowBatch(batch(100))
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                chunk = only_chunk(pa.record_batch(shared))
                assert rows_of(chunk.leaves[1]) == ["text", None] * 50
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.skipif(sys.platform == "win32", reason="starts threads by pthread_create")
def test_a_thread_that_python_does_not_know_releases_an_array(kernels: str) -> None:
    """As the worker threads of another library do, while this thread waits for them without the GIL."""
    library = ctypes.CDLL(None)
    threads, capsules, alive = [], [], []
    for _ in range(WORKERS):
        buffer = np.arange(3, dtype=np.int32)
        alive.append(weakref.ref(buffer))
        capsules.append(_native.export_array(ArrowField("x", "i", 3, (None, buffer))))
        del buffer
    for capsule in capsules:
        address = pointer_of(capsule, ARRAY_NAME)
        release = CArray.from_address(address).release
        thread = ctypes.c_size_t()
        assert (
            library.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(release), ctypes.c_void_p(address)) == 0
        )
        threads.append(thread)
    for thread in threads:
        library.pthread_join(thread, None)
    assert [one() for one in alive] == [None] * WORKERS
    assert all(not CArray.from_address(pointer_of(capsule, ARRAY_NAME)).release for capsule in capsules)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("implementation", ["native", "python"])
def test_a_program_ends_well_with_arrays_in_the_hands_of_others(implementation: str, case: str) -> None:
    root = Path(__file__).parents[2]
    program = str(Path(__file__).with_name("arrow_exit_program.py"))
    paths = os.pathsep.join(str(root / folder) for folder in FOLDERS)
    done = subprocess.run(
        [sys.executable, "-X", "dev", program, implementation, case],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "error"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
