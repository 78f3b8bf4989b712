"""Time copies between kinds of host memory and the device."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.hardware import Hardware

PORTABLE = 1


class Copies:
    """One block of device memory and one stream, into which host memory is copied."""

    def __init__(self, hardware: Hardware, nbytes: int) -> None:
        self._hardware = hardware
        self._cuda = hardware.cupy.cuda
        self._runtime = hardware.cupy.cuda.runtime
        self._device = [self._cuda.MemoryPointer(self._cuda.Memory(nbytes), 0) for _ in range(2)]
        self.stream = self._cuda.Stream(non_blocking=True)

    def h2d(self, source: NDArray[np.uint8], nbytes: int) -> None:
        """Enqueue one copy of the first ``nbytes`` of ``source``."""
        kind = self._runtime.memcpyHostToDevice
        self._runtime.memcpyAsync(int(self._device[0].ptr), source.ctypes.data, nbytes, kind, self.stream.ptr)

    def d2d(self, nbytes: int) -> None:
        """Enqueue one copy of ``nbytes`` within the device."""
        target, source = (int(block.ptr) for block in self._device)
        kind = self._runtime.memcpyDeviceToDevice
        self._runtime.memcpyAsync(target, source, nbytes, kind, self.stream.ptr)

    def h2d_rates(self, source: NDArray[np.uint8], nbytes: int, windows: int = 5) -> list[float]:
        """Return GB/s to the device, of several windows of copies, by the device's clock."""
        times = copies_for(nbytes)
        return [self._rate(nbytes, times, lambda: self.h2d(source, nbytes)) for _ in range(windows)]

    def d2d_rates(self, nbytes: int, windows: int = 5) -> list[float]:
        """Return GB/s copied within the device (bytes read and written count once)."""
        times = copies_for(nbytes)
        return [self._rate(nbytes, times, lambda: self.d2d(nbytes)) for _ in range(windows)]

    def _rate(self, nbytes: int, times: int, copy: Any) -> float:
        def work() -> None:
            for _ in range(times):
                copy()

        return nbytes * times / self._hardware.elapsed_ms(self.stream, work) / 1e6

    def enqueue_us(self, source: NDArray[np.uint8], nbytes: int, times: int) -> float:
        """Return microseconds of the calling thread for enqueueing one copy."""
        started = time.perf_counter()
        for _ in range(times):
            self.h2d(source, nbytes)
        seconds = time.perf_counter() - started
        self.stream.synchronize()
        return seconds / times * 1e6


def copies_for(nbytes: int) -> int:
    """Return how many copies are timed as one: about 256 MB, and no more than 200."""
    return max(2, min(200, (256 << 20) // nbytes))


def pinned(hardware: Hardware, nbytes: int, flags: int = PORTABLE) -> NDArray[np.uint8]:
    """Return page-locked host memory of exactly this size, every page written."""
    cuda = hardware.cupy.cuda
    memory = cuda.PinnedMemoryPointer(cuda.PinnedMemory(nbytes, flags), 0)
    array: NDArray[np.uint8] = np.frombuffer(memory, np.uint8, nbytes)
    array[:] = 1
    return array


@contextmanager
def registered_shm(hardware: Hardware, nbytes: int) -> Iterator[NDArray[np.uint8]]:
    """Give memory that processes can share, page-locked by the driver, for the block."""
    runtime = hardware.cupy.cuda.runtime
    descriptor = os.memfd_create("copies")
    try:
        os.ftruncate(descriptor, nbytes)
        array = np.frombuffer(mmap.mmap(descriptor, nbytes), np.uint8, nbytes)
    finally:
        os.close(descriptor)
    array[:] = 1
    runtime.hostRegister(array.ctypes.data, nbytes, PORTABLE)
    try:
        yield array
    finally:
        runtime.hostUnregister(array.ctypes.data)
