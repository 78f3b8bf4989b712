"""Two GPUs in one process: on which a loader makes a context, and how fast both are copied to at once.

Neither torch nor JAX is in this process, as both make contexts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from typing import Any

import numpy as np

from aiostream_data.device.layout import take_apart
from aiostream_data.device.ring import SlotRing
from aiostream_data.device.select import open_backend
from benchmarks.gpu.copies import Copies, pinned
from benchmarks.gpu.driver import driver_of
from benchmarks.gpu.hardware import MIB, Hardware
from benchmarks.gpu.recorder import Recorder
from benchmarks.gpu.second_gpu import Visitor, named, objections
from benchmarks.gpu.spread import spread

GPUS = (0, 1)
BATCH_NBYTES = 256 * 224 * 224 * 3
WINDOWS = 30
BATCHES = 200
REPEATS = 3
READY_S = 10.0
"""Longest wait of one GPU for the other to be ready."""

Rate = Callable[[], float]
"""Copies for some hundred milliseconds; returns GB/s."""

Way = Callable[[Hardware, int], AbstractContextManager[Rate]]


def run(hardware: Hardware, recorder: Recorder) -> None:
    """Note the contexts first, as they last as long as the process; then compare speeds."""
    visitor = Visitor(hardware, driver_of(hardware))
    if visitor.gpus < len(GPUS):
        recorder.put(skipped=f"{visitor.gpus} GPU")
        return
    visits = named(visitor)
    errors = {f"ours, {name} on cuda:1": "; ".join(objections(visit)) for name, visit in visits.items()}
    recorder.put(visits=visits, errors={name: error for name, error in errors.items() if error})
    for name, way in WAYS.items():
        recorder.put(**{name: compared(hardware, way)})


def compared(hardware: Hardware, way: Way) -> dict[str, Any]:
    """Return GB/s to each GPU alone and to both at once, taking turns; ``share`` is the smaller one's, of alone."""
    alone: dict[int, list[float]] = {index: [] for index in GPUS}
    at_once: dict[int, list[float]] = {index: [] for index in GPUS}
    for _ in range(hardware.scaled(REPEATS, 1)):
        for index in GPUS:
            alone[index] += rates(hardware, way, [index])
        for index, rate in zip(GPUS, rates(hardware, way, GPUS), strict=True):
            at_once[index].append(rate)
    return {
        "alone": {f"cuda:{index}": spread(alone[index], 2) for index in GPUS},
        "at_once": {f"cuda:{index}": spread(at_once[index], 2) for index in GPUS},
        "share": round(min(median(at_once[index]) / median(alone[index]) for index in GPUS), 4),
    }


def rates(hardware: Hardware, way: Way, indices: Sequence[int]) -> list[float]:
    """Return GB/s to each of these GPUs while all of them are copied to, each from a thread of its own."""
    ready = threading.Barrier(len(indices), timeout=READY_S)

    def one(index: int) -> float:
        with hardware.cupy.cuda.Device(index), way(hardware, index) as rate:
            rate()
            ready.wait()
            return rate()

    with ThreadPoolExecutor(len(indices)) as threads:
        return list(threads.map(one, indices))


@contextmanager
def link(hardware: Hardware, index: int) -> Iterator[Rate]:
    """Copy from pinned memory, back to back: what the machine can do."""
    nbytes = hardware.scaled(BATCH_NBYTES, MIB)
    copies, source = Copies(hardware, nbytes), pinned(hardware, nbytes)
    yield lambda: median(copies.h2d_rates(source, nbytes, hardware.scaled(WINDOWS, 2)))


@contextmanager
def stage(hardware: Hardware, index: int) -> Iterator[Rate]:
    """Send batches through the slots of a stage. Few bytes are written, or the host would be measured."""
    nbytes, batches = hardware.scaled(BATCH_NBYTES, MIB), hardware.scaled(BATCHES, 4)
    backend = open_backend(f"cuda:{index}")
    ring = SlotRing(backend, host_slots=3, device_slots=3)
    layout = take_apart(np.empty(nbytes, np.uint8), backend.device, keeps_objects=False).layout

    def send() -> None:
        slot = ring.acquire()
        while slot is None:
            ring.join_oldest()
            slot = ring.acquire()
        ring.arrays(slot, layout)[0][:8] = 1
        batch = ring.submit(slot, layout, [])
        assert batch is not None, "a batch that is discarded leaves its slot at once"
        batch.discard()

    def rate() -> float:
        started = time.perf_counter()
        for _ in range(batches):
            send()
        hardware.cupy.cuda.runtime.deviceSynchronize()
        return nbytes * batches / (time.perf_counter() - started) / 1e9

    try:
        yield rate
    finally:
        ring.close()
        backend.close()


WAYS: dict[str, Way] = {"link": link, "stages": stage}
