"""Settings for delivering batches to consumers, and DLPack exports of the batches.

:class:`ExportedArray` exports arrays that refer to a leased slot. The importer's stream waits until the batch is
complete. CuPy arrays do not record the stream that fills them. CuPy's own export therefore uses the current stream of
the current *device*, which may be another GPU. Without :class:`OwnArray`, importers could wait for the wrong stream.
Exported arrays do not define ``__cuda_array_interface__``, because importers ignore the stream in this interface.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from aiostream_data.arguments import word
from aiostream_data.device.backend import NO_STREAM, DeviceBackend, NativeArray, StreamRef
from aiostream_data.device.leases import Lease, Leases
from aiostream_data.errors import PlanError

HandOff = Literal["copy", "lease", "into"]
FrameworkName = Literal["cupy", "torch", "jax"]

HAND_OFFS: Final = ("copy", "lease", "into")
FRAMEWORKS: Final = ("cupy", "torch", "jax")

LEGACY_STREAM: Final = 1
"""CUDA's handle for the legacy stream. DLPack importers pass None or 0 instead of this handle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Settings for delivering batches to consumers.

    Attributes:
        handoff: "copy": The consumer receives arrays that it owns. "lease": The consumer receives the batch in its slot
            and later releases the batch. "into": The consumer receives a leased batch and copies the batch into
            existing arrays.
        framework: Array library; None means NumPy on ``cpu`` and CuPy on a GPU.

    Raises:
        PlanError: ``handoff`` or ``framework`` is unknown, or the two cannot be combined.
    """

    handoff: HandOff = "copy"
    framework: FrameworkName | None = None

    def __post_init__(self) -> None:
        word("handoff", self.handoff, HAND_OFFS)
        if self.framework is not None:
            word("framework", self.framework, FRAMEWORKS, " or None")
        if self.handoff == "into" and self.framework == "jax":
            raise PlanError("handoff='into' writes into arrays, but JAX arrays are immutable. Use handoff='copy'")

    @property
    def copies_out(self) -> bool:
        """True if batches are copied into memory that the consumer's library allocates.

        For JAX, the value is False, because JAX does not expose its allocator.
        """
        return self.handoff == "copy" and self.framework != "jax"


class _Exported:
    """Attributes of an array that DLPack importers read.

    Attributes:
        shape, ndim, dtype: Shape, number of dimensions and dtype of the array.
    """

    __slots__ = ("_backend", "_native")

    def __init__(self, native: NativeArray, backend: DeviceBackend) -> None:
        self._native = native
        self._backend = backend

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._native.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self._native.dtype)
        return dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._backend.dlpack_device(self._native)


class ExportedArray(_Exported):
    """One array of a leased batch, which other libraries can import by DLPack. Any thread may use an exported array.

    Importing the array makes the importer's stream wait for the batch. After the batch is released, the slot is reused
    only when the importer's stream has finished its work. The imported array is valid until the batch is released.
    """

    __slots__ = ("_copied", "_lease", "_leases")

    def __init__(
        self, native: NativeArray, lease: Lease, leases: Leases, backend: DeviceBackend, *, copied: bool = False
    ) -> None:
        """Wrap ``native`` for export.

        Args:
            copied: True if the importer copies the array and the lease of the slot ends after this copy. JAX may import
                only arrays with ``copied=True``.
        """
        super().__init__(native, backend)
        self._lease = lease
        self._leases = leases
        self._copied = copied

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        """Return a DLPack capsule that refers to the slot.

        Args:
            stream: Handle of the importer's CUDA stream. None and 0 stand for CUDA's legacy stream. With -1 (no
                stream), this call blocks until the batch is on the device. A caller that passes -1 must finish reading
                before it releases the batch.
            asked: Other keyword arguments of the DLPack protocol.

        Raises:
            BatchReleasedError: The batch was already released.
            PlanError: JAX imports the array, or ``stream`` is a per-thread default stream.
            GraphCaptureError: The stream is being captured into a CUDA graph.
            DeviceError, ForkedPipelineError: The device can no longer be used.
        """
        if not self._copied and _importer() == "jax":
            raise PlanError(
                "cannot import a leased batch into JAX: JAX does not name the stream that reads the batch, so the slot "
                "could be overwritten during a step. Call batch.jax() to copy the batch"
            )
        if stream == NO_STREAM:
            self._leases.arrive(self._lease)
        else:
            self._leases.check(self._lease)
            theirs = self._leases.named(stream or LEGACY_STREAM)
            with self._leases.using(self._lease, theirs):
                pass
        return self._backend.dlpack(self._native, **asked)


class OwnArray(_Exported):
    """An array that the consumer owns.

    Other libraries can import the array by DLPack while a stream still fills the array.
    """

    __slots__ = ("_filled_on",)

    def __init__(self, native: NativeArray, backend: DeviceBackend, filled_on: StreamRef) -> None:
        super().__init__(native, backend)
        self._filled_on = filled_on

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        """Return a DLPack capsule of the array. The importer's stream then waits for the stream that fills the array.

        Args:
            stream: As for :class:`ExportedArray`.

        Raises:
            DeviceError: The device has failed.
        """
        filled = self._backend.mark(self._filled_on)
        if stream == NO_STREAM:
            self._backend.join(filled)
        else:
            self._backend.order_after(StreamRef(stream or LEGACY_STREAM), filled)
        self._backend.retire(filled)
        return self._backend.dlpack(self._native, **asked)


def _importer() -> str:
    """Return the package name of the library that called ``__dlpack__``, or "" if C code called ``__dlpack__``."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0]
