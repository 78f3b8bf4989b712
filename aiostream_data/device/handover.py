"""How a consumer gets a batch: on which terms, and as what other libraries import.

What is lent is exported by :class:`ExportedArray`: it orders the importer's stream after *that batch's* arrival, which
CuPy's own export does not, as CuPy's arrays do not remember the stream that filled them. CuPy orders importers after
the stream that is current on the current *device*, which may be another GPU; :class:`OwnArray` names the stream. There
is no ``__cuda_array_interface__``: importers ignore its stream.
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
"""CUDA's handle of the stream that None and 0 stand for, in DLPack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """The terms on which consumers get batches.

    Attributes:
        handoff: "copy": arrays of the consumer's own; "lease": the batch in its slot, until it is given back; "into":
            the same, to be copied into arrays that the consumer keeps.
        framework: Whose arrays; None for NumPy on ``cpu`` and CuPy on a GPU.

    Raises:
        PlanError: There is no such hand-off or framework, or they do not go together.
    """

    handoff: HandOff = "copy"
    framework: FrameworkName | None = None

    def __post_init__(self) -> None:
        word("handoff", self.handoff, HAND_OFFS)
        if self.framework is not None:
            word("framework", self.framework, FRAMEWORKS, " or None")
        if self.handoff == "into" and self.framework == "jax":
            raise PlanError("handoff='into' writes into arrays, and JAX's never change: use handoff='copy'")

    @property
    def copies_out(self) -> bool:
        """True when batches are copied into memory from an allocator, which JAX does not let others have."""
        return self.handoff == "copy" and self.framework != "jax"


class _Exported:
    """What importers ask of an array, whatever orders them.

    Attributes:
        shape, ndim, dtype: Of the array.
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
    """One array of a leased batch, for any library that imports by DLPack. Any thread.

    Importing orders the importer's stream after the batch's arrival, and has the slot wait for that stream when the
    batch is given back. What was imported is valid until then.
    """

    __slots__ = ("_copied", "_lease", "_leases")

    def __init__(
        self, native: NativeArray, lease: Lease, leases: Leases, backend: DeviceBackend, *, copied: bool = False
    ) -> None:
        """Export ``native``.

        Args:
            copied: Whoever imports it copies it, and the lease ends when the copy is ready: JAX may import it.
        """
        super().__init__(native, backend)
        self._lease = lease
        self._leases = leases
        self._copied = copied

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        """Return a capsule over the slot.

        Args:
            stream: The importer's. None and 0 are CUDA's legacy stream. For -1, which names none, the calling thread
                waits until the batch is there; and whoever imported it so gives it back once it has been used.
            asked: What else the protocol lets importers ask for, for the device's own library.

        Raises:
            BatchReleasedError: The batch was given back.
            PlanError: JAX imports it, or the stream is one that every thread has for itself.
            GraphCaptureError: The stream is being captured.
            DeviceError, ForkedPipelineError: The device cannot be used any more.
        """
        if not self._copied and _importer() == "jax":
            raise PlanError(
                "JAX cannot import a batch that is lent: it does not name the stream that reads it, so the slot could "
                "be written again under a step that runs; take batch.jax(), which copies"
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
    """An array of the consumer's own, for a library that imports it while the stream that fills it may still run."""

    __slots__ = ("_filled_on",)

    def __init__(self, native: NativeArray, backend: DeviceBackend, filled_on: StreamRef) -> None:
        super().__init__(native, backend)
        self._filled_on = filled_on

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        """Return a capsule over the array, and order the importer's stream after the one that fills it.

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
    """Return the package whose function called the ``__dlpack__`` that called this; "" where C called it."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0]
