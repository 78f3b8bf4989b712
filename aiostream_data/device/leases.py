"""Leases: a consumer uses a device slot in place, on its own streams, until it releases the slot.

A :class:`Lease` records every stream on which its batch was used. Each stream is first ordered after the copy that
fills the slot. When the lease ends, a mark is recorded on each stream, and the slot is reused only after these marks.

Arrays over the slot, including arrays of other libraries, keep the slot's *holder* alive, not the lease. If a batch is
never released, a finalizer runs when the last of its arrays dies. The finalizer can run in any thread during garbage
collection, where it must neither take a lock nor call the device. It therefore only appends the lease to a deque. The
next call into the ring ends these leases and counts them as leaked.
"""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from aiostream_data.device.backend import DeviceBackend, DeviceBlock, StreamRef
from aiostream_data.device.cuda_status import CAPTURE_ADVICE
from aiostream_data.device.named_streams import stream_named
from aiostream_data.device.ring_state import RingState
from aiostream_data.device.slots import DeviceSlot, DeviceState
from aiostream_data.errors import (
    AiostreamError,
    BatchReleasedError,
    DeviceError,
    DeviceMemoryError,
    GraphCaptureError,
    PlanError,
)
from aiostream_data.interrupts import interrupts_after


class _Holder:
    """Object that all arrays over a leased slot keep alive, and with it the slot's memory.

    Attributes:
        block: Memory of the slot.
    """

    __slots__ = ("__weakref__", "block")

    def __init__(self, block: DeviceBlock) -> None:
        self.block = block


class Lease:
    """Use of one slot by one consumer.

    Attributes:
        slot: The leased slot.
        arrived: Mark after the copy that fills the slot.
        streams: Streams on which the slot was used, by handle. The streams stay alive until a mark is recorded on each.
        finalizer: Finalizer that runs when the last array over the slot dies.
        ended: True after the lease has ended.
    """

    # A lease does not refer to the slot's memory, because the finalizer keeps the lease alive.
    __slots__ = ("arrived", "ended", "finalizer", "slot", "streams")

    def __init__(self, slot: DeviceSlot) -> None:
        self.slot = slot
        self.arrived = slot.arrived
        self.streams: dict[int, StreamRef] = {}
        self.finalizer: weakref.finalize[Any, _Holder] | None = None
        self.ended = False


class Leases:
    """The leases of one ring. Any thread may call the methods.

    Attributes:
        leaked: Number of leases that ended because all their arrays died without a release.
    """

    def __init__(self, backend: DeviceBackend, state: RingState, set_free: Callable[[DeviceSlot], None]) -> None:
        """Create the registry without leases.

        Args:
            set_free: Called with each freed slot, with the lock held.
        """
        self._backend = backend
        self._state = state
        self._set_free = set_free
        self._let_go: deque[Lease] = deque()  # appended to by finalizers
        self._owed: deque[tuple[Lease, Callable[[], object]]] = deque()
        self._owing = 0  # length of _owed, plus the lease that a thread waits for
        self.leaked = 0

    def lend(self, slot: DeviceSlot) -> tuple[Lease, DeviceBlock]:
        """Begin the lease of a slot that holds a batch and is in state LEASED. The caller holds the lock.

        Returns:
            The lease, and the slot's memory as a block. While a view of the block lives, the lease cannot leak.
        """
        assert slot.block is not None
        lease, holder = Lease(slot), _Holder(slot.block)
        lease.finalizer = weakref.finalize(holder, self._let_go.append, lease)
        lease.finalizer.atexit = False
        return lease, self._backend.block_at(self._backend.address(slot.block), slot.block.nbytes, holder)

    def check(self, lease: Lease) -> None:
        """Check that the batch of a lease may be used.

        Raises:
            BatchReleasedError: The batch was already released.
            DeviceError, ForkedPipelineError: The device can no longer be used.
        """
        self._state.check_device()
        if lease.ended:
            raise BatchReleasedError("this device batch was already released: its slot may hold another batch")

    def stream(self, current: Callable[[], StreamRef], *, lent: bool = False) -> StreamRef:
        """Return a consumer library's current stream, after checking that work enqueued on it runs at once.

        Args:
            lent: True if the batch stays in its slot and is released later.

        Raises:
            PlanError: As for :meth:`check_lendable`, only with ``lent``.
            GraphCaptureError: As for :meth:`check_stream`.
            DeviceError: The device has failed, usually because of a kernel of the consumer.
        """
        with self._asking():
            stream = current()
        (self.check_lendable if lent else self.check_stream)(stream)
        return stream

    def named(self, handle: int) -> StreamRef:
        """Return the stream that an importer names by handle, after checking that it may use a lease.

        Raises:
            PlanError: The handle names a per-thread stream.
            GraphCaptureError, DeviceError: As for :meth:`stream`.
        """
        with self._asking():
            stream = stream_named(handle, self._backend)
        self.check_lendable(stream)
        return stream

    def check_lendable(self, stream: StreamRef) -> None:
        """Check that a lease can be used on ``stream`` and released by any thread.

        Raises:
            PlanError: The handle names a per-thread stream, which no other thread can wait for.
            GraphCaptureError, DeviceError: As for :meth:`check_stream`.
        """
        if not self._backend.same_in_all_threads(stream):
            raise PlanError(
                "cannot lease a batch on the per-thread default stream (CUDA handle 2): other threads cannot wait for "
                "this stream. Make another stream current, unset CUPY_CUDA_PER_THREAD_DEFAULT_STREAM, or use "
                "handoff='copy' or 'into'"
            )
        self.check_stream(stream)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Fail the ring if a query in the block shows that the device has failed."""
        try:
            yield
        except DeviceError as error:
            with self._state.lock:
                self._state.fail(error)
            raise

    def check_stream(self, stream: StreamRef) -> None:
        """Check that ``stream`` runs enqueued work instead of recording it into a CUDA graph.

        Raises:
            GraphCaptureError: The stream is being captured. Each replay would repeat work meant for one batch.
        """
        with self._asking():
            capturing = self._backend.capturing(stream)
        if capturing:
            raise GraphCaptureError(
                "cannot hand over a batch: the current stream is being captured into a CUDA graph, and every replay "
                f"would repeat the hand-over. {CAPTURE_ADVICE}"
            )

    @contextmanager
    def using(self, lease: Lease, stream: StreamRef) -> Iterator[None]:
        """Order ``stream`` after the batch's arrival, and record that it uses the slot.

        The lock is held while the block runs, so no thread can end the lease before the block has enqueued its work.
        The block must not wait.

        Raises:
            BatchReleasedError, DeviceError, ForkedPipelineError: As for :meth:`check`.
        """
        self.check(lease)  # check before locking: a forked child may inherit a lock that is never released
        with interrupts_after(), self._state.lock:
            self.check(lease)
            with self._state.fatal():
                self._backend.order_after(stream, lease.arrived)
                lease.streams[stream.ptr] = stream
                yield

    @interrupts_after()
    def arrive(self, lease: Lease) -> None:
        """Block the calling thread until the batch has arrived, for consumers that read it without a stream.

        Raises:
            BatchReleasedError, DeviceError, ForkedPipelineError: As for :meth:`check`.
        """
        self.check(lease)
        with self._state.fatal():
            self._backend.join(lease.arrived)

    @interrupts_after()
    def end(self, lease: Lease) -> None:
        """End the lease, so that the slot is reused after all work on its streams. Never waits on an open ring.

        On a closed ring, the call waits for these streams, because the memory is freed next. After a device failure,
        and in a forked child, the call only marks the lease as ended.

        Raises:
            BatchReleasedError: The batch was already released.
            GraphCaptureError: A stream that used the batch is being captured. The lease does not end.
            DeviceError: The device failed during the call.
        """
        if self._state.forked:
            lease.ended = True
            return
        with self._state.lock:
            if not (lease.ended or self._state.failed):
                for stream in lease.streams.values():
                    self.check_stream(stream)
            self._note_end(lease)
            self._end(lease)

    @interrupts_after()
    def end_when(self, lease: Lease, reached: Callable[[], object]) -> None:
        """End the lease after ``reached``, a blocking function, has returned. The waiter thread calls ``reached``.

        Raises:
            BatchReleasedError, DeviceError, ForkedPipelineError: As for :meth:`check`.
        """
        self.check(lease)
        with self._state.lock:
            self._note_end(lease)
            self._owed.append((lease, reached))
            self._owing += 1
            self._state.announce()
        if self._state.closed:
            self.end_oldest_owed()  # the waiter thread of a closed ring has stopped

    @interrupts_after()
    def end_oldest_owed(self) -> bool:
        """Block until the oldest lease of :meth:`end_when` may end, and end it. Return False if none is pending.

        If copying the batch ran out of memory, nothing reads the slot, so the slot is freed and a warning is issued.
        The consumer's library reports that failure when the consumer first uses the copies.

        Raises:
            DeviceError: The awaited operation has failed.
        """
        with self._state.lock:
            if not self._owed:
                return False
            lease, reached = self._owed.popleft()
        with self._state.fatal():
            try:
                reached()
            except DeviceMemoryError as error:
                warnings.warn(f"a batch was lost after its hand-over: {error}", RuntimeWarning, stacklevel=2)
        with self._state.lock:
            self._owing -= 1
            self._end(lease)
        return True

    @interrupts_after()
    def end_leaked(self) -> None:
        """End and count the leases whose arrays have all died. Call it regularly, but never from a finalizer.

        Raises:
            DeviceError: The device failed during the call.
        """
        for _ in range(0 if self._state.forked else len(self._let_go)):
            with self._state.lock:
                lease = self._let_go.popleft() if self._let_go else None
                if lease is None:
                    return
                if not self._state.failed and any(map(self._backend.capturing, lease.streams.values())):
                    self._let_go.append(lease)  # retry later: a capture would record its end
                    continue
                lease.ended = True
                self.leaked += 1
                self._end(lease)

    def mark_leaked(self, timeout_s: float) -> None:
        """Record marks for leaked leases, so that closing the ring can wait for their streams.

        Args:
            timeout_s: Longest wait for the lock in seconds. A thread that is stuck in the driver may hold the lock.
        """
        if not self._state.lock.acquire(timeout=timeout_s):
            return
        try:
            while self._let_go:
                self._mark_leaked(self._let_go.popleft())
        finally:
            self._state.lock.release()

    def _mark_leaked(self, lease: Lease) -> None:
        lease.ended = True
        self.leaked += 1
        lease.slot.state = DeviceState.READING  # keeps the memory if no mark can be recorded
        with suppress(AiostreamError), self._state.fatal():
            if not any(map(self._backend.capturing, lease.streams.values())):
                lease.slot.marks += [self._backend.mark(stream) for stream in lease.streams.values()]
                lease.slot.state = DeviceState.FREE

    @property
    def any_leaked(self) -> bool:
        """True if :meth:`end_leaked` has leases to end. Takes no lock."""
        return bool(self._let_go)

    def held(self, slots: list[DeviceSlot]) -> int:
        """Return the number of slots that consumers hold and can release."""
        return sum(slot.state is DeviceState.LEASED for slot in slots) - self._owing

    def _note_end(self, lease: Lease) -> None:
        if lease.ended:
            raise BatchReleasedError("cannot release this device batch: it was already released")
        lease.ended = True
        if lease.finalizer is not None:
            lease.finalizer.detach()

    def _end(self, lease: Lease) -> None:
        """Record marks at the end of the slot's use, and free the slot. The caller holds the lock."""
        streams, lease.streams = list(lease.streams.values()), {}
        if self._state.failed:
            return
        with self._state.fatal():
            marks = [self._backend.mark(stream) for stream in streams]
            if self._state.closed:
                for mark in (lease.arrived, *marks):
                    self._backend.join(mark)
                return
        if marks:
            self._backend.retire(lease.arrived)
            lease.slot.marks = marks
        self._set_free(lease.slot)
