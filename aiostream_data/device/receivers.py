"""The libraries of arrays that consumers get batches in, and what the ring must know of each.

How this works. Every library has a current stream per thread, an allocator, and arrays of its own. Memory for copies
comes from the receiver's own allocator, so that what is allocated, used and freed on the consumer's stream is in order
without our help. Libraries other than the device's own are known to :mod:`aiostream_data.integrations` alone, and
loaded from there when they are asked for.
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
    """An array of the consumer's to write into.

    Attributes:
        block: Its memory.
        shape, dtype: Of the array, C-ordered.
    """

    block: DeviceBlock
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class FrameworkReceiver(Protocol):
    """One library of arrays, on one device. Methods are called in the consumer's threads."""

    def current_stream(self) -> StreamRef:
        """Return the stream on which the calling thread's work in this library runs."""

    def memory(self, nbytes: int) -> tuple[DeviceBlock, Any]:
        """Allocate from the library, for use on the current stream; return it as a block, and for :meth:`view`.

        Raises:
            DeviceMemoryError: The device has no room.
        """

    def view(self, memory: Any, array: SlotArray) -> Any:
        """Return an array over allocated memory, which keeps it alive."""

    def borrowed(self, native: NativeArray, exported: ExportedArray) -> Any:
        """Return an array over a slot, for the current stream, which is in order already."""

    def target(self, array: Any) -> WriteTarget:
        """Return an array of the library, as something to write into.

        Raises:
            TypeError: It cannot be written into: the text says why.
        """


class Copier(Protocol):
    """A library whose arrays never change, and so are always copies."""

    def copies(
        self, natives: Sequence[NativeArray], exported: Sequence[Any], arrive: Callable[[], None]
    ) -> tuple[list[Any], Callable[[], object] | None]:
        """Return copies, and what blocks until they are made; None when they are.

        Args:
            natives: The arrays, of the device's own library.
            exported: The same, as objects with ``__dlpack__`` that order the importer's stream.
            arrive: Blocks until the arrays are there; to be called before they are read without a stream.
        """


class NativeReceiver:
    """NumPy on ``cpu``, CuPy on a GPU: the library that the backend itself uses."""

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
            raise ArgumentTypeError("not C-ordered")
        return WriteTarget(block, tuple(array.shape), np.dtype(array.dtype))


class Receivers:
    """The libraries that batches of one backend are given to. Loads each when it is first asked for.

    Attributes:
        default: That of the terms.
    """

    def __init__(self, backend: DeviceBackend, framework: FrameworkName | None = None) -> None:
        """Load ``framework``, so that it is told at once when it is not there.

        Raises:
            MissingExtraError: It is not installed.
            DeviceUnavailableError: It does not know the device.
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
        """Return that of "torch", of "cupy", or of the device's own library (None).

        Raises:
            MissingExtraError: It is not installed.
            DeviceUnavailableError: It does not know the device.
        """
        if framework == "torch":
            if self._torch is None:
                self._torch = cast("FrameworkReceiver", _integration("torch").receiver(self._backend))
            return self._torch
        if framework == "cupy" and not self._backend.device.startswith("cuda"):
            raise DeviceUnavailableError(
                f"CuPy has no arrays on {self._backend.device!r}: leave framework out, or name a GPU, as in 'cuda:0'"
            )
        return self._native

    def jax(self) -> Copier:
        """Return JAX.

        Raises:
            MissingExtraError: It is not installed.
            DeviceUnavailableError: It does not know the device.
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
            f"framework {name!r} is not installed ({error}): see its own pages for how to"
        ) from error
