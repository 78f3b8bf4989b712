"""Take rows from several streams in the order that an :class:`InterleaveOrder` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from aiostream_data._engine.channel import EndOfStream, Receiver
from aiostream_data._engine.ends import Outlet
from aiostream_data._engine.pacing import rows_of_a_chunk
from aiostream_data._engine.picked import PickedRows, gathered, unbroken_run
from aiostream_data._engine.sizes import chunk_nbytes
from aiostream_data.records import Chunk
from aiostream_data.transforms.interleave import InterleaveOrder, Need

SHORT_RUN = 4
"""An unbroken run of less than this fraction (1/4) of a chunk is copied together with what follows it."""


class Streams(Protocol):
    """Gives one stream after another, opened ahead of their turn."""

    async def next(self) -> Receiver[Chunk] | None:
        """Return the next stream, or None when there are no more."""

    def ended(self) -> None:
        """Hear that one of the streams given out has ended."""


async def merge(streams: Streams, order: InterleaveOrder, outlet: Outlet) -> None:
    """Send the rows of all streams to ``outlet`` in the order's order.

    Raises:
        StreamAborted: A stream was cut short.
    """
    receivers: dict[int, Receiver[Chunk]] = {}
    current: dict[int, Chunk] = {}
    rows_at_once = 1

    def load(slot: int, chunk: Chunk | None) -> None:
        nonlocal rows_at_once
        if chunk is None:
            order.ended(slot)
            receivers.pop(slot).close()
            streams.ended()
        else:
            rows_at_once = rows_of_a_chunk(len(chunk), chunk_nbytes(chunk))
            current[slot] = chunk
            order.load(slot, len(chunk))

    picked = PickedRows()

    async def send_picked() -> None:
        if len(picked):
            await outlet.send_work(gathered, picked.taken())

    while True:
        if not order.deterministic:
            _load_what_is_there(order, receivers, load)
        step = order.advance(max(1, rows_at_once - len(picked)))
        if len(step):
            run = unbroken_run(step.which, step.rows, current)
            if run is not None and len(run) >= rows_at_once // SHORT_RUN:
                await send_picked()
                await outlet.send(run)
            else:
                picked.add(step, current)
        slot, need = step.waiting.slot, step.waiting.need
        if len(picked) >= rows_at_once or not _goes_on_at_once(order, need, receivers.get(slot)):
            await send_picked()
        match need:
            case Need.FINISHED:
                return
            case Need.STREAM:
                receiver = await streams.next()
                if receiver is None:
                    order.no_more_streams()
                else:
                    receivers[slot] = receiver
                    order.opened(slot)
            case Need.ROWS if order.deterministic:
                current.pop(slot, None)  # used up: do not hold its memory while waiting
                load(slot, await _next_chunk(receivers[slot]))
            case Need.ROWS:
                await _any_ready(list(receivers.values()))


def _goes_on_at_once(order: InterleaveOrder, need: Need, receiver: Receiver[Chunk] | None) -> bool:
    """Whether the next rows can be chosen without waiting, so that those already chosen may wait for them."""
    if need is Need.NOTHING:
        return True
    return need is Need.ROWS and order.deterministic and receiver is not None and receiver.ready


async def _next_chunk(receiver: Receiver[Chunk]) -> Chunk | None:
    try:
        return await receiver.receive()
    except EndOfStream:
        return None


def _load_what_is_there(
    order: InterleaveOrder, receivers: dict[int, Receiver[Chunk]], load: Callable[[int, Chunk | None], None]
) -> None:
    for slot, receiver in list(receivers.items()):
        if order.rows_left(slot) == 0 and receiver.ready:
            try:
                chunk: Chunk | None = receiver.take()
            except EndOfStream:
                chunk = None
            load(slot, chunk)


async def _any_ready(receivers: Sequence[Receiver[Chunk]]) -> None:
    waits = [asyncio.ensure_future(receiver.wait_ready()) for receiver in receivers]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
