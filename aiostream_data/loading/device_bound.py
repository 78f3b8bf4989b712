"""The most memory that the slots of ``to_device`` take, on the device and page-locked on the host.

A slot is as large as the largest batch, with its arrays on boundaries that devices like. There are as many on the host
as on the device. What a consumer has beside them depends on the hand-over: with "copy" every batch that it keeps is
memory of its own; a lease, and what is written into arrays of the consumer's, takes nothing more.
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
"""In a slot beside the pixels of an image that is cast on its way out: where to cut it, and whether to mirror it."""

OF_A_CHANNEL_NBYTES = 8
"""In a slot for every channel of images that are cast: what to multiply with, and what to add."""


@dataclass(frozen=True, kw_only=True)
class DeviceBound:
    """Memory for batches on a device. Host memory in it is among that which :class:`.memory_bound.MemoryBound` tells.

    Attributes:
        device: Where batches are copied to; None where they are not.
        device_slots: Number of slots there, and on the host.
        slot_nbytes: Bytes of each; None where the plan does not tell.
        taken_nbytes: Bytes on the device of each batch that the consumer has, beside the slots; 0 where it uses the
            slots themselves, or memory that it gives; None where the plan does not tell.
        shared_nbytes: Bytes of memory that subprocesses write and that may be page-locked too, to be copied from there.
        pageable: Slots on the host need not be page-locked where the system refuses that.
    """

    device: str | None = None
    device_slots: int = 0
    slot_nbytes: int | None = 0
    taken_nbytes: int | None = 0
    shared_nbytes: int = 0
    pageable: bool = False

    @property
    def device_nbytes(self) -> int | None:
        """Bytes of device memory of the slots; None where the plan does not tell."""
        return None if self.slot_nbytes is None else self.device_slots * self.slot_nbytes

    @property
    def pinned_nbytes(self) -> int | None:
        """Bytes of page-locked host memory, 0 where the device is the host; None where the plan does not tell."""
        if not self._pins:
            return 0
        return None if self.device_nbytes is None else self.device_nbytes + self.shared_nbytes

    @property
    def _pins(self) -> bool:
        return self.device not in (None, "cpu")

    def on_device(self) -> str:
        """Return the device's part of one sentence; empty where the device is the host."""
        if not self._pins:
            return ""
        size = "the largest batch" if self.slot_nbytes is None else as_size(self.slot_nbytes)
        return f", {self.device_slots} x {size} on {self.device}"

    def slot_lines(self) -> list[str]:
        """Return what there is to say about slots, a line each."""
        if self.device is None:
            return []
        lines = [self._slots()]
        if self.taken_nbytes != 0 and self._pins:
            size = "its size" if self.taken_nbytes is None else as_size(self.taken_nbytes)
            lines.append(f"each batch that you have: {size} on {self.device}, beside the slots")
        return lines

    def _slots(self) -> str:
        number, device = self.device_slots, self.device
        where = "pinned on the host" if self._pins else "in host memory"
        unless = ", or plain memory where that is refused" if self.pageable and self._pins else ""
        if self.slot_nbytes is None:
            return f"slots: {number} {where}{unless} and {number} on {device}, as large as the largest batch"
        total = as_size(number * self.slot_nbytes)
        return f"slots: {number} × {as_size(self.slot_nbytes)} = {total} {where}{unless}, and {total} on {device}"


def device_facts(plan: Node, memory_limit: int) -> dict[str, Any]:
    """Return the fields of a :class:`DeviceBound` for a plan that is opened with a memory limit in bytes."""
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
    """Return how many rows a batch of this size has at most; None where the plan does not tell."""
    row_nbytes = _row_nbytes(leaves)
    return -(-batch_nbytes // row_nbytes) if row_nbytes else None


def _row_nbytes(leaves: Sequence[ArraySpec]) -> int | None:
    """Return the bytes of one row of a batch with these leaves; None where the plan does not tell."""
    sizes = [leaf_nbytes(replace(leaf, shape=None if leaf.shape is None else leaf.shape[1:])) for leaf in leaves]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
