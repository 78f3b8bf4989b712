"""Whether a ring can still be used, and the one lock and wake-up call that its parts share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiostream_data.errors import DeviceError, ForkedPipelineError, LoaderClosedError


class RingState:
    """Open, failed, closed, or in another process. Failed and closed are final.

    Attributes:
        lock: Held while the state of any slot changes; never while a thread waits for the device.
    """

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self._changes = 0
        self._pid = os.getpid()
        self._failure: BaseException | None = None
        self._closed = False

    def check(self) -> None:
        """Return when the ring can be used.

        Raises:
            ForkedPipelineError: This is a forked child, which has no device.
            DeviceError: The device failed earlier.
            LoaderClosedError: The ring was closed.
        """
        if self.forked:
            raise ForkedPipelineError(
                "this device stage was opened in another process, and a device cannot be used across fork: "
                "open the data set anew here"
            )
        if self._failure is not None:
            raise DeviceError(f"the device stage failed earlier: {self._failure}") from self._failure
        if self._closed:
            raise LoaderClosedError("the device stage was closed")

    @property
    def forked(self) -> bool:
        """True in a child made by fork. Its lock may be held by a thread that does not exist there."""
        return os.getpid() != self._pid

    @property
    def failed(self) -> bool:
        return self._failure is not None

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Fail the ring for good when the block raises: nobody can tell what the device will still do."""
        try:
            yield
        except BaseException as error:
            with self.lock:
                self._failure = self._failure or error
                self.announce()
            raise

    def close(self) -> bool:
        """Close the ring and wake all who wait; False when it was closed before, or in a forked child."""
        if self.forked:
            return False
        with self.lock:
            was_open, self._closed = not self._closed, True
            self.announce()
        return was_open

    def announce(self) -> None:
        """Wake all who wait, because something changed. The caller holds the lock."""
        self._changes += 1
        self.lock.notify_all()

    @property
    def changes(self) -> int:
        """How often something changed; see :meth:`wait_past`."""
        return self._changes

    def wait_past(self, changes: int, timeout_s: float | None) -> bool:
        """Block until :attr:`changes` is more than ``changes``, or ``timeout_s`` are over; say which.

        Read :attr:`changes`, try, and wait only when that failed: then no change in between is missed.
        """
        return self.wait_until(lambda: self._changes > changes, timeout_s)

    def wait_until(self, reached: Callable[[], bool], timeout_s: float | None) -> bool:
        """Block until ``reached()``, asked again at every change, or ``timeout_s`` are over; say which."""
        with self.lock:
            return self.lock.wait_for(reached, timeout_s)
