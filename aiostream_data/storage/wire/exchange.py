"""Terms of one request and its response: destination of the body, time limits, and errors of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from aiostream_data.storage.wire.answer_head import AnswerHead


class BrokenAnswer(ConnectionError):
    """Error for a connection that closed or timed out before the response was complete.

    Attributes:
        received: Number of wanted body bytes received before the error.
        fresh: True if the connection failed before the first byte of the response.
    """

    def __init__(self, why: str, received: int, *, fresh: bool) -> None:
        super().__init__(why)
        self.received = received
        self.fresh = fresh


class SilentAnswer(BrokenAnswer):
    """The response timed out."""


class BodySink(Protocol):
    """Destination of a chunked body of unknown size, which finds the end of the body itself."""

    @property
    def is_complete(self) -> bool:
        """True if the whole body has arrived."""

    @property
    def beyond(self) -> int:
        """Number of bytes that arrived after the end of the body."""

    def room(self) -> memoryview:
        """Return a buffer for the next bytes: at least one byte, and room for a response head before the first byte."""

    def took(self, nbytes: int) -> None:
        """Accept ``nbytes`` bytes at the beginning of the last :meth:`room`. An exception fails the request."""


class BodyPlan(NamedTuple):
    """Instructions for storing one response body in a buffer.

    Attributes:
        into: Buffer for the body bytes after the first ``skip`` bytes.
        skip: Number of bytes to discard at the beginning of the body.
        whole: If True, the body must end exactly at the end of ``into``. If ``whole`` is False, the connection closes
            when ``into`` is full.
        partial: If True, the body may end before ``into`` is full. A chunked body is stored with its chunk framing.
        sink: Destination of a chunked body instead of ``into``, or None.
    """

    into: memoryview
    skip: int = 0
    whole: bool = True
    partial: bool = False
    sink: BodySink | None = None


Decide = Callable[[AnswerHead], BodyPlan]
"""Function that checks a response head and returns the plan for the body.

An exception raised by this function fails the request.
"""

Ended = Callable[[BaseException | None], None]
"""Function that receives the error of an ended request, or None after success. It must not raise an exception."""


class ReadPatience(NamedTuple):
    """Timeouts in seconds: for the first byte of a response, between two later arrivals, and for the whole response."""

    first_byte_s: float
    idle_s: float
    total_s: float

    def expiry(self, sent_at: float, heard_at: float, *, has_begun: bool) -> tuple[float, str]:
        """Return the time at which a response times out, and the reason.

        Args:
            sent_at: Time of the request.
            heard_at: Time of the last arrival; ``sent_at`` before the first one.
            has_begun: True after the first byte of the response.
        """
        silent_s = self.idle_s if has_begun else self.first_byte_s
        if sent_at + self.total_s <= heard_at + silent_s:
            return sent_at + self.total_s, f"the answer was not complete within {self.total_s:g} s (total_timeout)"
        kind = "read" if has_begun else "first_byte"
        return heard_at + silent_s, f"the server sent no data for {silent_s:g} s ({kind}_timeout)"


def settle_request(waiter: asyncio.Future[None], error: BaseException | None) -> None:
    """Wake the coroutine that waits for a request."""
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(error)
