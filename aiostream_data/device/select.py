"""Turn a device name into a backend: ``cpu``, ``cuda``, ``cuda:N`` or ``auto``."""

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
"""Set by torchrun and other launchers to the number of the process on its machine."""


def check_device(name: str) -> str:
    """Return ``name`` when it is a device name; touches no device, so a plan may call it when built.

    Raises:
        PlanError: It is none.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PlanError(f"device must be 'cpu', 'cuda', 'cuda:N' or 'auto', got {shown(name)}")
    return name


def current_gpu() -> int | None:
    """Return the GPU that is current in the calling thread; None where this process has not chosen one.

    CUDA has one for each thread, so it is asked for in the thread that opens a loader. Only a library that has
    been imported before is asked; none is started.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    if cupy is None:
        return None
    try:
        return int(cupy.cuda.runtime.getDevice())
    except cupy.cuda.runtime.CUDARuntimeError:
        return None  # opening the device says why


def open_backend(name: str, current: int | None = None) -> DeviceBackend:
    """Open the device called ``name``.

    ``cuda`` is the GPU of this process's ``LOCAL_RANK`` where a launcher set it, else ``current``, else CUDA's current
    device in this thread. A process that is shown one GPU only takes that one, whatever its rank. ``auto`` is ``cuda``
    where CuPy and a driver with a GPU are found, else ``cpu``; but a GPU that is there and cannot be used
    is an error then, too. For GPUs this initialises CUDA, which can take hundreds of milliseconds and
    must not precede a fork.

    Args:
        current: What :func:`current_gpu` returned in the thread of the user.

    Raises:
        PlanError: ``name`` is no device name.
        MissingExtraError: A GPU was asked for and CuPy is not installed.
        DeviceUnavailableError: A GPU was asked for and there is no driver, or no such GPU, or it cannot be used.
        DeviceMemoryError: The GPU has no room even to be opened.
        ForkedPipelineError: This process was forked from one that had opened a GPU.
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
            f"{RANK_VARIABLE}={rank!r} is not the number of a GPU; unset it, or name the device, as in 'cuda:0'"
        )
    return int(rank)
