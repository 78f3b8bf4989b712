"""Open the backend for a device name: ``cpu``, ``cuda``, ``cuda:N`` or ``auto``."""

from __future__ import annotations

import os
import re
import sys

from aiostream_data.arguments import shown
from aiostream_data.device.backend import DeviceBackend
from aiostream_data.device.cuda_opening import device_count, open_cuda
from aiostream_data.device.host import HostBackend
from aiostream_data.errors import DeviceUnavailableError, MissingExtraError, PlanError

_NAME = re.compile(r"cpu|auto|cuda(:(?P<index>0|[1-9][0-9]{0,3}))?")

RANK_VARIABLE = "LOCAL_RANK"
"""Environment variable in which launchers such as torchrun store the rank of the process on its machine."""


def check_device(name: str) -> str:
    """Return ``name`` if it is a valid device name.

    The function does not use any device, so a pipeline can call it before opening a device.

    Raises:
        PlanError: ``name`` is not a valid device name.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PlanError(f"device must be 'cpu', 'cuda', 'cuda:N' or 'auto', got {shown(name)}")
    return name


def current_gpu() -> int | None:
    """Return the calling thread's current GPU, or None if this process has not chosen a GPU.

    CUDA stores a current GPU for each thread. Call this function in the thread that opens a loader. The function asks
    PyTorch and CuPy for the current GPU, but never imports these libraries itself.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    if cupy is None:
        return None
    try:
        return int(cupy.cuda.runtime.getDevice())
    except cupy.cuda.runtime.CUDARuntimeError:
        return None  # opening the device raises an error with the reason


def open_backend(name: str, current: int | None = None) -> DeviceBackend:
    """Open the device called ``name``.

    ``cuda`` selects the GPU number in ``LOCAL_RANK`` if a launcher set this variable. Without ``LOCAL_RANK``, ``cuda``
    selects ``current``, or CUDA's current device if ``current`` is None. If ``LOCAL_RANK`` is set and the process sees
    only one GPU, ``cuda`` selects that GPU.

    ``auto`` selects ``cuda`` if CuPy and a driver with a GPU are found, else ``cpu``. If a GPU exists but cannot be
    used, ``auto`` raises an error, and does not fall back to ``cpu``. Opening a GPU initializes CUDA, which can take
    hundreds of milliseconds. Do not fork the process afterwards.

    Args:
        current: Result of :func:`current_gpu` in the thread that opens the loader.

    Raises:
        PlanError: ``name`` is not a valid device name.
        MissingExtraError: A GPU was requested and CuPy is not installed.
        DeviceUnavailableError: A GPU was requested, but the driver or the GPU is missing, or the GPU cannot be used.
        DeviceMemoryError: The GPU does not have enough memory for a CUDA context.
        ForkedPipelineError: This process was forked from a process that had opened a GPU.
    """
    check_device(name)
    if name == "cpu" or (name == "auto" and not _gpu_is_there()):
        return HostBackend()
    _, _, index = name.partition(":")
    if index:
        return open_cuda(int(index), name)
    rank = _local_rank()
    if rank is None:
        return open_cuda(current, name)
    return open_cuda(rank, f"{name}, by {RANK_VARIABLE}={rank}", or_only=True)


def _gpu_is_there() -> bool:
    try:
        return device_count("auto") > 0
    except MissingExtraError:
        return False
    except DeviceUnavailableError as error:
        if error.absent:
            return False
        raise


def _local_rank() -> int | None:
    rank = os.environ.get(RANK_VARIABLE)
    if rank is None:
        return None
    if not rank.isascii() or not rank.isdigit():
        raise DeviceUnavailableError(
            f"{RANK_VARIABLE}={rank!r} is not the number of a GPU. Unset the variable, or name the device, "
            "such as 'cuda:0'"
        )
    return int(rank)
