"""Make one GPU current around a call, and restore the calling thread's CUDA state afterwards.

CUDA keeps a current GPU per thread, initially GPU 0. Almost any CUDA call of a thread creates a *context* of hundreds
of megabytes on that GPU. When ``with cupy.cuda.Device(1)`` ends, it selects GPU 0 again and creates a context on GPU 0.
The extra context wastes memory in every process, and creating it fails if the GPU is in exclusive mode.

This module creates the GPU's context once, in a short-lived thread. Other threads set this context current by driver
calls, and restore the previous context afterwards. No further context is created. :class:`Freed` frees CUDA objects in
the same way.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any


class CudaContext:
    """The CUDA context of one GPU. Safe to use from any thread.

    Attributes:
        errors: CuPy exceptions that a call in this context may raise.
    """

    def __init__(self, cuda: Any, index: int) -> None:
        """Create the context. Takes hundreds of milliseconds, partly with the GIL held.

        Args:
            cuda: The module ``cupy.cuda``.
            index: Number of the GPU.

        Raises:
            CUDARuntimeError, CUDADriverError: CuPy could not create a context on the GPU.
        """
        self._driver, self._runtime, self._index = cuda.driver, cuda.runtime, index
        self.errors = (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)
        with ThreadPoolExecutor(1, "asd-device-open") as thread:  # the thread ends, and its current device with it
            self._handle = thread.submit(self._make).result()

    def _make(self) -> int:
        self._runtime.setDevice(self._index)
        self._runtime.free(0)  # creates the context in CUDA versions where setDevice does not
        return int(self._driver.ctxGetCurrent())

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the GPU current in the calling thread while a block runs. The block must not contain an ``await``."""
        before = int(self._driver.ctxGetCurrent())
        if before == self._handle:
            yield
            return
        # A thread without a context gets this one at its next CUDA call if this GPU is its current device. CuPy checks
        # a thread's context only once, so such a thread keeps the context.
        stays = before == 0 and int(self._runtime.getDevice()) == self._index
        self._driver.ctxSetCurrent(self._handle)
        try:
            yield
        finally:
            if not stays:
                self._driver.ctxSetCurrent(before)


class Freed:
    """CuPy memory, a stream or an event, freed with its GPU current.

    Any thread may drop the last reference. Without this class, freeing would create a context on that thread's current
    GPU.

    Attributes:
        ptr: Handle or address of the object.
        size: Size in bytes; 0 for streams and events.
    """

    __slots__ = ("__weakref__", "ptr", "size")

    def __init__(self, owned: Any, context: CudaContext, size: int = 0) -> None:
        self.ptr = int(owned.ptr)
        self.size = size
        # The finalizer owns the CuPy object. In a cycle, the collector would finalize both objects in any order.
        weakref.finalize(self, _free, [owned], context).atexit = False


def _free(owned: list[Any], context: CudaContext) -> None:
    with suppress(*context.errors), context.current():
        owned.clear()
