"""A merge knows that a stream has ended when its last rows arrive: no state holds a stream without rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiostream_data._engine.flow.channel import open_channel
from aiostream_data._engine.flow.merge import Merge, Stream
from aiostream_data._engine.memory.budget import Budget
from aiostream_data._engine.resume.merge_log import MergeLog
from aiostream_data.rows.records import Chunk, Items
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.interleave import InterleaveOrder


class Place:
    def __init__(self, number: int) -> None:
        self.number = number

    def at(self, given: int, book: Any) -> Any:
        return (self.number, given)

    def forget(self, given: int) -> None:
        pass


class Finished:
    """Streams of two rows each, all of which had ended before the first row was taken."""

    is_ready = False

    def __init__(self, streams: int) -> None:
        self.left = list(range(streams))
        self.open = 0

    async def next(self) -> Stream | None:
        if not self.left:
            return None
        number = self.left.pop(0)
        sender, receiver = open_channel(2, 1 << 20)
        with sender:
            sender.put(Items([f"{number}a", f"{number}b"], RowIds.run(number, 0, 2)), 8)
        self.open += 1
        return Stream(receiver, Place(number))

    async def again(self, state: Any, given: int) -> Stream | None:
        raise AssertionError("nothing is resumed")

    def ended(self) -> None:
        self.open -= 1


class Outlet:
    """Looks at the state of the merge at each moment at which rows are sent: the merge is never ahead."""

    def __init__(self, look: Callable[[int], None]) -> None:
        self.budget = Budget(64 << 20)
        self.values: list[Any] = []
        self._look = look

    async def send(self, chunk: Chunk) -> None:
        assert isinstance(chunk, Items)
        self.values += chunk.values
        self._look(len(self.values))

    async def send_work(self, work: Callable[..., Chunk], *args: Any, is_quick: bool = False) -> None:
        await self.send(work(*args))

    async def settled(self) -> None:
        pass

    async def discard_ahead(self) -> None:
        pass

    async def until_wanted(self) -> None:
        pass


def test_a_state_after_the_last_row_of_a_stream_does_not_hold_the_stream() -> None:
    log, held = MergeLog(), []
    book: Any = None

    def look(rows: int) -> None:
        found = log.at(rows, book)
        assert found is not None
        held.append((rows, found[0]["streams"]))

    streams = Finished(3)
    outlet: Any = Outlet(look)
    asyncio.run(Merge(streams, InterleaveOrder(1, 1), log).run(outlet))
    assert outlet.values == ["0a", "0b", "1a", "1b", "2a", "2b"]
    assert [(rows, left) for rows, left in held if rows % 2 == 0] == [(2, []), (4, []), (6, [])]
    assert streams.open == 0
