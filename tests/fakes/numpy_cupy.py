"""A CuPy of NumPy arrays, so that programs written for a GPU run, and their typing errors show, where there is none.

Larger than :mod:`fake_cupy`, which holds the backend's own calls and notes them: here are also the arrays, streams,
timed events and kernels that tests and benchmarks use. Everything has run when a call returns. So nothing is learnt
here about order between streams, and nothing about time.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Self

import fake_cupy
import numpy as np
import pytest
from fake_cupy import FakeCuda

ON_GPU = 2
"""DLPack's number of CUDA memory."""


class Pointer:
    """A place in the memory of an array, which it keeps alive."""

    def __init__(self, array: Any, offset: int) -> None:
        self.memory, self._offset = array, offset
        self.ptr = array.ctypes.data + offset

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.memory, self._offset + offset)


class DeviceNdarray(np.ndarray[Any, np.dtype[Any]]):
    """An array "on a device": what ``cupy.ndarray`` adds to ``numpy.ndarray``.

    Attributes:
        index: Of the device that was current when its memory was taken.
    """

    @classmethod
    def _current_device(cls) -> int:
        """Return the device that is current in the calling thread."""
        return 0

    def __new__(cls, shape: Any, dtype: Any = float, memptr: Any = None) -> Self:
        if memptr is None:
            return np.zeros(shape, dtype).view(cls)
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = np.frombuffer((ctypes.c_uint8 * max(nbytes, 1)).from_address(memptr.ptr), np.uint8, nbytes)
        array: Self = memory.view(dtype).reshape(shape).view(cls)
        array.owner = memptr
        return array

    def __array_finalize__(self, source: Any) -> None:
        self.owner = getattr(source, "owner", None)
        self.index = getattr(source, "index", None)
        if self.index is None:
            self.index = self._current_device()

    @property
    def data(self) -> Any:
        return Pointer(self, 0)

    @property
    def device(self) -> Any:
        return SimpleNamespace(id=self.index)

    def get(self) -> np.ndarray[Any, np.dtype[Any]]:
        """Return a copy on the host."""
        return np.array(self, subok=False)


class Event:
    """An event that is passed as soon as it is recorded."""

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.ptr = id(self)
        self.at = time.perf_counter()

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Return: nothing is ever under way."""


class Stream:
    """A stream that is always idle; while it is captured, copies on it are kept for the graph instead of made."""

    null: ClassVar[Stream]
    captured: ClassVar[dict[int, list[Callable[[], object]]]] = {}
    _here = threading.local()

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.ptr = 0 if null else id(self)

    @classmethod
    def current(cls) -> Stream:
        """Return the stream that is current on the calling thread."""
        entered = cls._entered()
        return entered[-1] if entered else cls.null

    @classmethod
    def _entered(cls) -> list[Stream]:
        entered: list[Stream] = cls._here.__dict__.setdefault("entered", [])
        return entered

    def __enter__(self) -> Stream:
        self._entered().append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._entered().pop()

    def synchronize(self) -> None:
        """Return: nothing is ever under way."""

    def wait_event(self, event: Event) -> None:
        """Return: every event has passed."""

    def begin_capture(self, mode: int | None = None) -> None:
        self.captured[self.ptr] = []

    def end_capture(self) -> Graph:
        return Graph(self.captured.pop(self.ptr))


class Graph:
    """What was captured."""

    def __init__(self, work: list[Callable[[], object]]) -> None:
        self._work = work

    def launch(self, stream: Stream | None = None) -> None:
        for work in self._work:
            work()


Stream.null = Stream(null=True)


def _extremes(values: Any, count: Any, out: Any) -> None:
    out[0], out[1] = min(out[0], values.min()), max(out[1], values.max())


KERNELS = {"extremes": _extremes}
"""What kernels do, by the name of their function."""


class RawKernel:
    """A kernel that runs its twin in :data:`KERNELS`."""

    def __init__(self, code: str, name: str, **options: Any) -> None:
        assert f" {name}(" in code, f"the source has no {name}"
        self._twin = KERNELS[name]

    def __call__(self, grid: Any, block: Any, arguments: Any, **options: Any) -> None:
        self._twin(*arguments)


def module(cuda: FakeCuda) -> ModuleType:
    """Return the module ``cupy`` over ``cuda``, with ``cupy.cuda`` in it."""
    cupy: Any = fake_cupy.module(cuda)
    sub, runtime = cupy.cuda, cupy.cuda.runtime

    class Ndarray(DeviceNdarray):
        @classmethod
        def _current_device(cls) -> int:
            return cuda.current_device

    def asarray(values: Any, dtype: Any = None) -> DeviceNdarray:
        return np.array(values, dtype).view(Ndarray)

    def zeros(shape: Any, dtype: Any = float) -> DeviceNdarray:
        return Ndarray(shape, dtype)

    def memset(pointer: int, value: int, nbytes: int, stream: int) -> None:
        ctypes.memset(pointer, value, nbytes)

    def copy(target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        if stream in Stream.captured:
            Stream.captured[stream].append(lambda: ctypes.memmove(target, source, nbytes))
        else:
            cuda.copy(target, source, nbytes, kind, stream)

    def device(index: int) -> Any:
        here = real_device(index)
        here.synchronize = lambda: None
        here.use = lambda: None
        return here

    real_device = sub.Device
    for name, value in {
        "Device": device,
        "Event": Event,
        "Stream": Stream,
        "get_current_stream": Stream.current,
        "get_elapsed_time": lambda first, last: max(1e3 * (last.at - first.at), 1e-3),
        "UnownedMemory": lambda ptr, nbytes, owner, device_id=-1: SimpleNamespace(ptr=ptr, owner=owner),
    }.items():
        setattr(sub, name, value)
    runtime.memcpyAsync = copy
    runtime.streamIsCapturing = lambda stream: stream in Stream.captured
    for name, value in {
        "memsetAsync": memset,
        "hostAllocWriteCombined": 4,
        "streamCaptureModeGlobal": 0,
        "streamCaptureModeThreadLocal": 1,
        "eventSynchronize": lambda event: None,
        "hostRegister": lambda pointer, nbytes, flags: None,
        "hostUnregister": lambda pointer: None,
        "malloc": lambda nbytes: cuda.allocate("malloc", nbytes),
        "deviceSynchronize": lambda: None,
        "memGetInfo": lambda: (1 << 30, 2 << 30),
        "setDevice": lambda index: setattr(cuda, "current_device", index),
        "driverGetVersion": lambda: 13000,
        "runtimeGetVersion": lambda: 13000,
        "getDeviceProperties": lambda index: {"name": b"stand-in", "multiProcessorCount": 1, "totalGlobalMem": 1 << 30},
    }.items():
        if not hasattr(runtime, name):
            setattr(runtime, name, value)
    cupy.__version__ = "0"
    cupy.is_stand_in, cupy._cuda_behind = True, cuda
    for name, value in {
        "ndarray": Ndarray,
        "RawKernel": RawKernel,
        "asarray": asarray,
        "array": asarray,
        "zeros": zeros,
        "empty": zeros,
        "ones": lambda shape, dtype=float: asarray(np.ones(shape, dtype)),
        "arange": lambda *numbers, dtype=None: asarray(np.arange(*numbers, dtype=dtype)),
        "dot": lambda a, b, out=None: np.dot(a, b, out=out),
        "asnumpy": lambda array: np.array(array, subok=False),
    }.items():
        setattr(cupy, name, value)
    return cupy  # type: ignore[no-any-return]


class DriverBehind:
    """The driver of a stand-in, with the methods of ``benchmarks.gpu.driver.Contexts``."""

    def __init__(self, cupy: Any) -> None:
        self._cuda, self._driver = cupy._cuda_behind, cupy.cuda.driver

    def has_context(self, index: int) -> bool:
        return index in self._cuda.contexts

    def current(self) -> int:
        return int(self._driver.ctxGetCurrent())

    def read(self, index: int, address: int, nbytes: int) -> bytes:
        return ctypes.string_at(address, nbytes)


def driver_of(cupy: Any) -> DriverBehind:
    """Return the driver of a stand-in."""
    return DriverBehind(cupy)


def install(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda | None = None) -> Any:
    """Make ``import cupy`` give a stand-in for the rest of a test, and return it."""
    made: Any = module(cuda or FakeCuda(devices=1))
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setitem(sys.modules, "cupy.cuda", made.cuda)
    return made


def export_as_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have arrays say by DLPack that they are on a GPU, for stand-ins of other libraries: these take an array."""
    monkeypatch.setattr(DeviceNdarray, "__dlpack_device__", lambda self: (ON_GPU, self.index))
    monkeypatch.setattr(DeviceNdarray, "__dlpack__", lambda self, **asked: self.view(np.ndarray))


def install_for_good() -> Any:
    """Make ``import cupy`` give a stand-in of two GPUs for the rest of this process, and return it."""
    made: Any = module(FakeCuda(devices=2))
    sys.modules["cupy"], sys.modules["cupy.cuda"] = made, made.cuda
    return made
