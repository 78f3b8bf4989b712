"""Row groups of a file are requested ahead, and come in order, each error in its turn."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from aiostream_data._engine.sources.row_groups_ahead import RowGroupsAhead
from aiostream_data.formats.row_groups import RowGroup
from aiostream_data.rows.records import ByteRange
from aiostream_data.storage.read_ahead import ReadAhead

NBYTES = 100


def groups(count: int, nbytes: int = NBYTES) -> list[RowGroup]:
    return [RowGroup(10 * n, 10, (ByteRange(n * nbytes, (n + 1) * nbytes),), 0) for n in range(count)]


class Store:
    """Bytes of groups, which arrive when the test says so."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.arrived: dict[int, asyncio.Event] = {}
        self.is_open = asyncio.Event()
        self.failing: dict[int, Exception] = {}

    async def fetch(self, group: RowGroup, is_next: Callable[[], bool]) -> int:
        number = group.first_row // 10
        self.asked.append(number)
        event = self.arrived.setdefault(number, asyncio.Event())
        if not self.is_open.is_set():
            waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self.is_open.wait())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        if number in self.failing:
            raise self.failing.pop(number)
        return number


class Decoder:
    """Decoder that counts how many groups are decoded at the same time."""

    def __init__(self) -> None:
        self.running = self.most_running = 0

    async def decode(self, group: RowGroup, fetched: Callable[[], Awaitable[int]]) -> int:
        number = await fetched()
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return number


def run(case: Callable[[Store, Decoder, asyncio.TaskGroup], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        before, store, decoder = asyncio.all_tasks(), Store(), Decoder()
        async with asyncio.TaskGroup() as tasks:
            await case(store, decoder, tasks)
        await settled()
        assert asyncio.all_tasks() == before

    asyncio.run(asyncio.wait_for(main(), 20))


def ahead_of(
    store: Store,
    decoder: Decoder,
    tasks: asyncio.TaskGroup,
    count: int,
    *,
    reads: int = 4,
    most: int = 16,
    most_nbytes: int = 1 << 30,
    nbytes: int = NBYTES,
) -> RowGroupsAhead[int, int]:
    pace = ReadAhead(reads)
    return RowGroupsAhead(
        groups(count, nbytes), tasks, store.fetch, decoder.decode, lambda: None, pace, most, most_nbytes
    )


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def numbers(ahead: RowGroupsAhead[int, int]) -> list[int]:
    found = []
    while (next_ := await ahead.next()) is not None:
        found.append(next_[1])
    return found


def test_groups_come_in_order_whatever_arrives_first_and_are_decoded_one_at_a_time() -> None:
    async def case(store: Store, decoder: Decoder, tasks: asyncio.TaskGroup) -> None:
        reading = asyncio.ensure_future(numbers(ahead_of(store, decoder, tasks, 9)))
        await settled()
        for number in reversed(store.asked):
            store.arrived[number].set()
            await settled()
        store.is_open.set()
        assert await reading == list(range(9))
        assert decoder.most_running == 1
        assert store.asked == list(range(9))

    run(case)


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ({"reads": 3}, 4),
        ({"reads": 16, "most": 2}, 3),
        ({"reads": 16, "most_nbytes": 3 * NBYTES}, 4),
        ({"reads": 16, "most_nbytes": 10, "nbytes": 1000}, 1),
    ],
    ids=["pace", "number", "bytes", "large groups"],
)
def test_no_more_groups_are_requested_than_allowed_beside_the_one_that_is_decoded(
    limits: dict[str, int], asked: int
) -> None:
    async def case(store: Store, decoder: Decoder, tasks: asyncio.TaskGroup) -> None:
        ahead = ahead_of(store, decoder, tasks, 20, **limits)
        reading = asyncio.ensure_future(ahead.next())
        await settled()
        assert store.asked == list(range(asked))
        store.is_open.set()
        await reading
        ahead.stop()

    run(case)


def test_a_group_that_arrives_late_raises_the_number_of_requests() -> None:
    async def case(store: Store, decoder: Decoder, tasks: asyncio.TaskGroup) -> None:
        ahead = ahead_of(store, decoder, tasks, 40, reads=2)
        waiting: list[int] = []
        for number in range(4):
            reading = asyncio.ensure_future(ahead.next())
            await settled()
            waiting.append(len(store.asked) - number)
            store.arrived[number].set()
            await reading
        assert waiting == sorted(waiting)
        assert waiting[-1] > waiting[0]
        ahead.stop()

    run(case)


def test_an_error_is_raised_in_the_turn_of_its_group() -> None:
    async def case(store: Store, decoder: Decoder, tasks: asyncio.TaskGroup) -> None:
        store.failing[2] = OSError("damaged")
        store.is_open.set()
        ahead = ahead_of(store, decoder, tasks, 5)
        await settled()
        assert [await ahead.next() for _ in range(2)] == [(group, n) for n, group in enumerate(groups(2))]
        with pytest.raises(OSError, match="damaged"):
            await ahead.next()
        ahead.stop()

    run(case)


def test_a_decoder_that_tries_again_fetches_again() -> None:
    async def case(store: Store, decoder: Decoder, tasks: asyncio.TaskGroup) -> None:
        async def decode(group: RowGroup, fetched: Callable[[], Awaitable[int]]) -> int:
            try:
                return await fetched()
            except OSError:
                return await fetched()

        store.failing[1] = OSError("once")
        store.is_open.set()
        ahead = RowGroupsAhead(groups(3), tasks, store.fetch, decode, lambda: None, ReadAhead(), 1, 1 << 20)
        assert await numbers(ahead) == [0, 1, 2]
        assert sorted(store.asked) == [0, 1, 1, 2]

    run(case)


def test_a_request_that_waits_for_memory_is_woken_when_its_group_is_next() -> None:
    async def case(store: Store, decoder: Decoder, tasks: asyncio.TaskGroup) -> None:
        waiting: list[tuple[Callable[[], bool], asyncio.Event]] = []

        def wake() -> None:
            for is_next, event in waiting:
                if is_next():
                    event.set()

        async def fetch(group: RowGroup, is_next: Callable[[], bool]) -> int:
            if not is_next():  # as if the memory were full: the next group alone may exceed the limit
                waiting.append((is_next, woken := asyncio.Event()))
                await woken.wait()
            return group.first_row // 10

        ahead = RowGroupsAhead(groups(6), tasks, fetch, decoder.decode, wake, ReadAhead(3), 16, 1 << 20)
        assert await numbers(ahead) == list(range(6))

    run(case)


def test_a_second_attempt_does_not_keep_the_bytes_of_the_first() -> None:
    class Bytes:
        pass

    async def case(store: Store, decoder: Decoder, tasks: asyncio.TaskGroup) -> None:
        async def fetch(group: RowGroup, is_next: Callable[[], bool]) -> Bytes:
            return Bytes()

        async def decode(group: RowGroup, fetched: Callable[[], Awaitable[Bytes]]) -> bool:
            first = weakref.ref(await fetched())
            await settled()
            await fetched()
            return first() is None

        ahead = RowGroupsAhead(groups(2), tasks, fetch, decode, lambda: None, ReadAhead(), 1, 1 << 20)
        assert [(await ahead.next() or ({}, None))[1] for _ in range(2)] == [True, True]

    run(case)


def test_stopping_cancels_all_requests_and_a_file_without_groups_ends_at_once() -> None:
    async def case(store: Store, decoder: Decoder, tasks: asyncio.TaskGroup) -> None:
        ahead = ahead_of(store, decoder, tasks, 9)
        reading = asyncio.ensure_future(ahead.next())
        await settled()
        ahead.stop()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await ahead.next() is None
        assert await ahead_of(store, decoder, tasks, 0).next() is None

    run(case)
