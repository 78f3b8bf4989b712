"""Whether a ring can still be used, and the one lock and wake-up call that its parts share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiostream_data.device.forks import this_process
from aiostream_data.device.measures import Measures
from aiostream_data.errors import DeviceError, ForkedPipelineError, LoaderClosedError


class RingState:
    """Open, failed, closed, or in another process. Failed and closed are final.

    Attributes:
        lock: Held while the state of any slot changes; never while a thread waits for the device.
        measures: Counters that the parts of the ring share.
        on_change: Called at every change with the lock held, from any thread; must return at once. None: nothing is.
    """

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self._changes = 0
        self.measures = Measures()
        self.on_change: Callable[[], None] | None = None
        self._process = this_process()
        self._failure: BaseException | None = None
        self._closed = False

    def check(self) -> None:
        """Return when the ring can be used.

        Raises:
            ForkedPipelineError: This is a forked child, which has no device.
            DeviceError: The device failed earlier.
            LoaderClosedError: The ring was closed.
        """
        self.check_device()
        if self._closed:
            raise LoaderClosedError("the device stage was closed")

    def check_device(self) -> None:
        """Return when the device can be used, also behind the ring's closing.

        Raises:
            ForkedPipelineError: This is a forked child, which has no device.
            DeviceError: The device failed earlier.
        """
        if self.forked:
            raise ForkedPipelineError(
                "this device stage was opened in another process, and a device cannot be used across fork: "
                "open the data set anew here"
            )
        if self._failure is not None:
            status = getattr(self._failure, "status", None)
            raise DeviceError(f"the device stage failed earlier: {self._failure}", status=status) from self._failure

    @property
    def forked(self) -> bool:
        """True in a child made by fork. Its lock may be held by a thread that does not exist there."""
        return this_process() != self._process

    @property
    def failed(self) -> bool:
        return self._failure is not None

    @property
    def closed(self) -> bool:
        return self._closed

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Fail the ring for good when the block raises: nobody can tell what the device will still do."""
        try:
            yield
        except BaseException as error:
            with self.lock:
                self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Fail the ring for good; the first cause is the one that is told. The caller holds the lock."""
        self._failure = self._failure or error
        self.announce()

    def close(self, timeout_s: float) -> bool:
        """Close the ring and wake all who wait; False when it was closed before, or in a forked child.

        A thread that has the lock and does not come back from the driver for ``timeout_s`` fails the ring.
        """
        if self.forked:
            return False
        if not self.lock.acquire(timeout=timeout_s):
            was_open, self._closed = not self._closed, True
            self._failure = self._failure or DeviceError(f"a call to the device did not return for {timeout_s:g} s")
            return was_open
        try:
            was_open, self._closed = not self._closed, True
            self.announce()
        finally:
            self.lock.release()
        return was_open

    def announce(self) -> None:
        """Wake all who wait, because something changed. The caller holds the lock."""
        self._changes += 1
        self.lock.notify_all()
        on_change = self.on_change
        if on_change is not None:
            on_change()

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
