"""The measurements that verdicts follow from: waits for the disk, the GIL, preemptions, transfers."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aiostream_data import Dataset
from aiostream_data._engine.calls.gil_probe import GilProbe
from aiostream_data._engine.calls.pacing import Pace
from aiostream_data.codecs.file_kinds import holds_image
from aiostream_data.executors.process import ProcessExecutor
from aiostream_data.executors.thread import ThreadExecutor
from aiostream_data.metrics import cpu_samples, machine
from aiostream_data.metrics.counters import BYTES_WAIT, FETCHED, FETCHES, SHARDS
from aiostream_data.metrics.cpu_samples import NO_LOOK, CoreLooks
from aiostream_data.metrics.machine import CoreTime, cpu_pressure_s, machine_cpu_s, thread_core_s, thread_switches
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import file_reads
from aiostream_data.storage.counters import StorageCounters
from aiostream_data.storage.file_reads import FileRead, FileReader
from aiostream_data.testing.fault_server import fault_server
from aiostream_data.testing.wire_model import WireModel

SLOW_S = 0.05


# -- the disk


def wait_of(path: Path) -> float:
    """Read a file, and return the seconds that the read is said to have waited for the file system."""
    counters = StorageCounters()
    reader = FileReader(counters=counters)
    buffer = bytearray(path.stat().st_size)
    try:
        shard = ShardRef(str(path), len(buffer))
        assert reader.read_all([FileRead(shard, str(path), 0, memoryview(buffer))]) == [None]
    finally:
        reader.close()
    assert buffer == path.read_bytes()
    return counters.disk_wait_s


@pytest.fixture
def cached_file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 1_000)
    path.read_bytes()
    return path


def test_a_read_from_the_page_cache_waits_for_nothing_however_late_its_thread_is(
    cached_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if file_reads._AT_ONCE is None:
        pytest.skip("this system does not say what is in its page cache")
    check = FileReader._check

    def late(*args: Any) -> None:
        time.sleep(SLOW_S)
        check(*args)

    monkeypatch.setattr(FileReader, "_check", late)
    assert wait_of(cached_file) == 0.0


def test_a_read_of_what_is_not_in_the_page_cache_waits_for_the_file_system(
    cached_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv

    def slow(descriptor: int, buffers: Any, offset: int, *flags: int) -> int:
        if flags:  # what the page cache has, which is the first bytes only
            return preadv(descriptor, [buffers[0][:1_000]], offset, *flags) if offset < 1_000 else 0
        time.sleep(SLOW_S)
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", slow)
    assert 0.9 * SLOW_S < wait_of(cached_file) < 10.0


def test_where_the_system_does_not_tell_only_time_off_the_core_counts(
    cached_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reads, "_AT_ONCE", None)
    fill = file_reads._fill

    def computing(*args: Any) -> bool:
        until = time.thread_time() + SLOW_S
        while time.thread_time() < until:
            pass
        return fill(*args)

    assert wait_of(cached_file) < 10.0
    monkeypatch.setattr(file_reads, "_fill", computing)
    began = time.perf_counter()
    waited_s = wait_of(cached_file)
    assert waited_s <= time.perf_counter() - began - SLOW_S * 0.9


# -- the store


@pytest.mark.parametrize(
    ("wire", "larger", "smaller"),
    [
        (WireModel(first_byte_s=0.2), "first_byte_s", "body_s"),
        (WireModel(bytes_per_s=500_000), "body_s", "first_byte_s"),
    ],
)
@pytest.mark.parametrize("reader", ["plain", "library"])
def test_requests_say_how_long_answers_take_to_begin_and_to_come(
    wire: WireModel, larger: str, smaller: str, reader: str
) -> None:
    with fault_server("http", wire=wire) as server:
        options = {**server.storage_options, "reader": reader}
        url = server.put("set/a.bin", bytes(100_000))
        with Dataset.from_fixed_length(url, 1_000, storage_options=options).open() as loader:
            assert len(list(loader)) == 100
            stats = loader.stats()
    assert stats.storage[larger] > 0.1
    assert stats.storage[larger] > stats.storage[smaller]
    read = stats.stages[0]
    assert (read.extra[SHARDS], read.extra[FETCHED]) == (1, 100_000)
    assert read.extra[FETCHES] >= 1
    assert read.extra[BYTES_WAIT] > 0.0


# -- the GIL


@contextmanager
def running(function: Callable[[], Any]) -> Iterator[None]:
    """Call a function again and again on another thread while the block runs."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            function()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def share_taken(function: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr("aiostream_data._engine.calls.gil_probe.SOON_S", 0.0)
    probe = GilProbe(lambda: 1)
    with running(function):
        for _ in range(20):
            time.sleep(0.01)  # the thread is at work again
            probe.look()
    assert probe.looks == 20
    return probe.taken / probe.looks


@pytest.mark.skipif(thread_switches() == (0, 0), reason="this system does not count switches of threads")
def test_a_function_that_holds_the_gil_takes_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share_taken(lambda: sum(value * value for value in range(10_000)), monkeypatch) > 0.6


@pytest.mark.parametrize("function", [lambda: time.sleep(0.005), lambda: np.sort(np.arange(10**6)[::-1])])
def test_a_function_that_releases_the_gil_leaves_it(
    function: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert share_taken(function, monkeypatch) < 0.6


def test_a_probe_looks_only_while_functions_run_and_not_all_the_time() -> None:
    at_work = 0
    probe = GilProbe(lambda: at_work)
    probe.look()
    assert probe.looks == 0
    at_work = 1
    probe.look()
    probe.look()
    assert probe.looks == 1
    assert not probe.is_due


def test_an_executor_knows_which_threads_are_in_a_call() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait(10)

    async def main() -> None:
        executor = ThreadExecutor(1, "probe")
        try:
            future = executor.submit(wait)
            await asyncio.to_thread(begun.wait, 10)
            assert len(executor.at_work) == 1
            go_on.set()
            await future
            assert not executor.at_work
        finally:
            executor.close(2.0)

    asyncio.run(main())


# -- cores, processes, rows


@pytest.mark.skipif(thread_switches() == (0, 0), reason="this system does not count switches of threads")
def test_a_thread_that_sleeps_leaves_its_core_by_itself() -> None:
    before = thread_switches()
    time.sleep(0.001)
    assert thread_switches().yields > before.yields


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("some avg10=0.00 avg60=0.33 avg300=8.86 total=4384276716\nfull avg10=0.00 total=0\n", 4384.276716),
        ("", None),
        ("some avg10=0.00 total=odd\n", None),
        ("full avg10=0.00 total=1\n", None),
    ],
)
def test_the_pressure_on_cores_is_read_where_the_system_tells_it(
    text: str, seconds: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_PRESSURE", str(tmp_path / "cpu"))
    assert cpu_pressure_s() is None
    (tmp_path / "cpu").write_text(text)
    assert cpu_pressure_s() == seconds


@pytest.mark.parametrize("text", ["", "odd\n", "0 0 0\n", "1 2\n"])
def test_where_no_core_time_of_threads_is_told_nothing_is_read(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_SCHEDULED", str(tmp_path / "schedstat"))
    assert thread_core_s() is None
    (tmp_path / "schedstat").write_text(text)
    assert thread_core_s() is None
    (tmp_path / "schedstat").write_text("2500000000 500000000 17\n")
    assert thread_core_s() == (2.5, 0.5)


def test_the_use_of_the_cores_is_that_of_the_own_ones_without_idle_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_MACHINE", str(tmp_path / "stat"))
    assert machine_cpu_s({0, 2}, 2) is None
    cores = ["cpu 9 9 9 9 9 9 9 9 9 9", *(f"cpu{core} 100 20 30 5000 600 1 2 47 100 0" for core in range(3))]
    (tmp_path / "stat").write_text("\n".join([*cores, "intr 5 5", ""]))
    assert machine_cpu_s({0, 2}, 2) == pytest.approx(2 * 200 / os.sysconf("SC_CLK_TCK"))
    assert machine_cpu_s({0, 2}, 1) is None  # of a quota of one core, the use of two says nothing


def test_one_hop_in_ten_milliseconds_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 1.001, 1.009, 1.011])
    read = iter([CoreTime(1.0, 1.0), CoreTime(1.5, 1.25), CoreTime(2.0, 2.0), None])
    monkeypatch.setattr(cpu_samples, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(cpu_samples, "thread_core_s", lambda: next(read))
    looks = CoreLooks()
    assert [looks.end(looks.begin()) for _ in range(4)] == [(0.5, 0.25), NO_LOOK, NO_LOOK, NO_LOOK]


def test_rows_for_a_process_count_the_time_of_their_way() -> None:
    async def main() -> None:
        here, there = ThreadExecutor(1, "here"), ProcessExecutor(1, "there")
        try:
            assert (await here.submit(len, b"abc")).transfer_s == 0.0
            first = await there.submit(len, b"abc")
            second = await there.submit(len, bytes(50 << 20))
            assert first.value == 3
            assert first.transfer_s < 5.0  # it does not count the start of the process
            assert second.transfer_s > second.busy_s
        finally:
            here.close(2.0)
            there.close(2.0)

    asyncio.run(main())


def test_rows_that_take_far_longer_than_others_are_counted_apart() -> None:
    pace = Pace()
    for _ in range(5):
        pace.observe(rows=10, busy_s=0.01, cpu_s=0.01)
    assert pace.slow_rows_s == 0.0
    pace.observe(rows=10, busy_s=1.0, cpu_s=0.01)
    assert pace.slow_rows_s == 1.0


@pytest.mark.parametrize(
    ("element", "is_image"),
    [
        (b"\xff\xd8\xff\xe0" + bytes(20), True),
        ({"url": "a.png", "data": b"\x89PNG\r\n\x1a\n" + bytes(20)}, True),
        ((3, b"\xff\xd8\xff\xe0"), True),
        (b"\xff\xd8", False),
        ({"data": "text"}, False),
        (np.zeros(3), False),
        (None, False),
    ],
)
def test_images_are_recognised_in_elements(element: object, is_image: bool) -> None:
    assert holds_image(element) is is_image
