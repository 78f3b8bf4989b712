"""Counters of a ring, collected without querying the device.

The host's clock measures how long a consumer waited for a copy. The wait begins when the batch is handed over, and ends
when the waiter thread frees its host slot. A consumer whose stream had other work in that time waited less. Copy times
come from timed marks on the device, which are recorded only for profiles.
"""

from __future__ import annotations

import threading
from time import perf_counter


class Arrival:
    """Times of one batch on its way to the device.

    Attributes:
        nbytes: Bytes copied for the batch.
        asked_at, arrived_at: ``time.perf_counter()`` of the hand-over and of the arrival; None until then.
    """

    __slots__ = ("arrived_at", "asked_at", "nbytes")

    def __init__(self, nbytes: int = 0) -> None:
        self.nbytes = nbytes
        self.asked_at: float | None = None
        self.arrived_at: float | None = None


class Measures:
    """Counters of one ring. All methods except :meth:`wrote` require the ring's lock.

    Attributes:
        launches: Number of copies and kernels enqueued, to the device and out of its slots.
        written_nbytes: Bytes written into host slots.
        rewritten_nbytes: Part of ``written_nbytes`` that had been assembled elsewhere before, and copied twice.
        timed_nbytes: Bytes of timed copies.
        copy_s: Total device time of timed copies, in seconds.
        late: Number of batches that had not arrived when they were handed over.
        exposed_s: Total delay of late batches in seconds, an upper bound on the consumers' waiting time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.launches = 0
        self.written_nbytes = 0
        self.rewritten_nbytes = 0
        self.timed_nbytes = 0
        self.copy_s = 0.0
        self.late = 0
        self.exposed_s = 0.0

    def wrote(self, nbytes: int, rewritten: int) -> None:
        """Count a write into a host slot. Does not require the ring's lock."""
        with self._lock:
            self.written_nbytes += nbytes
            self.rewritten_nbytes += rewritten

    def asked(self, arrival: Arrival) -> None:
        """Record that a batch is handed over. Only the first call per batch counts."""
        if arrival.asked_at is None:
            arrival.asked_at = perf_counter()
            self.late += arrival.arrived_at is None

    def arrived(self, arrival: Arrival, copy_s: float | None) -> None:
        """Record that a batch has arrived on the device, and its copy time if it was timed."""
        arrival.arrived_at = perf_counter()
        if copy_s is not None:
            self.copy_s += copy_s
            self.timed_nbytes += arrival.nbytes
        if arrival.asked_at is not None:
            self.exposed_s += arrival.arrived_at - arrival.asked_at
