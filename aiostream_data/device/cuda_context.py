"""Make one GPU current around a call, and restore the calling thread's CUDA state afterwards.

CUDA stores a current GPU for each thread; the initial value is GPU 0. Almost every CUDA call creates a CUDA *context*
of hundreds of megabytes on the thread's current GPU. After a ``with cupy.cuda.Device(1)`` block, CuPy selects GPU 0
again and therefore creates a context on GPU 0. An extra CUDA context wastes memory in every process. If a GPU is in
exclusive mode, creating an extra context fails.

This module creates the GPU's context once, in a short-lived thread. Other threads make this CUDA context current by
driver calls, and restore their previous context afterwards. The process never creates an extra CUDA context. The class
:class:`Freed` uses the same context to free CUDA objects. Meanwhile, CUDA ignores graph captures of other threads; see
:mod:`.cuda_captures`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from aiostream_data.device.cuda_captures import THREAD_LOCAL, exchange_mode
from aiostream_data.device.forks import this_process

_INHERITED: list[object] = []
"""CUDA objects that a forked child inherited and never frees, because every CUDA call would fail there."""


class CudaContext:
    """The CUDA context of one GPU. Any thread may use the context object.

    Attributes:
        errors: CuPy exceptions that a call in this context may raise.
    """

    def __init__(self, cuda: Any, index: int) -> None:
        """Create the context.

        Opening the GPU takes hundreds of milliseconds. The thread holds the GIL for part of this time.

        Args:
            cuda: The module ``cupy.cuda``.
            index: Number of the GPU.

        Raises:
            CUDARuntimeError, CUDADriverError: CuPy could not create a context on the GPU.
        """
        self._driver, self._runtime, self._index = cuda.driver, cuda.runtime, index
        self.errors = (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)
        self._exchange_mode = exchange_mode()
        self._process = this_process()
        with ThreadPoolExecutor(1, "asd-device-open") as thread:  # the thread ends, and its current device with it
            self._handle = thread.submit(self._make).result()

    def _make(self) -> int:
        self._exchange_mode(THREAD_LOCAL)
        self._runtime.setDevice(self._index)
        self._runtime.free(0)  # creates the context in CUDA versions where setDevice does not
        return int(self._driver.ctxGetCurrent())

    @property
    def inherited(self) -> bool:
        """True in a forked child of the process that created the context."""
        return this_process() != self._process

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the GPU current in the calling thread while a ``with`` block runs.

        The ``with`` block must not contain an ``await``.
        """
        mode = self._exchange_mode(THREAD_LOCAL)
        try:
            before = int(self._driver.ctxGetCurrent())
            if before == self._handle:
                yield
                return
            # A thread without a context gets this one at its next CUDA call if this GPU is its current device. CuPy
            # checks a thread's context only once, so such a thread keeps the context.
            stays = before == 0 and int(self._runtime.getDevice()) == self._index
            self._driver.ctxSetCurrent(self._handle)
            try:
                yield
            finally:
                if not stays:
                    self._driver.ctxSetCurrent(before)
        finally:
            self._exchange_mode(mode)


class Freed:
    """Owner of a CUDA object (memory, stream or event) that makes the GPU current before it frees the object.

    Any thread may release the last reference to the CUDA object. Without the class ``Freed``, freeing a CUDA object
    could create a CUDA context on the current GPU of the calling thread.

    Attributes:
        ptr: Handle or address of the CUDA object.
        size: Size of the memory in bytes; 0 for streams and events.
    """

    __slots__ = ("__weakref__", "ptr", "size")

    def __init__(self, owned: Any, context: CudaContext, size: int = 0) -> None:
        self.ptr = int(owned.ptr)
        self.size = size
        # The finalizer owns the CuPy object. In a cycle, the collector would finalize both objects in any order.
        weakref.finalize(self, _free, [owned], context).atexit = False


def _free(owned: list[Any], context: CudaContext) -> None:
    if context.inherited:
        _INHERITED.append(owned)
        return
    with suppress(*context.errors), context.current():
        owned.clear()
