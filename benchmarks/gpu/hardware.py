"""The GPU that is measured, or a stand-in of NumPy that runs the same calls in a self-check."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import versions_of

ROOT = Path(__file__).parents[2]
DEVICE = "cuda:0"
MIB = 1 << 20

PACKAGES = (
    *("numpy", "cupy-cuda13x", "cupy-cuda12x", "torch", "torchvision", "jax", "jaxlib", "jax-cuda13-plugin"),
    *("spdl-io", "spdl", "pillow", "opencv-python-headless", "nvidia-cuda-nvrtc", "aiostream-data"),
)

T = TypeVar("T")


@dataclass(frozen=True)
class Hardware:
    """What the parts measure on.

    Attributes:
        cupy: CuPy, or the stand-in.
        real: False in a self-check, whose figures mean nothing.
    """

    cupy: Any
    real: bool

    @property
    def name(self) -> str:
        """Name of the GPU, as the driver gives it; ``none`` in a self-check."""
        return str(self.cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()) if self.real else "none"

    def device_for(self, framework: str) -> str:
        """Return where a framework's batches go: the stand-in is a device for CuPy alone."""
        return DEVICE if self.real or framework == "cupy" else "cpu"

    def scaled(self, full: T, small: T) -> T:
        """Return ``full`` on a GPU and ``small`` in a self-check."""
        return full if self.real else small

    def elapsed_ms(self, stream: Any, work: Callable[[], object]) -> float:
        """Return the milliseconds between the device's passing the points in ``stream`` before and behind ``work``."""
        first, last = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        first.record(stream)
        work()
        last.record(stream)
        last.synchronize()
        return max(float(self.cupy.cuda.get_elapsed_time(first, last)), 1e-4)

    def versions(self) -> dict[str, str]:
        """Return what is installed here of all that takes part."""
        return versions_of(PACKAGES)


def open_hardware(self_check: bool) -> Hardware:
    """Return the GPU, or with ``self_check`` the stand-in, which is then what ``import cupy`` gives in this process.

    Raises:
        ImportError: CuPy is not installed, and this is no self-check.
    """
    if not self_check:
        return Hardware(importlib.import_module("cupy"), real=True)
    sys.path.insert(0, str(ROOT / "tests" / "fakes"))
    return Hardware(importlib.import_module("numpy_cupy").install_for_good(), real=False)


def random_matrix(side: int, seed: int) -> NDArray[np.float32]:
    """Return a square matrix of normal numbers; a large one is a smaller one over and over, as that is made sooner."""
    tile = min(side, 1024)
    small = np.random.default_rng(seed).standard_normal((tile, tile), np.float32)
    return np.tile(small, (side // tile, side // tile))


LONGEST_PRODUCT_MS = 2.5
"""A step is made of whole products, so one must not take long beside a step."""


class Busy:
    """Keeps a stream busy with matrix products, which a training step consists of."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._cupy = hardware.cupy
        side = hardware.scaled(8192, 32)
        self._one_ms = self._make(side)
        while self._one_ms > LONGEST_PRODUCT_MS and hardware.real:
            side //= 2
            self._one_ms = self._make(side)

    def _make(self, side: int) -> float:
        """Make matrices, on the host, so that no kernel has to be compiled for it; return how long a product takes."""
        self._left, self._right = (self._cupy.asarray(random_matrix(side, seed).astype(np.float16)) for seed in (0, 1))
        self._product = self._cupy.empty((side, side), np.float16)
        self.enqueue(3)
        null = self._cupy.cuda.Stream.null
        return min(self._hardware.elapsed_ms(null, lambda: self.enqueue(5)) / 5 for _ in range(3))

    def enqueue(self, count: int) -> None:
        """Enqueue ``count`` products on the calling thread's current stream."""
        for _ in range(count):
            # dot() hands float16 to cuBLAS as it is; matmul() may cast first.
            self._cupy.dot(self._left, self._right, out=self._product)

    def count_for(self, milliseconds: float) -> int:
        """Return how many products take about so long."""
        return round(milliseconds / self._one_ms) if milliseconds else 0
