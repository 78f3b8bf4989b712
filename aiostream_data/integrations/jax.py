"""Batches as JAX arrays, which are always copies: JAX's arrays never change, and what is in a slot does.

JAX is imported here alone, when ``to_device(framework="jax")`` or a batch's ``jax()`` asks for it. On the host only
``jnp.array(copy=True)`` is used: ``device_put`` and DLPack hand back arrays that lie over aligned NumPy memory,
whatever they are told about copies. Verified without a GPU: all that is done on ``cpu``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from aiostream_data.device.backend import DeviceBackend, NativeArray
from aiostream_data.device.receivers import Copier
from aiostream_data.errors import AiostreamError, DeviceError, DeviceMemoryError, DeviceUnavailableError


def copier(backend: DeviceBackend) -> Copier:
    """Return JAX on the device of a backend.

    Raises:
        DeviceUnavailableError: This JAX does not know the device. On the CPU it would compute, silently.
    """
    if not backend.device.startswith("cuda"):
        return HostCopies()
    try:
        count = len(jax.local_devices(backend="gpu"))
    except RuntimeError:
        count = 0
    if int(backend.device.partition(":")[2]) >= count:
        raise DeviceUnavailableError(
            f"JAX {jax.__version__} sees {count} GPU(s) and not {backend.device!r}: install one that is built for "
            "CUDA, or use to_device('cpu'), from where JAX moves batches itself"
        )
    return GpuCopies()


class HostCopies:
    """Copies of host memory, on JAX's default device and bound to none. Made when the call returns."""

    def copies(
        self, natives: Sequence[NativeArray], exported: Sequence[Any], arrive: Callable[[], None]
    ) -> tuple[list[Any], None]:
        arrive()
        with _telling():
            made = [jnp.array(native, copy=True) for native in natives]
            jax.block_until_ready(made)
        return made, None


class GpuCopies:
    """Copies on a GPU, made in JAX's own time."""

    def copies(
        self, natives: Sequence[NativeArray], exported: Sequence[Any], arrive: Callable[[], None]
    ) -> tuple[list[Any], Callable[[], object]]:
        with _telling():
            imported = [jax.dlpack.from_dlpack(array) for array in exported]
            made = [jnp.array(array, copy=True) for array in imported]
        return made, partial(_ready, made, imported)


@contextmanager
def _telling() -> Iterator[None]:
    """Convert failures of JAX in a block to errors of this package."""
    try:
        yield
    except AiostreamError:  # some of ours are RuntimeErrors, too: the export or the wait for the batch raised it
        raise
    except RuntimeError as error:
        raise _told(error) from error


def _ready(made: list[Any], imported: list[Any]) -> None:
    """Block until copies are made.

    Args:
        imported: What they are made of, which lives until then.

    Raises:
        DeviceError, DeviceMemoryError: They could not be made.
    """
    failures = [failure for failure in map(_failure, made) if failure is not None]  # each may still be read
    imported.clear()
    if failures:
        raise min(failures, key=lambda failure: isinstance(failure, DeviceMemoryError))


def _failure(made: Any) -> AiostreamError | None:
    """Block until one copy is made; return why it could not be."""
    try:
        jax.block_until_ready([made])
    except AiostreamError as error:
        return error
    except RuntimeError as error:
        failure = _told(error)
        failure.__cause__ = error
        return failure
    return None


def _told(error: RuntimeError) -> DeviceError | DeviceMemoryError:
    """Return a failure of a device as ours: JAX has one class for all, and names them at the beginning of its text."""
    message = f"JAX could not copy a batch: {error}"
    return DeviceMemoryError(message) if str(error).startswith("RESOURCE_EXHAUSTED") else DeviceError(message)
