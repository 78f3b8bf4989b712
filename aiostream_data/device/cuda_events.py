"""Record CUDA events with the GIL released, even with CuPy versions that hold the GIL.

A CUDA driver call may wait for a driver lock while another thread runs a Python host function. The host function (see
``cupy.cuda.Stream.launch_host_func``) waits for the GIL. If the driver call holds the GIL, both threads deadlock. CuPy
14 releases the GIL while it records an event. CuPy 13 holds the GIL while it records an event, so this module calls the
CUDA driver directly. CuPy still creates the events, and queries events when a device stage closes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

RecordEvent = Callable[[int, int], object]
"""Function that records a CUDA event on a stream.

The arguments are the handle of the event and the handle of the stream. Raises CuPy's errors.
"""

_FIRST_THAT_RELEASES: Final = 14

DRIVER: Final = "libcuda.so.1"
"""Name of the CUDA driver's shared library on Linux. On other operating systems, CuPy records the events."""


def record_event(cupy: Any, driver: str = DRIVER) -> RecordEvent:
    """Return a function that records CUDA events with the GIL released.

    Args:
        cupy: The module ``cupy``.
        driver: File name of the CUDA driver's shared library. If the library cannot be loaded, CuPy records the events.
    """
    recorded: RecordEvent = cupy.cuda.runtime.eventRecord
    if _major(str(cupy.__version__)) >= _FIRST_THAT_RELEASES:
        return recorded
    try:
        call = ctypes.CDLL(driver).cuEventRecord  # ctypes releases the GIL
    except (OSError, AttributeError):
        return recorded
    call.argtypes, call.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int
    error = cupy.cuda.driver.CUDADriverError

    def record(event: int, stream: int) -> None:
        status = call(event, stream)
        if status:
            raise error(status)

    return record


def _major(version: str) -> int:
    number, _, _ = version.partition(".")
    return int(number) if number.isdigit() else _FIRST_THAT_RELEASES
