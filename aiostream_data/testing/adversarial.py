"""Simulated device that delays and interleaves enqueued work as much as the stream order permits.

Every device stream is a queue of steps. A seeded scheduler runs the steps one at a time, during later calls of the
backend (:mod:`.stream_model`). A device copy reads its source when it *runs*, in two steps. So if a slot is written or
freed too early, the copy produces torn data or a violation. Enqueued work refers to addresses, not arrays
(:mod:`.address_model`). Freed memory is poisoned. Freed consumer memory returns to a pool for immediate reuse, as in
framework allocators. Code that passes with many scheduler seeds does not depend on lucky timing on a GPU. This
simulation does not test a real device driver.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import DeviceBlock, HostBlock, Mark, StreamRef
from aiostream_data.device.batch_layout import CastPlan
from aiostream_data.device.cast_on_host import Work, pieces, reads_within
from aiostream_data.testing.adversarial_memory import AdversarialMemory
from aiostream_data.testing.stream_model import Event, ModelStreams, Point, Step


class AdversarialBackend(AdversarialMemory):
    """Implementation of :class:`~aiostream_data.device.backend.DeviceBackend` in host memory. Thread-safe.

    Attributes:
        consumers: Mutually unordered device streams for consumers; see :meth:`consumer_stream`.
        current: Stream that :meth:`current_stream` returns; set it to simulate a consumer.
        captured: Streams whose work is captured into a CUDA graph. Enqueuing work on a captured stream is a violation.
        violations: Descriptions of misuse, such as memory freed during a copy or a mark (a stream point) retired twice.
        calls: Number of backend calls so far that support failure injection.
        counts: Number of backend calls that support failure injection, by (call name, thread name).
        events_made, blocks_made: Total number of allocated events and memory blocks, excluding consumer memory.
        host_nbytes: Currently allocated bytes of host memory that simulates page-locked memory.
        marks_out: Number of marks (recorded points in a stream) that are not retired yet.
    """

    def __init__(
        self,
        seed: int,
        *,
        haste: float = 0.1,
        fail_at_call: int | None = None,
        fail_calls: int | None = None,
        fail_status: int = 719,
        capacity_nbytes: int = 1 << 30,
        keeps_objects: bool = False,
    ) -> None:
        """Create a simulated device.

        Args:
            seed: Seed of the random scheduler.
            haste: Probability from 0 to 1 that a call runs some work right after enqueuing work.
            fail_at_call: Index of the first failing call, counted from 0.
            fail_calls: Number of calls that fail. If None, all later calls fail, as after an unrecoverable device
                error.
            fail_status: CUDA status of the injected failures.
            capacity_nbytes: Simulated size of device memory in bytes, excluding consumer memory.
            keeps_objects: Value of the ``keeps_objects`` attribute of the ``DeviceBackend`` protocol.
        """
        super().__init__(fail_at_call, fail_calls, fail_status, capacity_nbytes)
        self._chance = random.Random(seed)
        self._streams = ModelStreams(self._chance, haste)
        self._spare: list[Event] = []
        self._keeps_objects = keeps_objects
        self.captured: list[StreamRef] = []
        self.events_made = 0
        self.marks_out = 0
        self.consumers: tuple[StreamRef, ...] = ()
        self.current = self.consumer_stream()
        self.consumer_stream()

    @property
    def device(self) -> str:
        return "adversarial"

    @property
    def keeps_objects(self) -> bool:
        return self._keeps_objects

    # -- streams -------------------------------------------------------------------------------

    def stream(self) -> StreamRef:
        with self._lock:
            self._called("stream")
            return StreamRef(self._streams.make())

    def consumer_stream(self) -> StreamRef:
        """Create a consumer stream that is not ordered with other streams, and add it to :attr:`consumers`."""
        with self._lock:
            stream = StreamRef(self._streams.make())
            self.consumers = (*self.consumers, stream)
            return stream

    def current_stream(self) -> StreamRef:
        with self._lock:
            self._called("current_stream")
            return self.current

    def same_in_all_threads(self, stream: StreamRef) -> bool:
        return True

    def capturing(self, stream: StreamRef) -> bool:
        with self._lock:
            self._called("capturing")
            return stream in self.captured

    def h2d(
        self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef, at: int = 0, offset: int = 0
    ) -> None:
        with self._lock:
            self._called("h2d")
            self._enqueue_copy("h2d", dst.memory[at:], src.bytes[offset:], nbytes, stream)

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef, offset: int = 0) -> None:
        with self._lock:
            self._called("d2d")
            self._enqueue_copy("d2d", dst.memory, src.memory[offset:], nbytes, stream)

    def prepare_cast(self) -> None:
        with self._lock:
            self._called("prepare_cast")

    def cast(self, dst: DeviceBlock, src: DeviceBlock, plan: CastPlan, stream: StreamRef) -> None:
        """Enqueue the copies and casts of a batch, each in two steps."""
        with self._lock:
            self._called("cast")
            steps = pieces(plan, lambda count: [self._chance.randint(0, count)])
            self._launch("cast", stream, [partial(self._cast, plan, step) for step in steps], dst.memory, src.memory)

    def _cast(self, plan: CastPlan, step: Work, target: NDArray[np.uint8], slot: NDArray[np.uint8]) -> None:
        if reads_within(plan, slot):
            step(target, slot)
        else:
            self.violations.append("cast: what is in the slot would have been read outside of its images")

    def _enqueue_copy(
        self, what: str, dst: NDArray[np.uint8], src: NDArray[np.uint8], nbytes: int, stream: StreamRef
    ) -> None:
        cut = self._chance.randint(0, nbytes)

        def part(start: int, stop: int, target: NDArray[np.uint8], source: NDArray[np.uint8]) -> None:
            np.copyto(target[start:stop], source[start:stop])

        self._launch(what, stream, [partial(part, 0, cut), partial(part, cut, nbytes)], dst, src)

    def launch(self, stream: StreamRef, kernel: Callable[..., object], *arrays: NDArray[Any], turns: int = 1) -> None:
        """Enqueue a consumer's kernel and return immediately.

        Args:
            stream: Device stream that runs the kernel.
            kernel: Function that is called with ``arrays`` when the scheduler selects it, possibly on another thread.
                The kernel reads the memory content at the time of this call. The kernel must not keep the arrays or
                call the stage.
            arrays: Device arrays. The backend does not keep the arrays alive; the caller must reference them until the
                kernel has run.
            turns: Number of scheduler steps of the kernel; the kernel function runs in the last step.
        """
        with self._lock:
            idle: list[Callable[..., object]] = [lambda *_: None] * (turns - 1)
            self._launch("kernel", stream, [*idle, kernel], *arrays)

    def _launch(self, what: str, stream: StreamRef, parts: list[Callable[..., object]], *arrays: NDArray[Any]) -> None:
        """Enqueue each function in ``parts`` as one step.

        The function gets the content that ``arrays`` have when the step runs.
        """
        chunks = [self._space.at(array) for array in arrays]
        # Hold a reference to memory that this model did not allocate; refer to all other memory by address.
        aliases = [chunk.alias(array) if chunk else array for chunk, array in zip(chunks, arrays, strict=True)]

        def step(part: Callable[..., object]) -> bool:
            if all(chunk is None or chunk.live for chunk in chunks):
                part(*aliases)
            else:
                self.violations.append(f"{what}: memory was freed before it ran")
            return True

        self._enqueue(what, stream, *(partial(step, part) for part in parts))

    def _enqueue(self, what: str, stream: StreamRef, *steps: Step) -> None:
        if stream in self.captured:
            self.violations.append(f"{what}: it was recorded into a graph, and did not run")
        self._streams.enqueue(stream.ptr, *steps)

    def enqueue(self, stream: StreamRef, step: Step) -> None:
        """Enqueue a custom step.

        The queue keeps objects referenced by the step alive; for kernels, see :meth:`launch`.
        """
        with self._lock:
            self._enqueue("step", stream, step)

    # -- marks ---------------------------------------------------------------------------------

    def mark(self, stream: StreamRef) -> Mark:
        with self._lock:
            self._called("mark")
            event = self._event()
            point = event.record()
            self._enqueue("mark", stream, point.pass_)
            return Mark(event)

    def timed_mark(self, stream: StreamRef) -> Mark:
        return Mark(self.mark(stream).event, timed=True)

    def elapsed_s(self, first: Mark, then: Mark) -> float:
        """Return 0, because simulated work takes no time.

        The method records a violation if CUDA would reject the marks.
        """
        with self._lock:
            self._called("elapsed_s")
            for mark in (first, then):
                point = self._latest("elapsed_s", mark)
                if not (mark.timed and point.recorded and point.passed):
                    self.violations.append("elapsed_s: a mark was not passed yet, not timed, or never recorded")
            return 0.0

    def unrecorded_mark(self, *, timed: bool = False) -> Mark:
        """Return a mark (a point in a stream) that was never recorded.

        Waiting for this mark returns immediately, as on CUDA.
        """
        with self._lock:
            event = self._event()
            event.latest = Point(recorded=False)
            return Mark(event, timed=timed)

    def _event(self) -> Event:
        if self._spare:
            event = self._spare.pop(self._chance.randrange(len(self._spare)))
        else:
            event = Event()
            self.events_made += 1
        event.retired = False
        self.marks_out += 1
        return event

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        with self._lock:
            self._called("order_after")
            point = self._latest("order_after", mark)
            self._enqueue("order_after", stream, lambda: point.passed)

    def join(self, mark: Mark) -> None:
        with self._lock:
            self._called("join")
            point = self._latest("join", mark)
        while not point.passed:
            with self._lock:
                if not point.passed and not self._streams.run_a_step():
                    raise AssertionError("every stream waits: this mark is never passed")

    def finished(self, mark: Mark) -> bool:
        with self._lock:
            self._called("finished")
            self._streams.run_a_step()
            return self._latest("finished", mark).passed

    def _latest(self, what: str, mark: Mark) -> Point:
        if mark.event.retired:
            self.violations.append(f"{what}: the mark was retired before")
        latest: Point = mark.event.latest
        return latest

    def retire(self, mark: Mark) -> None:
        with self._lock:
            if mark.event.retired:
                self.violations.append("a mark was retired twice")
                return
            mark.event.retired = True
            self.marks_out -= 1
            self._spare.append(mark.event)

    def close(self) -> None:
        with self._lock:
            self._spare.clear()

    # -- the scheduler -------------------------------------------------------------------------

    def settle(self) -> None:
        """Run all enqueued work."""
        with self._lock:
            while self._streams.run_a_step():
                pass
            assert self._streams.idle, "every stream waits, and nothing can run"
