"""The device stage as worker threads use it: put a host batch in, get a device batch back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from aiostream_data.device.backend import DeviceBackend
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.filling import Filling
from aiostream_data.device.handover import HandOver
from aiostream_data.device.layout import TakenApart
from aiostream_data.device.ring import RingStats, SlotRing
from aiostream_data.device.ring_state import RingState
from aiostream_data.device.shared_slots import MAX_NBYTES, FindShared, SharedSlots, nothing_shared
from aiostream_data.device.waiter import Waiter
from aiostream_data.device.waits import Waits
from aiostream_data.metrics.device_copies import DeviceCopies

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """What a device stage has done so far.

    Attributes:
        ring: What its slots did.
        host_waits: Waits of producers for a host slot while none was filled: copies are the bottleneck.
        device_waits: Waits of filled slots for a device slot: the consumer is.
    """

    ring: RingStats
    host_waits: Waits
    device_waits: Waits


class DeviceStage:
    """Writes batches into page-locked slots and sends them to a device. Safe to use from any thread.

    One batch at a time goes through :meth:`put`. Whoever has several threads fills several slots at once: it begins
    each with :meth:`try_fill`, has them written by its threads, and submits them in the order that it wants. Batches
    reach the device in the order in which they are submitted. Use ``with``, or call :meth:`close`.
    """

    def __init__(
        self,
        backend: DeviceBackend,
        *,
        host_slots: int = 3,
        device_slots: int = 3,
        slot_nbytes: int | None = None,
        hand_over: HandOver | None = None,
        allow_pageable: bool = False,
        profile: bool = False,
        find_shared: FindShared = nothing_shared,
        max_shared_nbytes: int = MAX_NBYTES,
    ) -> None:
        """Take over ``backend``, which the stage closes; the rest as for :class:`~.ring.SlotRing`.

        Args:
            find_shared: Tells which arrays of batches stand in memory that another process writes.
            max_shared_nbytes: Most of that memory to page-lock at once.
        """
        self._backend = backend
        self._hand_over = hand_over or HandOver()
        self._ring = SlotRing(
            backend,
            host_slots,
            device_slots,
            slot_nbytes,
            hand_over=self._hand_over,
            allow_pageable=allow_pageable,
            profile=profile,
            shared=SharedSlots(backend, find_shared, max_shared_nbytes),
        )
        self._profile = profile
        self._waiter: Waiter | None = None
        self.host_slots = host_slots
        self.host_waits = Waits()
        self.device_waits = Waits()
        self.source_waits = Waits()
        self._stats_lock = threading.Lock()

    @property
    def device(self) -> str:
        """Name of the device: ``cpu`` or ``cuda:N``."""
        return self._backend.device

    @property
    def state(self) -> RingState:
        """Tells of every change of the slots."""
        return self._ring.state

    @property
    def host_nbytes(self) -> int:
        """Host memory that the slots hold now: page-locked, and on ``cpu`` that of the device slots too."""
        stats = self._ring.stats()
        return stats.host_nbytes + (stats.device_nbytes if self.device == "cpu" else 0)

    def start_waiter(self) -> None:
        """Start a thread that frees host slots. Without it, the thread that needs a slot waits for its copy."""
        if self._waiter is None:
            self._waiter = Waiter(self._ring)

    @property
    def threads(self) -> list[threading.Thread]:
        """The stage's own threads that are alive."""
        return [self._waiter.thread] if self._waiter is not None and self._waiter.thread.is_alive() else []

    def try_fill(self, batch: Any, lease: object = None) -> Filling | None:
        """Return a free host slot for ``batch``, which is yet to be written; None when none is free.

        Never waits where there is a waiter.

        Args:
            lease: Kept with the batch until it is written.

        Raises:
            DeviceError, LoaderClosedError, ForkedPipelineError: As for :meth:`put`.
        """
        slot = self._ring.acquire()
        if slot is None and self._waiter is None and self._ring.join_oldest():
            slot = self._ring.acquire()
        return None if slot is None else Filling(self._ring, self._backend, slot, batch, lease)

    def has_device_slot(self) -> bool | None:
        """True when a device slot is free, and None when not; raises as :meth:`try_fill` does.

        Never waits where there is a waiter.
        """
        while not self._ring.has_device_slot():
            if self._waiter is not None or not self._ring.join_oldest():
                return None
        return True

    @property
    def lends(self) -> bool:
        """True when consumers use batches in the slots."""
        return self._hand_over.handoff != "copy"

    def reclaim(self) -> None:
        """Free the slots of leases that nobody gave back and nobody can use any more. Not on an event loop."""
        self._ring.reclaim()

    @property
    def all_leased(self) -> bool:
        """True when consumers have every device slot, so that no batch can come until they give one back."""
        return self._ring.all_leased

    def put(
        self, batch: Any, timeout_s: float | None = None, prepare: Callable[[TakenApart], TakenApart] | None = None
    ) -> DeviceBatch | None:
        """Write ``batch`` into a slot and enqueue its copy to the device. Blocks while no slot is free.

        Must not run on an event loop. ``batch`` may be reused or freed when it returns.

        Args:
            batch: Any structure of arrays, ragged arrays and numbers; on ``cpu``, of anything.
            timeout_s: Longest wait for slots, in seconds; None: until there are, or until :meth:`close`.
                A wait for a copy under way is not cut short by it.
            prepare: As for :meth:`~.filling.Filling.write`.

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
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        filling = self._retry(lambda: self.try_fill(batch), self.host_waits, deadline)
        if filling is None:
            return None
        try:
            filling.write(prepare)
            sent = self._retry(lambda: filling.submit() or None, self.device_waits, deadline)
            return None if sent is None else filling.take()
        finally:
            filling.drop()

    def _retry(self, attempt: Callable[[], T | None], waits: Waits, deadline: float | None) -> T | None:
        """Call ``attempt`` until it gives something or the time is over, each time after a change."""
        state = self._ring.state
        changes, found = state.changes, attempt()
        if found is not None:
            return found
        started = time.monotonic()
        try:
            while found is None:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not state.wait_past(changes, left):
                    return None
                changes, found = state.changes, attempt()
            return found
        finally:
            with self._stats_lock:
                waits.add(time.monotonic() - started)

    def stats(self) -> DeviceStats:
        """Return what the stage has done so far."""
        with self._stats_lock:
            return DeviceStats(self._ring.stats(), self.host_waits.copy(), self.device_waits.copy())

    def copies(self) -> DeviceCopies:
        """Return what the stage has done so far, as a report tells it. Safe from any thread."""
        ring, measures = self._ring.stats(), self._ring.state.measures
        runs_at_once = self.device == "cpu"  # and so a batch has arrived, although the waiter may not have looked yet
        return DeviceCopies(
            device=self.device,
            batches=ring.batches,
            copied_nbytes=ring.copied_nbytes,
            launches=measures.launches,
            timed_nbytes=measures.timed_nbytes,
            copy_s=measures.copy_s if self._profile else None,
            exposed_s=0.0 if runs_at_once else measures.exposed_s,
            late=0 if runs_at_once else measures.late,
            source_waits=self.source_waits.count,
            source_wait_s=self.source_waits.so_far,
            host_slot_waits=self.host_waits.count,
            host_slot_wait_s=self.host_waits.so_far,
            device_slot_waits=self.device_waits.count,
            device_slot_wait_s=self.device_waits.so_far,
            host_slots=self.host_slots,
            device_slots=ring.device_slots,
            device_slots_asked=ring.device_slots_asked,
            host_nbytes=ring.host_nbytes,
            device_nbytes=ring.device_nbytes,
            pinned_nbytes=ring.pinned_nbytes,
            written_nbytes=measures.written_nbytes,
            rewritten_nbytes=measures.rewritten_nbytes,
            in_place_nbytes=ring.shared.in_place_nbytes,
            shared_blocks=ring.shared.blocks,
            shared_nbytes=ring.shared.nbytes,
            shared_blocks_locked=ring.shared.adopted,
            shared_arrays_rewritten=ring.shared.host_copies,
            shared_refused=ring.shared.refused,
            regrows=ring.regrows,
            leaked_leases=ring.leaked_leases,
            abandoned_nbytes=ring.abandoned_nbytes,
        )

    def close(self, timeout_s: float = 2.0) -> None:
        """Wake all who wait, let copies end for at most ``timeout_s``, and free the slots.

        Idempotent. Batches not yet taken out are lost; arrays taken out stay valid. A waiter that the driver does not
        let go is left behind, with the slots that it waits for, and a ``ResourceWarning`` says so.
        """
        deadline = time.monotonic() + timeout_s
        self._ring.close(timeout_s)
        if self._ring.state.forked:
            return
        if self._waiter is not None:
            self._waiter.close(max(0.1, deadline - time.monotonic()))
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
