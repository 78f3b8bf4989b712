"""One keep-alive connection, whose answers the kernel writes straight into the caller's buffer.

How this works. asyncio asks a :class:`asyncio.BufferedProtocol` where to put what arrives. While a head is awaited that
is a small buffer of the connection's own; from its end on it is the place in the caller's buffer where the body goes
on. So a body is never copied, but for what arrived together with its head, and no step of asyncio is made before it is
complete: one request wakes its caller once.

One request at a time. A connection that was cancelled, broke off or ended within an answer is never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, cast

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

HEAD_NBYTES: Final = 8 << 10
"""Room for a head at first; little, since what comes behind it has to be copied."""

SCRATCH_NBYTES: Final = 64 << 10
"""Room for bytes that nobody wants, at a time."""


class BrokenAnswer(ConnectionError):
    """The connection ended, or went silent, before the answer was complete.

    Attributes:
        received: Bytes of the wanted body that had arrived.
        fresh: Nothing of the answer had arrived.
    """

    def __init__(self, why: str, received: int, *, fresh: bool) -> None:
        super().__init__(why)
        self.received = received
        self.fresh = fresh


class SilentAnswer(BrokenAnswer):
    """Nothing arrived for too long."""


class BodyPlan(NamedTuple):
    """What to do with a body.

    Attributes:
        skip: Bytes at its beginning that nobody wants.
        into: Where what follows goes.
        whole: The body must end where ``into`` does; else the connection is given up there.
        partial: The body may end before ``into`` does, too, however its end is told. Chunks are kept as they come.
    """

    into: memoryview
    skip: int = 0
    whole: bool = True
    partial: bool = False


Decide = Callable[[AnswerHead], BodyPlan]
"""Looks at a head and says what becomes of the body. What it raises ends the request."""


class ReadPatience(NamedTuple):
    """Longest waits in seconds: for the first byte of an answer, between two arrivals after that, and for all of it."""

    first_byte_s: float
    idle_s: float
    total_s: float


class Connection(asyncio.BufferedProtocol):
    """See above. Made by ``loop.create_connection``; used on that loop only.

    Attributes:
        requests: How many were sent.
        idle_since: Loop time at which the last one ended.
        first_byte_s: How long the last answer took to begin.
    """

    def __init__(self) -> None:
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
        self._filled = 0
        self._beyond = 0
        self._waiter: asyncio.Future[AnswerHead] | None = None
        self._patience = ReadPatience(0.0, 0.0, 0.0)
        self._began_at = self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._usable = False
        self.requests = 0
        self.idle_since = 0.0
        self.first_byte_s = 0.0

    # -- for senders of requests

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._usable and self._waiter is None

    async def get(
        self, request: bytes, decide: Decide, patience: ReadPatience, *, bodiless: bool = False
    ) -> AnswerHead:
        """Send a request and wait until its body is where ``decide`` wants it.

        Cancelling ends the connection, and from then on nothing is written into the buffer any more.

        Args:
            bodiless: It is a HEAD request, whose answer tells the length of a body that does not come.

        Raises:
            BrokenAnswer: The connection ended too early, or the server was silent.
            MalformedAnswer: What came is no answer that can be trusted.
            Exception: What ``decide`` raised.
        """
        assert self.usable, "one request at a time, on a connection that is up"
        assert self._transport is not None
        self._decide, self._plan, self._answer, self._bodiless = decide, None, None, bodiless
        self._head_filled = self._interim = self._skip = self._filled = self._beyond = 0
        self._patience = patience
        self._began_at = self._heard_at = self._loop.time()
        self._waiter = self._loop.create_future()
        self.requests += 1
        self._transport.write(request)
        if self._timer is None:
            self._timer = self._loop.call_later(patience.first_byte_s, self._look)
        try:
            return await self._waiter
        except BaseException:
            self.abort()
            raise
        finally:
            self._waiter = self._decide = self._plan = None
            self.idle_since = self._loop.time()

    @property
    def body_s(self) -> float:
        """How long the last answer took from its first byte to its last."""
        return self._heard_at - self._began_at - self.first_byte_s

    @property
    def received(self) -> int:
        """Bytes of the last answer's body that came, those that nobody wanted too."""
        return self._skip + self._filled + self._beyond

    def abort(self) -> None:
        """End the connection at once. Idempotent."""
        self._usable = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    # -- for the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        self._usable = True
        self.idle_since = self._loop.time()

    def get_buffer(self, sizehint: int) -> memoryview | bytearray:
        plan = self._plan
        if plan is None or self._waiter is None:
            return self._room_for_head()
        if self._skip < plan.skip:
            return self._room_for_nothing(plan.skip - self._skip)
        if self._filled < len(plan.into):
            return plan.into[self._filled :]
        return self._room_for_nothing(1)

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._loop.time()
        if self._head_filled == 0:
            self.first_byte_s = self._heard_at - self._began_at
        if self._waiter is None or self._waiter.done():
            self._fail_quietly()  # an answer to nothing: the connection cannot be trusted
            return
        plan = self._plan
        if plan is None:
            self._head_filled += nbytes
            self._read_head(self._head_filled - nbytes)
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
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if error is None and self._ended_by_closing():
            self._succeed()
            return
        why = "the server closed the connection" if error is None else f"the connection broke off ({error})"
        waiter.set_exception(BrokenAnswer(why, self._filled, fresh=self._head_filled == 0))

    # -- what arrived

    def _room_for_head(self) -> memoryview:
        if self._head_filled == len(self._head):
            larger = bytearray(2 * len(self._head))  # a new one: the loop may still have a view of the other
            larger[: self._head_filled] = self._head
            self._head = larger
        return memoryview(self._head)[self._head_filled :]

    def _room_for_nothing(self, nbytes: int) -> memoryview:
        if self._scratch is None:
            self._scratch = bytearray(SCRATCH_NBYTES)
        return memoryview(self._scratch)[: min(nbytes, SCRATCH_NBYTES)]

    def _read_head(self, searched: int) -> None:
        """Take heads off what has arrived, until a final one is complete; then begin with the body."""
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
                f"{plan.skip + len(plan.into)} bytes were to come, and the answer says that it has {head.length}"
            )
        self._plan = plan
        self._skip = min(len(rest), plan.skip)
        body = rest[self._skip : self._skip + len(plan.into)]
        plan.into[: len(body)] = body
        self._filled = len(body)
        self._beyond = len(rest) - self._skip - len(body)

    def _look_for_end(self) -> None:
        plan, head = self._plan, self._answer
        if plan is None or head is None or self._waiter is None or self._waiter.done():
            return
        if self._skip < plan.skip or self._filled < len(plan.into):
            if plan.partial and head.framing == "chunked":
                self._look_for_last_chunk(bytes(plan.into[: self._filled]))
            return
        if not plan.whole:
            self._usable = False  # more of the body is coming, which nobody reads
            self._succeed()
        elif head.framing == "length":
            self._usable = self._usable and not self._beyond  # what comes behind a whole body answers nothing
            self._succeed()
        elif self._beyond:
            self._fail(MalformedAnswer("more came than was asked for"))
        # else the end of the connection is the end of the body

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

    # -- how a request ends

    def _succeed(self) -> None:
        assert self._answer is not None
        assert self._waiter is not None
        if not self._answer.keeps_alive or self._answer.framing == "close" or not self._usable:
            self._usable = False
            if self._transport is not None:
                self._transport.abort()
        self._waiter.set_result(self._answer)

    def _fail(self, error: BaseException) -> None:
        self._usable = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        if self._transport is not None:
            self._transport.abort()

    def _fail_quietly(self) -> None:
        self._usable = False
        if self._transport is not None:
            self._transport.abort()

    def _look(self) -> None:
        """End a request whose server has been silent for too long; else look again when that could be."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        patience, heard = self._patience, self._head_filled > 0
        silent_s = patience.idle_s if heard else patience.first_byte_s
        left_s = min(self._heard_at + silent_s, self._began_at + patience.total_s) - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
            return
        if self._began_at + patience.total_s <= self._heard_at + silent_s:
            why = f"no complete answer within the time-outs, {patience.total_s:g} s in all"
        else:
            why = f"no {'more' if heard else 'answer'} within the time-outs, {silent_s:g} s of silence"
        self._fail(SilentAnswer(why, self._filled, fresh=not heard))
