"""A stand-in for CuPy that keeps device memory in the host, runs work at once, and notes the calls."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest


class FakeCudaError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}")
        self.status = status


class FakePoolError(MemoryError):
    pass


class FakeCuda:
    """The CUDA behind a fake CuPy.

    Attributes:
        log: (name, *arguments) of the calls that reached it.
        failing: CUDA status with which calls of a name fail.
        driver_status: Status of asking for devices; 0 is success.
        event_status: Status of every event.
    """

    def __init__(self, devices: int = 2, driver_status: int = 0) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.failing: dict[str, int] = {}
        self.memory: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        self.devices = devices
        self.driver_status = driver_status
        self.event_status = 0
        self.current_device = 0

    def call(self, name: str, *arguments: Any) -> None:
        self.log.append((name, *arguments))
        if name in self.failing:
            raise FakeCudaError(self.failing[name])

    def names(self) -> list[str]:
        return [entry[0] for entry in self.log]

    def device_count(self) -> int:
        if self.driver_status:
            raise FakeCudaError(self.driver_status)
        return self.devices

    def allocate(self, kind: str, nbytes: int) -> int:
        self.call(kind, nbytes, self.current_device)
        array = np.zeros(nbytes, np.uint8)
        self.memory[array.ctypes.data] = array
        return array.ctypes.data

    def copy(self, dst: int, src: int, nbytes: int, kind: int, stream: int) -> None:
        self.call("memcpyAsync", nbytes, kind, stream)
        ctypes.memmove(dst, src, nbytes)

    def module(self) -> ModuleType:
        fake = self

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
                assert disable_timing
                fake.call("Event")
                self.ptr = id(self)

            def synchronize(self) -> None:
                fake.call("synchronize", self.ptr)

        def stream(non_blocking: bool) -> Any:
            fake.call("Stream", non_blocking)
            return SimpleNamespace(ptr=77)

        def pinned(nbytes: int, flags: int) -> Any:
            return SimpleNamespace(ptr=fake.allocate("PinnedMemory", nbytes))

        def raw(nbytes: int) -> Any:
            return SimpleNamespace(ptr=fake.allocate("Memory", nbytes))

        def query(event: int) -> int:
            return fake.event_status

        def array(shape: tuple[int, ...], dtype: Any, memptr: Any) -> Any:
            start = memptr.ptr - memptr.memory.ptr
            return np.ndarray(shape, dtype, buffer=fake.memory[memptr.memory.ptr], offset=start)

        cupy, sub = ModuleType("cupy"), ModuleType("cupy.cuda")
        sub.runtime = SimpleNamespace(  # type: ignore[attr-defined]
            CUDARuntimeError=FakeCudaError,
            getDeviceCount=fake.device_count,
            getDevice=lambda: fake.current_device,
            free=lambda pointer: fake.call("free", pointer),
            hostAllocPortable=1,
            memcpyHostToDevice=1,
            memcpyDeviceToDevice=3,
            memcpyAsync=fake.copy,
            eventRecord=lambda event, stream: fake.call("eventRecord", stream),
            eventQuery=query,
            streamWaitEvent=lambda stream, event: fake.call("streamWaitEvent", stream),
        )
        for name, value in {
            "Device": Device,
            "Event": Event,
            "Stream": stream,
            "PinnedMemory": pinned,
            "PinnedMemoryPointer": lambda memory, offset: fake.memory[memory.ptr],
            "Memory": raw,
            "MemoryPointer": Pointer,
            "alloc": lambda nbytes: Pointer(SimpleNamespace(ptr=fake.allocate("alloc", nbytes)), 0),
            "get_current_stream": lambda: SimpleNamespace(ptr=0),
            "memory": SimpleNamespace(OutOfMemoryError=FakePoolError),
        }.items():
            setattr(sub, name, value)
        cupy.cuda = sub  # type: ignore[attr-defined]
        cupy.ndarray = array  # type: ignore[attr-defined]
        pool = SimpleNamespace(free_all_blocks=lambda: fake.call("free_all_blocks"))
        cupy.get_default_memory_pool = lambda: pool  # type: ignore[attr-defined]
        return cupy


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda) -> FakeCuda:
    """Make ``import cupy`` give ``fake`` for the rest of a test."""
    module: Any = fake.module()
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupy.cuda", module.cuda)
    return fake
