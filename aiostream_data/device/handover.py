"""How a consumer gets a batch: on which terms, as arrays of which library, and how these are ordered and kept alive.

How this works. Every library has a current stream per thread, an allocator, and arrays of its own: a :class:`Receiver`
is what the ring must know of them. Memory for copies comes from the receiver's own allocator, so that what is
allocated, used and freed on the consumer's stream is in order without our help. What is lent instead is exported by
:class:`ExportedArray`: it orders the importer's stream after *that batch's* arrival, which CuPy's own export does not,
as CuPy's arrays do not remember the stream that filled them. There is no ``__cuda_array_interface__``: importers ignore
its stream. Libraries other than the device's own are known to :mod:`aiostream_data.integrations` alone, and loaded from
there when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, Protocol, cast

import numpy as np

from aiostream_data.device.backend import DeviceBackend, DeviceBlock, NativeArray, StreamRef
from aiostream_data.device.layout import BatchLayout, SlotArray
from aiostream_data.device.leases import Lease, Leases
from aiostream_data.errors import DeviceTargetError, DeviceUnavailableError, MissingExtraError, PlanError
from aiostream_data.ragged import RaggedArray
from aiostream_data.structure import StructureError

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
        if self.handoff not in HAND_OFFS:
            raise PlanError(f"handoff must be one of {', '.join(HAND_OFFS)}, got {self.handoff!r}")
        if self.framework is not None and self.framework not in FRAMEWORKS:
            raise PlanError(f"framework must be one of {', '.join(FRAMEWORKS)} or None, got {self.framework!r}")
        if self.handoff == "into" and self.framework == "jax":
            raise PlanError("handoff='into' writes into arrays, and JAX's never change: use handoff='copy'")

    @property
    def copies_out(self) -> bool:
        """True when batches are copied into memory from an allocator, which JAX does not let others have."""
        return self.handoff == "copy" and self.framework != "jax"


@dataclass(frozen=True, slots=True)
class Target:
    """An array of the consumer's to write into.

    Attributes:
        block: Its memory.
        shape, dtype: Of the array, C-ordered.
    """

    block: DeviceBlock
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Receiver(Protocol):
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

    def target(self, array: Any) -> Target:
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

    def target(self, array: Any) -> Target:
        block = self._backend.block_of(array)
        if not array.flags.c_contiguous:
            raise TypeError("not C-ordered")
        return Target(block, tuple(array.shape), np.dtype(array.dtype))


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
        self._torch: Receiver | None = None
        self.default: Receiver = self._native
        if framework == "jax":
            self.jax()
        elif framework is not None:
            self.default = self.of(framework)

    def of(self, framework: str | None) -> Receiver:
        """Return that of "torch", of "cupy", or of the device's own library (None).

        Raises:
            MissingExtraError: It is not installed.
            DeviceUnavailableError: It does not know the device.
        """
        if framework == "torch":
            if self._torch is None:
                self._torch = cast("Receiver", _integration("torch").receiver(self._backend))
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


def targets_of(targets: Any, layout: BatchLayout, receivers: Receivers) -> tuple[Receiver, list[DeviceBlock]]:
    """Return the memory of targets, one block per array of the layout, and whose arrays they are.

    Raises:
        DeviceTargetError: One does not fit, or they are of several libraries.
    """
    named = _named(targets, layout)
    tensors = [_is_tensor(target) for _, target in named]
    if any(tensors) and not all(tensors):
        raise DeviceTargetError("", "some are tensors of PyTorch, and some are not")
    receiver = receivers.of("torch" if any(tensors) else None)
    return receiver, [
        _fitting(receiver, target, array, path) for (path, target), array in zip(named, layout.arrays, strict=True)
    ]


def _named(targets: Any, layout: BatchLayout) -> list[tuple[str, Any]]:
    """Return what is given for every array of the layout."""
    try:
        leaves = layout.structure.flatten(targets)
    except StructureError as error:
        raise DeviceTargetError("", f"targets have another structure than the batch: {error}") from error
    found: list[tuple[str, Any]] = []
    for path, kind, leaf in zip(layout.structure.paths(), layout.kinds, leaves, strict=True):
        if kind == "dense":
            found.append((path, leaf))
        elif kind == "ragged" and isinstance(leaf, RaggedArray):
            found += [(f"{path}.values", leaf.values), (f"{path}.row_splits", leaf.row_splits)]
        else:
            raise DeviceTargetError(
                path, f"the batch has {'rows of differing length' if kind == 'ragged' else 'no array'}"
            )
    return found


def _is_tensor(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _fitting(receiver: Receiver, target: Any, array: SlotArray, path: str) -> DeviceBlock:
    try:
        found = receiver.target(target)
    except TypeError as error:
        raise DeviceTargetError(path, f"{type(target).__name__} cannot be written into: {error}") from error
    if (found.shape, found.dtype) != (array.shape, array.dtype):
        raise DeviceTargetError(
            path, f"it is {found.dtype} of shape {found.shape}, and the batch's is {array.dtype} of shape {array.shape}"
        )
    return found.block
