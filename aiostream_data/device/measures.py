"""What the parts of a ring count beside their work, without asking the device anything.

How long a consumer stood still for a copy is told by the host's clock: a batch was asked for when it was handed over,
and had arrived when the waiter got its host slot back. A consumer whose stream had other work meanwhile lost less than
that. How long copies took is asked of the device, by timed marks, only where a profile is wanted.
"""

from __future__ import annotations

import threading
from time import perf_counter


class Arrival:
    """Of one batch on the device.

    Attributes:
        nbytes: What was copied for it.
        asked_at, arrived_at: ``time.perf_counter()``; None as long as it has not happened.
    """

    __slots__ = ("arrived_at", "asked_at", "nbytes")

    def __init__(self, nbytes: int = 0) -> None:
        self.nbytes = nbytes
        self.asked_at: float | None = None
        self.arrived_at: float | None = None


class Measures:
    """Counters of one ring. Written with its lock held, but for what is said of :meth:`wrote`.

    Attributes:
        launches: Copies and kernels that were enqueued, to the device and out of its slots.
        written_nbytes: Bytes written into host slots.
        rewritten_nbytes: Those of them that had been put together in other memory before: copied once more than needed.
        timed_nbytes: Bytes of copies that were timed.
        copy_s: Seconds which those took on the device.
        late: Batches that had not arrived when they were handed over.
        exposed_s: By how much they came later, together; at most so long did consumers stand still.
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
        """Note that a host slot was written. The ring's lock need not be held."""
        with self._lock:
            self.written_nbytes += nbytes
            self.rewritten_nbytes += rewritten

    def asked(self, arrival: Arrival) -> None:
        """Note that a batch is handed over now; only the first time counts."""
        if arrival.asked_at is None:
            arrival.asked_at = perf_counter()
            self.late += arrival.arrived_at is None

    def arrived(self, arrival: Arrival, copy_s: float | None) -> None:
        """Note that a batch is known to be on the device, and how long that copied it, where it was timed."""
        arrival.arrived_at = perf_counter()
        if copy_s is not None:
            self.copy_s += copy_s
            self.timed_nbytes += arrival.nbytes
        if arrival.asked_at is not None:
            self.exposed_s += arrival.arrived_at - arrival.asked_at
