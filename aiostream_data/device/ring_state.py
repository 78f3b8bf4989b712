"""State of a ring of slots (open, failed, closed or forked), its lock, and its notifications."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiostream_data.device.forks import this_process
from aiostream_data.device.measures import Measures
from aiostream_data.errors import DeviceError, ForkedPipelineError, LoaderClosedError


class RingState:
    """State of a ring of slots: open, failed, closed or forked. A failed or closed ring never changes its state again.

    Attributes:
        lock: Lock that protects the state of every slot. A thread that holds the lock does not wait for the device,
            except to enlarge a slot.
        measures: Counters that all parts of the ring update.
        on_change: Function called after every change of a slot, or None. Any thread may call ``on_change`` while it
            holds the lock, so the function must not block.
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
        """Check that this process can use the ring.

        Raises:
            ForkedPipelineError: This process is a forked child, which cannot use the device.
            DeviceError: An earlier operation of the device failed.
            LoaderClosedError: The ring was closed.
        """
        self.check_device()
        if self._closed:
            raise LoaderClosedError("the device stage was closed")

    def check_device(self) -> None:
        """Check that this process can use the device.

        Unlike :meth:`check`, this method does not raise if the ring is closed.

        Raises:
            ForkedPipelineError: This process is a forked child, which cannot use the device.
            DeviceError: An earlier operation of the device failed.
        """
        if self.forked:
            raise ForkedPipelineError(
                "this device stage was opened in another process, and a device cannot be used after a fork. "
                "Open the dataset again in this process"
            )
        if self._failure is not None:
            status = getattr(self._failure, "status", None)
            raise DeviceError(f"the device stage failed earlier: {self._failure}", status=status) from self._failure

    @property
    def forked(self) -> bool:
        """True in a forked child process.

        In a forked child process, the lock may stay locked forever, because its owner exists only in the parent.
        """
        return this_process() != self._process

    @property
    def failed(self) -> bool:
        return self._failure is not None

    @property
    def closed(self) -> bool:
        return self._closed

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Mark the ring as failed if the ``with`` block raises, because the state of the device is then unknown."""
        try:
            yield
        except BaseException as error:
            with self.lock:
                self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Mark the ring as failed permanently.

        If the method is called several times, errors report only the first cause. The caller must hold the ring's lock.
        """
        self._failure = self._failure or error
        self.announce()

    def close(self, timeout_s: float) -> bool:
        """Close the ring and wake all waiting threads.

        Return False if the ring was already closed, or if this process is a forked child.

        The ring fails if another thread keeps the lock for more than ``timeout_s`` seconds, because a driver call does
        not return.
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
        """Wake all waiting threads and call ``on_change``. Call this method after every change of a slot.

        The caller must hold the ring's lock.
        """
        self._changes += 1
        self.lock.notify_all()
        on_change = self.on_change
        if on_change is not None:
            on_change()

    @property
    def changes(self) -> int:
        """Number of slot changes so far; see :meth:`wait_past`."""
        return self._changes

    def wait_past(self, changes: int, timeout_s: float | None) -> bool:
        """Block until the counter :attr:`changes` exceeds ``changes``.

        Return False if the wait exceeds ``timeout_s`` seconds.

        Read :attr:`changes` first, then try the operation, and call this method only if the operation failed. Reading
        :attr:`changes` first ensures that the caller does not miss a change between the attempt and the wait.
        """
        return self.wait_until(lambda: self._changes > changes, timeout_s)

    def wait_until(self, reached: Callable[[], bool], timeout_s: float | None) -> bool:
        """Block until the function ``reached`` returns true.

        The method calls ``reached`` after every slot change. Return False if the wait exceeds ``timeout_s`` seconds.
        """
        with self.lock:
            return self.lock.wait_for(reached, timeout_s)
