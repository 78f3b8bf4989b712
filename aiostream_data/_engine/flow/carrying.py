"""Hand the failure of a task to the reader of its channel, behind everything it sent before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from aiostream_data._engine.failures.carried_error import CarriedError
from aiostream_data._engine.failures.tracebacks import empty_frames
from aiostream_data._engine.flow.channel import ReceiverClosed, StreamAborted
from aiostream_data._engine.flow.root_cause import root_error


class SendingEnd(Protocol):
    """A sender or an outlet."""

    def fail(self, error: BaseException) -> None:
        """Have the receiver raise ``error`` behind what was sent."""

    def abort(self) -> None:
        """Mark the stream as cut short."""


@contextmanager
def carrying(end: SendingEnd) -> Iterator[None]:
    """Carry an error of the block through ``end``; the block is all that a task does.

    So rows that were sent before reach the consumer, who gets the error in its place. A cancellation goes on.
    """
    try:
        yield
    except ReceiverClosed:
        end.abort()  # nobody reads it
    except Exception as error:  # noqa: BLE001 - raised by the receiver
        root = root_error(error)
        if root is None or isinstance(root, StreamAborted):
            end.abort()  # an echo: the run is being cancelled
            return
        # It may wait for long, and must not keep rows in memory.
        empty_frames(root.error if isinstance(root, CarriedError) else root)
        end.fail(root)
