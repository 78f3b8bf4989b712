"""Read many small objects with one burst of GET requests, whose responses are handled in callbacks.

A coroutine for each object would take longer than its request. So one coroutine waits for a whole group of objects, and
the end of a response starts the next request on the same connection. A burst does not retry. An object whose request
failed is read again with the ordinary read of its store, which retries and explains the failure.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TypeVar

from aiostream_data.errors import StoreBusyError
from aiostream_data.rows.records import ShardRef
from aiostream_data.storage.blocking_calls import wait_to_end
from aiostream_data.storage.lanes import Lane
from aiostream_data.storage.late_reads import LATE, LEAST_PATIENCE_S, late_after_s
from aiostream_data.storage.wire.client import AnswerCheck, RequestTarget, Unusual
from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.plain_read import PlainDialect, RangeAnswer, refused
from aiostream_data.storage.wire.pool import Pool
from aiostream_data.storage.wire.route import Route

Signing = TypeVar("Signing")
"""What a store needs to sign requests: a key or headers."""


class ObjectGet:
    """Request for one complete object, and the check of its response.

    Args:
        target: Server of the object.
        request: Complete request head.
        dialect: Rules for interpreting the responses of the store.
        shard: The object.
        buffer: Buffer for the bytes, as long as the object.
    """

    __slots__ = ("check", "dialect", "nbytes", "request", "shard", "target")

    def __init__(
        self,
        target: RequestTarget,
        request: bytes,
        dialect: PlainDialect,
        shard: ShardRef,
        buffer: memoryview,
    ) -> None:
        self.target = target
        self.request = request
        self.dialect = dialect
        self.shard = shard
        self.nbytes = len(buffer)
        self.check = AnswerCheck(RangeAnswer(dialect, shard, 0, buffer).accept, dialect.redirects)


async def read_burst(route: Route, gets: Mapping[int, ObjectGet]) -> dict[int, Exception | None]:
    """Read objects, and return their outcomes: None after success, LATE after a cancellation.

    Objects without an outcome must be read again. When this coroutine is cancelled, it cancels all requests.
    """
    groups: defaultdict[tuple[Lane, Pool], dict[int, ObjectGet]] = defaultdict(dict)
    lanes: dict[str, Lane] = {}
    for number, get in gets.items():
        name = route.lane_key(get.shard.url)
        lane = lanes.get(name) or lanes.setdefault(name, route.lane(get.shard.url))
        groups[lane, route.client.pool_of(get.target)][number] = get
    bursts = [_Burst(route, lane, pool, group) for (lane, pool), group in groups.items()]
    try:
        for burst in bursts:
            burst.begin()
        for burst in bursts:
            await burst.over
    finally:
        acquiring = [task for burst in bursts for task in burst.stop()]
        if acquiring:
            await wait_to_end(asyncio.ensure_future(asyncio.wait(acquiring)))
    return {number: outcome for burst in bursts for number, outcome in burst.outcomes.items()}


async def read_signed(
    route: Route, sign: Callable[[], Awaitable[Signing]], gets: Callable[[Signing], Mapping[int, ObjectGet]]
) -> dict[int, Exception | None]:
    """Read objects that need credentials. See :func:`read_burst`.

    If the user limits the requests, or if the credentials cannot be found, no object is read.

    Args:
        sign: Returns the current credentials.
        gets: Returns the requests, signed with these credentials.
    """
    if route.is_capped:
        return {}
    try:
        signing = await sign()
    except Exception:  # noqa: BLE001 - the ordinary read raises it
        return {}
    return await read_burst(route, gets(signing))


class _Burst:
    """Requests of a burst to one server, limited by one lane.

    Attributes:
        outcomes: Outcomes of the requests that succeeded or were late, by number.
        over: Future that is done when all requests have ended or are late.
    """

    def __init__(self, route: Route, lane: Lane, pool: Pool, gets: Mapping[int, ObjectGet]) -> None:
        self.outcomes: dict[int, Exception | None] = {}
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._route = route
        self._lane = lane
        self._pool = pool
        self._count = len(gets)
        self._waiting = deque(gets.items())
        self._running: dict[Connection, tuple[int, ObjectGet, bool]] = {}
        self._acquiring: set[asyncio.Task[None]] = set()
        self._ended_s: list[float] = []
        self._began = monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Send requests over the idle connections, and begin to acquire connections for the other requests."""
        while self._waiting and self._lane.enter_at_once():
            connection = self._pool.take_idle()
            if connection is None:
                self._lane.leave()
                break
            self._send(connection)
        for _ in range(min(len(self._waiting), max(1, self._pool.openable))):
            task = asyncio.ensure_future(self._acquire())
            self._acquiring.add(task)
            task.add_done_callback(self._was_acquired)
        self._timer = self.over.get_loop().call_later(LEAST_PATIENCE_S, self._look)
        self._finish()

    def stop(self) -> set[asyncio.Task[None]]:
        """Cancel all requests in progress. Return the tasks that still acquire connections; they are cancelled, too."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        for connection in list(self._running):
            connection.cancel()
            self._release(connection)
        self._running.clear()
        for task in self._acquiring:
            task.cancel()
        return set(self._acquiring)

    async def _acquire(self) -> None:
        while self._waiting:
            asked = monotonic()
            await self._lane.enter()
            try:
                connection = await self._pool.take()
            except BaseException:
                self._lane.leave()
                raise
            self._route.waited(monotonic() - asked)
            if not self._waiting:
                self._release(connection)
                return
            self._send(connection)

    def _was_acquired(self, task: asyncio.Task[None]) -> None:
        self._acquiring.discard(task)
        if not task.cancelled():
            task.exception()  # the ordinary read of the remaining objects raises it
        self._finish()

    def _send(self, connection: Connection) -> None:
        number, get = self._waiting.popleft()
        self._running[connection] = number, get, connection.requests > 0
        ended = partial(self._has_ended, connection)
        connection.start(get.request, get.check.decide, self._route.client.patience, ended)

    def _has_ended(self, connection: Connection, error: BaseException | None) -> None:
        number, get, was_used = self._running.pop(connection)
        is_object = error is None and not get.check.is_error
        self._route.client.count(connection, was_used=was_used, is_object=is_object)
        if is_object:
            self._route.answered(self._lane, connection.first_byte_s, connection.body_s, get.nbytes)
            self._route.plain_reads += 1
            self.outcomes[number] = None
            self._ended_s.append(monotonic() - self._began)
        else:
            self._failed(connection, get, error)
        if connection.usable and self._waiting and self._lane.may_continue():
            self._send(connection)
            return
        self._release(connection)
        self._finish()

    def _failed(self, connection: Connection, get: ObjectGet, error: BaseException | None) -> None:
        counters = self._route.counters
        counters.requests += 1
        counters.retries += 1  # the ordinary read of the object is a retry
        if isinstance(error, Unusual):
            self._route.note_unusual(get.target)
        elif error is None:
            refusal = refused(get.dialect, get.shard.url, get.check.refusal(connection))
            if isinstance(refusal, StoreBusyError) and refusal.is_throttled:
                self._lane.refused(refusal.retry_after_s)
                counters.throttled += 1

    def _release(self, connection: Connection) -> None:
        self._lane.leave()
        self._pool.give_back(connection)

    def _finish(self) -> None:
        if not (self._running or self._acquiring) and not self.over.done():
            self.over.set_result(None)

    def _look(self) -> None:
        """Finish the burst if the requests in progress are late; otherwise, schedule the next check."""
        elapsed_s = monotonic() - self._began
        late_s = late_after_s(self._ended_s, self._count)
        if late_s is None or late_s > elapsed_s:
            wait_s = LEAST_PATIENCE_S if late_s is None else late_s - elapsed_s
            self._timer = self.over.get_loop().call_later(wait_s, self._look)
            return
        self.outcomes.update({number: LATE for number, _, _ in self._running.values()})
        self.outcomes.update({number: LATE for number, _ in self._waiting})
        with suppress(asyncio.InvalidStateError):
            self.over.set_result(None)
