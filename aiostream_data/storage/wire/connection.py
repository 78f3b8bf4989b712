"""Keep-alive HTTP connection that receives response bodies directly into the caller's buffer.

:class:`asyncio.BufferedProtocol` lets the connection choose the buffer for incoming bytes. The response head arrives in
a small internal buffer, and the body arrives in the caller's buffer. If body bytes arrive together with the head, the
connection copies these bytes into the caller's buffer. Each request wakes its caller once, when the body is complete.

A connection handles one request at a time. A connection is never reused after a cancelled, failed or incomplete
request.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from functools import partial
from typing import Final, cast

from aiostream_data.storage.wire.answer_head import (
    MAX_HEAD_NBYTES,
    MAX_INTERIM,
    AnswerHead,
    MalformedAnswer,
    check_beginning,
    end_of_head,
    parse_head,
)
from aiostream_data.storage.wire.chunked import read_chunks
from aiostream_data.storage.wire.exchange import (
    BodyPlan,
    BrokenAnswer,
    Decide,
    Ended,
    ReadPatience,
    SilentAnswer,
    settle_request,
)
from aiostream_data.storage.wire.large_bodies import LARGE_NBYTES, LargeBodies, ReceivedBody

HEAD_NBYTES: Final = 8 << 10
"""Initial size in bytes of the buffer for the response head.

The head buffer is small, because body bytes that arrive in it must be copied.
"""

SCRATCH_NBYTES: Final = 64 << 10
"""Size in bytes of the buffer that receives unwanted body bytes."""


class Connection(asyncio.BufferedProtocol):
    """Keep-alive HTTP/1.1 connection.

    Create a connection with ``loop.create_connection``; only the same event loop may use the connection.

    Attributes:
        requests: Number of requests sent on this connection.
        idle_since: Event loop time at which the last request ended.
        first_byte_s: Seconds from the last request to the first byte of its response.
    """

    def __init__(self, large_bodies: LargeBodies | None = None) -> None:
        self._large_bodies = large_bodies
        self._apart: ReceivedBody | None = None  # received on another thread
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._head = bytearray(HEAD_NBYTES)
        self._head_filled = 0
        self._interim = 0
        self._scratch: bytearray | None = None
        self._decide: Decide | None = None
        self._plan: BodyPlan | None = None
        self._answer: AnswerHead | None = None
        self._bodiless = False
        self._skip = 0
        self._filled = self._before_apart = 0
        self._beyond = 0
        self._ended: Ended | None = None
        self._patience = ReadPatience(0.0, 0.0, 0.0)
        self._began_at = self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._usable = False
        self.requests = 0
        self.idle_since = 0.0
        self.first_byte_s = 0.0

    # -- requests

    @property
    def usable(self) -> bool:
        """True if the connection is open and has no request in progress."""
        return self._usable and self._ended is None

    async def get(
        self, request: bytes, decide: Decide, patience: ReadPatience, *, bodiless: bool = False
    ) -> AnswerHead:
        """Send a request, and return the head of the response when the body has been received completely.

        Args:
            request: Complete request head.
            decide: Function that checks the response head and returns the plan for the body.
            patience: Timeouts.
            bodiless: True for a HEAD request. The response to a HEAD request states a body length but has no body.

        Raises:
            BrokenAnswer: The connection closed or timed out before the response was complete.
            MalformedAnswer: The response is not valid HTTP/1.1, or is longer than expected.
            Exception: ``decide`` raised it.
        """
        waiter = self._loop.create_future()
        self.start(request, decide, patience, partial(settle_request, waiter), bodiless=bodiless)
        try:
            await waiter
        except BaseException:
            self.cancel()
            raise
        return self.answer

    def start(
        self, request: bytes, decide: Decide, patience: ReadPatience, ended: Ended, *, bodiless: bool = False
    ) -> None:
        """Send a request, and call ``ended`` when the response is complete or has failed.

        The arguments and errors are those of :meth:`get`. At the time of the call of ``ended``, the connection no
        longer writes to the caller's buffer. A usable connection may be used for the next request.
        """
        assert self.usable, "one request at a time, on a connection that is up"
        assert self._transport is not None
        self._decide, self._plan, self._answer, self._bodiless = decide, None, None, bodiless
        self._head_filled = self._interim = self._skip = self._filled = self._beyond = 0
        self._patience = patience
        self._began_at = self._heard_at = self._loop.time()
        self._ended = ended
        self.requests += 1
        self._transport.write(request)
        if self._timer is None:
            self._timer = self._loop.call_later(patience.first_byte_s, self._look)

    def cancel(self) -> None:
        """Close the connection, and do not call ``ended`` for the request in progress. Idempotent."""
        self.abort()
        self._ended = self._decide = self._plan = None

    @property
    def answer(self) -> AnswerHead:
        """Head of the last response, which was received completely."""
        assert self._answer is not None
        return self._answer

    @property
    def body_s(self) -> float:
        """Seconds from the first to the last byte of the last response."""
        return self._heard_at - self._began_at - self.first_byte_s

    @property
    def received(self) -> int:
        """Number of received body bytes of the last response, including discarded bytes."""
        return self._skip + self._filled + self._beyond

    def abort(self) -> None:
        """Close the connection immediately. Idempotent."""
        self._usable = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._apart is not None:
            self._note_progress()
            self._apart.cancel()
            self._apart = None
        if self._transport is not None:
            self._transport.abort()

    def acknowledge(self) -> None:
        """Acknowledge all received bytes, because no request follows now. Does nothing on systems other than Linux.

        An acknowledgement usually waits up to 40 ms for the next request. A server that waits for it sends the last
        bytes again, and measures a low bandwidth (BBR), so it would send the next responses slowly.
        """
        own = None if self._transport is None else self._transport.get_extra_info("socket")
        if own is not None and hasattr(socket, "TCP_QUICKACK"):
            with suppress(OSError, RuntimeError):  # the connection was closed, which the next request finds out
                own.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    # -- use by another thread

    def lend(self) -> int:
        """Let another thread use the socket, and return its file descriptor. Call :meth:`take_back` afterwards."""
        assert self._transport is not None
        self._transport.pause_reading()
        return int(self._transport.get_extra_info("socket").fileno())

    def take_back(self, *, is_usable: bool) -> None:
        """End the use by another thread. If the last response was not received completely, close the connection."""
        assert self._transport is not None
        self.idle_since = self._loop.time()
        if is_usable and not self._transport.is_closing():
            self._transport.resume_reading()
        else:
            self.abort()

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop transports do not subclass asyncio.Transport
        self._usable = True
        self.idle_since = self._loop.time()

    def get_buffer(self, sizehint: int) -> memoryview | bytearray:
        plan = self._plan
        if plan is None:
            return self._room_for_head()
        if plan.sink is not None:
            return plan.sink.room()
        if self._skip < plan.skip:
            return self._room_for_nothing(plan.skip - self._skip)
        if self._filled < len(plan.into):
            return plan.into[self._filled :]
        return self._room_for_nothing(1)

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._loop.time()
        if self._head_filled == 0:
            self.first_byte_s = self._heard_at - self._began_at
        if self._ended is None:
            self.abort()  # data without a request: the connection is unusable
            return
        plan = self._plan
        if plan is None:
            self._head_filled += nbytes
            self._read_head(self._head_filled - nbytes)
        elif plan.sink is not None:
            self._feed(plan, nbytes)
        elif self._skip < plan.skip:
            self._skip += nbytes
        elif self._filled < len(plan.into):
            self._filled += nbytes
        else:
            self._beyond += nbytes
        self._look_for_end()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._usable = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ended is None:
            return
        if error is None and self._ended_by_closing():
            self._succeed()
            return
        why = "the server closed the connection" if error is None else f"the connection failed ({error})"
        self._end(BrokenAnswer(why, self._filled, fresh=self._head_filled == 0))

    # -- received data

    def _room_for_head(self) -> memoryview:
        if self._head_filled == len(self._head):
            larger = bytearray(2 * len(self._head))  # not resized: the loop may hold a view of it
            larger[: self._head_filled] = self._head
            self._head = larger
        return memoryview(self._head)[self._head_filled :]

    def _room_for_nothing(self, nbytes: int) -> memoryview:
        if self._scratch is None:
            self._scratch = bytearray(SCRATCH_NBYTES)
        return memoryview(self._scratch)[: min(nbytes, SCRATCH_NBYTES)]

    def _read_head(self, searched: int) -> None:
        """Parse the response heads in the buffer.

        Skip interim responses; when the final head is complete, begin the body.
        """
        try:
            while (end := end_of_head(self._head, searched, self._head_filled)) >= 0:
                head = parse_head(self._head[:end])
                rest = bytes(self._head[end : self._head_filled])
                if head is not None:
                    self._begin_body(head, rest)
                    return
                self._interim += 1
                if self._interim > MAX_INTERIM:
                    raise MalformedAnswer(f"the server sent more than {MAX_INTERIM} interim answers (1xx)")
                self._head[: len(rest)] = rest
                self._head_filled, searched = len(rest), 0
            check_beginning(bytes(self._head[: self._head_filled]))
            if self._head_filled >= MAX_HEAD_NBYTES:
                raise MalformedAnswer(f"the head of the answer is longer than {MAX_HEAD_NBYTES} bytes")
        except BaseException as error:  # noqa: BLE001 - raised to the waiter
            self._fail(error)

    def _begin_body(self, head: AnswerHead, rest: bytes) -> None:
        assert self._decide is not None
        plan = self._decide(head)
        if self._bodiless:
            head = head._replace(framing="length", length=0)
        self._answer = head
        if head.length is not None and plan.whole and head.length != plan.skip + len(plan.into):
            raise MalformedAnswer(
                f"the answer has {head.length} bytes instead of the expected {plan.skip + len(plan.into)}"
            )
        self._plan = plan
        if plan.sink is not None:
            plan.sink.room()[: len(rest)] = rest
            self._feed(plan, len(rest))
            return
        self._skip = min(len(rest), plan.skip)
        body = rest[self._skip : self._skip + len(plan.into)]
        plan.into[: len(body)] = body
        self._filled = len(body)
        self._beyond = len(rest) - self._skip - len(body)
        if (
            self._large_bodies is not None
            and len(plan.into) - self._filled >= LARGE_NBYTES
            and plan.skip == self._skip
            and not plan.partial
        ):
            self._receive_apart(self._large_bodies, plan.into[self._filled :])

    def _feed(self, plan: BodyPlan, nbytes: int) -> None:
        assert plan.sink is not None
        self._filled += nbytes
        try:
            plan.sink.took(nbytes)
        except ValueError as error:
            self._fail(error)

    def _receive_apart(self, large_bodies: LargeBodies, into: memoryview) -> None:
        """Let another thread receive the rest of the body."""
        assert self._transport is not None
        file = self._transport.get_extra_info("socket").fileno()
        self._before_apart = self._filled
        self._apart = large_bodies.begin(file, into, self._was_received)
        if self._apart is not None:
            self._transport.pause_reading()

    def _was_received(self, nbytes: int, problem: str | None) -> None:
        assert self._transport is not None
        self._apart = None
        self._filled = self._before_apart + nbytes
        self._heard_at = self._loop.time()
        if problem is None:
            self._transport.resume_reading()
            self._look_for_end()
        else:
            self._fail(BrokenAnswer(problem, self._filled, fresh=False))

    def _note_progress(self) -> None:
        if self._apart is not None:
            nbytes, self._heard_at = self._apart.progress()
            self._filled = self._before_apart + nbytes

    def _look_for_end(self) -> None:
        plan, head = self._plan, self._answer
        if plan is None or head is None:
            return
        if plan.sink is not None:
            if plan.sink.is_complete:
                self._usable = self._usable and not plan.sink.beyond
                self._succeed()
        elif self._skip < plan.skip or self._filled < len(plan.into):
            if plan.partial and head.framing == "chunked":
                self._look_for_last_chunk(bytes(plan.into[: self._filled]))
        elif not plan.whole:
            self._usable = False  # the rest of the body stays unread
            self._succeed()
        elif head.framing == "length":
            self._usable = self._usable and not self._beyond  # extra bytes after the body make the connection unusable
            self._succeed()
        elif self._beyond:
            self._fail(MalformedAnswer("the server sent more bytes than requested"))
        # Otherwise the body ends when the server closes the connection.

    def _look_for_last_chunk(self, raw: bytes) -> None:
        try:
            end = read_chunks(raw).end
        except MalformedAnswer as error:
            self._fail(error)
            return
        if end is not None:
            self._usable = self._usable and end == len(raw)
            self._succeed()

    def _ended_by_closing(self) -> bool:
        plan, head = self._plan, self._answer
        if plan is None or head is None:
            return False
        if plan.partial or head.framing != "close":
            return plan.partial
        return self._skip == plan.skip and self._filled == len(plan.into) and not self._beyond

    # -- end of a request

    def _succeed(self) -> None:
        answer = self.answer
        if not answer.keeps_alive or answer.framing == "close" or not self._usable:
            self.abort()
        self.idle_since = self._heard_at
        self._end(None)

    def _fail(self, error: BaseException) -> None:
        self.abort()
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        ended, self._ended = self._ended, None
        self._decide = self._plan = None
        if ended is not None:
            ended(error)

    def _look(self) -> None:
        """Fail the request if one of its timeouts has expired; otherwise, schedule the next timeout check."""
        self._timer = None
        if self._ended is None:
            return
        self._note_progress()
        has_begun = self._head_filled > 0
        expires_at, why = self._patience.expiry(self._began_at, self._heard_at, has_begun=has_begun)
        left_s = expires_at - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._fail(SilentAnswer(why, self._filled, fresh=not has_begun))
