"""Questions about CUDA alone, through CuPy. Neither torch nor JAX is in this process."""

from __future__ import annotations

import asyncio
import mmap
import threading
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from aiostream_data.device.cuda_captures import THREAD_LOCAL, ExchangeMode, exchange_mode
from aiostream_data.device.select import open_backend
from aiostream_data.device.stage import DeviceStage
from benchmarks.gpu.copies import Copies, pinned, registered_shm
from benchmarks.gpu.findings import Asked, Finding, ask
from benchmarks.gpu.hardware import DEVICE, MIB, Busy, Hardware
from benchmarks.gpu.recorder import Recorder
from benchmarks.gpu.spread import spread

LEGACY = 1
"""Handle by which CUDA knows the legacy stream where 0 may mean another."""

BATCH_NBYTES = 256 * 224 * 224 * 3


def run(hardware: Hardware, recorder: Recorder) -> None:
    """Answer the questions; U12 first, as there is only one first context, and U4 last, as it may spoil the process."""
    asked: Asked = {"U12": context_stall, "U1": ceiling, "U8": registered, "U9": write_combined}
    ask(asked | {"U10": waking, "U10 gaps": gaps, "U3": legacy_stream, "U4": under_capture}, hardware, recorder)


def context_stall(hardware: Hardware) -> Finding:
    """Let a loop tick while a thread makes the first context of this process."""

    async def measure() -> tuple[float, float, float]:
        started, ticks = time.perf_counter(), [time.perf_counter()]
        opening = asyncio.ensure_future(asyncio.to_thread(open_backend, DEVICE))
        while not opening.done():
            await asyncio.sleep(0.001)
            ticks.append(time.perf_counter())
        (await opening).close()
        gaps_s = np.diff(ticks)
        return time.perf_counter() - started, float(gaps_s.max()), float(median(gaps_s))

    opened_s, longest_s, usual_s = asyncio.run(measure())
    measured = {"opened_s": opened_s, "longest_gap_s": longest_s, "usual_gap_s": usual_s}
    return Finding(
        f"opening the device in a thread took {opened_s:.3f} s and kept the loop from running for at most "
        f"{longest_s * 1e3:.1f} ms at once",
        measured=measured,
    )


def ceiling(hardware: Hardware) -> Finding:
    """Copy a usual batch again and again."""
    nbytes = hardware.scaled(BATCH_NBYTES, MIB)
    rates = spread(Copies(hardware, nbytes).h2d_rates(pinned(hardware, nbytes), nbytes), 2)
    return Finding(f"{rates['median']} GB/s for {nbytes:,} bytes", measured=rates)


def registered(hardware: Hardware) -> Finding:
    """Compare registered shared memory with what the driver allocates, taking turns."""
    nbytes = hardware.scaled(BATCH_NBYTES, MIB)
    copies, plain = Copies(hardware, nbytes), pinned(hardware, nbytes)
    with registered_shm(hardware, nbytes) as shared:
        both = [(copies.h2d_rates(shared, nbytes, 1)[0], copies.h2d_rates(plain, nbytes, 1)[0]) for _ in range(5)]
    share = median(one / other for one, other in both)
    return Finding(f"{share:.1%} of the speed of pinned memory", measured={"pairs": both})


def write_combined(hardware: Hardware) -> Finding:
    """Compare write-combined memory with plain, for the copy and for the thread that writes it."""
    nbytes = hardware.scaled(BATCH_NBYTES, MIB)
    copies, source = Copies(hardware, nbytes), np.ones(nbytes, np.uint8)
    measured: dict[str, Any] = {}
    for name, flags in (("pinned", 1), ("write_combined", 1 | 4)):
        block = pinned(hardware, nbytes, flags)
        started = time.perf_counter()
        np.copyto(block, source)
        written = nbytes / (time.perf_counter() - started) / 1e9
        measured[name] = {"h2d": spread(copies.h2d_rates(block, nbytes), 2), "written_gb_per_s": round(written, 2)}
    plain, combined = measured["pinned"], measured["write_combined"]
    return Finding(
        f"copied at {combined['h2d']['median']} against {plain['h2d']['median']} GB/s, written at "
        f"{combined['written_gb_per_s']} against {plain['written_gb_per_s']} GB/s",
        measured=measured,
    )


def waking(hardware: Hardware) -> Finding:
    """Say how long after the device passed an event the thread runs that waits for it."""
    nbytes = hardware.scaled(BATCH_NBYTES, MIB)
    copies, source = Copies(hardware, nbytes), pinned(hardware, nbytes)
    late = {name: sorted(_late_us(hardware, copies, source, block) for _ in range(40)) for name, block in KINDS.items()}
    measured = {name: {"p50": round(us[20], 1), "p90": round(us[36], 1)} for name, us in late.items()}
    measured["hop to the loop"] = asyncio.run(_hop_us())
    said = ", ".join(f"{name} {us['p50']} us (p90 {us['p90']})" for name, us in measured.items())
    return Finding(f"{said}, medians", measured=measured)


KINDS = {"blocking": True, "spinning": False}


def _late_us(hardware: Hardware, copies: Copies, source: Any, block: bool) -> float:
    cuda = hardware.cupy.cuda
    first, last, waited = cuda.Event(), cuda.Event(), cuda.Event(block=block, disable_timing=True)
    copies.stream.synchronize()
    started = time.perf_counter()
    first.record(copies.stream)
    copies.h2d(source, source.nbytes)
    last.record(copies.stream)
    waited.record(copies.stream)
    waited.synchronize()
    wall_us = (time.perf_counter() - started) * 1e6
    return float(wall_us - cuda.get_elapsed_time(first, last) * 1e3)


async def _hop_us() -> dict[str, float]:
    loop, took = asyncio.get_running_loop(), []
    for _ in range(40):
        arrived = asyncio.Event()
        sent: list[float] = []

        def send(event: asyncio.Event = arrived, at: list[float] = sent) -> None:
            at.append(time.perf_counter())
            loop.call_soon_threadsafe(event.set)

        thread = threading.Thread(target=send)
        thread.start()
        await arrived.wait()
        took.append((time.perf_counter() - sent[0]) * 1e6)
        thread.join()
    took.sort()
    return {"p50": round(took[20], 1), "p90": round(took[36], 1)}


def gaps(hardware: Hardware) -> Finding:
    """Send batches through a stage from one thread, and hold their speed against copies back to back."""
    nbytes, batches = hardware.scaled(4 * MIB, 4096), hardware.scaled(200, 8)
    bare = median(Copies(hardware, nbytes).h2d_rates(pinned(hardware, nbytes), nbytes))
    source = np.ones(nbytes, np.uint8)
    seconds = []
    with DeviceStage(open_backend(DEVICE)) as stage:
        for _ in range(3):
            started = time.perf_counter()
            for _ in range(batches):
                batch = stage.put(source)
                assert batch is not None
                batch.discard()
            hardware.cupy.cuda.runtime.deviceSynchronize()
            seconds.append(time.perf_counter() - started)
    rate = nbytes * batches / min(seconds) / 1e9
    host = nbytes / min(_copy_s(source) for _ in range(5)) / 1e9
    return Finding(
        f"{rate:.1f} GB/s through a stage filled by one thread, which copies at {host:.1f} GB/s on the host; "
        f"{bare:.1f} GB/s back to back",
        measured={"stage": rate, "host_copy": host, "bare": bare},
    )


def _copy_s(source: Any) -> float:
    target = np.empty_like(source)
    target[:] = 0
    started = time.perf_counter()
    np.copyto(target, source)
    return time.perf_counter() - started


def legacy_stream(hardware: Hardware) -> Finding:
    """Order the legacy stream, by its handle, behind work on another; and show that without it the work is not seen."""
    busy = Busy(hardware)
    ordered = sum(_saw_the_write(hardware, busy, wait=True) for _ in range(20))
    control = sum(_saw_the_write(hardware, busy, wait=False) for _ in range(20))
    measured = {"ordered": ordered, "not_ordered": control}
    if hardware.real and control == 20:
        return Finding("the control saw the write too, so nothing is shown", settled=False, measured=measured)
    works = "works" if ordered == 20 else "DOES NOT work"
    return Finding(f"it {works}: {ordered} of 20 ordered, {control} of 20 without it", measured=measured)


def _saw_the_write(hardware: Hardware, busy: Busy, wait: bool) -> bool:
    cuda, runtime = hardware.cupy.cuda, hardware.cupy.cuda.runtime
    source, target = (cuda.MemoryPointer(cuda.Memory(MIB), 0) for _ in range(2))
    writer = cuda.Stream(non_blocking=True)
    for block in (source, target):
        runtime.memsetAsync(int(block.ptr), 0, MIB, writer.ptr)
    writer.synchronize()
    with writer:
        busy.enqueue(busy.count_for(3))
    runtime.memsetAsync(int(source.ptr), 1, MIB, writer.ptr)
    written = cuda.Event(disable_timing=True)
    written.record(writer)
    if wait:
        runtime.streamWaitEvent(LEGACY, written.ptr)
    runtime.memcpyAsync(int(target.ptr), int(source.ptr), MIB, runtime.memcpyDeviceToDevice, 0)
    runtime.deviceSynchronize()
    return bool((hardware.cupy.ndarray((MIB,), np.uint8, memptr=target).get() == 1).all())


def under_capture(hardware: Hardware) -> Finding:
    """Let another thread make each call while this one captures a graph in CUDA's global mode.

    Then again in a thread for which captures of other threads mean nothing, as the package makes its calls.
    """
    measured = {name: _captured_with(hardware, call) for name, call in _calls(hardware).items()}
    measured["control: nothing"] = _captured_with(hardware, lambda: None)
    exchange = exchange_mode()
    apart = {name: _captured_with(hardware, partial(_apart, exchange, call)) for name, call in _calls(hardware).items()}
    fine, broken = ([name for name, said in measured.items() if (said == "fine") is good] for good in (True, False))
    ours = [name for name, said in apart.items() if said != "fine"]
    settled = "control: nothing" in fine
    return Finding(
        f"survive: {', '.join(fine)}; do not: {', '.join(broken) or 'none'}; nor, from a thread that is set apart: "
        f"{', '.join(ours) or 'none'}",
        settled,
        {**measured, **{f"{name}, set apart": said for name, said in apart.items()}},
    )


def _apart(exchange: ExchangeMode, call: Callable[[], object]) -> None:
    before = exchange(THREAD_LOCAL)
    try:
        call()
    finally:
        exchange(before)


def _calls(hardware: Hardware) -> dict[str, Callable[[], object]]:
    cuda, runtime = hardware.cupy.cuda, hardware.cupy.cuda.runtime
    copies, source = Copies(hardware, MIB), pinned(hardware, MIB)
    event = cuda.Event(block=True, disable_timing=True)
    event.record(copies.stream)
    event.synchronize()
    registered_block = np.frombuffer(mmap.mmap(-1, MIB), np.uint8)
    return {
        "memcpyAsync": lambda: copies.h2d(source, MIB),
        "eventRecord": lambda: runtime.eventRecord(event.ptr, copies.stream.ptr),
        "streamWaitEvent": lambda: runtime.streamWaitEvent(copies.stream.ptr, event.ptr),
        "eventSynchronize": lambda: event.synchronize(),
        "eventQuery": lambda: runtime.eventQuery(event.ptr),
        "Event()": lambda: cuda.Event(block=True, disable_timing=True),
        "malloc": lambda: cuda.Memory(MIB),
        "hostAlloc": lambda: cuda.PinnedMemory(MIB, 1),
        "hostRegister": lambda: runtime.hostRegister(registered_block.ctypes.data, MIB, 1),
    }


def _captured_with(hardware: Hardware, call: Callable[[], object]) -> str:
    """Return ``fine``, or what went wrong in the thread or in the capture."""
    cuda, runtime = hardware.cupy.cuda, hardware.cupy.cuda.runtime
    captured, copies = cuda.Stream(non_blocking=True), Copies(hardware, MIB)
    copies.stream = captured
    said: list[str] = []

    def attempt(what: str, work: Callable[[], object]) -> None:
        try:
            with cuda.Device(0):
                work()
        except Exception as error:  # noqa: BLE001 - the finding
            said.append(f"{what}: {error}")

    thread = threading.Thread(target=attempt, args=("the call", call))
    captured.begin_capture(runtime.streamCaptureModeGlobal)
    thread.start()
    thread.join()
    attempt("what is captured next", lambda: copies.d2d(MIB))
    attempt("the end of the capture", captured.end_capture)
    return "; ".join(said) or "fine"
