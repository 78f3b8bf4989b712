"""Leases of device slots.

A consumer can use the batch in a leased slot directly, on its own streams, and then releases the slot.

A :class:`Lease` records every device stream that used its batch. Before using a batch, each device stream waits for the
copy that fills the slot. When the lease ends, the ring records a mark (a point in the stream) on each of these streams.
The slot is reused only after all marks are reached.

Arrays in the slot, including arrays of other libraries, keep a *holder* object alive. The holder keeps the slot's
memory alive, but not the lease. If a batch is never released, a finalizer runs when the last of its arrays is
garbage-collected. The finalizer can run in any thread during garbage collection, so it must neither take a lock nor
call the device. For this reason, the finalizer only appends the lease to a deque. The next call of a ring method ends
all leases in the deque, and counts them as leaked.
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
    """Object that keeps the memory of a leased slot alive. All arrays in the slot refer to this object.

    Attributes:
        block: Memory block of the slot.
    """

    __slots__ = ("__weakref__", "block")

    def __init__(self, block: DeviceBlock) -> None:
        self.block = block


class Lease:
    """Lease of one device slot by one consumer.

    Attributes:
        slot: The leased slot.
        arrived: Mark (a point in the device stream) after the copy that fills the slot.
        streams: Device streams that used the slot, by handle. The lease keeps each stream alive until a mark is
            recorded on the stream.
        finalizer: Finalizer that runs when the last array in the slot is garbage-collected.
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
    """Registry of the leases of one ring of slots. Any thread may call the methods of ``Leases``.

    Attributes:
        leaked: Number of leases that ended without a release, because all their arrays were garbage-collected.
    """

    def __init__(self, backend: DeviceBackend, state: RingState, set_free: Callable[[DeviceSlot], None]) -> None:
        """Create an empty registry.

        Args:
            set_free: Function that the registry calls with each freed slot while it holds the lock.
        """
        self._backend = backend
        self._state = state
        self._set_free = set_free
        self._let_go: deque[Lease] = deque()  # appended to by finalizers
        self._owed: deque[tuple[Lease, Callable[[], object]]] = deque()
        self._owing = 0  # length of _owed, plus the lease that a thread waits for
        self.leaked = 0

    def lend(self, slot: DeviceSlot) -> tuple[Lease, DeviceBlock]:
        """Begin the lease of a slot that contains a batch.

        The state of the slot must be LEASED. The caller must hold the ring's lock.

        Returns:
            The lease, and the memory block of the slot. The lease is not leaked while a view of the block exists.
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
        """Return the current stream of the consumer's library, and check that no CUDA graph is capturing the stream.

        Args:
            lent: True if the consumer uses the batch in its slot and releases it later.

        Raises:
            PlanError: ``lent`` is true, and :meth:`check_lendable` rejects the stream.
            GraphCaptureError: As for :meth:`check_stream`.
            DeviceError: The device has failed, usually in a kernel that the consumer launched.
        """
        with self._asking():
            stream = current()
        (self.check_lendable if lent else self.check_stream)(stream)
        return stream

    def named(self, handle: int) -> StreamRef:
        """Return the stream for a handle that an importer passed, and check that the stream may use a leased batch.

        Raises:
            PlanError: The handle identifies a per-thread stream.
            GraphCaptureError, DeviceError: Same conditions as for :meth:`stream`.
        """
        with self._asking():
            stream = stream_named(handle, self._backend)
        self.check_lendable(stream)
        return stream

    def check_lendable(self, stream: StreamRef) -> None:
        """Check that ``stream`` may use a leased batch, and that any thread could release the batch.

        Raises:
            PlanError: ``stream`` is a per-thread stream, and other threads cannot wait for such a stream.
            GraphCaptureError, DeviceError: Same conditions as for :meth:`check_stream`.
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
        """Mark the ring as failed if the ``with`` block raises DeviceError."""
        try:
            yield
        except DeviceError as error:
            with self._state.lock:
                self._state.fail(error)
            raise

    def check_stream(self, stream: StreamRef) -> None:
        """Check that ``stream`` runs enqueued work, and does not record the work into a CUDA graph.

        Raises:
            GraphCaptureError: The stream is being captured into a CUDA graph. Each replay of the graph would repeat
                work that is valid for one batch only.
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
        """Make ``stream`` wait for the batch, and record that the stream uses the slot.

        The method holds the lock while the ``with`` block runs. No other thread can end the lease before the block has
        enqueued its work. The ``with`` block must not wait.

        Raises:
            BatchReleasedError, DeviceError, ForkedPipelineError: Same conditions as for :meth:`check`.
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
        """Block the calling thread until the batch is on the device.

        Consumers that read without a stream need this call.

        Raises:
            BatchReleasedError, DeviceError, ForkedPipelineError: Same conditions as for :meth:`check`.
        """
        self.check(lease)
        with self._state.fatal():
            self._backend.join(lease.arrived)

    @interrupts_after()
    def end(self, lease: Lease) -> None:
        """End the lease. The slot is reused after all streams of the lease have finished their work.

        If the ring is open, the method never waits.

        If the ring is closed, the method waits for all streams of the lease, because the slot's memory is freed
        afterwards. After a device failure and in a forked child process, the method only marks the lease as ended.

        Raises:
            BatchReleasedError: The batch was already released.
            GraphCaptureError: A stream that used the batch is being captured into a CUDA graph. The lease does not end
                if this error is raised.
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
        """End the lease when the function ``reached``, which may block, has returned.

        The waiter thread of the device stage calls ``reached``.

        Raises:
            BatchReleasedError, DeviceError, ForkedPipelineError: Same conditions as for :meth:`check`.
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
        """End the oldest lease that was passed to :meth:`end_when`, after calling its blocking function ``reached``.

        Return False if no lease is waiting for its function.

        If ``reached`` raises DeviceMemoryError, the copy of the batch failed. The slot is freed and a warning is
        issued. The consumer's library also reports the error when the consumer first uses the copied arrays.

        Raises:
            DeviceError: The device operations for which ``reached`` waits have failed.
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
        """End all leases that have no remaining arrays, and count these leases as leaked.

        Call ``end_leaked`` regularly, but never from a finalizer.

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
        """Record marks for all leaked leases. Closing the ring can then wait for the streams of these leases.

        Args:
            timeout_s: Maximum time in seconds to wait for the lock. The lock can be held by a thread that is blocked in
                a call of the GPU driver.
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
        """True if :meth:`end_leaked` has to end a leaked lease. Takes no lock."""
        return bool(self._let_go)

    def held(self, slots: list[DeviceSlot]) -> int:
        """Return the number of slots that consumers use and can still release."""
        return sum(slot.state is DeviceState.LEASED for slot in slots) - self._owing

    def _note_end(self, lease: Lease) -> None:
        if lease.ended:
            raise BatchReleasedError("cannot release this device batch: it was already released")
        lease.ended = True
        if lease.finalizer is not None:
            lease.finalizer.detach()

    def _end(self, lease: Lease) -> None:
        """Record a mark on each stream that used the slot, and free the slot. The caller must hold the ring's lock."""
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
