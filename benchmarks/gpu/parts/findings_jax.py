"""Questions about memory that JAX is lent. Nothing here is used by the package before it is settled."""

from __future__ import annotations

import importlib
import time
import weakref
from typing import Any

import numpy as np

from benchmarks.gpu.findings import Asked, Finding, ask
from benchmarks.gpu.hardware import MIB, Hardware, random_matrix
from benchmarks.gpu.parts.findings_torch import Lent
from benchmarks.gpu.recorder import Recorder

TRIES = 20


def run(hardware: Hardware, recorder: Recorder) -> None:
    """Answer the questions."""
    asked: Asked = {"U5": when_memory_is_let_go, "U6": copies_when_told, "U7": safe_to_write_behind}
    ask(asked, hardware, recorder)


def jax() -> Any:
    """Return JAX.

    Raises:
        ImportError: It is not installed.
    """
    return importlib.import_module("jax")


class _Owner:
    """Owns a block of device memory; its end is what is watched."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory


def _lend(hardware: Hardware, value: int) -> tuple[Any, Any]:
    """Return an array of int32 that are all ``value`` in raw memory, and what lives as long as anybody reads it."""
    cuda, runtime = hardware.cupy.cuda, hardware.cupy.cuda.runtime
    owner = _Owner(cuda.Memory(MIB))
    pointer = int(cuda.MemoryPointer(owner.memory, 0).ptr)
    runtime.memsetAsync(pointer, value, MIB, 0)
    runtime.deviceSynchronize()
    borrowed = cuda.MemoryPointer(cuda.UnownedMemory(pointer, MIB, owner, 0), 0)
    return hardware.cupy.ndarray((MIB // 4,), np.int32, memptr=borrowed), owner


def _long_work(module: Any, hardware: Hardware) -> Any:
    """Return a function that works for milliseconds and reads its argument only at the end."""
    side = hardware.scaled(4096, 16)
    matrix = module.numpy.asarray(random_matrix(side, 0)) / side

    def work(values: Any, matrix: Any) -> Any:
        product = matrix
        for _ in range(hardware.scaled(20, 1)):
            product = product @ matrix
        first = (product[0, 0] * 0).astype(values.dtype)
        return (values + first).min(), (values + first).max()

    compiled = module.jit(work)
    return lambda values: compiled(values, matrix)


def when_memory_is_let_go(hardware: Hardware) -> Finding:
    """Drop an array while the work that reads it is still running, and see when its owner is let go."""
    module = jax()
    work = _long_work(module, hardware)
    early, unready = 0, 0
    for number in range(TRIES):
        array, owner = _lend(hardware, number)
        lent = module.numpy.from_dlpack(array)
        result = work(lent)
        ended: list[bool] = []
        weakref.finalize(owner, _note_ready, ended, result)
        unready += not result[0].is_ready()
        del array, owner, lent
        module.block_until_ready(result)
        until = time.monotonic() + 1
        while not ended and time.monotonic() < until:
            time.sleep(0.001)
        early += ended == [False]
    client = module.devices()[0].client
    measured = {
        "let go before the work was ready": early,
        "work still running when dropped": unready,
        "tries": TRIES,
        "client": type(client).__name__,
        "platform": str(client.platform_version),
    }
    shown = unready > 0 or not hardware.real
    return Finding(
        f"let go {'BEFORE' if early else 'not before'} the work was ready ({early} of {TRIES})", shown, measured
    )


def _note_ready(ended: list[bool], result: Any) -> None:
    ended.append(bool(result[0].is_ready()))


def copies_when_told(hardware: Hardware) -> Finding:
    """Copy a lent array, overwrite the original, and look at the copy."""
    module = jax()
    array, _owner = _lend(hardware, 1)
    lent = module.numpy.from_dlpack(array)
    copied = module.block_until_ready(module.numpy.array(lent, copy=True))
    hardware.cupy.cuda.runtime.memsetAsync(int(array.data.ptr), 2, MIB, 0)
    hardware.cupy.cuda.runtime.deviceSynchronize()
    same = copied.unsafe_buffer_pointer() == lent.unsafe_buffer_pointer()
    intact = bool((np.asarray(copied) == 0x01010101).all())
    return Finding(
        f"it {'copies' if intact and not same else 'DOES NOT copy'}", measured={"same pointer": same, "intact": intact}
    )


def safe_to_write_behind(hardware: Hardware) -> Finding:
    """Write lent memory on a stream ordered behind the one that JAX named, while JAX still works on it."""
    module, cuda = jax(), hardware.cupy.cuda
    work = _long_work(module, hardware)
    writer = cuda.Stream(non_blocking=True)
    torn, running, streams = 0, 0, []
    for number in range(1, TRIES + 1):
        array, _owner = _lend(hardware, number)
        lender = Lent(array)
        lent = module.numpy.from_dlpack(lender)
        result = work(lent)
        stream = lender.asked[-1].get("stream", "None")
        streams.append(stream)
        released = cuda.Event(disable_timing=True)
        if stream.isdigit():
            cuda.runtime.eventRecord(released.ptr, int(stream))
            writer.wait_event(released)
            running += not result[0].is_ready()
            cuda.runtime.memsetAsync(int(array.data.ptr), 0, MIB, writer.ptr)
        low, high = (int(part) for part in module.block_until_ready(result))
        torn += (low, high) != (0x01010101 * number,) * 2
        writer.synchronize()
    measured = {"torn": torn, "tries": TRIES, "work running when written": running, "streams": sorted(set(streams))}
    shown = running > 0 or torn > 0 or not hardware.real
    return Finding(f"{'NOT safe' if torn else 'nothing torn'}: {torn} of {TRIES}", settled=shown, measured=measured)
