"""Send requests for objects with callbacks on the event loop: for TLS, and without the native core."""

from __future__ import annotations

from functools import partial

from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.exchange import ReadPatience
from aiostream_data.storage.wire.object_get import ConnectionLeft, GetEnded, GetResult, ObjectGet


class LoopSender:
    """Sender whose connections are served by the event loop. See :class:`.GetSender`.

    Args:
        patience: Timeouts.
        left: Function that receives the connections that leave.
    """

    def __init__(self, patience: ReadPatience, left: ConnectionLeft) -> None:
        self._patience = patience
        self._left = left
        self._waiting: dict[int, tuple[ObjectGet, GetEnded]] = {}
        self._running: dict[int, Connection] = {}
        self._retiring = 0
        self._put = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def connections(self) -> int:
        return len(self._running)

    def put(self, get: ObjectGet, ended: GetEnded) -> int:
        self._put += 1
        self._waiting[self._put] = get, ended
        return self._put

    def add(self, connection: Connection) -> bool:
        if not self._waiting:
            return False
        number = next(iter(self._waiting))
        get, ended = self._waiting.pop(number)
        self._running[number] = connection
        was_used = connection.requests > 0
        done = partial(self._has_ended, number, connection, get, ended, was_used)
        connection.start(get.request, get.check.decide, self._patience, done)
        return True

    def retire(self, count: int) -> None:
        self._retiring = count

    def cancel(self, number: int) -> None:
        self._waiting.pop(number, None)
        connection = self._running.pop(number, None)
        if connection is not None:
            connection.cancel()
            self._left(connection)

    def _has_ended(
        self,
        number: int,
        connection: Connection,
        get: ObjectGet,
        ended: GetEnded,
        was_used: bool,
        error: BaseException | None,
    ) -> None:
        if self._running.pop(number, None) is None:
            return
        failure = get.check.refusal(connection) if error is None and get.check.is_error else error
        ended(GetResult(failure, was_used, connection.first_byte_s, connection.body_s))
        if self._retiring and connection.usable:
            self._retiring -= 1
        elif connection.usable and self.add(connection):
            return
        self._left(connection)
