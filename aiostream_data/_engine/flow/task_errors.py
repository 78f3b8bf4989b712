"""Send the error of a failed task through the task's channel, after all chunks that the task sent earlier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from aiostream_data._engine.failures.carried_error import CarriedError
from aiostream_data._engine.failures.tracebacks import empty_frames
from aiostream_data._engine.flow.channel import ReceiverClosed, StreamAborted
from aiostream_data._engine.flow.root_cause import forget_frames, root_error


class SendingEnd(Protocol):
    """Interface that channel senders and stage outlets share."""

    def fail(self, error: BaseException) -> None:
        """Make the receiver raise ``error`` after it has received all items sent earlier."""

    def abort(self) -> None:
        """Mark the stream as incomplete."""


@contextmanager
def carrying(end: SendingEnd) -> Iterator[None]:
    """Context manager that sends an error raised in its block through ``end``, the sending end of a channel.

    The block must be the complete body of a task.

    The consumer receives the rows sent before the error, and then the error. A cancellation is raised again instead of
    being sent.
    """
    try:
        yield
    except ReceiverClosed as error:
        forget_frames(error)
        end.abort()
    except Exception as error:  # noqa: BLE001 - raised by the receiver
        root = root_error(error)
        if root is None or isinstance(root, StreamAborted):
            forget_frames(error)
            end.abort()  # a follow-up error: the run is being cancelled
            return
        # The error may stay in the channel for long and must not keep rows in memory.
        empty_frames(root.error if isinstance(root, CarriedError) else root)
        end.fail(root)
