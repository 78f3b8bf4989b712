"""Measure the device stage without a device: ``python -m benchmarks.micro.device_slots [SECONDS]``.

Batches of uint8 images, their rows in arrays of their own, go through the stage on ``cpu``: written into a host slot by
one or two threads, "copied to the device" by the one that submits, taken out into the consumer's memory. So every byte
is copied three times, where a GPU leaves the first copy alone to the host: that is the stage without the other copies.
Beside it stands what ``np.copyto`` does with the same rows: the writing alone, into slots that are used again and
again, which is the most that the stage can reach; and a whole pipeline, ``batch().to_device("cpu")`` over arrays in
memory.

Nothing here says anything about a GPU.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data import Dataset
from aiostream_data.device.filling import Filling
from aiostream_data.device.host import HostBackend, aligned_bytes
from aiostream_data.device.stage import DeviceStage
from aiostream_data.rows.parts import Parts

BATCHES = (("256 x 224 x 224 x 3", 256, (224, 224, 3)), ("27 x 224 x 224 x 3", 27, (224, 224, 3)))
ROUNDS = 5
SLOTS = 3

Row = NDArray[np.uint8]
Run = Callable[[list[Row], float], float]
"""Returns batches per second."""


def main() -> None:
    """Measure every way in turn, several times, and print medians with the lowest and highest."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    print("| batch of uint8 | MB | way | batches/s | GB/s of batches | lowest to highest |")
    print("|---|---|---|---|---|---|")
    for name, rows, shape in BATCHES:
        images = [np.random.default_rng(row).integers(0, 255, shape, np.uint8) for row in range(rows)]
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            for way, run in WAYS.items():
                found[way].append(run(images, seconds))
        nbytes = rows * images[0].nbytes
        for way, speeds in found.items():
            speed = median(speeds)
            spread = f"{min(speeds):,.1f} to {max(speeds):,.1f}"
            print(f"| {name} | {nbytes / 1e6:.1f} | {way} | {speed:,.1f} | {speed * nbytes / 1e9:.2f} | {spread} |")


def copy_alone(images: list[Row], seconds: float, threads: int = 1) -> float:
    """Write rows into slots, and nothing else."""
    nbytes = sum(image.nbytes for image in images)
    slots = [aligned_bytes(nbytes).reshape(len(images), *images[0].shape) for _ in range(SLOTS)]
    counts = [0] * threads
    stop = perf_counter() + seconds

    def work(number: int) -> None:
        slot = slots[number]
        while perf_counter() < stop:
            Parts(tuple(image[np.newaxis] for image in images)).write_into(slot)
            counts[number] += 1

    started = perf_counter()
    _in_threads([partial(work, number) for number in range(threads)])
    return sum(counts) / (perf_counter() - started)


class NoCopies(HostBackend):
    """A device whose copies cost nothing, since there are none."""

    def h2d(self, *args: Any) -> None:
        """Return."""


def through_stage(images: list[Row], seconds: float, threads: int = 1, copies: bool = True) -> float:
    """Write with so many threads, submit in order, and take out, or discard, on this thread."""
    stop = perf_counter() + seconds
    taken = 0
    backend = HostBackend() if copies else NoCopies()
    with DeviceStage(backend, host_slots=SLOTS, device_slots=SLOTS) as stage:
        stage.start_waiter()
        written = _Line(stage, images, stop)
        writers = [threading.Thread(target=written.write) for _ in range(threads)]
        submitter = threading.Thread(target=written.submit)
        started = perf_counter()
        for thread in (*writers, submitter):
            thread.start()
        for filling in iter(written.sent.get, None):
            batch = filling.take()
            if copies:
                batch.materialise()
            else:
                batch.discard()
            taken += 1
        elapsed = perf_counter() - started
        for thread in (*writers, submitter):
            thread.join()
    return taken / elapsed


class _Line:
    """Batches in order between the threads that write them and the one that submits."""

    def __init__(self, stage: DeviceStage, images: list[Row], stop: float) -> None:
        self._stage = stage
        self._images = images
        self._stop = stop
        self._begun: deque[tuple[Filling, threading.Event]] = deque()
        self._turn = threading.Lock()
        self._more = threading.Semaphore(0)
        self._writing = 0
        self.sent: SimpleQueue[Filling | None] = SimpleQueue()

    def write(self) -> None:
        """Begin batches in turn, and write them."""
        with self._turn:
            self._writing += 1
        while (begun := self._next()) is not None:
            filling, done = begun
            filling.write()
            done.set()
        with self._turn:
            self._writing -= 1
            self._more.release()

    def _next(self) -> tuple[Filling, threading.Event] | None:
        with self._turn:
            filling = None
            while filling is None and perf_counter() < self._stop:
                changes = self._stage.state.changes
                filling = self._stage.try_fill(Parts(tuple(image[np.newaxis] for image in self._images)))
                if filling is None:
                    self._stage.state.wait_past(changes, 0.1)
            if filling is None:
                return None
            begun = filling, threading.Event()
            self._begun.append(begun)
            self._more.release()
            return begun

    def submit(self) -> None:
        """Submit what was written, in order."""
        state = self._stage.state
        while True:
            self._more.acquire()
            if not self._begun:
                if self._writing == 0:
                    break
                continue
            filling, done = self._begun.popleft()
            done.wait()
            changes = state.changes
            while not filling.submit():
                state.wait_past(changes, None)
                changes = state.changes
            self.sent.put(filling)
        self.sent.put(None)


def pipeline(images: list[Row], seconds: float) -> float:
    """Give batches of rows in memory through a loader."""
    rows = np.stack(images)
    dataset = Dataset.from_tensor_slices(rows).repeat().batch(len(images)).to_device("cpu", depth=SLOTS)
    taken = 0
    with dataset.open(memory_limit=max(1 << 30, 40 * rows.nbytes)) as loader:
        batches = iter(loader)
        next(batches)
        started = perf_counter()
        while perf_counter() - started < seconds:
            next(batches)
            taken += 1
        return taken / (perf_counter() - started)


def _in_threads(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


WAYS: dict[str, Run] = {
    "np.copyto alone, 1 thread": copy_alone,
    "np.copyto alone, 2 threads": partial(copy_alone, threads=2),
    "stage without the other copies, 1 thread writes": partial(through_stage, copies=False),
    "stage without the other copies, 2 threads write": partial(through_stage, threads=2, copies=False),
    "stage, 1 thread writes": through_stage,
    "stage, 2 threads write": partial(through_stage, threads=2),
    "batch().to_device()": pipeline,
}


if __name__ == "__main__":
    main()
