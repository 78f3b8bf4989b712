"""A stand-in for JAX, for where it is not installed: its arrays lie over NumPy's unless a copy is asked for."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

ON_HOST = 1

_OF_JAX: dict[str, Any] = {"__name__": "jax._src.dlpack"}
exec("def capsule_of(exported, **asked): return exported.__dlpack__(**asked)", _OF_JAX)
capsule_of = _OF_JAX["capsule_of"]
"""Asks for a capsule as a function of JAX's own."""


class _AskedByJax:
    """Has NumPy import an array by a function of JAX's."""

    def __init__(self, exported: Any) -> None:
        self._exported = exported

    def __dlpack_device__(self) -> Any:
        return self._exported.__dlpack_device__()

    def __dlpack__(self, **asked: Any) -> Any:
        return capsule_of(self._exported, **asked)


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
            return np.from_dlpack(_AskedByJax(exported))
        return np.asarray(capsule_of(exported, stream=jax.stream))

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
