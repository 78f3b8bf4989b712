"""Go on with fewer device slots where the device has no room for all of them: two, before it is an error.

With two, one batch is copied while the other is used. With one, copies and training would take turns, which nobody
wants who did not ask for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from aiostream_data.device.slots import DeviceSlot
from aiostream_data.errors import DeviceMemoryError

LEAST_SLOTS = 2
"""Fewest device slots to go on with, unless fewer were asked for."""


class SlotRoom:
    """Decides whether one slot less will do. The ring's lock is held."""

    def __init__(self, device: str, asked: int) -> None:
        """Be told the name of the device, for messages, and how many slots were asked for."""
        self._device = device
        self._asked = asked
        self._warned = False

    def give_up_one(self, slots: Sequence[DeviceSlot], need: int, error: DeviceMemoryError) -> None:
        """Return when the stage may do without one of ``slots``; warn of that the first time.

        Args:
            slots: Those that there are, the one that does not fit among them.
            need: Bytes that it must hold.
            error: What the device said.

        Raises:
            DeviceMemoryError: It may not.
        """
        if len(slots) <= LEAST_SLOTS or not any(slot.block for slot in slots):
            raise self._too_little(slots, need, error) from error
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self._device} has no room for {self._asked} device slots of {need} bytes{_free(error)}: going on "
                f"with {len(slots) - 1}, so that fewer batches are ready ahead; lower depth, or leave more memory free",
                RuntimeWarning,
                stacklevel=2,
            )

    def _too_little(self, slots: Sequence[DeviceSlot], need: int, error: DeviceMemoryError) -> DeviceMemoryError:
        which = f"{len(slots)} device slots" if any(slot.block for slot in slots) else "even one device slot"
        return DeviceMemoryError(
            f"{self._device} has no room for {which} of {need} bytes{_free(error)}: make batches smaller, or have "
            "other users of the device leave more free (frameworks keep what they once had; JAX takes three quarters "
            "of a GPU unless XLA_PYTHON_CLIENT_PREALLOCATE=false)",
            need=need,
            free=error.free,
            depth=len(slots),
        )


def _free(error: DeviceMemoryError) -> str:
    return "" if error.free is None else f" ({error.free} bytes are free)"
