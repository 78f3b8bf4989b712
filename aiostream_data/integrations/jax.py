"""Batches as JAX arrays.

The arrays are always copies. JAX arrays are immutable, but the loader reuses the memory of its slots.

Only this module imports JAX, for ``to_device(framework="jax")`` and for the ``jax()`` method of a batch. In host
memory, ``jnp.array(copy=True)`` copies the arrays. ``device_put`` and DLPack are unsuitable, because they may return
views of NumPy memory instead of copies. Without a GPU, the tests check only the device ``cpu``.
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
    """Return the JAX adapter for the device of a backend.

    Raises:
        DeviceUnavailableError: The installed JAX does not support the GPU. JAX itself would silently compute on the CPU
            instead.
    """
    if not backend.device.startswith("cuda"):
        return HostCopies()
    try:
        count = len(jax.local_devices(backend="gpu"))
    except RuntimeError:
        count = 0
    if int(backend.device.partition(":")[2]) >= count:
        raise DeviceUnavailableError(
            f"JAX {jax.__version__} sees {count} GPU(s), but not {backend.device!r}. Install JAX built for CUDA, "
            "or use to_device('cpu') and let JAX copy the batches"
        )
    return GpuCopies()


class HostCopies:
    """Adapter that copies host memory to uncommitted arrays on JAX's default device.

    Each copy of an array is complete when the call that made the copy returns.
    """

    def copies(
        self, natives: Sequence[NativeArray], exported: Sequence[Any], arrive: Callable[[], None]
    ) -> tuple[list[Any], None]:
        arrive()
        with _telling():
            made = [jnp.array(native, copy=True) for native in natives]
            jax.block_until_ready(made)
        return made, None


class GpuCopies:
    """Adapter that copies arrays on a GPU. JAX copies the arrays asynchronously."""

    def copies(
        self, natives: Sequence[NativeArray], exported: Sequence[Any], arrive: Callable[[], None]
    ) -> tuple[list[Any], Callable[[], object]]:
        with _telling():
            imported = [jax.dlpack.from_dlpack(array) for array in exported]
            made = [jnp.array(array, copy=True) for array in imported]
        return made, partial(_ready, made, imported)


@contextmanager
def _telling() -> Iterator[None]:
    """Convert JAX errors raised inside a ``with`` block to errors of the ``aiostream_data`` package."""
    try:
        yield
    except AiostreamError:  # some are RuntimeErrors, raised by the export or by the wait for the batch
        raise
    except RuntimeError as error:
        raise _told(error) from error


def _ready(made: list[Any], imported: list[Any]) -> None:
    """Block until the given copies are complete.

    Args:
        imported: Source arrays of the copies. The function keeps the source arrays alive until the copies are complete.

    Raises:
        DeviceError, DeviceMemoryError: A copy failed.
    """
    failures = [failure for failure in map(_failure, made) if failure is not None]  # waits for every copy
    imported.clear()
    if failures:
        raise min(failures, key=lambda failure: isinstance(failure, DeviceMemoryError))


def _failure(made: Any) -> AiostreamError | None:
    """Block until one copy is complete. Return the error of the copy, or None."""
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
    """Convert a JAX error to an error of the ``aiostream_data`` package.

    The message of a JAX error starts with a status code name.
    """
    message = f"JAX could not copy a batch: {error}"
    return DeviceMemoryError(message) if str(error).startswith("RESOURCE_EXHAUSTED") else DeviceError(message)
