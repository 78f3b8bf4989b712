"""CuPy's names over a stand-in for CUDA: what the backend calls, as the real one behaves."""

from __future__ import annotations

import sys
import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_cuda import (
    LEGACY,
    PER_THREAD,
    FakeCompileError,
    FakeCuda,
    FakeCudaError,
    FakeDriverError,
    FakePoolError,
    Misuse,
)

from aiostream_data.device import cuda_context

__all__ = ["FakeCuda", "Misuse", "install", "module"]


class OwnedBytes(np.ndarray[Any, np.dtype[np.uint8]]):
    """Memory that keeps its owner alive, and is kept alive by arrays made of it."""

    owner: Any


class Pointer:
    """A place in memory."""

    def __init__(self, memory: Any, offset: int) -> None:
        self.memory, self.ptr = memory, memory.ptr + offset

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.memory, self.ptr - self.memory.ptr + offset)


def module(fake: FakeCuda) -> ModuleType:
    """Return the module ``cupy`` over ``fake``, with ``cupy.cuda`` in it."""
    cupy: Any = ModuleType("cupy")
    cupy.__version__ = "14.0.0"
    cupy.cuda = _cuda(fake)
    cupy.ndarray = _arrays(fake, cupy.cuda)
    cupy.RawModule = _compiler(fake)
    pool = SimpleNamespace(free_all_blocks=fake.free_pool)
    cupy.get_default_memory_pool = lambda: pool
    return cupy  # type: ignore[no-any-return]


def _cuda(fake: FakeCuda) -> ModuleType:
    sub: Any = ModuleType("cupy.cuda")
    sub.runtime = _runtime(fake)
    sub.driver = SimpleNamespace(
        CUDADriverError=FakeDriverError, ctxGetCurrent=fake.context_handle, ctxSetCurrent=fake.use_context
    )
    sub.memory = SimpleNamespace(OutOfMemoryError=FakePoolError)
    sub.compiler = SimpleNamespace(CompileException=FakeCompileError)
    sub.Device, sub.Event = _device(fake), _event(fake)
    sub.Stream, sub.get_current_stream = _streams(fake)
    sub.PinnedMemory = lambda nbytes, flags: fake.allocate("PinnedMemory", nbytes)
    sub.PinnedMemoryPointer = lambda owner, offset: bytes_of(fake, owner, offset)
    sub.Memory = lambda nbytes: fake.allocate("Memory", nbytes)
    sub.UnownedMemory = lambda ptr, nbytes, owner, device: SimpleNamespace(ptr=ptr, owner=owner, device=device)
    sub.MemoryPointer = Pointer
    sub.alloc = lambda nbytes: Pointer(fake.allocate("alloc", nbytes), 0)
    return sub  # type: ignore[no-any-return]


def _runtime(fake: FakeCuda) -> Any:
    def set_device(index: int) -> None:
        fake.current_device = index

    def elapsed(first: int, then: int) -> float:
        fake.call("eventElapsedTime", first, then)
        return 250.0

    return SimpleNamespace(
        CUDARuntimeError=FakeCudaError,
        is_hip=fake.is_hip,
        driverGetVersion=lambda: fake.driver_version,
        runtimeGetVersion=lambda: fake.runtime_version,
        memGetInfo=fake.memory_info,
        streamIsCapturing=fake.is_capturing,
        getDeviceCount=fake.device_count,
        getDevice=lambda: fake.current_device,
        setDevice=set_device,
        free=lambda pointer: fake.call("free", pointer),
        hostAllocPortable=1,
        memcpyHostToDevice=1,
        memcpyDeviceToDevice=3,
        memcpyAsync=fake.copy,
        eventRecord=fake.record,
        eventQuery=fake.query,
        eventSynchronize=lambda event: fake.call("synchronize", event),
        eventElapsedTime=elapsed,
        streamWaitEvent=lambda stream, event: fake.enqueue("streamWaitEvent", stream, stream),
        hostRegister=lambda pointer, nbytes, flags: fake.call("hostRegister", pointer, nbytes, flags),
        hostUnregister=lambda pointer: fake.call("hostUnregister", pointer),
    )


def _device(fake: FakeCuda) -> type:
    class Device:
        """As CuPy's: at its end it names the device that was current before, which makes a context there."""

        def __init__(self, index: int) -> None:
            self.id = index

        def __enter__(self) -> None:
            self.before = fake.current_device
            if self.before != self.id:
                fake.current_device = self.id

        def __exit__(self, *exc_info: object) -> None:
            fake.current_device = self.before

    return Device


def _event(fake: FakeCuda) -> type:
    class Event:
        def __init__(self, block: bool, disable_timing: bool) -> None:
            assert block, "spins else"
            self.ptr = id(self)
            fake.make_event(self.ptr, timed=not disable_timing)
            weakref.finalize(self, fake.destroy_event, self.ptr).atexit = False

    return Event


def _streams(fake: FakeCuda) -> tuple[type, Any]:
    class Stream:
        def __init__(self, non_blocking: bool = False) -> None:
            self.ptr = fake.make_stream(non_blocking)
            weakref.finalize(self, fake.destroy_stream, self.ptr).atexit = False

        def __enter__(self) -> Stream:
            fake.here.entered.setdefault(fake.current_device, []).append(self)
            return self

        def __exit__(self, *exc_info: object) -> None:
            fake.here.entered[fake.current_device].pop()

    def current() -> Any:
        entered = fake.here.entered.get(fake.current_device)
        return entered[-1] if entered else SimpleNamespace(ptr=PER_THREAD if fake.own_streams else 0)

    return Stream, current


def bytes_of(fake: FakeCuda, owner: Any, offset: int) -> OwnedBytes:
    """Return the memory of an owner, from ``offset`` on."""
    found = fake.memory[owner.ptr][offset:].view(OwnedBytes)
    found.owner = owner
    return found


def _arrays(fake: FakeCuda, cuda: Any) -> type:
    class Ndarray(np.ndarray[Any, np.dtype[Any]]):
        """An array on a device."""

        on: int

        def __new__(cls, shape: Any, dtype: Any, memptr: Any) -> Ndarray:
            start = memptr.ptr - memptr.memory.ptr
            made = super().__new__(cls, shape, dtype, buffer=bytes_of(fake, memptr.memory, 0), offset=start)
            made.on = memptr.memory.device
            return made

        def __array_finalize__(self, source: Any) -> None:
            self.on = getattr(source, "on", 0)

        def __dlpack_device__(self) -> Any:
            fake.call("pointerGetAttributes")
            return 2, self.on

        def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
            """As CuPy's: the importer's stream is made to wait for the one that is current on the current device."""
            fake.call("dlpack", stream)
            if stream != -1:
                if fake.current_device != self.on:
                    raise Misuse(f"an importer would wait for a stream of GPU {fake.current_device}, not {self.on}")
                event = cuda.Event(block=True, disable_timing=True)
                fake.record(event.ptr, cuda.get_current_stream().ptr)
                fake.enqueue("streamWaitEvent", stream or LEGACY, stream or LEGACY)
            return self.view(np.ndarray)

    return Ndarray


def _compiler(fake: FakeCuda) -> type:
    class RawModule:
        def __init__(self, code: str) -> None:
            fake.compiling("RawModule")
            self.code = code

        def get_function(self, name: str) -> Any:
            fake.compiling("get_function", name)
            assert f"({name}, " in self.code
            return lambda grid, block, arguments, stream: fake.launch(name, arguments, stream.ptr)

    return RawModule


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> FakeCuda:
    """Make ``import cupy`` give a stand-in over ``fake`` for the rest of a test."""
    made: Any = module(fake)
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setitem(sys.modules, "cupy.cuda", made.cuda)
    monkeypatch.setattr(cuda_context, "exchange_mode", lambda: fake.exchange_mode)
    return fake
