"""Channels for receivers that decide how far the sender works ahead: a chunk, a request, or a row at a time.

A :class:`.Sender` works ahead until the buffer is full. The senders in this module buffer one item at most:

- :class:`Patient` works one item ahead.
- :class:`OnDemand` sends an item only after the receiver has asked for it (:meth:`.Receiver.ask`), or waits for it. A
  stage calls ``until_wanted`` before it receives or reads, so it makes no item before that.
- :class:`OneByOne` sends a row only while the receiver waits for it, as in debug mode.
"""

from __future__ import annotations

from typing import Any

from aiostream_data._engine.flow.channel import ChannelState, Receiver, ReceiverClosed, Sender


class Patient(Sender[Any]):
    """Sender whose ``send`` returns after the item was taken, so that the sender works one item ahead."""

    __slots__ = ()

    async def send(self, item: Any, nbytes: int = 0) -> None:
        await super().send(item, nbytes)
        await self.until(lambda: not self._shared.buffer)


class OnDemand(Sender[Any]):
    """Sender that sends one item for each request of the receiver.

    ``send`` returns at once, so that the sending stage can end after its last item, and then holds nothing.
    """

    __slots__ = ()

    async def send(self, item: Any, nbytes: int = 0) -> None:
        await self.until_wanted()
        self.put(item, nbytes)

    async def until_wanted(self) -> None:
        shared = self._shared
        if not shared.is_asked:
            await self.until(lambda: shared.is_asked)
        if not shared.receiver_open:
            raise ReceiverClosed


class OneByOne(Sender[Any]):
    """Sender that delivers one row at a time, and only while the receiver waits for a row.

    ``send`` returns when the receiver waits for the next row, so the sending stage never reads ahead.
    """

    __slots__ = ()

    async def send(self, item: Any, nbytes: int = 0) -> None:
        rows = len(item)
        for row in range(rows):
            await self.until_wanted()
            self.put(item if rows == 1 else item.slice(row, row + 1), nbytes // rows)
        await self.until_wanted()

    async def until_wanted(self) -> None:
        shared = self._shared
        while shared.receiver_open and (shared.buffer or not shared.awaiting):
            await shared.changed()
        if not shared.receiver_open:
            raise ReceiverClosed


def open_demand_channel(kind: type[Sender[Any]], max_nbytes: int = 1) -> tuple[Sender[Any], Receiver[Any]]:
    """Create a channel that buffers one item at most. Return its two ends.

    Args:
        kind: Class of the sender, from this module.
        max_nbytes: Maximum size of a buffered item, at least 1. An empty channel accepts an item of any size.
    """
    shared: ChannelState[Any] = ChannelState(1, max_nbytes)
    return kind(shared), Receiver(shared)
