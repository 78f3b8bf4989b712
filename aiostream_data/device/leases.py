"""Device slots that a consumer uses where they are, on streams of its own, until it gives them back.

How this works. A :class:`Lease` remembers every stream on which its batch was used. Each of them is first ordered after
the mark behind the copy that brings the batch. When the lease ends, a mark is recorded on each of them, and the slot is
written again only behind all of these.

Arrays over the slot, and what other libraries make of them, keep the slot's *holder* alive and not the lease. So where
a batch is let go without being given back, the last of its arrays to die tells. That is inside a garbage collection, in
any thread, where no lock may be taken and no device be called: it appends to a deque, and whoever comes next to the
ring ends these leases, and counts them.
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
    """What all arrays over a leased slot keep alive, and with it the memory.

    Attributes:
        block: Of the slot.
    """

    __slots__ = ("__weakref__", "block")

    def __init__(self, block: DeviceBlock) -> None:
        self.block = block


class Lease:
    """The use of one slot by one consumer.

    Attributes:
        slot: Which one.
        arrived: The mark behind the copy that brings its batch.
        streams: On which it was used, by their handles; kept alive until marks were recorded on them.
        finalizer: Tells when the last array over the slot has died.
        ended: It was given back.
    """

    # Without the memory: what a finalizer was given stays until somebody comes to end the lease.
    __slots__ = ("arrived", "ended", "finalizer", "slot", "streams")

    def __init__(self, slot: DeviceSlot) -> None:
        self.slot = slot
        self.arrived = slot.arrived
        self.streams: dict[int, StreamRef] = {}
        self.finalizer: weakref.finalize[Any, _Holder] | None = None
        self.ended = False


class Leases:
    """The leases of one ring. Methods may be called from any thread.

    Attributes:
        leaked: How many ended because nobody had their arrays any more, without being given back.
    """

    def __init__(self, backend: DeviceBackend, state: RingState, set_free: Callable[[DeviceSlot], None]) -> None:
        """Lend no slot yet.

        Args:
            set_free: Takes a slot back; called with the lock held.
        """
        self._backend = backend
        self._state = state
        self._set_free = set_free
        self._let_go: deque[Lease] = deque()  # appended to by finalizers
        self._owed: deque[tuple[Lease, Callable[[], object]]] = deque()
        self._owing = 0  # those, and the one that is waited for now
        self.leaked = 0

    def lend(self, slot: DeviceSlot) -> tuple[Lease, DeviceBlock]:
        """Begin a lease of a slot that holds a batch, and is LEASED by now. The caller holds the lock.

        Returns:
            The lease, and the slot's memory as a block whose views keep it from ending by itself.
        """
        assert slot.block is not None
        lease, holder = Lease(slot), _Holder(slot.block)
        lease.finalizer = weakref.finalize(holder, self._let_go.append, lease)
        lease.finalizer.atexit = False
        return lease, self._backend.block_at(self._backend.address(slot.block), slot.block.nbytes, holder)

    def check(self, lease: Lease) -> None:
        """Return when the batch of a lease may be used.

        Raises:
            BatchReleasedError: It was given back.
            DeviceError, ForkedPipelineError: The device cannot be used any more.
        """
        self._state.check_device()
        if lease.ended:
            raise BatchReleasedError("this device batch was given back: its slot may hold another batch by now")

    def stream(self, current: Callable[[], StreamRef], *, lent: bool = False) -> StreamRef:
        """Return the stream that a consumer's library says is current, when work enqueued there runs.

        Args:
            lent: The batch stays in its slot, and is given back later.

        Raises:
            PlanError: As for :meth:`check_lendable`, with ``lent``.
            GraphCaptureError: As for :meth:`check_stream`.
            DeviceError: The device has failed, mostly by a kernel of the consumer's own.
        """
        with self._asking():
            stream = current()
        (self.check_lendable if lent else self.check_stream)(stream)
        return stream

    def named(self, handle: int) -> StreamRef:
        """Return the stream that an importer names, as one that may use a lease.

        Raises:
            PlanError: Every thread has one of its own by this handle.
            GraphCaptureError, DeviceError: As for :meth:`stream`.
        """
        with self._asking():
            stream = stream_named(handle, self._backend)
        self.check_lendable(stream)
        return stream

    def check_lendable(self, stream: StreamRef) -> None:
        """Return when a lease may be used on a stream, and given back in whichever thread.

        Raises:
            PlanError: Every thread has one of its own by this handle, so nobody else could wait for this one.
            GraphCaptureError, DeviceError: As for :meth:`check_stream`.
        """
        if not self._backend.same_in_all_threads(stream):
            raise PlanError(
                "the current stream is the default stream of this thread alone (CUDA's handle 2), which no other "
                "thread can wait for, so a batch cannot be lent to it: make a stream of yours current, unset "
                "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM, or take handoff='copy' or 'into'"
            )
        self.check_stream(stream)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Fail the ring when the device turns out to have failed."""
        try:
            yield
        except DeviceError as error:
            with self._state.lock:
                self._state.fail(error)
            raise

    def check_stream(self, stream: StreamRef) -> None:
        """Return when work enqueued on a stream runs, and is not recorded into a graph.

        Raises:
            GraphCaptureError: It is recorded: what is done once for this batch would be done again at every replay.
        """
        with self._asking():
            capturing = self._backend.capturing(stream)
        if capturing:
            raise GraphCaptureError(
                "the current stream is being captured into a CUDA graph, and a batch cannot be handed over in it, or "
                f"it would be again at every replay: {CAPTURE_ADVICE}"
            )

    @contextmanager
    def using(self, lease: Lease, stream: StreamRef) -> Iterator[None]:
        """Order ``stream`` after the batch's arrival, and remember that it uses the slot from now on.

        What is enqueued inside the block is enqueued before anybody can end the lease. Nothing may wait in it.

        Raises:
            BatchReleasedError, DeviceError, ForkedPipelineError: As for :meth:`check`.
        """
        self.check(lease)  # before the lock, which may be held for ever in a forked child
        with interrupts_after(), self._state.lock:
            self.check(lease)
            with self._state.fatal():
                self._backend.order_after(stream, lease.arrived)
                lease.streams[stream.ptr] = stream
                yield

    @interrupts_after()
    def arrive(self, lease: Lease) -> None:
        """Block the calling thread until the batch is there, for who reads it without a stream.

        Raises:
            BatchReleasedError, DeviceError, ForkedPipelineError: As for :meth:`check`.
        """
        self.check(lease)
        with self._state.fatal():
            self._backend.join(lease.arrived)

    @interrupts_after()
    def end(self, lease: Lease) -> None:
        """Give the slot back behind everything that was enqueued on the streams that used it. Never waits.

        Behind the ring's closing it waits for these streams instead, since the memory goes next. When the device has
        failed, and in a forked child, there is nothing to give back, and it only notes the end.

        Raises:
            BatchReleasedError: It was given back before.
            GraphCaptureError: A stream that used it is being captured. It is not given back.
            DeviceError: The device failed just now.
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
        """Give the slot back once ``reached``, which blocks, has returned: called by the thread that waits for copies.

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
            self.end_oldest_owed()  # nobody else does any more

    @interrupts_after()
    def end_oldest_owed(self) -> bool:
        """Block until the oldest of these may end, and end it; False when there is none. For who waits for copies.

        Where there was no room for what was waited for, nothing reads the slot any more, and it is free. The consumer
        hears of that from its library, at the first use of what it was given.

        Raises:
            DeviceError: What was waited for has failed.
        """
        with self._state.lock:
            if not self._owed:
                return False
            lease, reached = self._owed.popleft()
        with self._state.fatal():
            try:
                reached()
            except DeviceMemoryError as error:
                warnings.warn(f"a batch was handed over and is lost: {error}", RuntimeWarning, stacklevel=2)
        with self._state.lock:
            self._owing -= 1
            self._end(lease)
        return True

    @interrupts_after()
    def end_leaked(self) -> None:
        """End the leases whose arrays are all gone, and count them. Call it from time to time; never from a finalizer.

        Raises:
            DeviceError: The device failed just now.
        """
        for _ in range(0 if self._state.forked else len(self._let_go)):
            with self._state.lock:
                lease = self._let_go.popleft() if self._let_go else None
                if lease is None:
                    return
                if not self._state.failed and any(map(self._backend.capturing, lease.streams.values())):
                    self._let_go.append(lease)  # its end would be recorded into a graph: another time
                    continue
                lease.ended = True
                self.leaked += 1
                self._end(lease)

    def mark_leaked(self, timeout_s: float) -> None:
        """Add marks to the slots of leases whose arrays are all gone, for the ring's closing to wait for. Never waits.

        Args:
            timeout_s: Longest wait for the lock, which a thread may hold that does not come back from the driver.
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
        lease.slot.state = DeviceState.READING  # so that its memory is kept where no mark can be had
        with suppress(AiostreamError), self._state.fatal():
            if not any(map(self._backend.capturing, lease.streams.values())):
                lease.slot.marks += [self._backend.mark(stream) for stream in lease.streams.values()]
                lease.slot.state = DeviceState.FREE

    @property
    def any_leaked(self) -> bool:
        """True when there are leases that :meth:`end_leaked` could end. Takes no lock."""
        return bool(self._let_go)

    def held(self, slots: list[DeviceSlot]) -> int:
        """Return how many of the slots a consumer has and can give back."""
        return sum(slot.state is DeviceState.LEASED for slot in slots) - self._owing

    def _note_end(self, lease: Lease) -> None:
        if lease.ended:
            raise BatchReleasedError("this device batch was given back before: each is given back once")
        lease.ended = True
        if lease.finalizer is not None:
            lease.finalizer.detach()

    def _end(self, lease: Lease) -> None:
        """Record where the slot's use ends, and free it. The caller holds the lock."""
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
