"""A device that runs what is enqueued as late, and as interleaved, as the rules of streams allow.

Every stream is a queue. Its work runs only when a seeded scheduler picks it, one step at a time, in
the middle of some later call; sources are read when the copy *runs*, and each copy runs in two steps,
so that a slot written or freed too early shows as torn data or as a violation. What passes for many
seeds here needs no luck on a GPU; the reverse does not hold: nothing is learnt about a real driver.
"""

from __future__ import annotations

import random
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import DeviceBlock, HostBlock, Mark, StreamRef
from aiostream_data.errors import DeviceError, DeviceMemoryError

Step = Callable[[], bool]
"""One step of a stream; returns False when it must be tried again later."""

POISON = 0xA5


class _Point:
    """What one recording of an event stands for."""

    def __init__(self) -> None:
        self.passed = False

    def pass_(self) -> bool:
        self.passed = True
        return True


class _Event:
    """A reusable event. Waiting means waiting for the recording that is the latest at that moment."""

    def __init__(self) -> None:
        self.latest = _Point()


class AdversarialBackend:
    """Implements :class:`~aiostream_data.device.backend.DeviceBackend` in host memory, for one thread.

    Attributes:
        consumers: Streams that consumers may use, none ordered after another.
        current: The one that :meth:`current_stream` returns; set it as a consumer would.
        violations: What no device would forgive: memory freed under a copy, marks retired twice.
        calls: How many calls that could fail were made.
        events_made, blocks_made: How much was ever allocated.
    """

    def __init__(
        self, seed: int, *, fail_at_call: int | None = None, capacity_nbytes: int = 1 << 30, keeps_objects: bool = False
    ) -> None:
        """Make a device.

        Args:
            seed: Decides the order of everything that streams leave open.
            fail_at_call: Number of the call, from 0, from which on every call raises ``DeviceError``.
            capacity_nbytes: Size of device memory, without what consumers hold.
            keeps_objects: As in the protocol.
        """
        self._random = random.Random(seed)
        self._queues: dict[int, deque[Step]] = {}
        self._spare: list[_Event] = []
        self._fail_at_call = fail_at_call
        self._room_nbytes = capacity_nbytes
        self._keeps_objects = keeps_objects
        self.violations: list[str] = []
        self.calls = 0
        self.events_made = 0
        self.blocks_made = 0
        self.consumers = (self._new_stream(), self._new_stream())
        self.current = self.consumers[0]

    @property
    def device(self) -> str:
        return "adversarial"

    @property
    def keeps_objects(self) -> bool:
        return self._keeps_objects

    # -- memory --------------------------------------------------------------------------------

    def host_block(self, nbytes: int) -> HostBlock:
        self._called()
        self.blocks_made += 1
        return HostBlock(np.full(nbytes, POISON, np.uint8))

    def device_block(self, nbytes: int) -> DeviceBlock:
        self._called()
        if nbytes > self._room_nbytes:
            raise DeviceMemoryError(f"adversarial: {nbytes} bytes asked for, {self._room_nbytes} left")
        memory = np.full(nbytes, POISON, np.uint8)
        self.blocks_made += 1
        self._room_nbytes -= nbytes
        weakref.finalize(memory, self._freed, nbytes)
        return DeviceBlock(nbytes, memory)

    def _freed(self, nbytes: int) -> None:
        self._room_nbytes += nbytes

    def consumer_block(self, nbytes: int) -> DeviceBlock:
        self._called()
        return DeviceBlock(nbytes, np.full(nbytes, POISON, np.uint8))

    def view(self, block: DeviceBlock, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.ndarray(shape, dtype, buffer=block.memory, offset=offset)

    # -- streams -------------------------------------------------------------------------------

    def stream(self) -> StreamRef:
        self._called()
        return self._new_stream()

    def _new_stream(self) -> StreamRef:
        stream = StreamRef(len(self._queues) + 1)
        self._queues[stream.ptr] = deque()
        return stream

    def current_stream(self) -> StreamRef:
        self._called()
        return self.current

    def h2d(self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef) -> None:
        self._called()
        self._enqueue_copy("h2d", weakref.ref(dst.memory), weakref.ref(src.bytes), nbytes, stream)

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef) -> None:
        self._called()
        # The consumer may drop its memory early: its allocator frees in stream order.
        self._enqueue_copy("d2d", lambda: dst.memory, weakref.ref(src.memory), nbytes, stream)

    def _enqueue_copy(
        self,
        what: str,
        dst: Callable[[], NDArray[np.uint8] | None],
        src: Callable[[], NDArray[np.uint8] | None],
        nbytes: int,
        stream: StreamRef,
    ) -> None:
        def part(start: int, stop: int) -> bool:
            target, source = dst(), src()
            if target is None or source is None:
                self.violations.append(f"{what}: memory was freed before the copy ran")
            else:
                np.copyto(target[start:stop], source[start:stop])
            return True

        cut = self._random.randint(0, nbytes)
        self.enqueue(stream, lambda: part(0, cut))
        self.enqueue(stream, lambda: part(cut, nbytes))

    def enqueue(self, stream: StreamRef, step: Step) -> None:
        """Put a step of one's own on a stream, as a consumer's kernel would be."""
        self._queues[stream.ptr].append(step)
        # Lazy, then in a burst: work piles up, and what the host forgot to wait for has not run yet.
        if self._random.random() < 0.1:
            for _ in range(self._random.randrange(12)):
                self._run_a_step()

    # -- marks ---------------------------------------------------------------------------------

    def mark(self, stream: StreamRef) -> Mark:
        self._called()
        if self._spare:
            event = self._spare.pop(self._random.randrange(len(self._spare)))
        else:
            event = _Event()
            self.events_made += 1
        event.latest = _Point()
        self.enqueue(stream, event.latest.pass_)
        return Mark(event)

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        self._called()
        point: _Point = mark.event.latest
        self.enqueue(stream, lambda: point.passed)

    def join(self, mark: Mark) -> None:
        self._called()
        point: _Point = mark.event.latest
        while not point.passed:
            if not self._run_a_step():
                raise AssertionError("every stream waits: this mark is never passed")

    def finished(self, mark: Mark) -> bool:
        self._called()
        self._run_a_step()
        return bool(mark.event.latest.passed)

    def retire(self, mark: Mark) -> None:
        if mark.event in self._spare:
            self.violations.append("a mark was retired twice")
        self._spare.append(mark.event)

    def close(self) -> None:
        self._spare.clear()

    # -- the scheduler -------------------------------------------------------------------------

    def settle(self) -> None:
        """Run everything that is enqueued."""
        while self._run_a_step():
            pass
        assert not any(self._queues.values()), "every stream waits, and nothing can run"

    def _run_a_step(self) -> bool:
        """Run the first step of a stream that can go on; False when none can."""
        busy = [queue for queue in self._queues.values() if queue]
        self._random.shuffle(busy)
        for queue in busy:
            if queue[0]():
                queue.popleft()
                return True
        return False

    def _called(self) -> None:
        number, self.calls = self.calls, self.calls + 1
        if self._fail_at_call is not None and number >= self._fail_at_call:
            raise DeviceError(f"adversarial: call {number} fails, as was asked for")
