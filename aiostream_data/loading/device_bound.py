"""Worst-case memory of the batch slots of ``to_device``: device memory and page-locked host memory.

A slot has space for the largest batch, with each array aligned for the device. The host has the same number of slots as
the device. With ``handoff="copy"``, each batch that the consumer keeps uses additional device memory.
``handoff="lease"`` and ``handoff="into"`` use no additional device memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiostream_data.device.backend import ALIGNMENT
from aiostream_data.metrics.sizes import as_size
from aiostream_data.plan.base import Node
from aiostream_data.plan.element_nbytes import leaf_nbytes, most_nbytes
from aiostream_data.plan.operators import ToDevice
from aiostream_data.plan.spec import ArraySpec, spec_of
from aiostream_data.plan.subprocess import own_nbytes, places_of

OF_AN_IMAGE_NBYTES = 12
"""Slot memory in bytes for the crop position and the mirror flag of one transformed image."""

OF_A_CHANNEL_NBYTES = 8
"""Slot memory in bytes for the scale and offset of one channel of the transformed images."""


@dataclass(frozen=True, kw_only=True)
class DeviceBound:
    """Worst-case memory for batches that ``to_device`` copies to a device.

    The host memory is part of :class:`.memory_bound.MemoryBound`.

    Attributes:
        device: Target device, or None if batches stay on the host.
        device_slots: Number of slots on the device, and also on the host.
        slot_nbytes: Size of one slot in bytes, or None if the plan does not determine the size.
        taken_nbytes: Device memory in bytes of each batch that the consumer keeps outside the slots; 0 unless
            ``handoff="copy"``. If the plan does not determine the size, ``taken_nbytes`` is None.
        shared_nbytes: Size in bytes of the shared memory that subprocesses write to. The shared memory may be
            page-locked, so that the device can copy directly from this memory.
        pageable: True if host slots may use pageable memory when the system refuses to page-lock memory.
    """

    device: str | None = None
    device_slots: int = 0
    slot_nbytes: int | None = 0
    taken_nbytes: int | None = 0
    shared_nbytes: int = 0
    pageable: bool = False

    @property
    def device_nbytes(self) -> int | None:
        """Total size of all device slots in bytes, or None if the plan does not determine the size."""
        return None if self.slot_nbytes is None else self.device_slots * self.slot_nbytes

    @property
    def pinned_nbytes(self) -> int | None:
        """Size of the page-locked host memory in bytes; 0 without a GPU.

        If the plan does not determine the slot size, the result is None.
        """
        if not self._pins:
            return 0
        return None if self.device_nbytes is None else self.device_nbytes + self.shared_nbytes

    @property
    def _pins(self) -> bool:
        return self.device not in (None, "cpu")

    def on_device(self) -> str:
        """Return the device part of the memory summary, or "" if batches stay on the host."""
        if not self._pins:
            return ""
        size = "the largest batch" if self.slot_nbytes is None else as_size(self.slot_nbytes)
        return f", {self.device_slots} x {size} on {self.device}"

    def slot_lines(self) -> list[str]:
        """Describe the device slots, with one line per property."""
        if self.device is None:
            return []
        lines = [self._slots()]
        if self.taken_nbytes != 0 and self._pins:
            size = "its size" if self.taken_nbytes is None else as_size(self.taken_nbytes)
            lines.append(f"each batch that you hold: {size} on {self.device}, in addition to the slots")
        return lines

    def _slots(self) -> str:
        number, device = self.device_slots, self.device
        where = "pinned on the host" if self._pins else "in host memory"
        unless = ", or pageable if pinning fails," if self.pageable and self._pins else ""
        if self.slot_nbytes is None:
            return f"slots: {number} {where}{unless} and {number} on {device}, as large as the largest batch"
        total = as_size(number * self.slot_nbytes)
        return f"slots: {number} × {as_size(self.slot_nbytes)} = {total} {where}{unless}, and {total} on {device}"


def device_facts(plan: Node, memory_limit: int) -> dict[str, Any]:
    """Return the constructor arguments of a :class:`DeviceBound` for a plan and a memory limit in bytes."""
    if not isinstance(plan, ToDevice):
        return {}
    slot_nbytes = _slot_nbytes(plan)
    return {
        "device": plan.device,
        "device_slots": plan.depth,
        "slot_nbytes": slot_nbytes,
        "taken_nbytes": _taken_nbytes(plan, slot_nbytes) if plan.handoff == "copy" else 0,
        "shared_nbytes": own_nbytes(plan, memory_limit) if places_of(plan) else 0,
        "pageable": plan.allow_pageable,
    }


def _slot_nbytes(plan: ToDevice) -> int | None:
    batch = most_nbytes(plan.input)
    if batch is None:
        return None
    _, leaves = spec_of(plan.input)
    arrays = len(leaves)
    if plan.transform is not None:
        images = [leaf.shape for leaf in leaves if leaf.shape is not None and len(leaf.shape) == 4]
        arrays += 2 * len(images)
        batch += sum(OF_A_CHANNEL_NBYTES * (shape[-1] or 0) for shape in images)
        batch += OF_AN_IMAGE_NBYTES * len(images) * (_rows(leaves, batch) or 0)
    return max(1, batch + (arrays - 1) * (ALIGNMENT - 1))


def _taken_nbytes(plan: ToDevice, slot_nbytes: int | None) -> int | None:
    batch = most_nbytes(plan.input)
    if plan.transform is None or batch is None:
        return slot_nbytes
    _, before = spec_of(plan.input)
    _, after = spec_of(plan)
    rows, row_nbytes = _rows(before, batch), _row_nbytes(after)
    if rows is None or row_nbytes is None:
        return None
    return rows * row_nbytes + (len(after) - 1) * (ALIGNMENT - 1)


def _rows(leaves: Sequence[ArraySpec], batch_nbytes: int) -> int | None:
    """Return the maximum number of rows in a batch of ``batch_nbytes`` bytes, or None if unknown."""
    row_nbytes = _row_nbytes(leaves)
    return -(-batch_nbytes // row_nbytes) if row_nbytes else None


def _row_nbytes(leaves: Sequence[ArraySpec]) -> int | None:
    """Return the size in bytes of one row of a batch with the given leaves, or None if unknown."""
    sizes = [leaf_nbytes(replace(leaf, shape=None if leaf.shape is None else leaf.shape[1:])) for leaf in leaves]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
