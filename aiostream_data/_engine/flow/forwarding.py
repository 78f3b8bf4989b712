"""Send all chunks of a receiver through an outlet."""

from __future__ import annotations

from aiostream_data._engine.flow.channel import EndOfStream, Receiver
from aiostream_data._engine.flow.row_sink import RowSink
from aiostream_data.rows.records import Chunk


async def forward(receiver: Receiver[Chunk], outlet: RowSink) -> int:
    """Send all chunks of ``receiver`` through ``outlet``, and close the receiver. Return the number of rows."""
    rows = 0
    with receiver:
        while True:
            try:
                chunk = await receiver.receive()
            except EndOfStream:
                receiver.check(rows)
                return rows
            rows += len(chunk)
            sending = outlet.send(chunk)
            del chunk  # the outlet may hold it for long
            await sending
