"""The device stage for worker threads.

The stage accepts batches in host memory and returns batches in device memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from aiostream_data.device.backend import DeviceBackend
from aiostream_data.device.copy_waiter import Waiter
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.filling import Filling
from aiostream_data.device.handover import HandOver
from aiostream_data.device.layout import TakenApart
from aiostream_data.device.ring import RingStats, SlotRing
from aiostream_data.device.ring_state import RingState
from aiostream_data.device.shared_slots import MAX_NBYTES, FindShared, SharedSlots, nothing_shared
from aiostream_data.device.wait_counters import Waits
from aiostream_data.metrics.device_copies import DeviceCopies

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """Statistics of a device stage.

    Attributes:
        ring: Statistics of the ring of slots.
        host_waits: How many times and for how long producers waited for a free host slot. Many waits for host slots
            mean that the copies to the device limit the speed.
        device_waits: How many times and for how long filled host slots waited for a free device slot. Many waits for
            device slots mean that the consumer limits the speed.
    """

    ring: RingStats
    host_waits: Waits
    device_waits: Waits


class DeviceStage:
    """Device stage, which writes batches into page-locked host slots and copies the batches to a device.

    Any thread may use a ``DeviceStage``.

    :meth:`put` sends one batch at a time. To fill several slots at the same time, use several threads. Call
    :meth:`try_fill` for each slot, write each slot on its own thread, and submit the slots in the desired order.
    Batches reach the device in the order of the submissions. Use the stage in a ``with`` block, or call :meth:`close`.
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
        """Take ownership of ``backend``; closing the stage also closes the backend.

        Other arguments have the same meaning as for :class:`~.ring.SlotRing`.

        Args:
            find_shared: Function that returns the shared memory that an array refers to, or None.
            max_shared_nbytes: Maximum number of bytes of shared memory that may be page-locked at the same time.
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
        """State of the ring of slots, which reports every change of a slot."""
        return self._ring.state

    @property
    def host_nbytes(self) -> int:
        """Host memory of the slots, in bytes. On ``cpu``, the result includes the device slots."""
        stats = self._ring.stats()
        return stats.host_nbytes + (stats.device_nbytes if self.device == "cpu" else 0)

    def start_waiter(self) -> None:
        """Start a thread that frees host slots.

        Without a waiter thread, each thread that needs a slot must wait for a copy itself.
        """
        if self._waiter is None:
            self._waiter = Waiter(self._ring)

    @property
    def threads(self) -> list[threading.Thread]:
        """List of the stage's running threads."""
        return [self._waiter.thread] if self._waiter is not None and self._waiter.thread.is_alive() else []

    def try_fill(self, batch: Any, lease: object = None) -> Filling | None:
        """Acquire a free host slot for ``batch``, without writing the batch. Return None if no host slot is free.

        The method never waits if the stage's waiter thread runs.

        Args:
            lease: Object to keep alive until the batch has been written.

        Raises:
            DeviceError, LoaderClosedError, ForkedPipelineError: Same conditions as for :meth:`put`.
        """
        slot = self._ring.acquire()
        if slot is None and self._waiter is None and self._ring.join_oldest():
            slot = self._ring.acquire()
        return None if slot is None else Filling(self._ring, self._backend, slot, batch, lease)

    def has_device_slot(self) -> bool | None:
        """Return True if a device slot is free, else None.

        The method never waits if the stage's waiter thread runs. The method raises the same errors as :meth:`try_fill`.
        """
        while not self._ring.has_device_slot():
            if self._waiter is not None or not self._ring.join_oldest():
                return None
        return True

    @property
    def lends(self) -> bool:
        """True if consumers use batches directly in their slots."""
        return self._hand_over.handoff != "copy"

    def reclaim(self) -> None:
        """Free the device slots of leaked leases, which have no remaining arrays but were never released.

        The method may block, so do not call it on an event loop.
        """
        self._ring.reclaim()

    @property
    def all_leased(self) -> bool:
        """True if consumers use every device slot, so that no batch can arrive before a slot is released."""
        return self._ring.all_leased

    def put(
        self, batch: Any, timeout_s: float | None = None, prepare: Callable[[TakenApart], TakenApart] | None = None
    ) -> DeviceBatch | None:
        """Write ``batch`` into a host slot and enqueue its copy to the device. The call blocks while no slot is free.

        The method may block, so do not call it on an event loop. The caller may reuse or free ``batch`` after the call.

        Args:
            batch: Structure of arrays, ragged arrays and numbers. On ``cpu``, other objects are also allowed.
            timeout_s: Maximum time in seconds to wait for slots; None to wait until the stage is closed. The timeout
                does not interrupt a wait for a running copy.
            prepare: As for :meth:`~.filling.Filling.write`.

        Returns:
            The batch, or None if no slot became free within ``timeout_s`` seconds. The receiver must copy the batch out
            of its slot or discard the batch, to free the slot. None means that no data was copied to the device.

        Raises:
            DeviceLeafError: A leaf is not numeric, and the device is not ``cpu``.
            SlotTooSmallError: The batch needs more than ``slot_nbytes`` bytes.
            DeviceMemoryError: The slots do not fit into memory.
            DeviceError: The device failed.
            LoaderClosedError: The stage was closed, possibly during the wait.
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
        """Call ``attempt`` again after every slot change until ``attempt`` returns a result.

        Return None at ``deadline``.
        """
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
        """Return the statistics of the device stage."""
        with self._stats_lock:
            return DeviceStats(self._ring.stats(), self.host_waits.copy(), self.device_waits.copy())

    def copies(self) -> DeviceCopies:
        """Return the statistics in the form that reports use. Any thread may call this method."""
        ring, measures = self._ring.stats(), self._ring.state.measures
        runs_at_once = self.device == "cpu"  # copies finish in the call that starts them, so no batch is late
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
        """Close the stage: wake all waiting threads, wait up to ``timeout_s`` seconds for copies, and free the slots.

        Idempotent.

        Batches that are still in slots are lost. Arrays that were copied out of a slot stay valid. If a driver call
        does not return, the stage abandons the waiter thread and its slots, and issues a ``ResourceWarning``.
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
