"""Adapters for the array libraries that consumers use.

Every array library has a current stream per thread, an allocator, and its own array type. Memory for copies comes from
the allocator of the consumer's library. The library itself therefore knows when the memory can be reused. The package
:mod:`aiostream_data.integrations` contains the adapters for PyTorch and JAX. Each integration module is imported on
first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np

from aiostream_data.device.backend import DeviceBackend, DeviceBlock, NativeArray, StreamRef
from aiostream_data.device.batch_layout import SlotArray
from aiostream_data.device.handover import ExportedArray, FrameworkName
from aiostream_data.errors import ArgumentTypeError, DeviceUnavailableError, MissingExtraError


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """An existing array of the consumer that receives a batch.

    Attributes:
        block: Memory block of the array.
        shape, dtype: Shape and dtype of the C-ordered array.
    """

    block: DeviceBlock
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class FrameworkReceiver(Protocol):
    """Adapter for one array library on one device. The consumer's threads call the methods of the adapter."""

    def current_stream(self) -> StreamRef:
        """Return the device stream on which the library currently runs the work of the calling thread."""

    def memory(self, nbytes: int) -> tuple[DeviceBlock, Any]:
        """Allocate memory from the library's allocator for use on the current stream.

        Return a memory block, and an object to pass to :meth:`view`.

        Raises:
            DeviceMemoryError: The device does not have enough free memory.
        """

    def view(self, memory: Any, array: SlotArray) -> Any:
        """Return an array that uses allocated memory. The array keeps its memory alive."""

    def borrowed(self, native: NativeArray, exported: ExportedArray) -> Any:
        """Return an array that refers to a slot, for use on the current stream.

        The caller must first make the current stream wait for the batch.
        """

    def target(self, array: Any) -> WriteTarget:
        """Return the consumer's array as a target for writes.

        Raises:
            TypeError: The array cannot be written; the error message names the reason.
        """


class Copier(Protocol):
    """Adapter for a library with immutable arrays. The consumer of such a library always receives copies."""

    def copies(
        self, natives: Sequence[NativeArray], exported: Sequence[Any], arrive: Callable[[], None]
    ) -> tuple[list[Any], Callable[[], object] | None]:
        """Return copies of a batch's arrays.

        Also return a function that waits for the copies, or None if the copies are ready.

        Args:
            natives: Arrays of CuPy or NumPy that refer to the slot.
            exported: The arrays of ``natives`` as objects with a ``__dlpack__`` method. Importing these objects makes
                the importer's stream wait for the batch.
            arrive: Function that blocks until the arrays are on the device. Call ``arrive`` before reading the arrays
                without a stream.
        """


class NativeReceiver:
    """Adapter for the device's own library: NumPy on ``cpu``, CuPy on a GPU."""

    def __init__(self, backend: DeviceBackend) -> None:
        self._backend = backend

    def current_stream(self) -> StreamRef:
        return self._backend.current_stream()

    def memory(self, nbytes: int) -> tuple[DeviceBlock, DeviceBlock]:
        block = self._backend.consumer_block(nbytes)
        return block, block

    def view(self, memory: DeviceBlock, array: SlotArray) -> NativeArray:
        return self._backend.view(memory, array.offset, array.shape, array.dtype)

    def borrowed(self, native: NativeArray, exported: ExportedArray) -> NativeArray:
        return native

    def target(self, array: Any) -> WriteTarget:
        block = self._backend.block_of(array)
        if not array.flags.c_contiguous:
            raise ArgumentTypeError("the array must be C-contiguous")
        return WriteTarget(block, tuple(array.shape), np.dtype(array.dtype))


class Receivers:
    """The array libraries available for batches of one backend. Each array library is loaded on first use.

    Attributes:
        default: Array library that the ``framework`` argument selects.
    """

    def __init__(self, backend: DeviceBackend, framework: FrameworkName | None = None) -> None:
        """Load the library ``framework``, so that a missing library raises immediately.

        Raises:
            MissingExtraError: The array library is not installed.
            DeviceUnavailableError: The array library does not support the device.
        """
        self._backend = backend
        self._native = NativeReceiver(backend)
        self._copier: Copier | None = None
        self._torch: FrameworkReceiver | None = None
        self.default: FrameworkReceiver = self._native
        if framework == "jax":
            self.jax()
        elif framework is not None:
            self.default = self.of(framework)

    def of(self, framework: str | None) -> FrameworkReceiver:
        """Return the adapter for "torch", for "cupy", or (for None) for the device's own library.

        Raises:
            MissingExtraError: The array library is not installed.
            DeviceUnavailableError: The array library does not support the device.
        """
        if framework == "torch":
            if self._torch is None:
                self._torch = cast("FrameworkReceiver", _integration("torch").receiver(self._backend))
            return self._torch
        if framework == "cupy" and not self._backend.device.startswith("cuda"):
            raise DeviceUnavailableError(
                f"CuPy has no arrays on {self._backend.device!r}. Omit framework=, or use a GPU such as 'cuda:0'"
            )
        return self._native

    def jax(self) -> Copier:
        """Return the adapter for JAX.

        Raises:
            MissingExtraError: JAX is not installed.
            DeviceUnavailableError: JAX does not support the device.
        """
        if self._copier is None:
            self._copier = cast("Copier", _integration("jax").copier(self._backend))
        return self._copier


def _integration(name: FrameworkName) -> Any:
    try:
        return import_module(f"aiostream_data.integrations.{name}")
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingExtraError(
            f"framework {name!r} is not installed ({error}). Follow its installation guide"
        ) from error
