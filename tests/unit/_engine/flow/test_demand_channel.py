"""Channels whose receiver decides how far the sender works ahead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from event_order import run, settle

from aiostream_data._engine.flow.channel import EndOfStream, ReceiverClosed, Sender
from aiostream_data._engine.flow.demand_channel import OnDemand, Patient, open_demand_channel


async def send_all(sender: Sender[Any], items: str, made: list[str]) -> None:
    with sender:
        for item in items:
            await sender.until_wanted()
            made.append(item)
            await sender.send(item)


def test_an_item_is_made_when_the_receiver_asks_for_it() -> None:
    async def case() -> None:
        made: list[str] = []
        sender, receiver = open_demand_channel(OnDemand)
        task = asyncio.create_task(send_all(sender, "ab", made))
        await settle()
        assert made == []
        receiver.ask()
        await settle()
        assert made == ["a"]
        assert receiver.take() == "a"
        await settle()
        assert made == ["a"], "taking an item asks for no other"
        assert await receiver.receive() == "b"
        await task
        with pytest.raises(EndOfStream):
            await receiver.receive()

    run(case())


def test_asking_twice_asks_for_one_item() -> None:
    async def case() -> None:
        made: list[str] = []
        sender, receiver = open_demand_channel(OnDemand)
        task = asyncio.create_task(send_all(sender, "abc", made))
        for _ in range(3):
            receiver.ask()
            await settle()
        assert made == ["a"]
        task.cancel()
        await asyncio.wait([task])

    run(case())


def test_a_sender_has_ended_while_its_last_item_waits() -> None:
    async def case() -> None:
        sender, receiver = open_demand_channel(OnDemand)
        receiver.ask()
        await send_all(sender, "a", [])
        assert [item async for item in receiver] == ["a"]

    run(case())


def test_a_closed_receiver_wakes_a_sender_that_waits_to_be_asked() -> None:
    async def case() -> None:
        sender, receiver = open_demand_channel(OnDemand)
        task = asyncio.create_task(send_all(sender, "a", []))
        await settle()
        receiver.close()
        with pytest.raises(ReceiverClosed):
            await task

    run(case())


def test_a_patient_sender_works_one_item_ahead() -> None:
    async def case() -> None:
        made: list[str] = []
        sender, receiver = open_demand_channel(Patient)
        task = asyncio.create_task(send_all(sender, "abc", made))
        await settle()
        assert made == ["a"]
        assert receiver.take() == "a"
        await settle()
        assert made == ["a", "b"]
        assert [item async for item in receiver] == ["b", "c"]
        await task

    run(case())
