"""Make one GPU current around a call, and leave the calling thread as it was.

How this works. CUDA keeps a current GPU for every thread, GPU 0 at first, and makes a *context* on it, hundreds of
megabytes, as soon as that thread calls almost anything. ``with cupy.cuda.Device(1)`` names GPU 0 again when it ends,
which makes a context there: one more for every process on the machine, and a failure where GPUs are exclusive. So the
context of our GPU is made once, in a thread that ends, and other threads only borrow it: the driver is told which
context is current, and afterwards which one was before. That makes no context anywhere.

What CUDA frees, it frees in the same way: see :class:`Freed`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any


class CudaContext:
    """The context of one GPU. Safe to use from any thread.

    Attributes:
        errors: The exceptions of CuPy that a call in this context may raise.
    """

    def __init__(self, cuda: Any, index: int) -> None:
        """Make the context: hundreds of milliseconds, part of them with the GIL held.

        Args:
            cuda: The module ``cupy.cuda``.
            index: Number of the GPU.

        Raises:
            CUDARuntimeError, CUDADriverError: CuPy's, when the GPU gives no context.
        """
        self._driver, self._runtime, self._index = cuda.driver, cuda.runtime, index
        self.errors = (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)
        with ThreadPoolExecutor(1, "asd-device-open") as thread:  # ends, and what is current in it ends too
            self._handle = thread.submit(self._make).result()

    def _make(self) -> int:
        self._runtime.setDevice(self._index)
        self._runtime.free(0)  # with a CUDA whose setDevice only takes a note, this makes the context
        return int(self._driver.ctxGetCurrent())

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the GPU current in the calling thread, for a block without an ``await``."""
        before = int(self._driver.ctxGetCurrent())
        if before == self._handle:
            yield
            return
        # A thread without a context has this GPU's at its next call anyway, where this is the GPU that it names. CuPy
        # remembers that such a thread was given one, and does not look again, so it is not taken away.
        stays = before == 0 and int(self._runtime.getDevice()) == self._index
        self._driver.ctxSetCurrent(self._handle)
        try:
            yield
        finally:
            if not stays:
                self._driver.ctxSetCurrent(before)


class Freed:
    """Memory, a stream or an event of CuPy's, which is freed with its GPU current.

    The last reference may go in any thread, and CUDA would make a context on whatever GPU that thread names.

    Attributes:
        ptr: Its handle or address.
        size: Its bytes; 0 for what has none.
    """

    __slots__ = ("__weakref__", "ptr", "size")

    def __init__(self, owned: Any, context: CudaContext, size: int = 0) -> None:
        self.ptr = int(owned.ptr)
        self.size = size
        # Not held by this object: in a cycle, the collector would finalize both in any order.
        weakref.finalize(self, _free, [owned], context).atexit = False


def _free(owned: list[Any], context: CudaContext) -> None:
    with suppress(*context.errors), context.current():
        owned.clear()
