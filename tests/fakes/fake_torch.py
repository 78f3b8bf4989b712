"""A stand-in for PyTorch, for where it is not installed: tensors over NumPy arrays, with a current stream."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

ON_HOST = 1


class Device:
    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    @property
    def index(self) -> int | None:
        _, _, index = self.name.partition(":")
        return int(index) if index else None


class Tensor:
    """What tests and integrations use of a tensor.

    Attributes:
        content: Its numbers.
        device: Where it claims to be.
    """

    requires_grad = False
    is_leaf = True

    def __init__(self, content: np.ndarray[Any, Any], device: Device) -> None:
        self.content = content
        self.device = device

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.content.shape)

    @property
    def dtype(self) -> Any:
        return self.content.dtype

    @property
    def nbytes(self) -> int:
        return self.content.nbytes

    @property
    def ndim(self) -> int:
        return self.content.ndim

    def data_ptr(self) -> int:
        return self.content.ctypes.data

    def is_contiguous(self) -> bool:
        return self.content.flags.c_contiguous

    def clone(self) -> Tensor:
        return Tensor(self.content.copy(), self.device)

    def cpu(self) -> Tensor:
        return Tensor(self.content, Device("cpu"))

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.content

    def tolist(self) -> Any:
        return self.content.tolist()

    def view(self, dtype: np.dtype[Any]) -> Tensor:
        return Tensor(self.content.view(dtype), self.device)

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        return Tensor(self.content.reshape(shape), self.device)

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self.content[key], self.device)

    def __len__(self) -> int:
        return len(self.content)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.content[key] = value


Tensor.__module__ = "torch"


class OutOfMemoryError(RuntimeError):
    pass


def fake_torch(gpus: int = 0) -> Any:
    """Return a module ``torch`` that sees so many GPUs.

    Its ``cuda.stream`` is the handle of the current stream; ``imported`` notes what from_dlpack was given and asked
    for. ``room`` is how many bytes ``empty`` has, ``lacking`` which dtypes it does not know.
    """
    torch: Any = ModuleType("torch")
    torch.__version__ = "0.fake"
    torch.room = 1 << 30
    torch.imported, torch.lacking = [], set()

    def empty(shape: Any, *, dtype: Any, device: Device | None = None) -> Tensor:
        content: np.ndarray[Any, Any] = np.empty(shape, dtype)
        if content.nbytes > torch.room:
            raise OutOfMemoryError(f"{content.nbytes} bytes")
        return Tensor(content, device or Device("cpu"))

    def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
        if array.dtype in torch.lacking:
            raise TypeError(f"{array.dtype} is not supported")
        return Tensor(array, Device("cpu"))

    def from_dlpack(exported: Any) -> Tensor:
        kind, number = exported.__dlpack_device__()
        stream = torch.cuda.stream
        torch.imported.append((exported, stream))
        if kind == ON_HOST:
            return Tensor(np.from_dlpack(exported), Device("cpu"))
        return Tensor(exported.__dlpack__(stream=stream, max_version=(1, 0)), Device(f"cuda:{number}"))

    torch.Tensor, torch.device, torch.uint8, torch.dtype = Tensor, Device, np.dtype(np.uint8), np.dtype
    torch.empty, torch.from_numpy, torch.from_dlpack = empty, from_numpy, from_dlpack
    torch.cuda = SimpleNamespace(
        is_initialized=lambda: False,
        is_available=lambda: gpus > 0,
        device_count=lambda: gpus,
        stream=21,
        current_stream=lambda device: SimpleNamespace(cuda_stream=torch.cuda.stream),
        OutOfMemoryError=OutOfMemoryError,
    )
    return torch


def install_beside(cupy: Any) -> Any:
    """Make ``import torch`` give, for the rest of this process, a stand-in with the GPUs of a CuPy's, and return it.

    The GPU that is current for one is so for the other, as on a machine.
    """
    runtime = cupy.cuda.runtime
    torch = fake_torch(gpus=runtime.getDeviceCount())
    torch.cuda.is_initialized = lambda: True
    torch.cuda.set_device, torch.cuda.current_device = runtime.setDevice, runtime.getDevice
    sys.modules["torch"] = torch
    return torch
