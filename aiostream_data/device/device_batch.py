"""Batches in device slots. The consumer receives a copy of the batch, or leases the batch in its slot."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from aiostream_data.device.backend import DeviceBlock
from aiostream_data.device.batch_layout import BatchLayout
from aiostream_data.device.device_slots import DeviceSlots
from aiostream_data.device.handover import OwnArray
from aiostream_data.device.leases import Lease
from aiostream_data.device.receivers import FrameworkReceiver
from aiostream_data.device.slots import DeviceSlot
from aiostream_data.device.targets import targets_of
from aiostream_data.errors import BatchReleasedError, PlanError


class DeviceBatch:
    """A batch in a device slot, or a batch that is being copied to its slot.

    A loader returns ``DeviceBatch`` objects for ``to_device(handoff="lease")`` and ``handoff="into"``. The consumer
    owns the device slot until the batch is released. The end of a ``with`` block and the methods :meth:`release`,
    :meth:`into` and :meth:`jax` release the batch. Methods of the batch enqueue work on the current stream of the array
    library and do not wait for the device. Work that the caller enqueues on the same stream after the call can read the
    complete batch. Any thread may call the methods of a ``DeviceBatch``. A batch may outlive its loader::

        for batch in loader:
            with batch:
                loss = step(batch.torch())

    Attributes:
        layout: Layout of the arrays in the slot.
    """

    __slots__ = ("_cast", "_kept", "_lease", "_leased", "_slot", "_slots", "layout")

    def __init__(self, slots: DeviceSlots, slot: DeviceSlot, layout: BatchLayout, kept: list[Any]) -> None:
        self.layout = layout
        self._slots = slots
        self._slot: DeviceSlot | None = slot
        self._lease: Lease | None = None
        self._leased: DeviceBlock | None = None
        self._kept = kept
        self._cast: tuple[list[Any], list[OwnArray]] | None = None

    @property
    def nbytes(self) -> int:
        """Number of bytes copied to the device for the batch, including padding."""
        return self.layout.nbytes

    def __repr__(self) -> str:
        arrays = ", ".join(f"{array.path}: {array.dtype} {array.shape}" for array in self.layout.arrays)
        is_leased = self._lease is not None and not self._lease.ended
        state = "leased" if is_leased else "ahead" if self._slot is not None else "released"
        return f"<DeviceBatch on {self._slots.device}, {state}: {arrays}>"

    # -- for loaders

    def hand_over(self) -> Any:
        """Return the batch as arrays that the consumer owns, or return this object, which leases its slot.

        The consumer's thread must call this method.

        Raises:
            AiostreamError: As for :meth:`materialise`.
        """
        terms = self._slots.hand_over
        if terms.copies_out:
            return self.materialise()
        if self.layout.cast is not None and terms.handoff == "copy":
            return self._cast_for_jax()
        if self._lease is None:  # a lease exists if JAX ran out of memory in an earlier call
            self.lend()
        return self.jax() if terms.handoff == "copy" else self

    def materialise(self) -> Any:
        """Copy the batch out of its device slot and free the slot. The method does not wait for the device.

        The copy is enqueued on the calling thread's current stream, so later work on that stream reads the copied
        batch. On the ``cpu`` device, the copy has finished when the method returns. The consumer's thread must call
        this method.

        Returns:
            The batch, as arrays in device memory that the caller owns. All arrays share one allocation, so a reference
            to one leaf keeps the memory of all leaves allocated.

        Raises:
            BatchReleasedError: The batch was already copied out, leased or discarded.
            DeviceMemoryError: The device does not have enough memory for the copy. The batch stays in its slot.
            GraphCaptureError: The current stream is being captured into a CUDA graph; the batch stays in its slot.
            DeviceError, LoaderClosedError, ForkedPipelineError: The device stage can no longer be used.
        """
        arrays = self._slots.take_out(self, self._slots.receivers.default)
        kept, self._kept = self._kept, []
        return self.layout.outside.rebuild(arrays, kept)

    def _cast_for_jax(self) -> Any:
        """Return a batch of cast images as JAX arrays, and wait until the arrays are ready.

        On a GPU, the image cast runs on CuPy's current stream before JAX copies the result.
        """
        if self._cast is None:  # the cast exists if JAX ran out of memory in an earlier call
            own = self._slots.take_out(self, self._slots.receivers.default)
            self._cast = own, self._slots.owned(own)
        copies, ready = self._slots.receivers.jax().copies(*self._cast, lambda: None)
        if ready is not None:
            ready()  # the cast's memory may be reused only after the copies
        self._cast = None
        return self.layout.outside.rebuild(copies, self._kept)

    def lend(self) -> None:
        """Begin the consumer's lease of the device slot; the lease stays valid after the loader is closed.

        Raises:
            BatchReleasedError: The batch was already copied out, leased or discarded.
            DeviceError, LoaderClosedError, ForkedPipelineError: The device stage can no longer be used.
        """
        self._lease, self._leased = self._slots.lend(self)

    def discard(self) -> None:
        """Free the device slot without reading the batch.

        The method does nothing if the slot was freed or the ring of slots was closed.
        """
        if self._lease is not None and not self._lease.ended:
            self.release()
        self._slots.discard(self)

    # -- for consumers

    def arrays(self) -> Any:
        """Return the batch as arrays of the library in ``to_device(framework=)``, for use on the current stream.

        The caller may read and write the arrays until the caller releases the batch. To use the batch on another
        stream, make that stream current and call this method again. The slot is reused only after all streams have
        finished their work on the batch.

        Returns:
            The batch, as NumPy arrays on ``cpu``, CuPy arrays on a GPU, or PyTorch tensors. For "jax", see :meth:`jax`.

        Raises:
            BatchReleasedError: The batch was already released.
            GraphCaptureError: The current stream is being captured. To use the batch in a CUDA graph, copy it into
                fixed arrays with :meth:`into` before the capture.
            DeviceError, ForkedPipelineError: The device can no longer be used by this process.
        """
        return self.jax() if self._slots.hand_over.framework == "jax" else self._borrowed(self._slots.receivers.default)

    def cupy(self) -> Any:
        """Return the batch as CuPy arrays that refer to the slot's memory; see :meth:`arrays`.

        Raises:
            DeviceUnavailableError: The device is not a GPU.
        """
        return self._borrowed(self._slots.receivers.of("cupy"))

    def torch(self) -> Any:
        """Return the batch as PyTorch tensors that refer to the slot's memory; see :meth:`arrays`.

        Raises:
            MissingExtraError, DeviceUnavailableError: PyTorch is not installed, or does not support the device.
        """
        return self._borrowed(self._slots.receivers.of("torch"))

    def jax(self) -> Any:
        """Return the batch as JAX arrays that the caller owns, and release the batch.

        JAX arrays are immutable, so they must not refer to a device slot, which is overwritten later. On a GPU, the JAX
        arrays are committed to that GPU. A thread of the device stage waits for the JAX copies and then frees the slot.
        JAX converts 64-bit numbers to 32 bits unless ``jax_enable_x64`` is set.

        Raises:
            BatchReleasedError: The batch was already released.
            MissingExtraError, DeviceUnavailableError: JAX is not installed, or does not support the device.
        """
        lease, leases, natives = self._use_in_place(), self._slots.leases, self._natives()
        exported = [self._slots.exported(lease, native, copied=True) for native in natives]
        copies, ready = self._slots.receivers.jax().copies(natives, exported, lambda: leases.arrive(lease))
        if ready is None:
            leases.end(lease)
        else:
            leases.end_when(lease, ready)
        self._drop()
        return self._rebuilt(copies)

    def dlpack(self) -> Any:
        """Return the batch as objects that ``from_dlpack`` can import in every library except JAX.

        After the import, work on the importing library's stream reads the complete batch.

        JAX must use :meth:`jax` instead. An import into JAX raises an error, because JAX does not name its reading
        stream.

        Raises:
            BatchReleasedError: The batch was already released.
            DeviceError, ForkedPipelineError: The device can no longer be used by this process.
        """
        lease = self._use_in_place()
        return self._rebuilt([self._slots.exported(lease, native) for native in self._natives()])

    def into(self, targets: Any) -> Any:
        """Copy the batch into existing arrays, such as the fixed arrays of a CUDA graph, and release the batch.

        The method enqueues the copies on the current stream of the targets' library and allocates no memory.

        Args:
            targets: C-ordered arrays on the batch's device, with the batch's structure, shapes and dtypes. All targets
                must be NumPy arrays, all must be CuPy arrays, or all must be PyTorch tensors. A smaller last batch does
                not fit the target arrays; set ``drop_remainder`` to omit it.

        Returns:
            The targets.

        Raises:
            DeviceTargetError: A target array does not fit the batch. No target was written, and the consumer still owns
                the slot.
            BatchReleasedError: The batch was already released.
            GraphCaptureError: The current stream is being captured into a CUDA graph; the batch is still leased.
            DeviceError, ForkedPipelineError: The device can no longer be used by this process.
        """
        lease = self._use()
        receiver, blocks = targets_of(targets, self.layout.outside, self._slots.receivers)
        self._slots.check_aligned(self.layout, blocks)
        stream = self._slots.leases.stream(receiver.current_stream)
        assert self._leased is not None
        self._slots.copy_into(lease, self._leased, self.layout, blocks, stream)
        self._drop()
        return targets

    def release(self) -> None:
        """Release the device slot.

        The slot is reused after all streams have finished their work on the batch. Never waits.

        Raises:
            BatchReleasedError: The batch was already released.
            GraphCaptureError: A stream that used the batch is being captured into a CUDA graph; the batch is still
                leased.
        """
        if self._lease is None:
            raise BatchReleasedError("cannot release this device batch: it was never leased")
        self._slots.leases.end(self._lease)
        self._drop()

    def __enter__(self) -> Self:
        self._use()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release the batch unless it was already released."""
        if self._lease is not None and not self._lease.ended:
            self.release()

    def _use(self) -> Lease:
        if self._lease is None:
            raise BatchReleasedError("cannot use this device batch: it was not leased to the consumer of a loader")
        self._slots.leases.check(self._lease)
        return self._lease

    def _use_in_place(self) -> Lease:
        if self.layout.cast is not None:
            raise PlanError(
                "cannot use this batch in its slot: ImageCast casts images when they are copied out. Use into(), or "
                "handoff='copy'"
            )
        return self._use()

    def _borrowed(self, receiver: FrameworkReceiver) -> Any:
        lease, slots = self._use_in_place(), self._slots
        with slots.leases.using(lease, slots.leases.stream(receiver.current_stream, lent=True)):
            natives = self._natives()
        return self._rebuilt([receiver.borrowed(native, slots.exported(lease, native)) for native in natives])

    def _natives(self) -> list[Any]:
        assert self._leased is not None
        return self._slots.views(self._leased, self.layout)

    def _rebuilt(self, arrays: list[Any]) -> Any:
        return self.layout.rebuild(arrays, self._kept)

    def _drop(self) -> None:
        """Remove the batch's reference to the memory of its slot.

        Existing arrays in the slot still keep the memory alive.
        """
        self._leased = None
