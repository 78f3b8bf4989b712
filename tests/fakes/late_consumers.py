"""Send batches through a ring to consumers that are late by random, on streams of their own, and find torn batches.

A batch is one number over and over. Its smallest and largest value, found by a kernel on the consumer's stream, are
both that number, or something was read too early or written too early.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np

from aiostream_data.device.backend import Mark, StreamRef
from aiostream_data.device.cuda import CupyBackend
from aiostream_data.device.device_batch import DeviceBatch
from aiostream_data.device.stage import DeviceStage

EXTREMES = """
extern "C" __global__ void extremes(const long long* values, long long count, long long* found) {
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        atomicMin(&found[0], values[i]);
        atomicMax(&found[1], values[i]);
    }
}
"""

NO_NUMBER = 1 << 62

LATE_MS = 1.5
"""How late a consumer is at most; three of ten are late."""


class LateConsumers:
    """Two streams that look at batches, each behind work that takes a while.

    Args:
        late_ms: How late a consumer is at most. On average it must take longer than the host takes for a batch, or a
            fast GPU looks at each batch in time whatever order it was told.
    """

    def __init__(self, cupy: Any, batches: int, seed: int, late_ms: float = LATE_MS) -> None:
        self._cupy = cupy
        self._random = random.Random(seed)
        self._streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
        self._kernel = cupy.RawKernel(EXTREMES, "extremes")
        self._found = cupy.asarray(np.tile(np.array([NO_NUMBER, -NO_NUMBER]), (batches, 1)))
        side = 8 if hasattr(cupy, "is_stand_in") else 2048
        values = np.random.default_rng(0).standard_normal((side, side), np.float32) / side
        self._matrix, self._product = cupy.asarray(values), cupy.empty((side, side), np.float32)
        self._products = 6 if hasattr(cupy, "is_stand_in") else max(1, round(late_ms / self._one_ms()))
        self._numbers: list[int] = []

    def _one_ms(self) -> float:
        """Return how long a product takes on the GPU."""
        first, last = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        self._multiply(3)
        first.record()
        self._multiply(10)
        last.record()
        last.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(first, last)) / 10

    def _multiply(self, times: int) -> None:
        for _ in range(times):
            self._cupy.dot(self._matrix, self._matrix, out=self._product)

    def look(self, number: int, batch: DeviceBatch) -> None:
        """Take a batch out on one of the streams, and enqueue a look at it."""
        with self._random.choice(self._streams):
            if self._random.random() < 0.3:
                self._multiply(self._random.randint(1, self._products))
            taken = batch.materialise()
            self._kernel((64,), (256,), (taken, np.int64(taken.size), self._found[number]))
        self._numbers.append(number)

    def torn(self) -> list[int]:
        """Wait for all looks, and return the batches that were not one number, their own."""
        for stream in self._streams:
            stream.synchronize()
        found = self._found.get()
        return [number for number in self._numbers if found[number].tolist() != [number, number]]


def torn_batches(
    cupy: Any,
    backend: CupyBackend,
    batches: int,
    *,
    nbytes: int = 1 << 18,
    seed: int = 0,
    late_ms: float = LATE_MS,
) -> list[int]:
    """Send ``batches`` through a stage with few slots, and return those that came torn."""
    consumers = LateConsumers(cupy, batches, seed, late_ms)
    held: deque[tuple[int, DeviceBatch]] = deque()
    source = np.empty(nbytes // 8, np.int64)
    with DeviceStage(backend, host_slots=2, device_slots=3) as stage:
        for number in range(batches):
            source.fill(number)
            batch = stage.put(source)
            assert batch is not None
            held.append((number, batch))
            if len(held) == 2:
                consumers.look(*held.popleft())
        while held:
            consumers.look(*held.popleft())
        return consumers.torn()


class Watched(CupyBackend):
    """Knows which streams are its own, and which are consumers'."""

    def __init__(self, cupy: Any, index: int) -> None:
        super().__init__(cupy, index)
        self._own: set[int] = set()
        self._idle = super().stream()

    def stream(self) -> StreamRef:
        made = super().stream()
        self._own.add(made.ptr)
        return made


class JoinsNothing(Watched):
    """A host slot is written again while it is still read."""

    def join(self, mark: Mark) -> None:
        """Return at once."""


class ConsumerDoesNotWait(Watched):
    """A batch is taken out before it has arrived."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        if stream.ptr in self._own:
            super().order_after(stream, mark)


class CopyDoesNotWait(Watched):
    """A device slot is written again while a consumer still reads it."""

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        if stream.ptr not in self._own:
            super().order_after(stream, mark)


class MarksTheWrongStream(Watched):
    """The end of a consumer's reading is marked on a stream that has nothing to do."""

    def mark(self, stream: StreamRef) -> Mark:
        return super().mark(stream if stream.ptr in self._own else self._idle)


class ForgetsToRecord(Watched):
    """The mark of a consumer was never recorded, so that waiting for it is waiting for nothing."""

    def mark(self, stream: StreamRef) -> Mark:
        if stream.ptr in self._own:
            return super().mark(stream)
        return Mark(self._cupy.cuda.Event(block=True, disable_timing=True))


BROKEN = (JoinsNothing, ConsumerDoesNotWait, CopyDoesNotWait, MarksTheWrongStream, ForgetsToRecord)
