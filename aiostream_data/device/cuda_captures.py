"""Run CUDA calls of this package while other threads capture CUDA graphs.

PyTorch captures graphs in CUDA's *global* mode by default. During such a capture, CUDA rejects some calls of all other
threads, and each rejected call also invalidates the capture. CUDA rejects waiting for an event, and allocating or
page-locking memory. Querying an event succeeds, but invalidates the capture.

Every thread has a setting for the captures of other threads, which is *global* by default. In a thread with the setting
*thread local*, CUDA ignores captures of other threads, and still protects captures of this thread. CuPy cannot change
this setting, so this module calls the CUDA driver directly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

from aiostream_data.device.cuda_events import DRIVER

THREAD_LOCAL: Final = 1
"""``CU_STREAM_CAPTURE_MODE_THREAD_LOCAL``: captures of other threads do not affect calls of this thread."""

ExchangeMode = Callable[[int], int]
"""Function that changes the setting of the calling thread, and returns the previous setting."""


def exchange_mode(driver: str = DRIVER) -> ExchangeMode:
    """Return a function that changes how captures of other threads affect the calling thread.

    Args:
        driver: File name of the CUDA driver's shared library. If the library cannot be loaded, the returned function
            has no effect.
    """
    try:
        # PyDLL keeps the GIL. The call only accesses a variable of the thread, so releasing the GIL would cost more.
        call = ctypes.PyDLL(driver).cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return lambda mode: mode
    call.argtypes, call.restype = (ctypes.POINTER(ctypes.c_int),), ctypes.c_int

    def exchange(mode: int) -> int:
        setting = ctypes.c_int(mode)
        call(ctypes.byref(setting))  # if the call fails, `setting` stays as it is, and so does the thread's
        return setting.value

    return exchange
