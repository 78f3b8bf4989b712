"""The bridge between the engine's loop and its consumer: bounded, nothing lost, and an ending that stays."""

from __future__ import annotations

import asyncio
import threading

import pytest
from event_order import run, settle

from aiostream_data._engine.consumer.bridge import Bridge, Ending, Parcel
from aiostream_data.rows.row_ids import RowIds


def parcel(*elements: int) -> Parcel:
    ids = RowIds.run(0, 0, len(elements))
    return Parcel(list(elements), ids, ids, 8 * len(elements), None)


def elements_of(item: Parcel | Ending) -> list[int]:
    assert isinstance(item, Parcel)
    return item.elements


def take(bridge: Bridge) -> list[int]:
    item = bridge.get()
    assert isinstance(item, Parcel)
    bridge.took(item)
    return item.elements


def test_the_producer_waits_while_the_consumer_has_not_taken_what_is_there() -> None:
    async def case() -> None:
        bridge = Bridge(2)
        await bridge.put(parcel(1, 2))
        second = asyncio.create_task(bridge.put(parcel(3)))
        await settle()
        assert (second.done(), bridge.waiting) == (False, 2)
        assert take(bridge) == [1, 2]
        await second
        assert bridge.waiting == 1

    run(case())


def test_a_parcel_larger_than_the_bound_passes_alone() -> None:
    async def case() -> None:
        bridge = Bridge(1)
        await bridge.put(parcel(1, 2, 3))
        assert take(bridge) == [1, 2, 3]

    run(case())


def test_what_was_put_comes_before_the_end_and_the_end_stays() -> None:
    async def case() -> None:
        bridge = Bridge(4)
        await bridge.put(parcel(1))
        bridge.end(None)
        assert take(bridge) == [1]
        assert bridge.get() == bridge.get() == Ending(None)
        assert await bridge.get_async() == Ending(None)

    run(case())


def test_an_error_follows_what_waits() -> None:
    async def case() -> None:
        bridge = Bridge(4)
        error = KeyError("cut short")
        await bridge.put(parcel(1))
        bridge.end(error)
        assert take(bridge) == [1]
        assert bridge.get() == Ending(error)

    run(case())


@pytest.mark.parametrize("error", [None, KeyError("cut short")])
def test_after_a_close_nothing_that_waits_is_delivered(error: KeyError | None) -> None:
    async def case() -> None:
        bridge = Bridge(4)
        await bridge.put(parcel(1))
        bridge.end(error, discard=True)
        assert bridge.get() == Ending(error)

    run(case())


def test_an_async_consumer_on_another_loop_is_woken() -> None:
    bridge = Bridge(2)
    found: list[int] = []

    async def consume() -> None:
        while isinstance(item := await bridge.get_async(), Parcel):
            bridge.took(item)
            found.extend(item.elements)

    async def case() -> None:
        consumer = threading.Thread(target=lambda: asyncio.run(consume(), debug=True))
        consumer.start()
        for number in range(50):
            await bridge.put(parcel(number))
        bridge.end(None)
        await asyncio.to_thread(consumer.join)
        assert found == list(range(50))

    async def shut_down_threads() -> None:
        await case()
        await asyncio.get_running_loop().shutdown_default_executor()

    run(shut_down_threads())


def test_a_cancelled_get_loses_nothing() -> None:
    async def case() -> None:
        bridge = Bridge(2)
        waiting = asyncio.create_task(bridge.get_async())
        await settle()
        waiting.cancel()
        await bridge.put(parcel(1))
        await settle()
        assert elements_of(await bridge.get_async()) == [1]

    run(case())


def test_the_end_of_the_engines_loop_leaves_what_was_put() -> None:
    bridge = Bridge(2)

    async def produce() -> None:
        await bridge.put(parcel(1))
        bridge.end(None)

    asyncio.run(produce())
    assert take(bridge) == [1]
    assert bridge.get() == Ending(None)


def test_the_producer_can_wait_until_all_was_taken() -> None:
    async def case() -> None:
        bridge = Bridge(4)
        await bridge.put(parcel(1))
        await bridge.put(parcel(2))
        done = asyncio.create_task(bridge.until_all_taken())
        take(bridge)
        await settle()
        assert not done.done()
        take(bridge)
        await done

    run(case())
