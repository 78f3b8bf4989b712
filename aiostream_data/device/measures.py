"""Counters of a ring of slots, collected without querying the device.

The clock of the host measures how long a consumer waited for the copy of its batch. The measured wait begins when the
consumer receives the batch, and ends when the waiter thread frees the batch's host slot. If the consumer's stream ran
other work during this time, the actual wait was shorter. Marks with timestamps on the device measure the time of
copies. Marks with timestamps are recorded only for profiles.
"""

from __future__ import annotations

import threading
from time import perf_counter


class Arrival:
    """Times at which one batch was delivered to the consumer and arrived on the device.

    Attributes:
        nbytes: Number of bytes copied to the device for the batch.
        asked_at, arrived_at: ``time.perf_counter()`` at the delivery of the batch and at the end of its copy; None
            before that time.
    """

    __slots__ = ("arrived_at", "asked_at", "nbytes")

    def __init__(self, nbytes: int = 0) -> None:
        self.nbytes = nbytes
        self.asked_at: float | None = None
        self.arrived_at: float | None = None


class Measures:
    """Counters of one ring. Callers of all methods except :meth:`wrote` must hold the ring's lock.

    Attributes:
        launches: Number of copies and kernels enqueued, both for copies to the device and for copies out of device
            slots.
        written_nbytes: Number of bytes written into host slots.
        rewritten_nbytes: Number of bytes in ``written_nbytes`` that were first assembled in other memory, and thus
            copied twice.
        timed_nbytes: Total size of all timed copies, in bytes.
        copy_s: Total duration of timed copies on the device, in seconds.
        late: Number of batches that the consumer received before their copy to the device had finished.
        exposed_s: Total time in seconds from delivery to arrival of late batches. The consumers waited no longer than
            this total.
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
        """Count one write into a host slot. The caller need not hold the ring's lock."""
        with self._lock:
            self.written_nbytes += nbytes
            self.rewritten_nbytes += rewritten

    def asked(self, arrival: Arrival) -> None:
        """Record that a batch is delivered to the consumer. Only the first call for a batch has an effect."""
        if arrival.asked_at is None:
            arrival.asked_at = perf_counter()
            self.late += arrival.arrived_at is None

    def arrived(self, arrival: Arrival, copy_s: float | None) -> None:
        """Record that a batch has arrived on the device, and the time of its copy if copies are timed."""
        arrival.arrived_at = perf_counter()
        if copy_s is not None:
            self.copy_s += copy_s
            self.timed_nbytes += arrival.nbytes
        if arrival.asked_at is not None:
            self.exposed_s += arrival.arrived_at - arrival.asked_at
