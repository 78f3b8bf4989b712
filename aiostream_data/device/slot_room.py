"""Reduce the number of device slots if not all slots fit into device memory. The minimum is two slots.

With two device slots, one batch is copied to the device while the consumer uses the other batch. With one device slot,
copying and training could not overlap. A single device slot is therefore used only on request.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from aiostream_data.device.slots import DeviceSlot
from aiostream_data.errors import DeviceMemoryError

LEAST_SLOTS = 2
"""Minimum number of device slots after a reduction, unless the user requested fewer slots."""


class SlotRoom:
    """Decides whether a ring can continue with one device slot fewer. The caller must hold the lock of the ring."""

    def __init__(self, device: str, asked: int) -> None:
        """Store the number of requested slots, and the device name for error messages."""
        self._device = device
        self._asked = asked
        self._warned = False

    def give_up_one(self, slots: Sequence[DeviceSlot], need: int, error: DeviceMemoryError) -> None:
        """Check that the stage can continue without one of ``slots``. Warn the first time.

        Args:
            slots: Current slots, including the slot that does not fit into device memory.
            need: Number of bytes that the slot must hold.
            error: Error that the device raised for the failed allocation.

        Raises:
            DeviceMemoryError: The stage cannot continue with fewer slots.
        """
        if len(slots) <= LEAST_SLOTS or not any(slot.block for slot in slots):
            raise self._too_little(slots, need, error) from error
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"not enough memory on {self._device} for {self._asked} device slots of {need} bytes{_free(error)}. "
                f"Continuing with {len(slots) - 1} slots, so fewer batches are prefetched. Lower depth, or free memory",
                RuntimeWarning,
                stacklevel=2,
            )

    def _too_little(self, slots: Sequence[DeviceSlot], need: int, error: DeviceMemoryError) -> DeviceMemoryError:
        which = f"{len(slots)} device slots" if any(slot.block for slot in slots) else "one device slot"
        return DeviceMemoryError(
            f"not enough memory on {self._device} for {which} of {need} bytes{_free(error)}. Make batches smaller, or "
            "free memory held by other libraries; for JAX, set XLA_PYTHON_CLIENT_PREALLOCATE=false",
            need=need,
            free=error.free,
            depth=len(slots),
        )


def _free(error: DeviceMemoryError) -> str:
    return "" if error.free is None else f" ({error.free} bytes are free)"
