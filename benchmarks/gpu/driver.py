"""NVIDIA's driver, asked without CUDA's runtime, which may make a context in order to answer.

Looking therefore changes nothing: a GPU that had no context has none afterwards.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, Protocol, cast

from benchmarks.gpu.hardware import Hardware

LIBRARY = "libcuda.so.1"


class Contexts(Protocol):
    """The contexts of this process. Safe to use from any thread."""

    def has_context(self, index: int) -> bool:
        """Return True when this process has a context on a GPU."""

    def current(self) -> int:
        """Return the handle of the calling thread's context; 0 when it has none."""

    def read(self, index: int, address: int, nbytes: int) -> bytes:
        """Return memory of a GPU, behind the work of its legacy stream. The GPU must have a context."""


class Driver:
    """Implements :class:`Contexts` by calls into the driver's library."""

    def __init__(self) -> None:
        """Load the driver.

        Raises:
            OSError: There is no driver, or it does not start.
        """
        self._library = ctypes.CDLL(LIBRARY)
        self._call("cuInit", 0)

    def has_context(self, index: int) -> bool:
        flags, active = ctypes.c_uint(), ctypes.c_int()
        self._call("cuDevicePrimaryCtxGetState", self._device(index), ctypes.byref(flags), ctypes.byref(active))
        return bool(active.value)

    def current(self) -> int:
        context = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(context))
        return context.value or 0

    def read(self, index: int, address: int, nbytes: int) -> bytes:
        device, context, left = self._device(index), ctypes.c_void_p(), ctypes.c_void_p()
        content = ctypes.create_string_buffer(nbytes)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        try:
            self._call("cuCtxPushCurrent_v2", context)
            try:
                self._call("cuMemcpyDtoH_v2", content, ctypes.c_uint64(address), ctypes.c_size_t(nbytes))
            finally:
                self._call("cuCtxPopCurrent_v2", ctypes.byref(left))
        finally:
            self._call("cuDevicePrimaryCtxRelease_v2", device)
        return content.raw

    def _device(self, index: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), index)
        return device

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise OSError(f"{name} of {LIBRARY} returned {status}")


def driver_of(hardware: Hardware) -> Contexts:
    """Return the driver, or in a self-check what the stand-in notes of contexts."""
    if hardware.real:
        return Driver()
    return cast("Contexts", importlib.import_module("numpy_cupy").driver_of(hardware.cupy))
