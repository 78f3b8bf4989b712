"""A batch on a device, as a consumer has it: copied out of its slot, or used in it until it is given back."""

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
    """A batch in a device slot, or on its way there.

    A loader gives these for ``to_device(handoff="lease")`` and ``"into"``. The slot is the consumer's until the batch
    is given back: at the end of a ``with`` block, by :meth:`release`, :meth:`into` or :meth:`jax`. Nothing waits for
    the device: every method enqueues on the calling thread's current stream, in the library of the arrays, and what the
    caller enqueues there next finds the batch. The methods may be called from any thread; a batch may outlive its
    loader::

        for batch in loader:
            with batch:
                loss = step(batch.torch())

    Attributes:
        layout: Of the arrays in the slot.
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
        """Bytes copied for the batch, padding included."""
        return self.layout.nbytes

    def __repr__(self) -> str:
        arrays = ", ".join(f"{array.path}: {array.dtype} {array.shape}" for array in self.layout.arrays)
        on_loan = self._lease is not None and not self._lease.ended
        state = "on loan" if on_loan else "ahead" if self._slot is not None else "given back"
        return f"<DeviceBatch on {self._slots.device}, {state}: {arrays}>"

    # -- for loaders

    def hand_over(self) -> Any:
        """Return what the consumer gets: arrays of its own, or the batch itself as a lease. In the consumer's thread.

        Raises:
            As for :meth:`materialise`.
        """
        terms = self._slots.hand_over
        if terms.copies_out:
            return self.materialise()
        if self.layout.cast is not None and terms.handoff == "copy":
            return self._cast_for_jax()
        if self._lease is None:  # it is there when JAX had no room for its copies the last time
            self.lend()
        return self.jax() if terms.handoff == "copy" else self

    def materialise(self) -> Any:
        """Take the batch out and give its slot back, in the consumer's thread, without waiting.

        The copy is enqueued on the calling thread's current stream; what the caller enqueues there
        next finds it done. On ``cpu`` it is done at once.

        Returns:
            The batch's structure, of arrays on the device that the caller owns. They are views of one
            allocation: keeping one leaf keeps the memory of all.

        Raises:
            BatchReleasedError: It was taken out, lent or discarded before.
            DeviceMemoryError: The device has no room for the copy; the batch is still there.
            GraphCaptureError: The stream is being captured; the batch is still there.
            DeviceError, LoaderClosedError, ForkedPipelineError: The ring cannot be used any more.
        """
        arrays = self._slots.take_out(self, self._slots.receivers.default)
        kept, self._kept = self._kept, []
        return self.layout.outside.rebuild(arrays, kept)

    def _cast_for_jax(self) -> Any:
        """Return copies of what a cast has made, which is on the device's own library's stream; waits for them."""
        if self._cast is None:  # it is there when JAX had no room for its copies the last time
            own = self._slots.take_out(self, self._slots.receivers.default)
            self._cast = own, self._slots.owned(own)
        copies, ready = self._slots.receivers.jax().copies(*self._cast, lambda: None)
        if ready is not None:
            ready()  # or the memory of what was copied could be used again before
        self._cast = None
        return self.layout.outside.rebuild(copies, self._kept)

    def lend(self) -> None:
        """Begin the lease: from here on the consumer has the batch, whatever becomes of the loader.

        Raises:
            BatchReleasedError: It was taken out, lent or discarded before.
            DeviceError, LoaderClosedError, ForkedPipelineError: The ring cannot be used any more.
        """
        self._lease, self._leased = self._slots.lend(self)

    def discard(self) -> None:
        """Give the slot back without looking at the batch. Does nothing when it is gone, or the ring is."""
        if self._lease is not None and not self._lease.ended:
            self.release()
        self._slots.discard(self)

    # -- for consumers

    def arrays(self) -> Any:
        """Return the batch as arrays of ``to_device(framework=)``, over the slot, for the current stream.

        They may be read and written until the batch is given back. To use them on a further stream, call this again
        where that is the current one: the slot is written again only behind every stream that it was asked for on.

        Returns:
            The batch's structure, of NumPy arrays on ``cpu``, CuPy arrays on a GPU, or tensors. For "jax" see
            :meth:`jax`.

        Raises:
            BatchReleasedError: It was given back.
            GraphCaptureError: The stream is being captured: write :meth:`into` fixed arrays before that instead.
            DeviceError, ForkedPipelineError: The device cannot be used any more.
        """
        return self.jax() if self._slots.hand_over.framework == "jax" else self._borrowed(self._slots.receivers.default)

    def cupy(self) -> Any:
        """Return the batch as CuPy arrays over the slot; see :meth:`arrays`.

        Raises:
            DeviceUnavailableError: The device is no GPU.
        """
        return self._borrowed(self._slots.receivers.of("cupy"))

    def torch(self) -> Any:
        """Return the batch as PyTorch tensors over the slot; see :meth:`arrays`.

        Raises:
            MissingExtraError, DeviceUnavailableError: PyTorch is not installed, or does not know the device.
        """
        return self._borrowed(self._slots.receivers.of("torch"))

    def jax(self) -> Any:
        """Return the batch as JAX arrays of the caller's own, and give it back.

        JAX's arrays never change, so none of them may lie over a slot. On a GPU they are committed to that GPU, and the
        slot is free once the copies are ready, for which a thread of the stage waits. JAX makes numbers of 64 bits
        numbers of 32 bits unless ``jax_enable_x64`` is set.

        Raises:
            BatchReleasedError: It was given back.
            MissingExtraError, DeviceUnavailableError: JAX is not installed, or does not know the device.
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
        """Return the batch as objects for any other library's ``from_dlpack``, which orders its stream by itself.

        JAX is refused when it imports one, since it does not name the stream that reads: see :meth:`jax`.

        Raises:
            BatchReleasedError: It was given back.
            DeviceError, ForkedPipelineError: The device cannot be used any more.
        """
        lease = self._use_in_place()
        return self._rebuilt([self._slots.exported(lease, native) for native in self._natives()])

    def into(self, targets: Any) -> Any:
        """Copy the batch into arrays that stay where they are, as CUDA graphs need, and give it back.

        The copies are enqueued on the current stream of the targets' library, and nothing is allocated.

        Args:
            targets: The batch's structure, of C-ordered arrays with the shapes and dtypes of the batch on its device:
                all NumPy, all CuPy, or all PyTorch. A last batch with fewer rows does not fit: see ``drop_remainder``.

        Returns:
            The targets.

        Raises:
            DeviceTargetError: A target does not fit. Nothing was written; the batch is still there.
            BatchReleasedError: It was given back.
            GraphCaptureError: The stream is being captured; the batch is still there.
            DeviceError, ForkedPipelineError: The device cannot be used any more.
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
        """Give the slot back, behind everything that was enqueued on the streams that used it. Never waits.

        Raises:
            BatchReleasedError: It was given back before.
            GraphCaptureError: A stream that used it is being captured; the batch is still there.
        """
        if self._lease is None:
            raise BatchReleasedError("this device batch was never lent, so there is nothing to give back")
        self._slots.leases.end(self._lease)
        self._drop()

    def __enter__(self) -> Self:
        self._use()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Give the slot back, unless that is done."""
        if self._lease is not None and not self._lease.ended:
            self.release()

    def _use(self) -> Lease:
        if self._lease is None:
            raise BatchReleasedError("this device batch was not lent; only the loader's consumer may use it")
        self._slots.leases.check(self._lease)
        return self._lease

    def _use_in_place(self) -> Lease:
        if self.layout.cast is not None:
            raise PlanError("images are cast while they are taken out of the slot: take this batch by into()")
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
        """Release the slot's memory, which arrays over it keep where there are any."""
        self._leased = None
