"""Find out whether this process can use a GPU, and open one; what is in the way is told with its cure.

Asking for GPUs initialises CUDA, and opening one makes its context: hundreds of milliseconds, part of them with the
GIL held. So neither belongs on an event loop, nor before a fork.
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
"""Says which GPUs CUDA shows to a process."""


def device_count(device: str) -> int:
    """Return how many GPUs CUDA shows to this process. Initialises CUDA.

    Args:
        device: What the user asked for, for messages.

    Raises:
        MissingExtraError: CuPy is not installed.
        DeviceUnavailableError: There is no usable driver; ``absent`` is True where there is none at all.
        ForkedPipelineError: This process was forked from one in which CUDA was started.
    """
    runtime = import_cupy(device).cuda.runtime
    if runtime.is_hip:
        raise DeviceUnavailableError(
            f"device {device!r} cannot be used: the CuPy that is installed is for ROCm, and only CUDA is supported"
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
    """Return the newest CUDA that the driver serves (0: no driver), and that of CuPy; None where it is not told."""

    def told(version: Callable[[], int]) -> int | None:
        try:
            return int(version())
        except runtime.CUDARuntimeError:
            return None  # it is for messages only

    return told(runtime.driverGetVersion), told(runtime.runtimeGetVersion)


def open_cuda(index: int | None, asked: str, *, or_only: bool = False) -> CupyBackend:
    """Open a GPU. Makes its context.

    Args:
        index: Its number; None: CUDA's current device.
        asked: What the user asked for, for messages.
        or_only: Open the only GPU where this process sees just one, whatever its number.

    Raises:
        MissingExtraError: CuPy is not installed.
        DeviceUnavailableError: There is no usable driver, or no such GPU, or it cannot be used now.
        DeviceMemoryError: It has no room for a context.
        ForkedPipelineError: This process was forked from one in which CUDA was started.
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
    """Return what narrows down the GPUs that this process sees, in brackets; empty where nothing does."""
    value = os.environ.get(VISIBLE_VARIABLE)
    return "" if value is None else f" ({VISIBLE_VARIABLE}={value!r})"


def describe_gpus() -> str:
    """Return one line about the GPUs that this process could use, or why it can use none. Initialises CUDA."""
    try:
        count = device_count("cuda")
    except AiostreamError as error:
        return str(error)
    driver, built_for = _versions(import_cupy("cuda").cuda.runtime)
    return (
        f"{count} GPU(s){_visible()}, driver for CUDA {version_name(driver)}, CuPy for CUDA {version_name(built_for)}"
    )
