"""Chunks of one shard are decoded concurrently; their rows and errors arrive in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

import numpy as np
import pytest

from aiostream_data._engine.flow.channel import ReceiverClosed
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.sources.decodes_ahead import DecodesAhead, most_ahead
from aiostream_data._engine.sources.shard_cutter import RecordsLease
from aiostream_data._native import Charge
from aiostream_data.errors import CorruptRecordError
from aiostream_data.executors.base import Outcome
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import Chunk, Columns, records_chunk
from aiostream_data.rows.row_ids import RowIds


class Outlet:
    """Outlet that collects the rows. It is closed after ``most`` chunks."""

    def __init__(self, most: int = 100) -> None:
        self.rows: list[Any] = []
        self._left = most

    async def send(self, chunk: Chunk) -> None:
        if not self._left:
            raise ReceiverClosed
        self._left -= 1
        self.rows += chunk.elements()

    async def send_mark(self, chunk: Chunk) -> None:
        self.rows.append("mark")


class Threads:
    """Worker threads whose calls finish in the order that the test chooses."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[asyncio.Future[Outcome], Callable[[], Any]]] = deque()

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.waiting.append((future, lambda: function(*args)))
        return future

    def finish(self, number: int = 0) -> None:
        future, call = self.waiting[number]
        del self.waiting[number]
        future.set_result(Outcome(call()))


class Decoder:
    """Decoder that refuses the record ``bad``."""

    wraps = False

    def parse(self, chunk: Columns, describe: Callable[[int], tuple[str, int]]) -> Columns:
        for row, record in enumerate(chunk.elements()):
            if record == b"bad":
                url, number = describe(row)
                raise CorruptRecordError(url, number, "bad record")
        return chunk


def chunk_of(first: int, *records: bytes) -> Chunk:
    values = np.frombuffer(b"".join(records), np.uint8)
    lengths = np.array([len(record) for record in records], np.int64)
    column = VarColumn(values, np.cumsum(lengths) - lengths, lengths, "bytes")
    ids = RowIds.run(0, first, len(records))
    return records_chunk(column, ids).with_lease(RecordsLease("block", cast(Charge, None)))


def ahead(outlet: Outlet, threads: Threads, most: int = 2, budget: Budget | None = None) -> DecodesAhead:
    return DecodesAhead(
        url="memory://x",
        decoders=cast(Any, (Decoder(),)),
        outlet=cast(Any, outlet),
        submit=threads.submit,
        budget=budget or Budget(1 << 20),
        counters=StageCounters("read"),
        most=most,
    )


Read = Callable[[DecodesAhead, Threads], Coroutine[Any, Any, None]]


def rows_of(read: Read, most: int = 2, outlet: Outlet | None = None, budget: Budget | None = None) -> list[Any]:
    """Return the rows that arrive until the end, or until the error of a subclass of Exception."""
    outlet, threads = outlet or Outlet(), Threads()

    async def main() -> None:
        sink = ahead(outlet, threads, most, budget)
        try:
            await sink.run(lambda sink: read(sink, threads))
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}

    try:
        asyncio.run(main())
    except Exception as error:
        outlet.rows.append(error)
    return outlet.rows


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_rows_are_sent_in_order_whatever_call_finishes_first() -> None:
    async def read(sink: DecodesAhead, threads: Threads) -> None:
        await sink.send(chunk_of(0, b"a", b"b"))
        await sink.send(chunk_of(2, b"c"))
        threads.finish(1)
        await turns()
        threads.finish(0)

    assert rows_of(read) == [b"a", b"b", b"c"]


def test_no_more_chunks_than_allowed_are_decoded_ahead() -> None:
    async def read(sink: DecodesAhead, threads: Threads) -> None:
        await sink.send(chunk_of(0, b"a"))
        await sink.send(chunk_of(1, b"b"))
        third = asyncio.create_task(sink.send(chunk_of(2, b"c")))
        await turns()
        assert not third.done()
        threads.finish()
        await third
        threads.finish()
        threads.finish()

    assert rows_of(read, most=2) == [b"a", b"b", b"c"]


def test_a_full_budget_allows_one_chunk_at_a_time() -> None:
    budget = Budget(1 << 20)
    charges = [budget.charge(600 << 10) for _ in range(2)]

    async def read(sink: DecodesAhead, threads: Threads) -> None:
        first = asyncio.create_task(sink.send(chunk_of(0, b"a")))
        await turns()
        assert not first.done()
        threads.finish()
        await first

    assert rows_of(read, budget=budget) == [b"a"]
    for charge in charges:
        charge.end()


def test_the_rows_before_a_bad_record_are_sent_and_none_after_it() -> None:
    async def read(sink: DecodesAhead, threads: Threads) -> None:
        await sink.send(chunk_of(0, b"a"))
        await sink.send(chunk_of(1, b"b", b"c", b"bad", b"d"))
        threads.finish(1)
        threads.finish(0)
        await sink.send(chunk_of(5, b"e"))

    *rows, error = rows_of(read)
    assert rows == [b"a", b"b", b"c"]
    assert str(error).startswith("memory://x at byte 3")


def test_a_bad_record_ends_a_reader_that_waits_for_bytes() -> None:
    async def read(sink: DecodesAhead, threads: Threads) -> None:
        await sink.send(chunk_of(0, b"a", b"bad"))
        threads.finish()
        await asyncio.Event().wait()

    rows, error = rows_of(read)
    assert rows == b"a"
    assert isinstance(error, CorruptRecordError)


@pytest.mark.parametrize(("record", "reason"), [(b"b", "the shard is damaged"), (b"bad", "bad record")])
def test_rows_are_sent_before_a_later_error_of_the_shard(record: bytes, reason: str) -> None:
    async def read(sink: DecodesAhead, threads: Threads) -> None:
        await sink.send(chunk_of(0, b"a", record))
        threads.finish()
        raise CorruptRecordError("memory://x", 99, "the shard is damaged")

    *rows, error = rows_of(read)
    assert rows == ([b"a", b"b"] if record == b"b" else [b"a"])
    assert reason in str(error)
    assert error.__context__ is None


def test_a_mark_follows_the_rows_before_it() -> None:
    async def read(sink: DecodesAhead, threads: Threads) -> None:
        await sink.send(chunk_of(0, b"a"))
        threads.finish()
        await sink.send_mark(chunk_of(1))

    assert rows_of(read) == [b"a", "mark"]


@pytest.mark.parametrize("finished", [0, 1, 2])
def test_a_closed_receiver_ends_all_tasks(finished: int) -> None:
    async def read(sink: DecodesAhead, threads: Threads) -> None:
        for number in range(2):
            await sink.send(chunk_of(number, b"a"))
        for _ in range(finished):
            threads.finish()
        if finished < 2:
            raise ReceiverClosed
        await asyncio.Event().wait()

    *rows, error = rows_of(read, outlet=Outlet(most=1))
    assert rows == [b"a"] * min(1, len(rows))
    assert isinstance(error, ReceiverClosed)


def test_a_cancelled_reader_does_not_wait_for_calls() -> None:
    async def main() -> None:
        outlet, threads = Outlet(), Threads()

        async def read(sink: DecodesAhead) -> None:
            await sink.send(chunk_of(0, b"a"))
            await asyncio.Event().wait()

        reading = asyncio.create_task(ahead(outlet, threads).run(read))
        await turns()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert outlet.rows == []

    asyncio.run(main())


def test_open_shards_share_the_processors() -> None:
    assert [most_ahead(cpus, shards) for cpus, shards in ((1, 1), (2, 1), (6, 1), (64, 1), (64, 16))] == [2, 2, 6, 8, 4]
