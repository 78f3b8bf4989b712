"""Chunks of one shard are decoded concurrently; their rows and errors arrive in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
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


def ahead(outlet: Outlet, threads: Threads, most: int = 2) -> DecodesAhead:
    return DecodesAhead(
        url="memory://x",
        decoders=cast(Any, (Decoder(),)),
        outlet=cast(Any, outlet),
        submit=threads.submit,
        budget=Budget(1 << 20),
        counters=StageCounters("read"),
        most=most,
    )


def test_rows_are_sent_in_order_whatever_call_finishes_first() -> None:
    async def main() -> None:
        outlet, threads = Outlet(), Threads()
        async with ahead(outlet, threads) as sink:
            await sink.send(chunk_of(0, b"a", b"b"))
            await sink.send(chunk_of(2, b"c"))
            threads.finish(1)
            await asyncio.sleep(0)
            assert outlet.rows == []
            threads.finish(0)
        assert outlet.rows == [b"a", b"b", b"c"]

    asyncio.run(main())


def test_no_more_chunks_than_allowed_are_decoded_ahead() -> None:
    async def main() -> None:
        outlet, threads = Outlet(), Threads()
        async with ahead(outlet, threads, most=2) as sink:
            await sink.send(chunk_of(0, b"a"))
            await sink.send(chunk_of(1, b"b"))
            third = asyncio.create_task(sink.send(chunk_of(2, b"c")))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not third.done()
            threads.finish()
            await third
            assert outlet.rows == [b"a"]
            threads.finish()
            threads.finish()
        assert outlet.rows == [b"a", b"b", b"c"]

    asyncio.run(main())


def test_the_rows_before_a_bad_record_are_sent_and_none_after_it() -> None:
    async def main() -> None:
        outlet, threads = Outlet(), Threads()

        async def read() -> None:
            async with ahead(outlet, threads) as sink:
                await sink.send(chunk_of(0, b"a"))
                await sink.send(chunk_of(1, b"b", b"c", b"bad", b"d"))
                threads.finish(1)
                threads.finish(0)

        with pytest.raises(CorruptRecordError, match="at byte 3"):
            await read()
        assert outlet.rows == [b"a", b"b", b"c"]

    asyncio.run(main())


def test_rows_are_sent_before_a_later_error_of_the_shard() -> None:
    async def main(record: bytes, error: str) -> list[Any]:
        outlet, threads = Outlet(), Threads()

        async def read() -> None:
            async with ahead(outlet, threads) as sink:
                await sink.send(chunk_of(0, b"a", record))
                threads.finish()
                raise CorruptRecordError("memory://x", 99, "the shard is damaged")

        with pytest.raises(CorruptRecordError, match=error) as raised:
            await read()
        assert raised.value.__context__ is None or raised.value.__suppress_context__
        return outlet.rows

    assert asyncio.run(main(b"b", "the shard is damaged")) == [b"a", b"b"]
    assert asyncio.run(main(b"bad", "bad record")) == [b"a"]


def test_a_mark_follows_the_rows_before_it() -> None:
    async def main() -> None:
        outlet, threads = Outlet(), Threads()
        async with ahead(outlet, threads) as sink:
            await sink.send(chunk_of(0, b"a"))
            threads.finish()
            await sink.send_mark(chunk_of(1))
        assert outlet.rows == [b"a", "mark"]

    asyncio.run(main())


@pytest.mark.parametrize("finished", [0, 1, 2])
def test_a_closed_receiver_ends_all_tasks(finished: int) -> None:
    async def main() -> None:
        outlet, threads = Outlet(most=1), Threads()

        async def read() -> None:
            async with ahead(outlet, threads) as sink:
                for number in range(2):
                    await sink.send(chunk_of(number, b"a"))
                for _ in range(finished):
                    threads.finish()
                raise ReceiverClosed

        with pytest.raises(ReceiverClosed):
            await read()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_cancelled_reader_does_not_wait_for_calls() -> None:
    async def main() -> None:
        outlet, threads = Outlet(), Threads()

        async def read() -> None:
            async with ahead(outlet, threads) as sink:
                await sink.send(chunk_of(0, b"a"))
                await asyncio.Event().wait()

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert outlet.rows == []

    asyncio.run(main())


def test_open_shards_share_the_processors() -> None:
    assert [most_ahead(cpus, shards) for cpus, shards in ((1, 1), (2, 1), (6, 1), (64, 1), (64, 16))] == [2, 2, 6, 8, 4]
