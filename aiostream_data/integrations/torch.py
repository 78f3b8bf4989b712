"""Convert batches to PyTorch tensors: either new tensors, or views of the memory of a leased slot.

Only this module imports PyTorch, for ``to_device(framework="torch")`` and for the ``torch()`` method of a batch. Device
``cpu`` yields CPU tensors, and ``cuda:N`` yields tensors on GPU N. Without a GPU, the tests check only the device
``cpu``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from aiostream_data.device.backend import DeviceBackend, DeviceBlock, StreamRef
from aiostream_data.device.batch_layout import SlotArray
from aiostream_data.device.handover import ExportedArray
from aiostream_data.device.receivers import FrameworkReceiver, WriteTarget
from aiostream_data.errors import ArgumentTypeError, DeviceLeafError, DeviceMemoryError, DeviceUnavailableError


def receiver(backend: DeviceBackend) -> FrameworkReceiver:
    """Return the PyTorch adapter for the device of a backend.

    Raises:
        DeviceUnavailableError: The installed PyTorch does not support the GPU.
    """
    if not backend.device.startswith("cuda"):
        return HostTensors(backend)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(backend.device.partition(":")[2]) >= count:
        raise DeviceUnavailableError(
            f"PyTorch {torch.__version__} sees {count} GPU(s), but not {backend.device!r}. Install PyTorch built for "
            "CUDA, or use framework='cupy'"
        )
    return CudaTensors(backend)


class _Tensors:
    """Base class of the PyTorch adapters for all devices.

    See :class:`~aiostream_data.device.receivers.FrameworkReceiver`.

    Args:
        backend: The device.
    """

    def __init__(self, backend: DeviceBackend) -> None:
        self._backend = backend
        self._device = torch.device(backend.device if backend.device.startswith("cuda") else "cpu")

    def memory(self, nbytes: int) -> tuple[DeviceBlock, torch.Tensor]:
        try:
            tensor = torch.empty(nbytes, dtype=torch.uint8, device=self._device)
        except torch.cuda.OutOfMemoryError as error:
            message = f"PyTorch could not allocate {nbytes} bytes for a batch on {self._backend.device}: {error}"
            raise DeviceMemoryError(message, need=nbytes) from error
        return self._backend.block_at(tensor.data_ptr(), nbytes, tensor), tensor

    def view(self, memory: torch.Tensor, array: SlotArray) -> torch.Tensor:
        return memory[array.offset : array.offset + array.nbytes].view(dtype_of(array)).reshape(array.shape)

    def target(self, array: Any) -> WriteTarget:
        if not isinstance(array, torch.Tensor):
            raise ArgumentTypeError("expected a tensor")
        if array.device != self._device:
            raise ArgumentTypeError(f"the tensor is on {array.device}, the batch on {self._backend.device}")
        if not array.is_contiguous():
            raise ArgumentTypeError("the tensor must be contiguous")
        if array.requires_grad and array.is_leaf:
            raise ArgumentTypeError("the tensor must not require a gradient")
        block = self._backend.block_at(array.data_ptr(), array.nbytes, array)
        return WriteTarget(block, tuple(array.shape), numpy_dtype_of(array))


class HostTensors(_Tensors):
    """Adapter for tensors in host memory, which uses no PyTorch streams."""

    def current_stream(self) -> StreamRef:
        return self._backend.current_stream()

    def borrowed(self, native: Any, exported: ExportedArray) -> torch.Tensor:
        return torch.from_numpy(native)


class CudaTensors(_Tensors):
    """Adapter for tensors on a GPU, on PyTorch's current stream of that GPU."""

    def current_stream(self) -> StreamRef:
        stream = torch.cuda.current_stream(self._device)
        return StreamRef(int(stream.cuda_stream), stream)

    def borrowed(self, native: Any, exported: ExportedArray) -> torch.Tensor:
        return torch.from_dlpack(exported)


def dtype_of(array: SlotArray) -> torch.dtype:
    """Return the PyTorch dtype for an array's dtype.

    Raises:
        DeviceLeafError: PyTorch has no equivalent of the NumPy dtype.
    """
    try:
        return torch.from_numpy(np.empty(0, array.dtype)).dtype
    except TypeError as error:
        raise DeviceLeafError(array.path, f"an array of {array.dtype}", f"PyTorch {torch.__version__}") from error


def numpy_dtype_of(tensor: torch.Tensor) -> np.dtype[Any]:
    """Return the NumPy dtype for a tensor's dtype.

    Raises:
        TypeError: NumPy has no equivalent of the PyTorch dtype, e.g. bfloat16.
    """
    dtype: np.dtype[Any] = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    return dtype
