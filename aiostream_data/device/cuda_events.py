"""Record CUDA events with the GIL released, even where CuPy holds it.

A driver call may wait for a lock of another thread that runs a host function of the user, e.g. by
``cupy.cuda.Stream.launch_host_func``. A Python host function waits for the GIL. Holding the GIL in a driver call can
therefore deadlock. CuPy 14 releases the GIL while it records an event. CuPy 13 holds the GIL, so this module calls the
driver directly. Rare calls still go through CuPy: creating events, and querying events when a stage closes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

RecordEvent = Callable[[int, int], object]
"""Function that records an event on a stream, given both handles. Raises CuPy's errors."""

_FIRST_THAT_RELEASES: Final = 14

DRIVER: Final = "libcuda.so.1"
"""Name of the driver's library on Linux. On other systems, CuPy's call is used."""


def record_event(cupy: Any, driver: str = DRIVER) -> RecordEvent:
    """Return a function that records events with the GIL released.

    Args:
        cupy: The module ``cupy``.
        driver: Name of the driver's library. If it cannot be loaded, CuPy's call is used.
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
