"""Interface of an outlet for a run that sends all its rows through the outlet of another stage."""

from __future__ import annotations

from typing import Protocol

from aiostream_data._engine.flow.channel import ChannelWaits
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.rows.records import Chunk


class RowSink(Protocol):
    """Sending end of a running stage; see :class:`~aiostream_data._engine.flow.stage_io.Outlet`.

    Attributes:
        counters: Counters of the stage.
    """

    counters: StageCounters

    @property
    def waits(self) -> ChannelWaits:
        """Start times of the current waits of the channel's sender and receiver."""

    def is_awaited(self) -> bool:
        """Return True if all later stages, and the consumer, wait for a chunk."""

    async def until_wanted(self) -> None:
        """Wait until the stage may produce rows."""

    async def send(self, chunk: Chunk) -> None:
        """Send a chunk to the receiver.

        Raises:
            ReceiverClosed: The receiver was closed.
        """
