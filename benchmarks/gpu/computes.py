"""A training step of a chosen length in each framework: it reads the batch, then multiplies matrices."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.hardware import DEVICE, Busy, Hardware, random_matrix

TOUCHED_NBYTES = 256
"""How much of a batch a step reads: enough that it cannot run before the batch is there."""


class Compute(Protocol):
    """A consumer of batches in one framework."""

    def count_for(self, milliseconds: float) -> int:
        """Return how many matrix products take about so long."""

    def resident(self, host: NDArray[Any]) -> Any:
        """Return a batch that is on the device for good."""

    def touch(self, batch: Any) -> None:
        """Enqueue something that reads ``batch``."""

    def work(self, count: int) -> None:
        """Enqueue matrix products."""

    def mark(self) -> Any:
        """Record the time at which the device gets here."""

    def between_ms(self, first: Any, last: Any) -> float:
        """Return milliseconds between two marks that were passed."""

    def wait(self) -> None:
        """Wait until everything enqueued has run."""

    def to_host(self, batch: Any) -> NDArray[Any]:
        """Return a batch's values."""


class CupyCompute:
    """A consumer on CuPy's null stream."""

    def __init__(self, hardware: Hardware) -> None:
        self._cupy = hardware.cupy
        self._busy = Busy(hardware)
        self._scratch = self._cupy.empty((TOUCHED_NBYTES,), np.uint8)
        self.count_for = self._busy.count_for
        self.work = self._busy.enqueue

    def resident(self, host: NDArray[Any]) -> Any:
        return self._cupy.asarray(host)

    def touch(self, batch: Any) -> None:
        runtime = self._cupy.cuda.runtime
        target, source = int(self._scratch.data.ptr), int(batch.data.ptr)
        runtime.memcpyAsync(target, source, TOUCHED_NBYTES, runtime.memcpyDeviceToDevice, 0)

    def mark(self) -> Any:
        event = self._cupy.cuda.Event()
        event.record(self._cupy.cuda.Stream.null)
        return event

    def between_ms(self, first: Any, last: Any) -> float:
        return float(self._cupy.cuda.get_elapsed_time(first, last))

    def wait(self) -> None:
        self._cupy.cuda.runtime.deviceSynchronize()

    def to_host(self, batch: Any) -> NDArray[Any]:
        return np.asarray(self._cupy.asnumpy(batch))


class TorchCompute:
    """A consumer on torch's current stream; on the host where torch sees no GPU, as in a self-check."""

    def __init__(self, hardware: Hardware) -> None:
        self._torch = importlib.import_module("torch")
        self.on_gpu = bool(self._torch.cuda.is_available())
        self.device = DEVICE if self.on_gpu else "cpu"
        side = hardware.scaled(8192, 32)
        kind = self._torch.float16 if self.on_gpu else self._torch.float32
        made = [self._torch.randn((side, side), dtype=kind, device=self.device) for _ in range(3)]
        self._left, self._right, self._product = made
        self._scratch = self._torch.empty(TOUCHED_NBYTES, dtype=self._torch.uint8, device=self.device)
        self._one_ms = self._time_one()

    def _time_one(self) -> float:
        self.work(3)
        times = []
        for _ in range(3):
            first = self.mark()
            self.work(5)
            last = self.mark()
            self.wait()
            times.append(self.between_ms(first, last) / 5)
        return max(min(times), 1e-4)

    def count_for(self, milliseconds: float) -> int:
        return round(milliseconds / self._one_ms) if milliseconds else 0

    def resident(self, host: NDArray[Any]) -> Any:
        return self._torch.from_numpy(host).to(self.device)

    def touch(self, batch: Any) -> None:
        self._scratch.copy_(batch.view(-1).view(self._torch.uint8)[:TOUCHED_NBYTES])

    def work(self, count: int) -> None:
        for _ in range(count):
            self._torch.mm(self._left, self._right, out=self._product)

    def mark(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_ms(self, first: Any, last: Any) -> float:
        return float(first.elapsed_time(last) if self.on_gpu else (last - first) * 1e3)

    def wait(self) -> None:
        if self.on_gpu:
            self._torch.cuda.synchronize()

    def to_host(self, batch: Any) -> NDArray[Any]:
        return np.asarray(batch.cpu().numpy())


class JaxCompute:
    """A consumer under ``jit``. JAX shows no events, so a mark is the time at which all before it was done."""

    def __init__(self, hardware: Hardware) -> None:
        self._jax = importlib.import_module("jax")
        side = hardware.scaled(8192, 32)
        numbers = random_matrix(side, 0) / side
        self._matrix = self._jax.numpy.asarray(numbers).astype(self._jax.numpy.float16)
        self._state = self._matrix
        self._product = self._jax.jit(lambda state, matrix: state @ matrix)
        self._read = self._jax.jit(lambda batch: batch.reshape(-1)[:TOUCHED_NBYTES].sum())
        self._touched: Any = None
        self.work(3)
        self.wait()
        started = time.perf_counter()
        self.work(10)
        self.wait()
        self._one_ms = (time.perf_counter() - started) * 100

    def count_for(self, milliseconds: float) -> int:
        return round(milliseconds / self._one_ms) if milliseconds else 0

    def resident(self, host: NDArray[Any]) -> Any:
        return self._jax.device_put(host)

    def touch(self, batch: Any) -> None:
        self._touched = self._read(batch)

    def work(self, count: int) -> None:
        for _ in range(count):
            self._state = self._product(self._state, self._matrix)

    def mark(self) -> Any:
        return None

    def between_ms(self, first: Any, last: Any) -> float:
        return float("nan")

    def wait(self) -> None:
        self._jax.block_until_ready((self._state, self._touched))

    def to_host(self, batch: Any) -> NDArray[Any]:
        return np.asarray(batch)


KINDS: dict[str, Callable[[Hardware], Compute]] = {"cupy": CupyCompute, "torch": TorchCompute, "jax": JaxCompute}


class Computes:
    """The consumers of this process, each made when it is first asked for, since that takes a second."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._made: dict[str, Compute] = {}

    def of(self, framework: str) -> Compute:
        """Return the consumer in a framework.

        Raises:
            ImportError: It is not installed.
        """
        if framework not in self._made:
            self._made[framework] = KINDS[framework](self._hardware)
        return self._made[framework]
