"""The device stage as a worker thread uses it: put a host batch in, get a device batch back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from aiostream_data.device.backend import DeviceBackend
from aiostream_data.device.device_slots import DeviceBatch
from aiostream_data.device.layout import fill, take_apart
from aiostream_data.device.ring import RingStats, SlotRing

T = TypeVar("T")


@dataclass(slots=True)
class Waits:
    """How often, and how long in total, a producer waited for slots of one kind.

    Host slots are waited for when copies are the bottleneck, device slots when the consumer is.
    """

    count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """What a device stage has done so far."""

    ring: RingStats
    host_waits: Waits
    device_waits: Waits


class DeviceStage:
    """Writes batches into page-locked slots and sends them to a device. Safe to use from any thread.

    Batches come out in the order in which their :meth:`put` reached the device, so a caller that wants
    them in its own order calls it from one thread at a time. Use ``with``, or call :meth:`close`.
    """

    def __init__(
        self, backend: DeviceBackend, *, host_slots: int = 3, device_slots: int = 3, slot_nbytes: int | None = None
    ) -> None:
        """Take over ``backend``, which the stage closes; the rest as for :class:`~.ring.SlotRing`."""
        self._backend = backend
        self._ring = SlotRing(backend, host_slots, device_slots, slot_nbytes)
        self._host_waits = Waits()
        self._device_waits = Waits()
        self._stats_lock = threading.Lock()

    @property
    def device(self) -> str:
        """Name of the device: ``cpu`` or ``cuda:N``."""
        return self._backend.device

    @property
    def host_nbytes(self) -> int:
        """Host memory that the slots hold now: page-locked, and on ``cpu`` that of the device slots too."""
        stats = self._ring.stats()
        return stats.host_nbytes + (stats.device_nbytes if self.device == "cpu" else 0)

    def put(self, batch: Any, timeout_s: float | None = None) -> DeviceBatch | None:
        """Write ``batch`` into a slot and enqueue its copy to the device. Blocks while no slot is free.

        Must not run on an event loop. ``batch`` may be reused or freed when it returns.

        Args:
            batch: Any structure of arrays, ragged arrays and numbers; on ``cpu``, of anything.
            timeout_s: Longest wait for slots, in seconds; None: until there are, or until :meth:`close`.
                A wait for a copy under way is not cut short by it.

        Returns:
            The batch, which its receiver must materialise or discard, or its slot is never free again;
            None when the time was over, and nothing was done.

        Raises:
            DeviceLeafError: A leaf is no number, and the device is not the host.
            SlotTooSmallError: The batch needs more than ``slot_nbytes``.
            DeviceMemoryError: The slots do not fit into memory.
            DeviceError: The device failed.
            LoaderClosedError: The stage was closed, perhaps during the wait.
            ForkedPipelineError: The stage was opened in another process.
        """
        parts = take_apart(batch, self._backend.device, self._backend.keeps_objects)
        ring, deadline = self._ring, None if timeout_s is None else time.monotonic() + timeout_s
        # Whoever needs a host slot waits for the copy that has it: no thread is kept for that.
        slot = self._retry(ring.acquire, ring.join_oldest, self._host_waits, deadline)
        if slot is None:
            return None
        try:
            fill(ring.arrays(slot, parts.layout), parts.sources)
            sent = self._retry(
                lambda: ring.submit(slot, parts.layout, parts.kept), lambda: False, self._device_waits, deadline
            )
        except BaseException:
            ring.give_back(slot)
            raise
        if sent is None:
            ring.give_back(slot)
        return sent

    def _retry(
        self, attempt: Callable[[], T | None], hasten: Callable[[], bool], waits: Waits, deadline: float | None
    ) -> T | None:
        """Call ``attempt`` until it gives something or the time is over.

        In between call ``hasten``, and wait for a change when there is nothing to hasten.
        """
        state = self._ring.state
        started: float | None = None
        try:
            while True:
                changes = state.changes
                found = attempt()
                if found is not None:
                    return found
                if started is None:
                    started = time.monotonic()
                if hasten():
                    continue
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not state.wait_past(changes, left):
                    return None
        finally:
            if started is not None:
                with self._stats_lock:
                    waits.count += 1
                    waits.seconds += time.monotonic() - started

    def stats(self) -> DeviceStats:
        """Return what the stage has done so far."""
        with self._stats_lock:
            host = Waits(self._host_waits.count, self._host_waits.seconds)
            device = Waits(self._device_waits.count, self._device_waits.seconds)
        return DeviceStats(self._ring.stats(), host, device)

    def close(self, timeout_s: float = 2.0) -> None:
        """Wake every waiting :meth:`put`, let copies end for at most ``timeout_s``, and free the slots.

        Idempotent. Batches not yet taken out are lost; arrays taken out stay valid.
        """
        self._ring.close(timeout_s)
        if not self._ring.state.forked:
            self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
