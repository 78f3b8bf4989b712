"""Channels: bounded in items and bytes, and cut short is never seen as complete."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from event_order import run, settle

from aiostream_data._engine.flow.channel import (
    EndOfStream,
    Receiver,
    ReceiverClosed,
    Sender,
    StreamAborted,
    open_channel,
)
from aiostream_data.metrics.counters import StageCounters


def channel(max_items: int, max_nbytes: int) -> tuple[Sender[Any], Receiver[Any]]:
    """Return both ends of a channel for whatever a test sends."""
    return open_channel(max_items, max_nbytes)


def test_close_ends_the_stream_after_buffered_items() -> None:
    async def case() -> None:
        sender, receiver = channel(4, 100)
        with sender:
            await sender.send("a")
            await sender.send("b")
        assert [item async for item in receiver] == ["a", "b"]
        with pytest.raises(EndOfStream):
            await receiver.receive()

    run(case())


def test_abort_is_never_seen_as_end_of_stream_and_buffered_items_are_not_given() -> None:
    async def fail(sender: Sender[str]) -> None:
        with sender:
            await sender.send("a")
            raise KeyError

    async def case() -> None:
        sender, receiver = channel(4, 100)
        with pytest.raises(KeyError):
            await fail(sender)
        sender.close()
        with pytest.raises(StreamAborted):
            await receiver.receive()

    run(case())


@pytest.mark.parametrize(("limits", "held"), [((2, 1000), 2), ((100, 10), 2), ((100, 1), 1)])
def test_the_sender_waits_at_the_item_or_byte_limit(limits: tuple[int, int], held: int) -> None:
    async def case() -> None:
        sender, receiver = channel(*limits)

        async def produce() -> None:
            with sender:
                for item in range(6):
                    await sender.send(item, nbytes=5)

        task = asyncio.create_task(produce())
        await settle()
        assert receiver.snapshot().items == held
        assert [item async for item in receiver] == list(range(6))
        await task
        assert receiver.snapshot().peak_nbytes <= max(limits[1], 5)

    run(case())


def test_closing_the_receiver_releases_a_blocked_sender_and_drops_what_is_buffered() -> None:
    async def case() -> None:
        sender, receiver = channel(1, 1)
        await sender.send("a", 1)
        blocked = asyncio.create_task(sender.send("b", 1))
        await settle()
        with receiver:
            assert receiver.snapshot().items == 1
        assert receiver.snapshot()[:2] == (0, 0)
        with pytest.raises(ReceiverClosed):
            await blocked
        with pytest.raises(ReceiverClosed):
            sender.put("c")

    run(case())


def test_put_passes_over_the_limits() -> None:
    async def case() -> None:
        sender, receiver = channel(1, 1)
        for item in range(3):
            sender.put(item, 10)
        sender.close()
        assert [item async for item in receiver] == [0, 1, 2]

    run(case())


def test_the_receiver_knows_the_size_that_the_sender_declared() -> None:
    async def case() -> None:
        sender, receiver = channel(2, 100)
        sender.put("small", 1)
        await sender.send("large", 99)
        assert [(await receiver.receive(), receiver.nbytes) for _ in range(2)] == [("small", 1), ("large", 99)]

    run(case())


def test_a_cancelled_receive_loses_no_item() -> None:
    async def case() -> None:
        sender, receiver = channel(1, 1)
        waiting = asyncio.create_task(receiver.receive())
        await settle()
        waiting.cancel()
        await sender.send("a")
        await settle()
        assert waiting.cancelled()
        assert await receiver.receive() == "a"

    run(case())


def test_a_cancelled_send_sends_nothing() -> None:
    async def case() -> None:
        sender, receiver = channel(1, 1)
        await sender.send("a")
        waiting = asyncio.create_task(sender.send("b"))
        await settle()
        waiting.cancel()
        await settle()
        sender.close()
        assert [item async for item in receiver] == ["a"]

    run(case())


def test_waits_are_counted_and_announced_on_both_ends() -> None:
    async def case() -> None:
        sender, receiver = channel(1, 1)
        sender.counters, receiver.counters = StageCounters("sender"), StageCounters("receiver")
        announced: list[bool] = []
        receiver.on_wait = announced.append
        waiting = asyncio.create_task(receiver.receive())
        await settle()
        assert announced == [True]
        await sender.send("a")
        await waiting
        assert announced == [True, False]
        await sender.send("b")
        blocked = asyncio.create_task(sender.send("c"))
        await settle()
        assert await receiver.receive() == "b"
        await blocked
        assert sender.counters.output_wait_s > 0.0
        assert receiver.counters.input_wait_s > 0.0

    run(case())


@pytest.mark.parametrize(("limits", "name"), [((0, 1), "max_items"), ((1, 0), "max_nbytes")])
def test_a_channel_without_room_is_refused(limits: tuple[int, int], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        open_channel(*limits)
