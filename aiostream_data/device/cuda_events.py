"""Record events with the GIL released, also where CuPy holds it.

A call into the driver may wait for a lock that another thread holds while it runs a host function of the user's, as by
``cupy.cuda.Stream.launch_host_func``. A host function in Python waits for the GIL. So whoever waits for the driver must
not hold the GIL, or neither goes on. CuPy 14 releases it; CuPy 13 does not while it records an event, and there the
driver is called directly. What is rare is left to CuPy: making events, and asking them when a stage is closed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

RecordEvent = Callable[[int, int], object]
"""Records an event, by its handle, on a stream, by its handle; CuPy's errors."""

_FIRST_THAT_RELEASES: Final = 14

DRIVER: Final = "libcuda.so.1"
"""The driver's library on Linux. On other systems it has other names, and CuPy's call is taken."""


def record_event(cupy: Any, driver: str = DRIVER) -> RecordEvent:
    """Return what records events with the GIL released.

    Args:
        cupy: The module.
        driver: Name of the driver's library. Where it cannot be loaded, CuPy's call is taken.
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
