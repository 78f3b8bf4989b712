"""A stand-in for CUDA that keeps device memory in the host, runs work at once, and notes the calls.

What every thread has for itself is modelled as CUDA has it: a current device, a context or none, current streams, a
default stream. What CUDA would answer by reading or writing somewhere else raises :class:`Misuse`.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from host_kernels import host_kernels

from aiostream_data.device.cuda_status import sticky

LEGACY: Final = 1
PER_THREAD: Final = 2
"""Handles of default streams: the one of a device, and the one that every thread has for itself."""

SPOILS_CAPTURES: Final = frozenset({"synchronize", "Memory", "PinnedMemory", "alloc", "hostRegister", "free"})
"""Calls that break global captures of other threads, and fail, as an H200 has shown. Queries break them and succeed."""


class FakeCudaError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}")
        self.status = status


class FakePoolError(MemoryError):
    pass


class FakeDriverError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError{status}")
        self.status = status


class FakeCompileError(Exception):
    pass


class Misuse(AssertionError):
    """CUDA was called in a way that a real one may answer by doing something else."""


class Owner:
    """Memory of a fake CUDA, which lives as long as this does."""

    def __init__(self, ptr: int, device: int) -> None:
        self.ptr = ptr
        self.device = device


class _Here(threading.local):
    """What a thread has for itself.

    Attributes:
        named: The device that it named last, as by cudaSetDevice.
        context: The device whose context is current; None where there is none.
        entered: Streams that are current, by device, the latest last.
        uses_own_stream: Something was enqueued on its own default stream.
        capture_mode: How captures of other threads affect it: 0 as the global mode says, 1 not at all.
    """

    named = 0
    capture_mode = 0
    context: int | None = None
    uses_own_stream = False

    def __init__(self) -> None:
        self.entered: dict[int, list[Any]] = {}


class FakeCuda:
    """The CUDA behind a fake CuPy.

    Attributes:
        log: (name, *arguments) of the calls that reached it.
        threads: Names of the threads that called.
        contexts: Devices on which a context was made.
        exclusive: Devices that another process has for itself: no context can be made there.
        failing: CUDA status with which calls of a name fail. Behind a sticky one all calls fail with it.
        driver_status: Status of asking for devices; 0 is success.
        driver_version, runtime_version: Of CUDA, as the driver serves it (0: no driver) and as CuPy is built for it.
        event_status: Status of every event.
        capturing: Handles of streams that are being captured.
        invalidated: Handles of streams whose capture has failed and was not ended yet.
        capturer: The thread that captures in global mode; None where there is none.
        spoilt_by: Calls that broke such a capture.
        own_streams: The default stream is the calling thread's own, as with CUPY_CUDA_PER_THREAD_DEFAULT_STREAM.
        room: Bytes left for allocations of a kind ("Memory", "PinnedMemory", "alloc"); no limit where it is missing.
        kernels: What functions of a compiled module do, by name; when empty, those of ImageCast as made for the host.
        broken_compiler: The call with which compiling fails; "" when it works.
        pooled: Bytes that CuPy's pool keeps from "Memory" until it is told to let go.
        destroyed: Handles of streams that are no more.
        freed_on: (kind, device that was current) of what was freed.
    """

    def __init__(self, devices: int = 2, driver_status: int = 0) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()
        self.contexts: set[int] = set()
        self.exclusive: set[int] = set()
        self.failing: dict[str, int] = {}
        self.memory: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        self.devices = devices
        self.driver_status = driver_status
        self.event_status = 0
        self.here = _Here()
        self.driver_version = 0 if driver_status == 35 else 13000
        self.runtime_version = 13000
        self.is_hip = False
        self.capturing: set[int] = set()
        self.invalidated: set[int] = set()
        self.capturer: int | None = None
        self.spoilt_by: list[str] = []
        self.own_streams = False
        self.room: dict[str, int] = {}
        self.pooled = 0
        self.kernels: dict[str, Callable[..., None]] = {}
        self.broken_compiler = ""
        self.destroyed: set[int] = set()
        self.freed_on: list[tuple[str, int]] = []
        self._streams: dict[int, int] = {}  # device of each that was made here
        self._events: dict[int, int] = {}
        self._started_in: int | None = None
        self._poison = 0

    # -- devices and contexts

    @property
    def current_device(self) -> int:
        """The device that is current in the calling thread; setting it makes a context there, as CUDA 12 does."""
        return self.here.named if self.here.context is None else self.here.context

    @current_device.setter
    def current_device(self, index: int) -> None:
        if not 0 <= index < self.devices:
            raise FakeCudaError(101)
        self.here.named, self.here.context = index, None
        self._make_context()

    def _make_context(self) -> None:
        """Do what nearly every call does first: where the thread has no context, make one on the device it named."""
        if self.here.context is None:
            if self.here.named in self.exclusive:
                raise FakeCudaError(46)
            self.here.context = self.here.named
            self.contexts.add(self.here.named)

    def context_handle(self) -> int:
        return 0 if self.here.context is None else 0x1000 + self.here.context

    def use_context(self, handle: int) -> None:
        device = handle - 0x1000 if handle else None
        if device is not None and device not in self.contexts:
            raise FakeDriverError(201)
        self.here.context = device

    def device_count(self) -> int:
        if self._started_in not in (None, os.getpid()):
            raise FakeCudaError(3)
        if self.driver_status:
            raise FakeCudaError(self.driver_status)
        self._started_in = os.getpid()
        return self.devices

    # -- calls

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
        if name in SPOILS_CAPTURES and self._spoils_a_capture(name):
            raise FakeCudaError(900)
        self._make_context()

    def _spoils_a_capture(self, name: str) -> bool:
        spoils = self.capturer not in (None, threading.get_ident()) and self.here.capture_mode == 0
        if spoils:
            self.spoilt_by.append(name)
        return spoils

    def exchange_mode(self, mode: int) -> int:
        """Set how captures of other threads affect the calling one; return how they did."""
        before, self.here.capture_mode = self.here.capture_mode, mode
        return before

    def names(self) -> list[str]:
        return [entry[0] for entry in self.log]

    # -- memory

    def allocate(self, kind: str, nbytes: int) -> Any:
        """Return an owner of memory, which is free again when the owner dies."""
        self.call(kind, nbytes, self.current_device)
        if nbytes > self.room.get(kind, nbytes):
            raise FakeCudaError(2)
        array = np.zeros(nbytes, np.uint8)
        self.memory[array.ctypes.data] = array
        owner = Owner(array.ctypes.data, self.current_device)
        limited = kind in self.room
        if limited:
            self.room[kind] -= nbytes
        weakref.finalize(owner, self._free, kind, nbytes if limited else 0, kind != "alloc").atexit = False
        return owner

    def _free(self, kind: str, nbytes: int, calls_cuda: bool) -> None:
        if calls_cuda:  # what is from CuPy's pool goes back there
            self._make_context()
            self.freed_on.append((kind, self.current_device))
        if nbytes:
            self.room[kind] += nbytes

    def free_pool(self) -> None:
        self.call("free_all_blocks")
        if self.pooled:
            self.room["Memory"] += self.pooled
            self.pooled = 0

    def memory_info(self) -> tuple[int, int]:
        self.call("memGetInfo")
        return self.room.get("Memory", 1 << 30), 1 << 30

    def copy(self, dst: int, src: int, nbytes: int, kind: int, stream: int) -> None:
        self.enqueue("memcpyAsync", stream, nbytes, kind, stream)
        ctypes.memmove(dst, src, nbytes)

    # -- streams and events

    def make_stream(self, non_blocking: bool) -> int:
        self.call("Stream", non_blocking)
        handle = 77 + len(self._streams)
        self._streams[handle] = self.current_device
        return handle

    def destroy_stream(self, handle: int) -> None:
        self._make_context()
        self.freed_on.append(("Stream", self.current_device))
        self.destroyed.add(handle)

    def make_event(self, handle: int, timed: bool) -> None:
        self.call("TimedEvent" if timed else "Event")
        self._events[handle] = self.current_device

    def destroy_event(self, handle: int) -> None:
        self._make_context()
        self.freed_on.append(("Event", self.current_device))

    def enqueue(self, name: str, stream: int, *arguments: Any) -> None:
        """Note a call that enqueues something on a stream."""
        self.call(name, *arguments)
        self._check_alive(stream)
        if stream == PER_THREAD:
            self.here.uses_own_stream = True

    def record(self, event: int, stream: int) -> None:
        self.call("eventRecord", stream)
        self._check_alive(stream)
        if stream == PER_THREAD and not self.here.uses_own_stream:
            raise Misuse("an event was recorded on the default stream of a thread that has enqueued nothing there")
        device = self._streams.get(stream, self.current_device)
        if stream not in self._streams and stream > PER_THREAD:
            return  # another library's
        if self._events.get(event, device) != device:
            raise FakeCudaError(400)

    def _check_alive(self, stream: int) -> None:
        if stream in self.destroyed:
            raise Misuse(f"stream {stream} was destroyed")

    def query(self, event: int) -> int:
        self.note("eventQuery", event)
        self._spoils_a_capture("eventQuery")
        return self._poison or self.event_status

    def is_capturing(self, stream: int) -> bool:
        self.call("streamIsCapturing", stream)
        self._check_alive(stream)
        if stream in self.invalidated:
            raise RuntimeError("the stream was capturing, but an error has invalidated the capture sequence")
        return stream in self.capturing

    # -- kernels

    def compiling(self, call: str, *arguments: Any) -> None:
        self.call(call, *arguments)
        if self.broken_compiler == call:
            raise FakeCompileError("no compiler")

    def launch(self, name: str, arguments: tuple[Any, ...], stream: int) -> None:
        try:
            self.enqueue("launch", stream, name, stream)
        except FakeCudaError as error:
            raise FakeDriverError(error.status) from error
        numbers = 2 if "f16" in name else 4
        if int(arguments[3]) % numbers:
            raise Misuse(f"{name} writes numbers of {numbers} bytes at an address that is no multiple of that")
        (self.kernels or host_kernels())[name](*arguments)
