"""How a consumer gets a batch: on which terms, and as what other libraries import.

What is lent is exported by :class:`ExportedArray`: it orders the importer's stream after *that batch's* arrival, which
CuPy's own export does not, as CuPy's arrays do not remember the stream that filled them. There is no
``__cuda_array_interface__``: importers ignore its stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from aiostream_data.arguments import word
from aiostream_data.device.backend import NativeArray, StreamRef
from aiostream_data.device.leases import Lease, Leases
from aiostream_data.errors import PlanError

HandOff = Literal["copy", "lease", "into"]
FrameworkName = Literal["cupy", "torch", "jax"]

HAND_OFFS: Final = ("copy", "lease", "into")
FRAMEWORKS: Final = ("cupy", "torch", "jax")

LEGACY_STREAM: Final = 1
"""CUDA's handle of the stream that None and 0 stand for, in DLPack."""

NO_STREAM: Final = -1
"""What an importer names that does not want to be ordered."""

ON_HOST: Final = 1
"""DLPack's number of host memory, which has no streams."""


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


class ExportedArray:
    """One array of a leased batch, for any library that imports by DLPack. Any thread.

    Importing orders the importer's stream after the batch's arrival, and has the slot wait for that stream when the
    batch is given back. What was imported is valid until then.

    Attributes:
        shape, ndim, dtype: Of the array.
    """

    __slots__ = ("_lease", "_leases", "_native")

    def __init__(self, native: NativeArray, lease: Lease, leases: Leases) -> None:
        self._native = native
        self._lease = lease
        self._leases = leases

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
        kind, number = self._native.__dlpack_device__()
        return int(kind), int(number)

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        """Return a capsule over the slot.

        Args:
            stream: The importer's. None and 0 are CUDA's legacy stream. For -1, which names none, the calling thread
                waits until the batch is there; and whoever imported it so gives it back once it has been used.
            asked: What else the protocol lets importers ask for, for the device's own library.

        Raises:
            BatchReleasedError: The batch was given back.
            GraphCaptureError: The stream is being captured.
            DeviceError, ForkedPipelineError: The device cannot be used any more.
        """
        if stream == NO_STREAM:
            self._leases.arrive(self._lease)
        else:
            theirs = StreamRef(stream or LEGACY_STREAM)
            self._leases.check(self._lease)
            self._leases.check_stream(theirs)
            with self._leases.using(self._lease, theirs):
                pass
        on_host = self.__dlpack_device__()[0] == ON_HOST
        return self._native.__dlpack__(stream=None if on_host else NO_STREAM, **asked)
