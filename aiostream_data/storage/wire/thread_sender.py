"""Send requests for objects on threads without the GIL, which wake the event loop once for many responses.

The native threads send the requests and receive heads and bodies (``_native/exchange.h``). They accept only ordinary
responses to complete objects. The event loop then checks their heads with the strict parser, and judges all others.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Final

from aiostream_data._native import NativeExchange
from aiostream_data.storage.wire.answer_head import parse_head
from aiostream_data.storage.wire.client import Refused
from aiostream_data.storage.wire.connection import Connection
from aiostream_data.storage.wire.exchange import BrokenAnswer, ReadPatience, SilentAnswer
from aiostream_data.storage.wire.large_bodies import RECEIVING_THREADS
from aiostream_data.storage.wire.object_get import ConnectionLeft, GetEnded, GetResult, ObjectGet

_WHY: Final = {
    -1: "the server closed the connection",
    -2: "the server sent no data in time",
    -3: "the answer is not an ordinary answer to a request for an object",
}
"""Descriptions of the problems that are no values of ``errno``."""

_SILENT: Final = -2


class SenderThreads:
    """Threads that serve the connections of one HTTP client. Use them on one event loop, and close them after use."""

    def __init__(self, patience: ReadPatience) -> None:
        self.native = NativeExchange(RECEIVING_THREADS, *patience)
        self.by_request: dict[int, ThreadSender] = {}
        self.by_connection: dict[int, ThreadSender] = {}
        self._loop = asyncio.get_running_loop()
        self._threads = [
            threading.Thread(target=self.native.run, args=(worker,), name=f"aiostream-send-{worker}", daemon=True)
            for worker in range(RECEIVING_THREADS)
        ]
        for thread in self._threads:
            thread.start()
        self._loop.add_reader(self.native.done_file, self._take)

    def close(self) -> None:
        """Stop the threads. All requests must have ended or be cancelled."""
        self._loop.remove_reader(self.native.done_file)
        self.native.stop()
        for thread in self._threads:
            thread.join()

    def _take(self) -> None:
        ended, left = self.native.take()
        for number, connection, problem, head, first_byte_s, body_s, received in ended:
            sender = self.by_request.pop(number)
            sender.has_ended(number, connection, problem, head, first_byte_s, body_s, received)
        for connection, is_usable in left:
            self.by_connection.pop(connection).has_left(connection, is_usable=is_usable)


class ThreadSender:
    """Sender whose connections are served by native threads. See :class:`.GetSender`.

    Args:
        threads: Threads of the HTTP client.
        left: Function that receives the connections that leave.
    """

    def __init__(self, threads: SenderThreads, left: ConnectionLeft) -> None:
        self._threads = threads
        self._native = threads.native
        self._left = left
        self._queue = threads.native.open_queue()
        self._gets: dict[int, tuple[ObjectGet, GetEnded]] = {}
        self._connections: dict[int, Connection] = {}

    def __del__(self) -> None:
        self._native.close_queue(self._queue)

    @property
    def waiting(self) -> int:
        return self._native.waiting(self._queue)

    @property
    def connections(self) -> int:
        return len(self._connections)

    def put(self, get: ObjectGet, ended: GetEnded) -> int:
        number = self._native.put(self._queue, get.request, get.buffer)
        self._gets[number] = get, ended
        self._threads.by_request[number] = self
        return number

    def add(self, connection: Connection) -> bool:
        file = connection.lend()
        number = self._native.add(self._queue, file)
        if number < 0:
            connection.take_back(is_usable=True)
            return False
        self._connections[number] = connection
        self._threads.by_connection[number] = self
        return True

    def retire(self, count: int) -> None:
        self._native.retire(self._queue, count)

    def cancel(self, number: int) -> None:
        if self._gets.pop(number, None) is None:
            return
        del self._threads.by_request[number]
        connection = self._native.cancel(number)
        if connection >= 0:
            del self._threads.by_connection[connection]
            self.has_left(connection, is_usable=False)

    def has_ended(
        self,
        number: int,
        over: int,
        problem: int,
        head: bytes | None,
        first_byte_s: float,
        body_s: float,
        received: int,
    ) -> None:
        """Judge the response to a request, and report its result.

        Args:
            number: Number of the request.
            over: Number of the connection.
            problem: 0 for a complete object; otherwise the reason why the response is not complete.
            head: Head of the response; None if it is not complete.
            first_byte_s, body_s: Seconds to the first byte, and from there to the last byte.
            received: Number of received bytes of the object.
        """
        get, ended = self._gets.pop(number)
        was_used = True
        if (connection := self._connections.get(over)) is not None:  # it may have left after another request
            was_used = connection.requests > 0
            connection.requests += 1
        ended(GetResult(_failure(get, problem, head, received), was_used, first_byte_s, body_s))

    def has_left(self, number: int, *, is_usable: bool) -> None:
        """Take a connection back from its thread."""
        connection = self._connections.pop(number)
        connection.take_back(is_usable=is_usable)
        self._left(connection)


def _failure(get: ObjectGet, problem: int, head: bytes | None, received: int) -> BaseException | Refused | None:
    """Return None if the object is complete, or the reason why it must be read again."""
    if head is not None:
        try:
            answer = parse_head(head)
            plan = None if answer is None else get.check.decide(answer)
        except Exception as error:  # noqa: BLE001 - returned
            return error
        if answer is not None and get.check.is_error:
            return Refused(answer.status, answer.headers, b"")
        if problem == 0 and plan is not None and not plan.skip and plan.whole:
            return None
    why = _WHY[problem] if problem < 0 else f"the connection failed ({os.strerror(problem)})"
    return (SilentAnswer if problem == _SILENT else BrokenAnswer)(why, received, fresh=head is None)
