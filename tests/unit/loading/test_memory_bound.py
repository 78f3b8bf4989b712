"""What the declared worst case is made of, and what keeps memory within it: sizes of ranges, first calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from event_order import run, settle

import aiostream_data as asd
from aiostream_data import Dataset
from aiostream_data._engine.calls.result_budget import COPIES, FIRST_CYCLES, FIRST_NBYTES, ResultBudget
from aiostream_data._engine.calls.result_sizes import ResultSizes, SharedResults
from aiostream_data._engine.memory.budget import FILLED, Budget
from aiostream_data._engine.memory.trimming import LEAST_NBYTES as LEAST_KEPT
from aiostream_data._engine.memory.trimming import kept_nbytes
from aiostream_data.executors.process import MAX_NBYTES, idle_nbytes
from aiostream_data.loading.memory_bound import ENGINE_NBYTES, PROCESS_NBYTES, MemoryBound
from aiostream_data.metrics.allocator import MIB
from aiostream_data.metrics.sizes import as_size
from aiostream_data.storage import memory
from aiostream_data.storage.ranges import AMONG_MANY_NBYTES, LEAST_NBYTES, range_sizes
from aiostream_data.storage.ranges import FIRST_NBYTES as FIRST_RANGE

LIMIT = 256 * MIB
FILES = Dataset.from_tfrecord("/data/*.tfrecord")


def bound_of(dataset: Dataset[Any], limit: int = LIMIT) -> MemoryBound:
    return dataset.memory_bound(memory_limit=limit)


def part(bound: MemoryBound, word: str) -> int:
    return sum(each.nbytes for each in bound.parts if word in each.what)


def test_the_parts_of_host_memory_add_up_and_rows_come_first() -> None:
    bound = bound_of(FILES.map(len, executor="process", concurrency=2).batch(2).in_subprocess(2))
    assert bound.host_nbytes == sum(each.nbytes for each in bound.parts)
    assert bound.parts[0].nbytes == bound.rows == bound.limit == LIMIT
    assert str(bound).startswith(f"worst case: {as_size(bound.host_nbytes)} host\n")


@pytest.mark.parametrize(
    ("dataset", "processes"),
    [
        (FILES, 0),
        (FILES.map(len), 0),
        (FILES.map(len, executor="process", concurrency=3), 3),
        # One hop, and so one pool.
        (FILES.map(len, executor="process", concurrency=3).map(str, executor="process", concurrency=3), 3),
        (FILES.map(len, executor="process", concurrency=3).batch(2).map(len, executor="process", concurrency=1), 4),
        (FILES.in_subprocess(2), 2),
        (FILES.map(len, executor="process", concurrency=3).batch(2).in_subprocess(2), 8),
        (FILES.batch(2).in_subprocess(2).map(len, executor="process", concurrency=3), 5),
    ],
)
def test_every_process_that_a_plan_may_start_is_counted_once(dataset: Dataset[Any], processes: int) -> None:
    bound = bound_of(dataset)
    assert part(bound, "Python and NumPy") == processes * PROCESS_NBYTES


def test_auto_counts_the_processes_that_it_may_go_over_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiostream_data.loading.memory_bound.cpu_count", lambda: 5)
    assert part(bound_of(FILES.map(len, executor=asd.AUTO)), "Python and NumPy") == 5 * PROCESS_NBYTES


def test_every_process_of_in_subprocess_has_an_engine_and_the_arrays_of_the_program() -> None:
    arrays = np.zeros(5 * MIB, np.uint8)
    bound = bound_of(Dataset.from_tensor_slices(arrays).map(int).batch(8).in_subprocess(3))
    assert part(bound, "engine") == 4 * ENGINE_NBYTES
    assert part(bound, "from_tensor_slices") == 15 * MIB
    assert part(bound_of(Dataset.from_tensor_slices(arrays).map(int)), "from_tensor_slices") == 0


def test_a_shard_cache_in_memory_is_counted_once_in_every_process_that_reads() -> None:
    cache = asd.ShardCache(limit="100MB")
    elsewhere = FILES.batch(2).in_subprocess(3)
    for dataset, times in ((FILES, 1), (elsewhere, 3), (FILES.map(len).concatenate(elsewhere), 4)):
        bound = dataset.memory_bound(memory_limit=LIMIT, shard_cache=cache)
        assert part(bound, "shard cache") == times * 100 * MIB
        assert bound.host_nbytes == bound_of(dataset).host_nbytes + times * 100 * MIB
    assert "100 MiB  the shard cache in memory" in FILES.explain(memory_limit=LIMIT, shard_cache=cache)


def test_a_shard_cache_on_disk_takes_no_memory_and_neither_does_one_of_which_nothing_is_read(tmp_path: Path) -> None:
    assert FILES.memory_bound(memory_limit=LIMIT, shard_cache=tmp_path) == bound_of(FILES)
    numbers = Dataset.range(10)
    assert numbers.memory_bound(memory_limit=LIMIT, shard_cache=asd.ShardCache(limit="1GB")) == bound_of(numbers)


def test_what_a_shard_cache_holds_in_memory_is_told_beside_the_limit(memory_objects: None) -> None:
    nbytes = 3 * MIB
    memory.put("memory://held/lines.txt", b"1234567\n" * (nbytes // 8))
    cache = asd.ShardCache(limit="16MB")
    with Dataset.from_text("memory://held/lines.txt", encoding=None).batch(999).open(shard_cache=cache) as loader:
        for _ in loader:
            pass
    held = loader.stats().memory.holders["shard cache"]
    assert held == cache.held_nbytes()
    assert nbytes <= held[0] == held[1] < 1.01 * nbytes  # each piece takes whole pages
    assert "shard cache in memory: 3.0 MiB, at most 3.0 MiB; not part of the memory limit" in str(loader.report())
    assert asd.ShardCache("/nowhere").held_nbytes() is None


def test_slots_are_told_per_device_and_unknown_ones_in_words() -> None:
    known = bound_of(Dataset.from_tensor_slices(np.zeros((50, MIB), np.uint8)).batch(2).to_device("cpu", depth=2))
    assert (known.device, known.device_slots, known.slot_nbytes, known.device_nbytes) == ("cpu", 2, 2 * MIB, 4 * MIB)
    unknown = bound_of(FILES.map(len).batch(2).to_device("cpu", depth=2))
    assert (unknown.slot_nbytes, unknown.device_nbytes) == (None, None)
    on_gpu = MemoryBound(limit=1, rows=1, parts=(), device="cuda", device_slots=2, slot_nbytes=154 * MIB)
    assert on_gpu.sentence == "worst case: 0 B host, 2 x 154 MiB on cuda"


def test_large_elements_that_the_plan_knows_are_added_to_the_limit_and_others_are_told() -> None:
    large = Dataset.from_tensor_slices(np.zeros((64, 16 * MIB), np.uint8)).repeat()
    assert bound_of(large, 256 * MIB).rows > 256 * MIB
    assert bound_of(large, 1024 * MIB).rows == 1024 * MIB
    assert not any("may exceed the limit" in each for each in bound_of(large).not_counted)
    assert any("larger than 8 MiB: up to four copies" in each for each in bound_of(FILES.batch(2)).not_counted)


@pytest.mark.parametrize(
    ("dataset", "limit", "records", "windows"),
    [
        (FILES, 256 * MIB, 2 * 1024 * MIB, 130 * MIB),
        (FILES.map(len), 256 * MIB, 4 * 1024 * MIB, 130 * MIB),
        (FILES, 1024 * MIB, 2 * 1024 * MIB, 0),
        (FILES.batch(2).in_subprocess(3), 256 * MIB, 3 * 2 * 1024 * MIB, 3 * 130 * MIB),
        (Dataset.from_text("/data/*.txt", compression="gzip"), 256 * MIB, 2 * 64 * MIB, 0),
        (Dataset.from_files("/data/*", compression="zstd"), 256 * MIB, 3 * 1024 * MIB, 130 * MIB),
        (Dataset.from_fixed_length("/data/*", 100, compression=""), 256 * MIB, 0, 0),
        (Dataset.range(10).map(str), 256 * MIB, 0, 0),
    ],
)
def test_the_largest_record_and_window_of_every_source_are_declared_beside_the_limit(
    dataset: Dataset[Any], limit: int, records: int, windows: int
) -> None:
    bound = bound_of(dataset, limit)
    assert sum(part.nbytes for part in bound.alone if "record" in part.what) == records
    assert sum(part.nbytes for part in bound.alone if "window" in part.what) == windows
    assert bound.most_nbytes == bound.host_nbytes + records + windows
    assert all(f"up to {as_size(part.nbytes)} more: {part.what}" in str(bound) for part in bound.alone)


@pytest.mark.parametrize("limit", [16 * MIB, 64 * MIB, 256 * MIB])
def test_the_bound_declares_the_freed_memory_above_which_a_loader_trims(limit: int) -> None:
    assert part(bound_of(FILES, limit), "freed memory") == kept_nbytes(limit)


def test_under_a_small_limit_every_process_may_keep_the_least() -> None:
    bound = bound_of(FILES.batch(2).in_subprocess(2), 48 * MIB)
    assert part(bound, "freed memory") == 3 * LEAST_KEPT


def test_no_more_freed_memory_is_declared_than_the_rows_need() -> None:
    bound = bound_of(Dataset.range(1_000), 1024 * MIB)
    assert part(bound, "freed memory") == bound.rows < LEAST_KEPT
    assert part(bound_of(FILES, 4 * MIB), "freed memory") == 4 * MIB


def test_what_has_no_end_or_no_known_size_needs_the_limit() -> None:
    for dataset in (Dataset.range(10).repeat(), Dataset.range(10).map(str), FILES):
        assert bound_of(dataset).rows == LIMIT


def test_a_buffer_that_may_fill_the_limit_leaves_a_quarter_more_to_what_is_on_its_way() -> None:
    for full in (FILES.shuffle(1_000), FILES.cache(), FILES.map(len).pack(8)):
        assert bound_of(full).rows == LIMIT + LIMIT // 4
    small = Dataset.from_tensor_slices(np.zeros((9_000, 1_000), np.uint8)).repeat().shuffle(1_000)
    assert bound_of(small).rows == LIMIT
    assert bound_of(FILES.shuffle(1_000, spill=True)).rows == LIMIT


# -- what keeps memory within it


def test_ranges_are_smaller_when_many_objects_are_open_under_a_small_limit() -> None:
    assert range_sizes(1 << 33, 16, among_many=True) == (AMONG_MANY_NBYTES, FIRST_RANGE)
    assert range_sizes(1 << 33, 1, among_many=False) == (FIRST_RANGE, 16 * MIB)
    for limit, at_once in ((64 * MIB, 40), (64 * MIB, 10), (16 * MIB, 16)):
        first, others = range_sizes(limit, at_once, among_many=True)
        assert at_once * max(first, others) <= limit / 4
    assert range_sizes(1 << 20, 64, among_many=True) == (LEAST_NBYTES, LEAST_NBYTES)


def test_idle_shared_memory_is_an_eighth_of_the_limit_for_all_workers_together() -> None:
    assert idle_nbytes(1 << 40, 4) == MAX_NBYTES
    assert 2 * 4 * idle_nbytes(64 * MIB, 4) == 8 * MIB


def test_until_a_result_was_seen_only_as_many_calls_begin_as_results_of_a_mebibyte_fit() -> None:
    async def case() -> None:
        budget = Budget(64 * MIB)
        rooms: list[Any] = []
        results = ResultBudget(budget, lambda: len(rooms))

        async def begin_all() -> None:
            for _ in range(200):
                rooms.append(await results.room_for(8))

        beginning = asyncio.create_task(begin_all())
        for _ in range(FIRST_CYCLES * 200):  # each call lets the loop run before the next one
            await settle()
        assert len(rooms) == int(FILLED * 64 * MIB) // (COPIES * FIRST_NBYTES)
        results.returned(rooms[0], 8, 400)
        await beginning

    run(case())


def test_calls_that_end_without_a_result_make_room_for_others() -> None:
    async def case() -> None:
        rooms: list[Any] = []
        results = ResultBudget(Budget(4 * MIB), lambda: len(rooms))
        rooms.append(await results.room_for(8))
        waiting = asyncio.create_task(results.room_for(8))
        await settle()
        assert not waiting.done()
        rooms.clear()
        await waiting

    run(case())


def test_runs_of_an_operator_learn_the_size_of_a_result_from_the_first_call_of_one_of_them() -> None:
    async def case() -> None:
        budget, sizes = Budget(64 * MIB), ResultSizes()
        rooms: list[list[Any]] = [[], []]

        def of(run: list[Any]) -> ResultBudget:
            shared = SharedResults(sizes, first_calls=1, is_awaited=lambda: False)
            return ResultBudget(budget, lambda: len(run), shared)

        first, second = map(of, rooms)
        rooms[0].append(await first.room_for(8))
        waiting = asyncio.create_task(second.room_for(8))
        for _ in range(FIRST_CYCLES + 1):
            await settle()
        assert not waiting.done()
        first.returned(rooms[0][0], 8, MIB)
        assert (await waiting).nbytes == 8 + COPIES * MIB

    run(case())


def test_if_memory_is_full_a_run_beside_others_begins_a_call_only_if_its_rows_are_awaited() -> None:
    async def case() -> None:
        budget, is_awaited = Budget(4 * MIB), False
        shared = SharedResults(ResultSizes(1.0, True), first_calls=1, is_awaited=lambda: is_awaited)
        full = budget.charge(4 * MIB)
        waiting = asyncio.create_task(ResultBudget(budget, lambda: 0, shared).room_for(8))
        await settle()
        assert not waiting.done()
        is_awaited = True
        budget.poke()
        assert (await waiting).nbytes == 8
        full.end()

    run(case())


@pytest.mark.parametrize("how", ["thread", "inline", "process"])
def test_hops_of_cheap_functions_with_large_results_stay_small(how: Any) -> None:
    limit = 64 * MIB
    with Dataset.range(400).map(_large, executor=how).open(memory_limit=limit) as loader:
        assert sum(len(array) for array in loader) == 400 * 200_000
        assert loader.stats().memory.peak <= limit


def _large(number: int) -> Any:
    return np.empty(200_000, np.float32)  # takes no time, and 800 kB


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1 MiB"), (3 << 29, "1.5 GiB"), (2049, "2.001 KiB")]
)
def test_sizes_are_said_in_the_largest_unit(nbytes: int, text: str) -> None:
    assert as_size(nbytes) == text


def test_device_memory_and_page_locked_memory_are_told_for_every_hand_over() -> None:
    image, label = np.zeros((64, 100, 100, 3), np.uint8), np.zeros(64, np.int64)
    batches = Dataset.from_tensor_slices({"image": image, "label": label}).batch(8)
    slot = 8 * 30_000 + 64 + 255  # the second array begins on a boundary
    copied, leased = bound_of(batches.to_device("cuda:1")), bound_of(batches.to_device("cuda:1", handoff="lease"))
    assert copied.slot_nbytes == leased.slot_nbytes == slot
    assert copied.device_nbytes == copied.pinned_nbytes == leased.device_nbytes == leased.pinned_nbytes == 3 * slot
    assert (copied.taken_nbytes, leased.taken_nbytes) == (slot, 0)
    assert f"each batch that you hold: {as_size(slot)} on cuda:1, in addition to the slots" in str(copied)
    assert "each batch that you hold" not in str(leased)
    total = as_size(3 * slot)
    assert f"slots: 3 × {as_size(slot)} = {total} pinned on the host, and {total} on cuda:1" in str(leased)


def test_where_the_device_is_the_host_nothing_is_page_locked() -> None:
    bound = bound_of(Dataset.range(100).batch(10).to_device("cpu"))
    assert (bound.device_nbytes, bound.pinned_nbytes) == (3 * 80, 0)
    assert "slots: 3 × 80 B = 240 B in host memory, and 240 B on cpu" in str(bound)
    assert bound_of(Dataset.range(100)).pinned_nbytes == 0


def test_what_subprocesses_share_with_the_device_and_what_may_be_pageable_is_said() -> None:
    bound = bound_of(Dataset.range(100).batch(10).in_subprocess().to_device("cuda", allow_pageable=True))
    assert 0 < bound.shared_nbytes <= LIMIT
    known = MemoryBound(limit=1, rows=1, parts=(), device="cuda", device_slots=3, slot_nbytes=80, shared_nbytes=1000)
    assert known.pinned_nbytes == 3 * 80 + 1000
    assert "pinned on the host, or pageable if pinning fails," in str(bound)
    unknown = bound_of(FILES.batch(2).to_device("cuda"))
    assert (unknown.pinned_nbytes, unknown.taken_nbytes) == (None, None)
    assert "each batch that you hold: its size on cuda" in str(unknown)


TEN = Dataset.range(10)


@pytest.mark.parametrize(
    "dataset",
    [
        TEN.shuffle(asd.AUTO),
        TEN.shuffle(5),
        TEN.filter(lambda x: True).shuffle(5),
        TEN.filter(lambda x: True).take(3).batch(2),
        TEN.window(4, shift=1),
        TEN.padded_batch(4),
        TEN.batch(4).rebatch(3),
        TEN.batch(2).padded_batch(2),
        TEN.bucket_by_sequence_length(lambda x: 1, [5], [2, 2]),
        TEN.filter(lambda x: True).repeat(2).concatenate(TEN),
        Dataset.zip(TEN, TEN.filter(lambda x: True)),
        Dataset.sample_from([TEN, TEN], random=True, seed=1),
        Dataset.choose_from([TEN, TEN], Dataset.range(2)),
    ],
)
def test_ten_numbers_cannot_take_more_than_ten_numbers(dataset: Dataset[Any]) -> None:
    bound = bound_of(dataset, 8 << 30)
    assert bound.rows < MIB
    assert bound.unknown is None
    assert bound.likely <= bound.host_nbytes < ENGINE_NBYTES + 2 * MIB
    with dataset.open(seed=1) as loader:
        list(loader)
    assert loader.stats().memory.peak <= bound.rows


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (TEN.map(lambda x: x).batch(2), "the size of an element of map(lambda) is known only once it is made"),
        (TEN.flat_map(lambda x: [x]), "the number of elements of flat_map(lambda) is known only once they are made"),
        (TEN.repeat().batch(2), "repeat() is infinite"),
        (TEN.filter(lambda x: True).repeat(), "repeat() is infinite"),
    ],
)
def test_a_bound_that_is_the_limit_says_what_the_plan_does_not_tell(dataset: Dataset[Any], reason: str) -> None:
    assert bound_of(dataset).rows >= LIMIT
    assert f"the limit bounds the rows: {reason}" in dataset.explain(memory_limit=LIMIT)


def test_the_likely_peak_is_far_below_the_limit_where_little_is_held() -> None:
    bound = bound_of(TEN.map(lambda x: x).shuffle(5).batch(2), 8 << 30)
    assert bound.likely < 64 * MIB < bound.host_nbytes
    assert "\nlikely peak: " in str(bound)
    assert "if rows of unknown size take" in bound.likely_sentence
    assert "if rows" not in bound_of(TEN.shuffle(5)).likely_sentence


def test_the_likely_peak_counts_buffers_and_reads() -> None:
    rows = Dataset.from_tensor_slices(np.zeros((1000, MIB // 8))).repeat()
    assert bound_of(rows.shuffle(100), 8 << 30).likely - bound_of(rows, 8 << 30).likely >= 100 * MIB
    assert bound_of(FILES, 8 << 30).likely > 128 * MIB
    assert bound_of(FILES, 64 * MIB).likely < 128 * MIB
    for dataset in (rows.cache(), FILES.cache(), rows.shuffle(5, spill=True), FILES.in_subprocess(2)):
        assert ENGINE_NBYTES < bound_of(dataset).likely <= bound_of(dataset).host_nbytes


def test_the_repr_of_a_bound_is_one_line() -> None:
    assert repr(bound_of(TEN)).startswith("<MemoryBound worst case: 24")
    assert "\n" not in repr(bound_of(TEN))
