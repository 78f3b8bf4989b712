"""Pass the chunks of a run on to the outlet of the task that runs it, without a channel and a second task."""

from __future__ import annotations

from time import perf_counter

from aiostream_data._engine.flow.channel import (
    ChannelSnapshot,
    ChannelState,
    ChannelWaits,
    EndOfStream,
    Receiver,
    Sender,
)
from aiostream_data._engine.flow.row_sink import RowSink
from aiostream_data.rows.records import Chunk


class Relay(Sender[Chunk]):
    """Sender that sends through an outlet. Its stage runs in the task of the outlet's stage.

    Args:
        outlet: RowSink of the stage whose task runs the sending stage.
    """

    __slots__ = ("_idle_since", "_outlet", "_rows")

    def __init__(self, outlet: RowSink) -> None:
        super().__init__(ChannelState(1, 1))
        self._outlet = outlet
        self._rows = 0
        self._idle_since = perf_counter()

    async def send(self, item: Chunk, nbytes: int = 0) -> None:
        began = perf_counter()
        self._outlet.counters.input_wait_s += began - self._idle_since
        rows = len(item)
        sending = self._outlet.send(item)
        del item  # the outlet may hold it for long
        await sending
        self._rows += rows
        self._idle_since = perf_counter()
        if self.counters is not None:
            self.counters.output_wait_s += self._idle_since - began

    async def until_wanted(self) -> None:
        await self._outlet.until_wanted()

    @property
    def is_awaited(self) -> bool:
        return self._outlet.is_awaited()

    @property
    def waits(self) -> ChannelWaits:
        return self._outlet.waits

    def snapshot(self) -> ChannelSnapshot:
        return ChannelSnapshot(0, 0, 0)

    def rows_at_the_end(self) -> int:
        """Return the number of rows that were sent, after the sending stage has ended.

        Raises:
            InputFailed: The sending stage failed, after all its rows were sent.
            StreamAborted: The sending stage was cut short.
            CardinalityError: The sending stage has declared another number of rows.
        """
        end: Receiver[Chunk] = Receiver(self._shared)
        try:
            end.take()
        except EndOfStream:
            end.check(self._rows)
        return self._rows
