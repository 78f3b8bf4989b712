"""Read many small objects with one burst of GET requests, whose responses are handled in callbacks.

A coroutine for each object would take longer than its request. So one coroutine waits for a whole group of objects, and
each connection sends the next request when it has received a response. A burst does not retry. An object whose request
failed is read again with the ordinary read of its store, which retries and explains the failure.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import monotonic
from typing import TypeVar

from aiostream_data.errors import StoreBusyError
from aiostream_data.storage.blocking_calls import wait_to_end
from aiostream_data.storage.lanes import Lane
from aiostream_data.storage.late_reads import LATE, LEAST_PATIENCE_S, late_after_s
from aiostream_data.storage.wire.burst_queue import BurstQueue
from aiostream_data.storage.wire.client import Refused, Unusual
from aiostream_data.storage.wire.object_get import GetResult, ObjectGet
from aiostream_data.storage.wire.plain_read import refused
from aiostream_data.storage.wire.route import Route

Signing = TypeVar("Signing")
"""What a store needs to sign requests: a key or headers."""


async def read_burst(route: Route, gets: Mapping[int, ObjectGet]) -> dict[int, Exception | None]:
    """Read objects, and return their outcomes: None after success, LATE after a cancellation.

    Objects without an outcome must be read again. When this coroutine is cancelled, it cancels all requests.
    """
    groups: defaultdict[BurstQueue, dict[int, ObjectGet]] = defaultdict(dict)
    lanes: dict[str, Lane] = {}
    for number, get in gets.items():
        name = route.lane_key(get.shard.url)
        lane = lanes.get(name) or lanes.setdefault(name, route.lane(get.shard.url))
        groups[route.queue(lane, get.target)][number] = get
    bursts = [_Burst(route, queue, group) for queue, group in groups.items()]
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

    def __init__(self, route: Route, queue: BurstQueue, gets: Mapping[int, ObjectGet]) -> None:
        self.outcomes: dict[int, Exception | None] = {}
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._route = route
        self._queue = queue
        self._gets = gets
        self._running: dict[int, int] = {}  # number in the queue, by the number of the object
        self._ended_s: list[float] = []
        self._began = monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin to send requests."""
        self._queue.begin(self)
        for number, get in self._gets.items():
            self._running[number] = self._queue.put(get, partial(self._has_ended, number, get))
        self._timer = self.over.get_loop().call_later(LEAST_PATIENCE_S, self._look)
        self._queue.send()

    def stop(self) -> set[asyncio.Task[None]]:
        """Cancel all requests in progress. Return the tasks that were cancelled because this was the last burst."""
        if self._timer is not None:
            self._timer.cancel()
        self._cancel()
        return self._queue.end(self)

    def give_up(self) -> None:
        """End the burst, because its other requests cannot be sent."""
        self._cancel()
        self._end()

    def _has_ended(self, number: int, get: ObjectGet, result: GetResult) -> None:
        del self._running[number]
        is_object = result.failure is None
        self._route.client.count(len(get.buffer) if is_object else 0, was_used=result.was_used)
        if is_object:
            self._route.answered(self._queue.lane, result.first_byte_s, result.body_s, len(get.buffer))
            self._route.plain_reads += 1
            self.outcomes[number] = None
            self._ended_s.append(monotonic() - self._began)
        else:
            self._failed(get, result.failure)
        self._queue.balance()
        if not self._running:
            self._end()

    def _failed(self, get: ObjectGet, failure: BaseException | None) -> None:
        counters = self._route.counters
        counters.requests += 1
        counters.retries += 1  # the ordinary read of the object is a retry
        if isinstance(failure, Unusual):
            self._route.note_unusual(get.target)
        elif isinstance(failure, Refused):
            refusal = refused(get.dialect, get.shard.url, failure)
            if isinstance(refusal, StoreBusyError) and refusal.is_throttled:
                self._queue.lane.refused(refusal.retry_after_s)
                counters.throttled += 1

    def _look(self) -> None:
        """Finish the burst if the requests in progress are late; otherwise, schedule the next check."""
        elapsed_s = monotonic() - self._began
        late_s = late_after_s(self._ended_s, len(self._gets))
        if late_s is None or late_s > elapsed_s:
            wait_s = LEAST_PATIENCE_S if late_s is None else late_s - elapsed_s
            self._timer = self.over.get_loop().call_later(wait_s, self._look)
            return
        self.outcomes.update(dict.fromkeys(self._running, LATE))
        self._cancel()
        self._end()

    def _cancel(self) -> None:
        for number in self._running.values():
            self._queue.cancel(number)
        self._running.clear()

    def _end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)
