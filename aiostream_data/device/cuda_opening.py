"""Check whether this process can use a GPU, and open a GPU. All errors name the cause and the remedy.

Counting GPUs initializes CUDA. Opening a GPU creates a CUDA context on the GPU. Counting or opening GPUs takes hundreds
of milliseconds and holds the GIL for part of this time. Call the functions of this module outside the event loop, and
only after forking worker processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from aiostream_data.device.cuda import CupyBackend, import_cupy
from aiostream_data.device.cuda_status import INSUFFICIENT_DRIVER, NO_DEVICE, mismatch, sentence_of, version_name
from aiostream_data.device.forks import check_cuda_may_start, note_cuda_started
from aiostream_data.errors import AiostreamError, DeviceError, DeviceUnavailableError

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable that selects the GPUs that a process can use."""


def device_count(device: str) -> int:
    """Return the number of GPUs that this process can use. Initializes CUDA.

    Args:
        device: Device name that the user requested, for error messages.

    Raises:
        MissingExtraError: CuPy is not installed.
        DeviceUnavailableError: The driver is missing or unusable; ``absent`` is True if no driver is installed.
        ForkedPipelineError: This process was forked from a process that had started CUDA.
    """
    runtime = import_cupy(device).cuda.runtime
    if runtime.is_hip:
        raise DeviceUnavailableError(
            f"device {device!r} cannot be used: the installed CuPy is for ROCm, and only CUDA is supported"
        )
    check_cuda_may_start(device)
    try:
        count = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        if error.status == NO_DEVICE:
            return 0
        raise _unavailable(device, runtime, error.status) from error
    note_cuda_started()
    return count


def _unavailable(device: str, runtime: Any, status: int) -> DeviceUnavailableError:
    why, absent = sentence_of(status), False
    if status == INSUFFICIENT_DRIVER:
        driver, built_for = _versions(runtime)
        why, absent = mismatch(driver, built_for), driver == 0
    return DeviceUnavailableError(
        f"device {device!r} cannot be used: {why} (CUDA status {status})", absent=absent, status=status
    )


def _versions(runtime: Any) -> tuple[int | None, int | None]:
    """Return the newest CUDA version that the driver supports (0 without a driver), and the CUDA version of CuPy.

    None means unknown.
    """

    def told(version: Callable[[], int]) -> int | None:
        try:
            return int(version())
        except runtime.CUDARuntimeError:
            return None  # the versions only appear in error messages

    return told(runtime.driverGetVersion), told(runtime.runtimeGetVersion)


def open_cuda(index: int | None, asked: str, *, or_only: bool = False) -> CupyBackend:
    """Open a GPU and create its context.

    Args:
        index: Number of the GPU; None for CUDA's current device.
        asked: Device name that the user requested, for error messages.
        or_only: True to ignore ``index`` and open the only GPU if this process sees exactly one.

    Raises:
        MissingExtraError: CuPy is not installed.
        DeviceUnavailableError: No usable driver was found, the GPU does not exist, or the GPU cannot be used.
        DeviceMemoryError: The GPU does not have enough memory for a context.
        ForkedPipelineError: This process was forked from a process that had started CUDA.
    """
    count = device_count(asked)
    if count == 0:
        raise DeviceUnavailableError(
            f"device {asked!r} cannot be used: the NVIDIA driver shows no GPU to this process{_visible()}", absent=True
        )
    if or_only and count == 1:
        index = 0
    if index is not None and index >= count:
        raise DeviceUnavailableError(
            f"device {asked!r} cannot be used: this process sees {count} GPU(s), from cuda:0{_visible()}"
        )
    cupy = import_cupy(asked)
    try:
        return CupyBackend(cupy, int(cupy.cuda.runtime.getDevice()) if index is None else index)
    except DeviceError as error:
        raise DeviceUnavailableError(f"device {asked!r} cannot be used: {error}", status=error.status) from error


def _visible() -> str:
    """Return the value of CUDA_VISIBLE_DEVICES in parentheses, or "" if the variable is not set."""
    value = os.environ.get(VISIBLE_VARIABLE)
    return "" if value is None else f" ({VISIBLE_VARIABLE}={value!r})"


def describe_gpus() -> str:
    """Describe in one line the GPUs that this process can use, or the reason why it can use none. Initializes CUDA."""
    try:
        count = device_count("cuda")
    except AiostreamError as error:
        return str(error)
    driver, built_for = _versions(import_cupy("cuda").cuda.runtime)
    return (
        f"{count} GPU(s){_visible()}, driver for CUDA {version_name(driver)}, CuPy for CUDA {version_name(built_for)}"
    )
