"""R45: the report names the stage that limits, and why, in nine pipelines that are slow on purpose."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipelines import write_shards

from aiostream_data import Dataset, _native
from aiostream_data._engine.stages.to_device import device_opening
from aiostream_data.device.backend import DeviceBlock, HostBlock, StreamRef
from aiostream_data.device.host import HostBackend
from aiostream_data.errors import StoreBusyError
from aiostream_data.formats.tfrecord_writer import frame
from aiostream_data.metrics.bottleneck_result import Limit
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage import memory
from aiostream_data.storage.file_reads import FileRead, FileReader
from aiostream_data.storage.memory import MemoryStore
from aiostream_data.storage.registry import register_store
from aiostream_data.testing.latency_store import LatencyStore

RUN_S = 1.2
"""Of which the report wants to have seen a second."""


def limit_of(dataset: Dataset[Any], step_s: float = 0.0, run_s: float = RUN_S, **options: Any) -> Limit:
    """Consume for a while and return what the report says."""
    with dataset.open(**options) as loader:
        deadline = 0.0
        for _ in loader:
            deadline = deadline or time.perf_counter() + run_s  # the report counts from the first element on
            if step_s:
                time.sleep(step_s)
            if time.perf_counter() > deadline:
                break
        report = loader.report()
        assert f"limit: {report.limit.sentence}" in str(report)
        return report.limit


def named(limit: Limit, stage: str, cause: str) -> None:
    assert (limit.stage, limit.cause) == (stage, cause), limit.sentence


@dataclass(slots=True)
class BusyStore(LatencyStore):
    """Answers every other read with "slow down"."""

    turn: list[int] = field(default_factory=lambda: [0])

    async def read_into(self, shard: ShardRef, start: int, buffer: memoryview) -> None:
        self.turn[0] += 1
        if self.turn[0] % 2:
            raise StoreBusyError(shard.url, "503 slow down")
        await LatencyStore.read_into(self, shard, start, buffer)


@pytest.fixture
def objects(memory_objects: None) -> Iterator[None]:
    """Eight shards of four megabytes, behind a slow store and a busy one."""
    records = [frame(bytes(4_000)) for _ in range(1_000)]
    for shard in range(8):
        memory.put(f"memory://set/{shard}.tfrecord", b"".join(records))
    register_store("slow", lambda options, run_blocking: LatencyStore(MemoryStore(), latency_s=0.05))
    busy = BusyStore(MemoryStore(), scheme="busy", latency_s=0.002)
    register_store("busy", lambda options, run_blocking: busy)
    yield
    register_store("slow", None)
    register_store("busy", None)


def test_r45_the_latency_of_the_network(objects: None) -> None:
    dataset = Dataset.from_tfrecord("slow://set/*").map(len).batch(100).repeat()
    named(limit_of(dataset), "read_tfrecord", "network")


def test_r45_a_store_that_throttles(objects: None) -> None:
    named(limit_of(Dataset.from_tfrecord("busy://set/*").batch(100).repeat()), "read_tfrecord", "throttle")


def test_r45_decoding() -> None:
    packed = zlib.compress(bytes(4 << 20))
    dataset = Dataset.range(100_000).map(lambda _: len(zlib.decompress(packed)), concurrency=1).batch(2)
    named(limit_of(dataset), "map", "cpu")


def spin(value: int) -> int:
    return sum(number * number for number in range(10_000)) and int(value)


def test_r45_a_function_that_holds_the_gil() -> None:
    named(limit_of(Dataset.range(10_000_000).map(spin, concurrency=4).batch(2)), "map", "gil")


def test_r45_stacking_into_batches() -> None:
    rows = [np.zeros((2048, 1024), np.float32)] * 4
    dataset = Dataset.from_generator(lambda: iter(rows)).cache().repeat().batch(16)
    named(limit_of(dataset), "batch", "cpu")


def test_r45_a_cache_that_repeats_rows_of_a_source_that_has_ended() -> None:
    rows = [np.zeros((256, 1024), np.float32)] * 4
    limit = limit_of(Dataset.from_generator(lambda: iter(rows)).cache().repeat().batch(32))
    assert limit.stage != "from_generator", limit.sentence


class SlowBackend(HostBackend):
    """A device at the end of a narrow bus."""

    def h2d(self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef, *places: Any) -> None:
        time.sleep(0.01)
        super().h2d(dst, src, nbytes, stream, *places)


def test_r45_copies_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_opening, "open_backend", lambda name, current: SlowBackend())
    named(limit_of(Dataset.range(10_000_000).batch(1_000).to_device("cpu")), "to_device", "device")


def test_r45_the_consumer() -> None:
    # Long enough that waiting for the first element counts for little, also where the start is slow.
    limit = limit_of(Dataset.range(10_000_000).map(abs).batch(100), step_s=0.005, run_s=2.0)
    named(limit, "consumer", "consumer")


def test_r45_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_at_once = FileReader.read

    def slow_read(self: FileReader, read: FileRead) -> None:
        time.sleep(0.03)
        read_at_once(self, read)

    read_small = _native.read_small_files

    def slow_read_small(paths: list[bytes], *args: Any) -> Any:
        time.sleep(0.03 * len(paths))
        return read_small(paths, *args)

    monkeypatch.setattr(FileReader, "read", slow_read)
    monkeypatch.setattr(FileReader, "read_cached", lambda self, read: 0)
    monkeypatch.setattr(_native, "read_small_files", slow_read_small)
    dataset = Dataset.from_tfrecord(write_shards(tmp_path, rows=200)).map(len).batch(50).repeat()
    named(limit_of(dataset), "read_tfrecord", "disk")


def test_r45_a_memory_limit_that_is_too_small(objects: None) -> None:
    dataset = Dataset.from_tfrecord("slow://set/*", cycle_length=8).batch(10).repeat()
    named(limit_of(dataset, memory_limit="3MB"), "read_tfrecord", "memory")


def test_r45_counting_costs_less_than_one_percent() -> None:
    dataset = Dataset.range(2_000_000).shuffle(1_000, seed=1).batch(256)
    started = time.process_time()  # CPU time on both sides, as other programs take away none of that
    with dataset.open() as loader:
        for _ in loader:
            pass
        chunks = sum(stage.chunks for stage in loader.stats().stages)
    run_s = time.process_time() - started
    # What counting does per chunk: a handful of additions and clock readings.
    counters = StageCounters("probe")
    repeats = 10_000
    started = time.thread_time()
    for _ in range(repeats):
        begun = time.perf_counter()
        counters.rows += 1
        counters.rows_in += 1
        counters.chunks += 1
        counters.nbytes += 1
        counters.busy_s += time.perf_counter() - begun
        counters.input_wait_s += time.perf_counter() - begun
        counters.output_wait_s += time.perf_counter() - begun
    count_s = (time.thread_time() - started) / repeats
    assert chunks * count_s < 0.01 * run_s
