"""Settings for handing batches to consumers, and DLPack exports of the batches.

:class:`ExportedArray` exports arrays over a leased slot, and orders the importer's stream after the arrival of *that
batch*. CuPy arrays do not record the stream that fills them, so CuPy's own export cannot order the importer correctly.
It uses the current stream of the current *device*, which may be another GPU. :class:`OwnArray` names the correct
stream. The exports have no ``__cuda_array_interface__``, because importers ignore its stream.
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
"""CUDA's handle of the legacy stream, for which DLPack importers pass None or 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Settings for handing batches to consumers.

    Attributes:
        handoff: "copy": arrays that the consumer owns. "lease": the batch in its slot, until released. "into": a leased
            batch that is copied into arrays that the consumer keeps.
        framework: Library of the arrays; None for NumPy on ``cpu`` and CuPy on a GPU.

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
        """True if batches are copied into memory allocated for the consumer. JAX does not expose its allocator."""
        return self.handoff == "copy" and self.framework != "jax"


class _Exported:
    """Array attributes that DLPack importers read, independent of stream ordering.

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
    """One array of a leased batch, for any library that imports by DLPack. Safe to use from any thread.

    Importing orders the importer's stream after the batch's arrival. After release, the slot is reused only after the
    work on that stream. The imported array is valid until the batch is released.
    """

    __slots__ = ("_copied", "_lease", "_leases")

    def __init__(
        self, native: NativeArray, lease: Lease, leases: Leases, backend: DeviceBackend, *, copied: bool = False
    ) -> None:
        """Wrap ``native`` for export.

        Args:
            copied: True if the importer copies the array and the lease ends when the copy is ready. JAX may import only
                such arrays.
        """
        super().__init__(native, backend)
        self._lease = lease
        self._leases = leases
        self._copied = copied

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        """Return a capsule over the slot.

        Args:
            stream: Stream of the importer. None and 0 are CUDA's legacy stream. -1 names no stream: the calling thread
                then waits for the batch, and the caller must finish reading before it releases the batch.
            asked: Further keyword arguments of the DLPack protocol.

        Raises:
            BatchReleasedError: The batch was already released.
            PlanError: JAX imports the array, or ``stream`` is a per-thread default stream.
            GraphCaptureError: The stream is being captured.
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
    """An array that the consumer owns, for import by DLPack while a stream may still fill it."""

    __slots__ = ("_filled_on",)

    def __init__(self, native: NativeArray, backend: DeviceBackend, filled_on: StreamRef) -> None:
        super().__init__(native, backend)
        self._filled_on = filled_on

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        """Return a capsule over the array, and order the importer's stream after the one that fills the array.

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
    """Return the top-level package that called the caller's ``__dlpack__``, or "" if C code called it."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0]
