"""Receive response bodies from sockets on a thread; the pure-Python twin of ``_native/body_receiver.pyx``.

The event loop would wake up for every segment of a large body. A receiver copies the bodies of many connections into
their buffers, and notifies the event loop when a body has ended.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from dataclasses import dataclass
from time import monotonic
from typing import Final

CLOSED: Final = -1
"""Problem of a body whose connection was closed by the server."""

MOST_BODIES: Final = 256
"""Maximum number of bodies that one receiver receives at the same time."""

_STEP_NBYTES: Final = 1 << 20
"""Maximum number of bytes to receive for one body before the other bodies have their turn."""


@dataclass
class _Body:
    file: int
    into: memoryview
    heard_s: float
    filled: int = 0
    problem: int | None = None


class BodyReceiver:
    """Receiver of response bodies. One thread calls :meth:`run`; one other thread calls all other methods.

    Attributes:
        done_file: File descriptor that is readable when a body has ended.
    """

    def __init__(self) -> None:
        self.done_file, self._done = _pipe()
        self._wakes, self._wake = _pipe()
        self._bodies: dict[int, _Body] = {}
        self._lock = threading.Lock()
        self._is_stopped = False

    def __del__(self) -> None:
        for file in (self.done_file, self._done, self._wakes, self._wake):
            os.close(file)

    def run(self) -> None:
        """Receive bodies until :meth:`stop` is called."""
        while not self._is_stopped:
            files = select.poll()
            files.register(self._wakes, select.POLLIN)
            with self._lock:
                running = {body.file: body for body in self._bodies.values() if body.problem is None}
            for file in running:
                files.register(file, select.POLLIN)
            for file, _ in files.poll():
                if file == self._wakes:
                    _drain(file)
                else:
                    self._receive(running[file])

    def begin(self, file: int, into: memoryview) -> int:
        """Begin to receive a body, and return its number; -1 if there are too many bodies.

        Args:
            file: Socket, which nobody else reads or closes until the body has ended or is cancelled.
            into: Buffer for the complete body, at least one byte. Only the receiver writes to it until then.
        """
        with self._lock:
            number = next((number for number in range(MOST_BODIES) if number not in self._bodies), -1)
            if number >= 0:
                self._bodies[number] = _Body(file, into, monotonic())
        _ring(self._wake)
        return number

    def progress(self, number: int) -> tuple[int, float]:
        """Return the number of received bytes of a body, and the monotonic time of the last of them in seconds."""
        body = self._bodies[number]
        return body.filled, body.heard_s

    def take_ended(self) -> list[tuple[int, int, int]]:
        """Return the bodies that have ended: their numbers, received bytes and problems.

        The problem is 0 for a complete body, :data:`CLOSED`, or an error number.
        """
        _drain(self.done_file)
        with self._lock:
            ended = [(n, body.filled, body.problem) for n, body in self._bodies.items() if body.problem is not None]
            for number, _, _ in ended:
                del self._bodies[number]
        return ended

    def cancel(self, number: int) -> None:
        """Stop receiving a body. Afterwards, the receiver does not write to its buffer."""
        with self._lock:
            self._bodies.pop(number, None)

    def stop(self) -> None:
        """Let :meth:`run` return soon. Bodies in progress stay incomplete."""
        self._is_stopped = True
        _ring(self._wake)

    def _receive(self, body: _Body) -> None:
        with self._lock:
            if body not in self._bodies.values():
                return
            try:
                got = os.readv(body.file, [body.into[body.filled : body.filled + _STEP_NBYTES]])
            except BlockingIOError:
                return
            except OSError as error:
                body.problem = error.errno or errno.EIO
            else:
                body.filled += got
                body.heard_s = monotonic()
                if not got or body.filled == len(body.into):
                    body.problem = 0 if got else CLOSED
        if body.problem is not None:
            _ring(self._done)


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _ring(file: int) -> None:
    try:
        os.write(file, b"\0")
    except BlockingIOError:
        return  # a full pipe already wakes its reader


def _drain(file: int) -> None:
    try:
        while len(os.read(file, 512)) == 512:
            pass
    except BlockingIOError:
        return
