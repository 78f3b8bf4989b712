"""Receive a whole response body of unknown size into memory, such as a page of a listing."""

from __future__ import annotations

from aiostream_data.storage.wire.answer_head import AnswerHead
from aiostream_data.storage.wire.chunked import ChunkedBody, OversizedBody
from aiostream_data.storage.wire.client import Unusual
from aiostream_data.storage.wire.exchange import BodyPlan

_NOTHING = memoryview(b"")


class WholeBody:
    """Destination of one response body, whose size the response states before the body or in chunks.

    Args:
        most_nbytes: Maximum size of the body.
    """

    __slots__ = ("_chunked", "_most_nbytes", "_whole")

    def __init__(self, most_nbytes: int) -> None:
        self._most_nbytes = most_nbytes
        self._whole = bytearray()
        self._chunked: ChunkedBody | None = None

    def accept(self, head: AnswerHead) -> BodyPlan:
        """Return the plan that stores the body. A second response replaces the first one.

        Raises:
            OversizedBody: The body is too large.
            Unusual: An HTTP library must judge a status that is not 200, or a body without a marked end.
        """
        self._chunked = None
        if head.framing == "chunked" and head.status == 200:
            self._chunked = ChunkedBody(self._most_nbytes)
            return BodyPlan(_NOTHING, sink=self._chunked)
        if head.length is None or head.status != 200:
            raise Unusual
        if head.length > self._most_nbytes:
            raise OversizedBody(self._most_nbytes)
        self._whole = bytearray(head.length)
        return BodyPlan(memoryview(self._whole))

    def content(self) -> bytes | bytearray:
        """Return the received body."""
        return self._whole if self._chunked is None else self._chunked.content()
