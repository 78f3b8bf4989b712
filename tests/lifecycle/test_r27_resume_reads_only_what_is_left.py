"""R27: near the end of an epoch, a resumed loader reads what is left, and calls no function for what was received."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from statistics import median
from time import perf_counter
from typing import Any

import pytest
from made_shards import MadeShards, places

from aiostream_data import Dataset
from aiostream_data.loading.state_format import Saved

BATCH = 32
CYCLE = 8
MIB = 1 << 20
CHUNK_NBYTES = 4 * MIB
"""Records of as many bytes are found by where the first of them begins."""

Row = tuple[int, int]


@pytest.fixture
def a_terabyte() -> Iterator[MadeShards]:
    """1,024 shards of 1 GiB."""
    with MadeShards(shards=1024, rows=1 << 20, record_nbytes=1024).served() as store:
        assert store.nbytes == 1 << 40
        yield store


@pytest.fixture
def small() -> Iterator[MadeShards]:
    """32 shards of 8 MiB."""
    with MadeShards(shards=32, rows=8192, record_nbytes=1024).served() as store:
        yield store


def read(store: MadeShards, **options: Any) -> Dataset[Any]:
    return Dataset.from_tfrecord(store.pattern, cycle_length=CYCLE, **options)


def state_after(dataset: Dataset[Any], batches: int) -> dict[str, Any]:
    """Return the state after so many batches, as it comes back from JSON."""
    with dataset.open(seed=1) as loader:
        assert sum(1 for _ in islice(loader, batches)) == batches
        state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
    return state


def moved(state: dict[str, Any], shards: int, rows: int, record_nbytes: int) -> dict[str, Any]:
    """Return a state of shards in their own order, moved on by whole shards and by rows in each open one."""
    saved = Saved.of(state)
    assert saved is not None
    files = saved.position
    files["next"] += shards
    files["order"]["given"] = [given + rows for given in files["order"]["given"]]
    files["streams"] = [
        [number + shards, ordinal + rows, offset + rows * record_nbytes] for number, ordinal, offset in files["streams"]
    ]
    return saved.as_dict()


def first_batch(dataset: Dataset[Any], state: Any = None) -> Any:
    with dataset.open(state) as loader:
        return next(iter(loader))


def at_ninety_percent(store: MadeShards, dataset: Dataset[Any]) -> dict[str, Any]:
    """Really read nine tenths of the records; return the state there, and forget what was read for that."""
    state = state_after(dataset, 9 * store.shards * store.rows // 10 // BATCH)
    store.reads.clear()
    return state


def test_r27_at_ninety_percent_of_a_terabyte_the_first_batch_needs_no_more_than_batch_and_two_reads(
    a_terabyte: MadeShards,
) -> None:
    store, dataset = a_terabyte, read(a_terabyte).batch(BATCH)
    begun = state_after(dataset, 1_000)
    rows_each = 1_000 * BATCH // CYCLE
    done, further = 114 * CYCLE, 6 * store.rows // 10  # whole shards, and rows of each open one
    assert (done + CYCLE * further / store.rows) / store.shards >= 0.89
    state = moved(begun, done, further, store.record_nbytes)
    store.reads.clear()
    store.answers = BATCH + 2
    batch = first_batch(dataset, state)
    turns = [(row, slot) for row in range(BATCH // CYCLE) for slot in range(CYCLE)]
    assert places(batch) == [(done + slot, rows_each + further + row) for row, slot in turns]
    opened = {number: offset for number, _, offset in state["position"]["streams"]}
    assert all(start >= opened.get(shard, 0) for shard, start, _ in store.reads)
    assert min(shard for shard, _, _ in store.reads) == done


def test_r27_after_nine_tenths_were_really_read_only_the_rest_is_read(small: MadeShards) -> None:
    dataset = read(small, shuffle_shards=True).batch(BATCH)
    state = at_ninety_percent(small, dataset)
    opened = {number: offset for number, _, offset in state["position"]["streams"]}
    small.answers = BATCH + 2
    first_batch(dataset, state)
    assert all(start >= opened.get(shard, 0) for shard, start, _ in small.reads)
    small.answers = None
    small.reads.clear()
    with dataset.open(state) as loader:
        rest = sum(map(len, loader))
    assert rest == small.shards * small.rows - 9 * small.shards * small.rows // 10 // BATCH * BATCH
    read_again = sum(stop - start for _, start, stop in small.reads) - rest * small.record_nbytes
    assert read_again <= CYCLE * CHUNK_NBYTES


def test_r27_a_state_knows_where_in_a_shard_its_open_records_are(small: MadeShards) -> None:
    state = at_ninety_percent(small, read(small, shuffle_shards=True).batch(BATCH))
    order, streams = state["position"]["order"], state["position"]["streams"]
    for given, (_, ordinal, offset) in zip(order["given"], streams, strict=True):
        assert offset == ordinal * small.record_nbytes
        assert 0 <= given - ordinal <= CHUNK_NBYTES // small.record_nbytes


def test_r27_rows_that_a_shuffle_held_add_only_reads_around_them(small: MadeShards) -> None:
    dataset = read(small, shuffle_shards=True).shuffle(1_000).batch(BATCH)
    state = at_ninety_percent(small, dataset)
    opened = {number: offset for number, _, offset in state["position"]["input"]["streams"]}
    with dataset.open(state) as loader:
        rows = iter(loader)
        next(rows)
        until_first = list(small.reads)
        small.reads.clear()
    with dataset.open(state) as loader:
        left = [place for batch in loader for place in places(batch)]
    held = [(shard, row * small.record_nbytes) for shard, row in left]
    earlier = [(shard, start) for shard, start, _ in until_first if start < opened.get(shard, 0)]
    for shard, start in earlier:
        assert any(other == shard and start <= offset < start + CHUNK_NBYTES for other, offset in held), (shard, start)
    shards_held = {shard for shard, _ in held}
    assert {shard for shard, _, _ in until_first} <= shards_held
    assert len(until_first) <= BATCH + 2 + 3 * len(shards_held)


class Called:
    """Counts for which records functions were called."""

    def __init__(self) -> None:
        self.rows: Counter[Row] = Counter()
        self.outer: Counter[Row] = Counter()

    def same(self, record: bytes) -> bytes:
        self.rows[places([record])[0]] += 1
        return record

    async def same_async(self, record: bytes) -> bytes:
        return self.same(record)

    def odd(self, record: bytes) -> bool:
        return places([self.same(record)])[0][1] % 2 == 1

    def twice(self, record: bytes) -> list[bytes]:
        return [self.same(record), record]


CHAINS: dict[str, Callable[[Dataset[bytes], Called], Dataset[Any]]] = {
    "map": lambda data, called: data.map(called.same),
    "map of coroutines": lambda data, called: data.map(called.same_async),
    "unordered map": lambda data, called: data.map(called.same, ordered=False, concurrency=4),
    "map after shuffle": lambda data, called: data.shuffle(100).map(called.same),
    "map before shuffle": lambda data, called: data.map(called.same).shuffle(100),
    "map between shuffles": lambda data, called: data.shuffle(50).map(called.same).shuffle(50),
    "map before repeat": lambda data, called: data.map(called.same).repeat(1),
}
"""Chains that give every record once."""


def consumed_then_left(dataset: Dataset[Any], called: Called, batches: int) -> tuple[Counter[Row], Counter[Row]]:
    """Receive some batches, resume, and read the rest; return the records received before and after.

    ``called`` then has the calls after resuming.
    """
    before: Counter[Row] = Counter()
    with dataset.open(seed=1) as loader:
        for batch in islice(loader, batches):
            before.update(places(batch))
        state = json.loads(json.dumps(loader.state_dict()))
    called.rows.clear()
    with dataset.open(state) as loader:
        after = Counter(place for batch in loader for place in places(batch))
    return before, after


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("batches", [1, 17, 55])
def test_r27_functions_are_called_once_for_each_row_that_was_left_and_for_none_that_was_received(
    chain: str, batches: int
) -> None:
    store, called = MadeShards(shards=10, rows=100), Called()
    with store.served():
        dataset = CHAINS[chain](read(store, shuffle_shards=True), called).batch(10)
        before, after = consumed_then_left(dataset, called, batches)
    assert not before & after
    assert called.rows == after


@pytest.mark.parametrize("batches", [1, 17, 45])
def test_r27_a_predicate_is_called_for_no_row_before_the_last_one_received(batches: int) -> None:
    store, called = MadeShards(shards=10, rows=100), Called()
    with store.served():
        dataset = read(store, shuffle_shards=True).filter(called.odd).batch(10)
        before, after = consumed_then_left(dataset, called, batches)
    assert not before & after
    assert not called.rows & before
    assert called.rows & after == after
    assert called.rows.total() <= 10 * 100 - 2 * before.total() + CYCLE


@pytest.mark.parametrize("batches", [1, 17, 150])
def test_r27_of_the_rows_that_flat_map_takes_apart_at_most_the_open_one_is_taken_apart_again(batches: int) -> None:
    store, called = MadeShards(shards=10, rows=100), Called()
    with store.served():
        dataset = read(store, shuffle_shards=True).flat_map(called.twice).batch(9)
        before, after = consumed_then_left(dataset, called, batches)
    assert before + after == Counter({(shard, row): 2 for shard in range(10) for row in range(100)})
    assert called.rows == Counter(set(after))


def test_r27_of_compressed_shards_those_that_are_open_are_read_again_and_no_others() -> None:
    store = MadeShards(shards=40, rows=500, compressed=True)
    with store.served():
        dataset = read(store).batch(BATCH)
        state = at_ninety_percent(store, dataset)
        with dataset.open(state) as loader:
            left = [place for batch in loader for place in places(batch)]
    assert len(left) + state["elements"] * BATCH == 40 * 500
    read_from_their_start = [shard for shard, start, _ in store.reads if start == 0]
    assert sorted(read_from_their_start) == sorted({shard for shard, _ in left})


@pytest.mark.parametrize("shuffled", [False, True])
def test_r27_the_first_batch_comes_within_three_times_of_a_cold_start(shuffled: bool) -> None:
    store = MadeShards(shards=32, rows=2048, record_nbytes=512)
    with store.served():
        dataset = read(store, shuffle_shards=True)
        dataset = dataset.shuffle(1_000).batch(BATCH) if shuffled else dataset.batch(BATCH)
        state = at_ninety_percent(store, dataset)
        store.latency_s = 0.02

        def seconds(state: Any) -> float:
            started = perf_counter()
            first_batch(dataset, state)
            return perf_counter() - started

        cold = median(seconds(None) for _ in range(5))
        resumed = median(seconds(state) for _ in range(5))
    assert resumed <= 3 * cold, f"{resumed * 1e3:.0f} ms against {cold * 1e3:.0f} ms"
