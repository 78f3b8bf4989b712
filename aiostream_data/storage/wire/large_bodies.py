"""Receive large response bodies on threads of their own, which wake the event loop once for each body.

A body of 8 MiB arrives in more than a hundred segments. Without these threads, each segment costs the event loop a
wake-up, and copying the segment from the kernel blocks the loop. Only connections without TLS use the threads.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from aiostream_data._native import HAVE_NATIVE, NativeBodyReceiver
from aiostream_data.storage.wire.body_receiver import BodyReceiver

LARGE_NBYTES: Final = 128 << 10
"""Minimum number of bytes of a body that are received on the thread. For fewer bytes, two more wake-ups cost more."""

RECEIVING_THREADS: Final = 2
"""Number of threads that receive bodies. One thread copies two to three gigabytes per second from the kernel."""

BodyEnded: TypeAlias = Callable[[int, str | None], None]
"""Function that receives the number of received bytes, and the problem that ended an incomplete body."""


class LargeBodies:
    """Receiver of the large bodies of one HTTP client. Use each instance on one event loop, and close it after use."""

    def __init__(self) -> None:
        self._threads: list[_ReceivingThread] = []

    def begin(self, file: int, into: memoryview, ended: BodyEnded) -> ReceivedBody | None:
        """Begin to receive a body; return None if too many bodies are being received.

        Args:
            file: Socket, which nobody else reads or closes until the body has ended or is cancelled.
            into: Buffer for the complete body.
            ended: Function to call on the event loop when the body has ended.
        """
        if not self._threads:
            self._threads = [_ReceivingThread(number) for number in range(RECEIVING_THREADS)]
        return min(self._threads, key=lambda thread: len(thread.bodies)).begin(file, into, ended)

    def close(self) -> None:
        """Stop the threads. All bodies must have ended or be cancelled. Idempotent."""
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.stop()


class _ReceivingThread:
    """Thread that receives some of the bodies.

    Attributes:
        bodies: Bodies that are being received, by number.
    """

    def __init__(self, number: int) -> None:
        self.bodies: dict[int, ReceivedBody] = {}
        self.receiver: BodyReceiver | NativeBodyReceiver = NativeBodyReceiver() if HAVE_NATIVE else BodyReceiver()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self.receiver.run, name=f"aiostream-receive-{number}", daemon=True)
        self._thread.start()
        self._loop.add_reader(self.receiver.done_file, self._take_ended)

    def begin(self, file: int, into: memoryview, ended: BodyEnded) -> ReceivedBody | None:
        number = self.receiver.begin(file, into)
        if number < 0:
            return None
        body = self.bodies[number] = ReceivedBody(self, number, ended)
        return body

    def stop(self) -> None:
        self._loop.remove_reader(self.receiver.done_file)
        self.receiver.stop()
        self._thread.join()

    def _take_ended(self) -> None:
        for number, filled, problem in self.receiver.take_ended():
            if (body := self.bodies.pop(number, None)) is not None:
                body.ended(filled, _why(problem))


class ReceivedBody:
    """A body that a thread receives.

    Attributes:
        ended: Function to call when the body has ended.
    """

    __slots__ = ("_number", "_thread", "ended")

    def __init__(self, thread: _ReceivingThread, number: int, ended: BodyEnded) -> None:
        self._thread = thread
        self._number = number
        self.ended = ended

    def progress(self) -> tuple[int, float]:
        """Return the number of received bytes, and the monotonic time of the last of them in seconds."""
        return self._thread.receiver.progress(self._number)

    def cancel(self) -> None:
        """Stop receiving the body. Afterwards, nobody writes to its buffer."""
        if self._thread.bodies.pop(self._number, None) is not None:
            self._thread.receiver.cancel(self._number)


def _why(problem: int) -> str | None:
    if problem == 0:
        return None
    return "the server closed the connection" if problem < 0 else f"the connection failed ({os.strerror(problem)})"
