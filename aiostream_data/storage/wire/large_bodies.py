"""Receive large response bodies on a thread of their own, which wakes the event loop once for each body.

A body of 8 MiB arrives in more than a hundred segments. Without this thread, each segment costs the event loop a
wake-up, and copying the segment from the kernel blocks the loop. Only connections without TLS use the thread.
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

BodyEnded: TypeAlias = Callable[[int, str | None], None]
"""Function that receives the number of received bytes, and the problem that ended an incomplete body."""


class LargeBodies:
    """Receiver of the large bodies of one HTTP client. Use each instance on one event loop, and close it after use."""

    def __init__(self) -> None:
        self._receiver: BodyReceiver | NativeBodyReceiver | None = None
        self._thread: threading.Thread | None = None
        self._ended: dict[int, BodyEnded] = {}
        self._loop = asyncio.get_running_loop()

    def begin(self, file: int, into: memoryview, ended: BodyEnded) -> int | None:
        """Begin to receive a body, and return its number; None if too many bodies are being received.

        Args:
            file: Socket, which nobody else reads or closes until the body has ended or is cancelled.
            into: Buffer for the complete body.
            ended: Function to call on the event loop when the body has ended.
        """
        receiver = self._receiver or self._start()
        number = receiver.begin(file, into)
        if number < 0:
            return None
        self._ended[number] = ended
        return number

    def progress(self, number: int) -> tuple[int, float]:
        """Return the number of received bytes of a body, and the monotonic time of the last of them in seconds."""
        assert self._receiver is not None
        return self._receiver.progress(number)

    def cancel(self, number: int) -> None:
        """Stop receiving a body. Afterwards, nobody writes to its buffer."""
        assert self._receiver is not None
        if self._ended.pop(number, None) is not None:
            self._receiver.cancel(number)

    def close(self) -> None:
        """Stop the thread. All bodies must have ended or be cancelled. Idempotent."""
        receiver, thread = self._receiver, self._thread
        self._receiver = self._thread = None
        if receiver is not None and thread is not None:
            self._loop.remove_reader(receiver.done_file)
            receiver.stop()
            thread.join()

    def _start(self) -> BodyReceiver | NativeBodyReceiver:
        receiver = self._receiver = NativeBodyReceiver() if HAVE_NATIVE else BodyReceiver()
        self._thread = threading.Thread(target=receiver.run, name="aiostream-receive", daemon=True)
        self._thread.start()
        self._loop.add_reader(receiver.done_file, self._take_ended)
        return receiver

    def _take_ended(self) -> None:
        assert self._receiver is not None
        for number, filled, problem in self._receiver.take_ended():
            if (ended := self._ended.pop(number, None)) is not None:
                ended(filled, _why(problem))


def _why(problem: int) -> str | None:
    if problem == 0:
        return None
    return "the server closed the connection" if problem < 0 else f"the connection failed ({os.strerror(problem)})"
