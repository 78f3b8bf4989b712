"""A stand-in for JAX, for where it is not installed: its arrays lie over NumPy's unless a copy is asked for."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

ON_HOST = 1


def fake_jax(gpus: int = 0) -> Any:
    """Return a module ``jax`` that sees so many GPUs.

    ``stream`` is what it gives when it imports; ``waited`` counts the arrays for which it was waited, each of which
    fails when ``broken`` is set: with a RuntimeError, or with what it is set to.
    """
    jax: Any = ModuleType("jax")
    jax.__version__ = "0.fake"
    jax.__path__ = []
    jax.stream, jax.waited, jax.broken = 31, 0, False

    def array(values: Any, copy: bool = True) -> np.ndarray[Any, Any]:
        return np.array(values) if copy else np.asarray(values)

    def from_dlpack(exported: Any) -> np.ndarray[Any, Any]:
        if exported.__dlpack_device__()[0] == ON_HOST:
            return np.from_dlpack(exported)
        return np.asarray(exported.__dlpack__(stream=jax.stream))

    def block_until_ready(arrays: list[Any]) -> list[Any]:
        if jax.broken:
            raise jax.broken if isinstance(jax.broken, BaseException) else RuntimeError("a kernel failed")
        jax.waited += len(arrays)
        return arrays

    def local_devices(backend: str) -> list[object]:
        if not gpus:
            raise RuntimeError(f"unknown backend {backend}")
        return [SimpleNamespace(id=number) for number in range(gpus)]

    jax.numpy = ModuleType("jax.numpy")
    jax.numpy.array = array
    jax.dlpack = SimpleNamespace(from_dlpack=from_dlpack)
    jax.block_until_ready, jax.local_devices = block_until_ready, local_devices
    return jax
