"""A stand-in for CuPy that keeps device memory in the host, runs work at once, and notes the calls."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from host_kernels import host_kernels

from aiostream_data.device.cuda_status import sticky


class FakeCudaError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}")
        self.status = status


class FakePoolError(MemoryError):
    pass


class FakeDriverError(FakeCudaError):
    pass


class FakeCompileError(Exception):
    pass


class Owner:
    """Memory of a fake CUDA, which lives as long as this does."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


class OwnedBytes(np.ndarray[Any, np.dtype[np.uint8]]):
    """Memory that keeps its owner alive, and is kept alive by arrays made of it."""

    owner: Any


class FakeCuda:
    """The CUDA behind a fake CuPy.

    Attributes:
        log: (name, *arguments) of the calls that reached it.
        threads: Names of the threads that called.
        failing: CUDA status with which calls of a name fail. Behind a sticky one all calls fail with it.
        driver_status: Status of asking for devices; 0 is success.
        driver_version, runtime_version: Of CUDA, as the driver serves it (0: no driver) and as CuPy is built for it.
        event_status: Status of every event.
        capturing: Handles of streams that are being captured.
        invalidated: Handles of streams whose capture has failed and was not ended yet.
        room: Bytes left for allocations of a kind ("Memory", "PinnedMemory", "alloc"); no limit where it is missing.
        kernels: What functions of a compiled module do, by name; when empty, those of ImageCast as made for the host.
        broken_compiler: The call with which compiling fails; "" when it works.
        pooled: Bytes that CuPy's pool keeps from "Memory" until it is told to let go.
    """

    def __init__(self, devices: int = 2, driver_status: int = 0) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()
        self.failing: dict[str, int] = {}
        self.memory: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        self.devices = devices
        self.driver_status = driver_status
        self.event_status = 0
        self._of_thread = threading.local()  # as CUDA has it: each thread begins with the first
        self.driver_version = 0 if driver_status == 35 else 13000
        self.runtime_version = 13000
        self.is_hip = False
        self.capturing: set[int] = set()
        self.invalidated: set[int] = set()
        self.room: dict[str, int] = {}
        self.pooled = 0
        self.kernels: dict[str, Callable[..., None]] = {}
        self.broken_compiler = ""
        self._started_in: int | None = None
        self._poison = 0

    @property
    def current_device(self) -> int:
        """The device that is current in the calling thread."""
        return getattr(self._of_thread, "device", 0)

    @current_device.setter
    def current_device(self, index: int) -> None:
        self._of_thread.device = index

    def note(self, name: str, *arguments: Any) -> None:
        self.log.append((name, *arguments))
        self.threads.add(threading.current_thread().name)

    def call(self, name: str, *arguments: Any) -> None:
        self.note(name, *arguments)
        status = self._poison or self.failing.get(name, 0)
        if sticky(status):
            self._poison = status
        if status:
            raise FakeCudaError(status)

    def names(self) -> list[str]:
        return [entry[0] for entry in self.log]

    def device_count(self) -> int:
        if self._started_in not in (None, os.getpid()):
            raise FakeCudaError(3)
        if self.driver_status:
            raise FakeCudaError(self.driver_status)
        self._started_in = os.getpid()
        return self.devices

    def allocate(self, kind: str, nbytes: int) -> Any:
        """Return an owner of memory, which is free again when the owner dies."""
        self.call(kind, nbytes, self.current_device)
        if nbytes > self.room.get(kind, nbytes):
            raise FakeCudaError(2)
        array = np.zeros(nbytes, np.uint8)
        self.memory[array.ctypes.data] = array
        owner = Owner(array.ctypes.data)
        if kind in self.room:
            self.room[kind] -= nbytes
            weakref.finalize(owner, self.give_back, kind, nbytes)
        return owner

    def give_back(self, kind: str, nbytes: int) -> None:
        self.room[kind] += nbytes

    def free_pool(self) -> None:
        self.call("free_all_blocks")
        if self.pooled:
            self.give_back("Memory", self.pooled)
            self.pooled = 0

    def memory_info(self) -> tuple[int, int]:
        self.call("memGetInfo")
        return self.room.get("Memory", 1 << 30), 1 << 30

    def is_capturing(self, stream: int) -> bool:
        self.call("streamIsCapturing", stream)
        if stream in self.invalidated:
            raise RuntimeError("the stream was capturing, but an error has invalidated the capture sequence")
        return stream in self.capturing

    def copy(self, dst: int, src: int, nbytes: int, kind: int, stream: int) -> None:
        self.call("memcpyAsync", nbytes, kind, stream)
        ctypes.memmove(dst, src, nbytes)

    def compiling(self, call: str, *arguments: Any) -> None:
        self.call(call, *arguments)
        if self.broken_compiler == call:
            raise FakeCompileError("no compiler")

    def launch(self, name: str, arguments: tuple[Any, ...], stream: int) -> None:
        try:
            self.call("launch", name, stream)
        except FakeCudaError as error:
            raise FakeDriverError(error.status) from error
        (self.kernels or host_kernels())[name](*arguments)

    def module(self) -> ModuleType:
        fake = self

        class RawModule:
            def __init__(self, code: str) -> None:
                fake.compiling("RawModule")
                self.code = code

            def get_function(self, name: str) -> Any:
                fake.compiling("get_function", name)
                assert f"({name}, " in self.code
                return lambda grid, block, arguments, stream: fake.launch(name, arguments, stream.ptr)

        class Device:
            def __init__(self, index: int) -> None:
                self.index = index

            def __enter__(self) -> None:
                self.before, fake.current_device = fake.current_device, self.index

            def __exit__(self, *exc_info: object) -> None:
                fake.current_device = self.before

        class Pointer:
            def __init__(self, memory: Any, offset: int) -> None:
                self.memory, self.ptr = memory, memory.ptr + offset

            def __add__(self, offset: int) -> Pointer:
                return Pointer(self.memory, self.ptr - self.memory.ptr + offset)

        class Event:
            def __init__(self, block: bool, disable_timing: bool) -> None:
                assert block, "spins else"
                fake.call("Event" if disable_timing else "TimedEvent")
                self.ptr = id(self)

            def synchronize(self) -> None:
                fake.call("synchronize", self.ptr)

        def stream(non_blocking: bool) -> Any:
            fake.call("Stream", non_blocking)
            return SimpleNamespace(ptr=77)

        def pinned(nbytes: int, flags: int) -> Any:
            return fake.allocate("PinnedMemory", nbytes)

        def bytes_of(owner: Any, offset: int) -> OwnedBytes:
            found = fake.memory[owner.ptr][offset:].view(OwnedBytes)
            found.owner = owner
            return found

        def unowned(address: int, nbytes: int, owner: object, device: int) -> Any:
            return SimpleNamespace(ptr=address, owner=owner)

        def raw(nbytes: int) -> Any:
            return fake.allocate("Memory", nbytes)

        def elapsed(first: int, then: int) -> float:
            fake.call("eventElapsedTime", first, then)
            return 250.0

        def query(event: int) -> int:
            fake.note("eventQuery", event)
            return fake._poison or fake.event_status

        def array(shape: tuple[int, ...], dtype: Any, memptr: Any) -> Any:
            start = memptr.ptr - memptr.memory.ptr
            return np.ndarray(shape, dtype, buffer=bytes_of(memptr.memory, 0), offset=start)

        cupy, sub = ModuleType("cupy"), ModuleType("cupy.cuda")
        sub.runtime = SimpleNamespace(  # type: ignore[attr-defined]
            CUDARuntimeError=FakeCudaError,
            is_hip=fake.is_hip,
            driverGetVersion=lambda: fake.driver_version,
            runtimeGetVersion=lambda: fake.runtime_version,
            memGetInfo=fake.memory_info,
            streamIsCapturing=fake.is_capturing,
            getDeviceCount=fake.device_count,
            getDevice=lambda: fake.current_device,
            free=lambda pointer: fake.call("free", pointer),
            hostAllocPortable=1,
            memcpyHostToDevice=1,
            memcpyDeviceToDevice=3,
            memcpyAsync=fake.copy,
            eventRecord=lambda event, stream: fake.call("eventRecord", stream),
            eventQuery=query,
            eventElapsedTime=elapsed,
            streamWaitEvent=lambda stream, event: fake.call("streamWaitEvent", stream),
            hostRegister=lambda pointer, nbytes, flags: fake.call("hostRegister", pointer, nbytes, flags),
            hostUnregister=lambda pointer: fake.call("hostUnregister", pointer),
        )
        for name, value in {
            "Device": Device,
            "Event": Event,
            "Stream": stream,
            "PinnedMemory": pinned,
            "PinnedMemoryPointer": bytes_of,
            "UnownedMemory": unowned,
            "Memory": raw,
            "MemoryPointer": Pointer,
            "alloc": lambda nbytes: Pointer(fake.allocate("alloc", nbytes), 0),
            "get_current_stream": lambda: SimpleNamespace(ptr=0),
            "memory": SimpleNamespace(OutOfMemoryError=FakePoolError),
            "driver": SimpleNamespace(CUDADriverError=FakeDriverError),
            "compiler": SimpleNamespace(CompileException=FakeCompileError),
        }.items():
            setattr(sub, name, value)
        cupy.cuda = sub  # type: ignore[attr-defined]
        cupy.ndarray = array  # type: ignore[attr-defined]
        cupy.RawModule = RawModule  # type: ignore[attr-defined]
        pool = SimpleNamespace(free_all_blocks=fake.free_pool)
        cupy.get_default_memory_pool = lambda: pool  # type: ignore[attr-defined]
        return cupy


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> FakeCuda:
    """Make ``import cupy`` give ``fake`` for the rest of a test."""
    module: Any = fake.module()
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupy.cuda", module.cuda)
    return fake
