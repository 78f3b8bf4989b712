"""What the machine can do at most: copies from every kind of host memory, and between places on the host."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from benchmarks.gpu.copies import Copies, copies_for, pinned, registered_shm
from benchmarks.gpu.hardware import MIB, Hardware
from benchmarks.gpu.recorder import Recorder
from benchmarks.gpu.spread import spread

BATCHES = {"4 MB": 4_000_000, "38.5 MB": 256 * 224 * 224 * 3, "154 MB": 4 * 256 * 224 * 224 * 3}
"""Sizes of batches: 256 images of 224 x 224 x 3 in one byte, and in four; and a small one."""

WRITE_COMBINED = 4 | 1


def run(hardware: Hardware, recorder: Recorder) -> None:
    """Measure every ceiling; the ones that the predictions need come first."""
    largest = hardware.scaled(512 * MIB, MIB)
    copies = Copies(hardware, largest)
    plain = pinned(hardware, largest)
    by_batch = {name: spread(copies.h2d_rates(plain, min(nbytes, largest)), 2) for name, nbytes in BATCHES.items()}
    recorder.put(h2d_pinned_by_batch=by_batch)
    sizes = [size for size in (64 << 10, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 512 * MIB) if size <= largest]
    recorder.put(h2d_pinned={str(size): spread(copies.h2d_rates(plain, size, 3), 2) for size in sizes})
    batch = min(BATCHES["38.5 MB"], largest)
    recorder.put(d2d=spread(copies.d2d_rates(batch), 1))
    recorder.put(h2d_pageable=spread(copies.h2d_rates(np.ones(batch, np.uint8), batch, 3), 2))
    combined = pinned(hardware, batch, WRITE_COMBINED)
    recorder.put(h2d_write_combined=spread(copies.h2d_rates(combined, batch), 2))
    recorder.put(write_into={"pinned": write_rate(plain, batch), "write_combined": write_rate(combined, batch)})
    with registered_shm(hardware, batch) as shared:
        recorder.put(h2d_registered_shm=spread(copies.h2d_rates(shared, batch), 2))
    recorder.put(enqueue_us=round(copies.enqueue_us(plain, 4096, 100), 2))
    recorder.put(pinning_s_per_gb=round(pinning_s_per_gb(hardware), 3))
    recorder.put(host_copy={str(threads): round(host_copy_rate(threads, batch), 2) for threads in (1, 2, 4, 8)})


def write_rate(target: np.ndarray[Any, np.dtype[np.uint8]], nbytes: int) -> float:
    """Return GB/s of one thread that writes a batch into host memory."""
    source = np.ones(nbytes, np.uint8)
    seconds = []
    for _ in range(4):
        started = time.perf_counter()
        np.copyto(target[:nbytes], source)
        seconds.append(time.perf_counter() - started)
    return round(nbytes / min(seconds) / 1e9, 2)


def pinning_s_per_gb(hardware: Hardware) -> float:
    """Return seconds for page-locking a gigabyte, one block of 128 MiB measured."""
    nbytes = hardware.scaled(128 * MIB, MIB)
    started = time.perf_counter()
    block = hardware.cupy.cuda.PinnedMemory(nbytes, 1)
    seconds = time.perf_counter() - started
    del block  # freed outside of what is timed
    return seconds / nbytes * 1e9


def host_copy_rate(threads: int, nbytes: int) -> float:
    """Return GB/s that so many threads together copy from one place in host memory to another."""
    blocks = [(np.empty(nbytes, np.uint8), np.ones(nbytes, np.uint8)) for _ in range(threads)]
    times = max(1, copies_for(nbytes) // threads)
    ready = threading.Barrier(threads + 1)

    def copy(target: Any, source: Any) -> None:
        np.copyto(target, source)
        ready.wait()
        for _ in range(times):
            np.copyto(target, source)

    started = [threading.Thread(target=copy, args=block) for block in blocks]
    for thread in started:
        thread.start()
    ready.wait()
    begun = time.perf_counter()
    for thread in started:
        thread.join()
    return nbytes * times * threads / (time.perf_counter() - begun) / 1e9
