"""Send the failure of a task through its channel, after all chunks that it sent before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from aiostream_data._engine.failures.carried_error import CarriedError
from aiostream_data._engine.failures.tracebacks import empty_frames
from aiostream_data._engine.flow.channel import ReceiverClosed, StreamAborted
from aiostream_data._engine.flow.root_cause import root_error


class SendingEnd(Protocol):
    """Interface that channel senders and stage outlets share."""

    def fail(self, error: BaseException) -> None:
        """Make the receiver raise ``error`` after all items sent before."""

    def abort(self) -> None:
        """Mark the stream as incomplete."""


@contextmanager
def carrying(end: SendingEnd) -> Iterator[None]:
    """Send an error of the block through ``end``. The block must be the whole body of a task.

    The consumer receives the rows sent before the error, then the error. A cancellation is raised again.
    """
    try:
        yield
    except ReceiverClosed:
        end.abort()
    except Exception as error:  # noqa: BLE001 - raised by the receiver
        root = root_error(error)
        if root is None or isinstance(root, StreamAborted):
            end.abort()  # a follow-up error: the run is being cancelled
            return
        # The error may stay in the channel for long and must not keep rows in memory.
        empty_frames(root.error if isinstance(root, CarriedError) else root)
        end.fail(root)
