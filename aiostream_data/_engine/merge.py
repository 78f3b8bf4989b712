"""Take rows from several streams in the order that an :class:`InterleaveOrder` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.channel import EndOfStream, Receiver
from aiostream_data._engine.ends import Outlet, chunk_nbytes
from aiostream_data._engine.pacing import rows_of_a_chunk
from aiostream_data.records import Chunk, gather
from aiostream_data.transforms.interleave import InterleaveOrder, Need, Step


class Streams(Protocol):
    """Gives one stream after another, opened ahead of their turn."""

    async def next(self) -> Receiver[Chunk] | None:
        """Return the next stream, or None when there are no more."""

    def ended(self) -> None:
        """Hear that one of the streams given out has ended."""


Hop = Callable[..., Coroutine[Any, Any, Any]]


async def merge(streams: Streams, order: InterleaveOrder, outlet: Outlet, hop: Hop) -> None:
    """Send the rows of all streams to ``outlet`` in the order's order.

    Args:
        hop: ``await hop(function, *args)`` runs a blocking call off the loop.

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

    while True:
        if not order.deterministic:
            _load_what_is_there(order, receivers, load)
        step = order.advance(rows_at_once)
        if len(step):
            await outlet.send(await _rows_of(step, current, hop))
        slot = step.waiting.slot
        match step.waiting.need:
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


async def _rows_of(step: Step, current: dict[int, Chunk], hop: Hop) -> Chunk:
    which, rows = step.which, step.rows
    first, last = int(rows[0]), int(rows[-1])
    # Rows of one slot ascend, so one slot over the whole step means one unbroken run: no copy needed.
    if last - first == len(rows) - 1 and bool((which == which[0]).all()):
        return current[int(which[0])].slice(first, last + 1)
    chunk: Chunk = await hop(_gathered, dict(current), which, rows)
    return chunk


def _gathered(current: dict[int, Chunk], which: NDArray[np.int32], rows: NDArray[np.int64]) -> Chunk:
    slots = np.flatnonzero(np.bincount(which))
    table = np.zeros(int(slots[-1]) + 1, np.int32)
    table[slots] = np.arange(len(slots), dtype=np.int32)
    return gather([current[slot] for slot in slots.tolist()], table[which], rows)
