"""Counters of one device stage: bytes copied, copy speed, and wait times of source, device and consumer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from aiostream_data.metrics.sizes import as_size

Side = Literal["source", "device", "consumer", "nobody"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCopies:
    """Counters of one ``to_device`` stage at one moment.

    All times are measured on the host in seconds, except ``copy_s``.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        batches: Number of batches sent to the device.
        copied_nbytes: Bytes copied for the sent batches, including the padding between arrays.
        launches: Number of copies and kernels enqueued for the sent batches, both into and out of the device slots.
        copy_s: Time in seconds that the device spent on copies to the device; None without ``open(profile=True)``.
        timed_nbytes: Bytes of the finished copies that ``copy_s`` covers.
        exposed_s: Upper bound of the seconds that consumers waited for copies in progress; 0.0 on ``cpu``.
        late: Number of batches whose copy was still in progress when the consumer received them.
        source_waits: Number of times that the device stage waited for a batch to send. Many waits for batches mean that
            the pipeline is slower than the device.
        source_wait_s: Seconds that the device stage waited for batches to send.
        host_slot_waits: Number of times that the device stage waited for a free host slot. Many waits for host slots
            mean that copying from slots, or writing to slots, is slower than the source. Waits for host slots are not
            counted while filled slots wait for the consumer.
        host_slot_wait_s: Seconds that the device stage waited for free host slots.
        device_slot_waits: Number of times that a batch in a host slot waited for a free device slot. Many waits for
            device slots mean that the consumer is slower than the pipeline.
        device_slot_wait_s: Seconds that batches in host slots waited for free device slots.
        host_slots: Number of host slots.
        device_slots: Number of device slots.
        device_slots_asked: Requested number of device slots. The requested number exceeds ``device_slots`` if device
            memory was insufficient.
        host_nbytes: Total size of all host slots in bytes, now or when the stage was closed.
        device_nbytes: Total size of all device slots in bytes, now or when the stage was closed.
        pinned_nbytes: Number of page-locked bytes in ``host_nbytes``; 0 on ``cpu``.
        written_nbytes: Bytes written to host slots.
        rewritten_nbytes: Part of ``written_nbytes`` that was copied from an array of a complete batch. Rows that are
            stacked directly in the slot need one copy fewer.
        in_place_nbytes: Bytes copied to the device directly from memory that an ``in_subprocess()`` process wrote.
        shared_blocks: Number of page-locked memory blocks shared with ``in_subprocess()`` processes.
        shared_nbytes: Total size in bytes of the memory blocks in ``shared_blocks``.
        shared_blocks_locked: Number of memory blocks that were page-locked so far. If ``shared_blocks_locked`` is far
            larger than ``shared_blocks``, blocks are not reused.
        shared_arrays_rewritten: Number of arrays in shared memory that had to be copied to a host slot.
        shared_refused: True if the operating system refused to page-lock a memory block.
        regrows: Number of slots that were replaced by larger slots. Each replacement of a slot stalls the device stage.
        leaked_leases: Number of leased batches that the consumer did not release, so that the garbage collector
            released them.
        abandoned_nbytes: Bytes of memory that was never freed because a copy might still access the memory.
    """

    device: str
    batches: int = 0
    copied_nbytes: int = 0
    launches: int = 0
    copy_s: float | None = None
    timed_nbytes: int = 0
    exposed_s: float = 0.0
    late: int = 0
    source_waits: int = 0
    source_wait_s: float = 0.0
    host_slot_waits: int = 0
    host_slot_wait_s: float = 0.0
    device_slot_waits: int = 0
    device_slot_wait_s: float = 0.0
    host_slots: int = 0
    device_slots: int = 0
    device_slots_asked: int = 0
    host_nbytes: int = 0
    device_nbytes: int = 0
    pinned_nbytes: int = 0
    written_nbytes: int = 0
    rewritten_nbytes: int = 0
    in_place_nbytes: int = 0
    shared_blocks: int = 0
    shared_nbytes: int = 0
    shared_blocks_locked: int = 0
    shared_arrays_rewritten: int = 0
    shared_refused: bool = False
    regrows: int = 0
    leaked_leases: int = 0
    abandoned_nbytes: int = 0

    @property
    def pinned(self) -> bool:
        """True if at least one host slot exists and all host slots are page-locked."""
        return 0 < self.host_nbytes == self.pinned_nbytes

    @property
    def h2d_gbps(self) -> float | None:
        """Speed of the copies to the device in 10**9 bytes per second, excluding pauses; None without a profile."""
        return None if not self.copy_s else self.timed_nbytes / self.copy_s / 1e9

    @property
    def exposed_share(self) -> float | None:
        """Ratio of ``exposed_s`` to ``copy_s``, limited to 1; None without a profile."""
        return None if not self.copy_s else min(1.0, self.exposed_s / self.copy_s)

    @property
    def launches_per_batch(self) -> float:
        """Mean number of copies and kernels enqueued per batch."""
        return self.launches / max(1, self.batches)

    @property
    def host_copies(self) -> float:
        """Mean number of times that a byte of a batch is copied on the host.

        The mean is 1 if batches are built in their slots, or copied directly from memory shared with another process.
        """
        return 1.0 + self.rewritten_nbytes / max(1, self.written_nbytes + self.in_place_nbytes)

    @property
    def slowest(self) -> Side:
        """The side that caused the longest waits: the source of batches, the device copies, or the consumer."""
        waits: dict[Side, float] = {
            "source": self.source_wait_s,
            "device": self.host_slot_wait_s,
            "consumer": self.device_slot_wait_s,
        }
        side = max(waits, key=waits.__getitem__)
        return side if waits[side] > 0.0 else "nobody"

    def as_dict(self) -> dict[str, Any]:
        """Return the counters and the values derived from them as JSON-compatible data."""
        derived = ("pinned", "h2d_gbps", "exposed_share", "launches_per_batch", "host_copies", "slowest")
        return asdict(self) | {name: getattr(self, name) for name in derived}

    @property
    def sentences(self) -> list[str]:
        """Lines of text about the copies, for a report."""
        return [self._copied(), self._waited(), *self._odd()]

    def _copied(self) -> str:
        speed = "" if self.h2d_gbps is None else f" at {self.h2d_gbps:.1f} GB/s"
        share = "" if self.exposed_share is None else f", {self.exposed_share:.1%} of the copies"
        exposed = f"; the device waited at most {self.exposed_s:.3f} s{share}" if self.device != "cpu" else ""
        total = f"{self.copied_nbytes / (1 << 20):.1f} MiB in {self.batches:,} batches"
        return f"{self.device}: {total}{speed}, {self.host_copies:.2f} copies on the host{exposed}"

    def _waited(self) -> str:
        pinned = "" if self.device == "cpu" else " page-locked" if self.pinned else " NOT page-locked"
        slots = f"{self.host_slots} host slots with {as_size(self.host_nbytes)}{pinned} in total"
        waits = (
            f"for batches {self.source_wait_s:.2f} s, for host slots {self.host_slot_wait_s:.2f} s, "
            f"for device slots {self.device_slot_wait_s:.2f} s"
        )
        return f"  {slots}, {self.device_slots} device slots; waited {waits}: slowest is {_named(self.slowest)}"

    def _odd(self) -> list[str]:
        lines = []
        if self.in_place_nbytes:
            lines.append(
                f"  {as_size(self.in_place_nbytes)} of it was copied directly from the memory of in_subprocess(), in "
                f"{self.shared_blocks_locked:,} blocks"
            )
        if self.shared_arrays_rewritten:
            why = ", because no more memory was page-locked" if self.shared_refused else ""
            lines.append(f"  {self.shared_arrays_rewritten:,} arrays of in_subprocess() were written into slots{why}")
        if self.device_slots < self.device_slots_asked:
            lines.append(f"  the device had room for {self.device_slots} of {self.device_slots_asked} slots")
        if self.regrows:
            lines.append(f"  slots were replaced by larger ones {self.regrows:,} times, as batches grew")
        if self.leaked_leases:
            lines.append(f"  {self.leaked_leases:,} batches were released only by the garbage collector")
        if self.abandoned_nbytes:
            lines.append(f"  {as_size(self.abandoned_nbytes)} were not freed, because copies may still use them")
        return lines


def _named(side: Side) -> str:
    return side if side == "nobody" else f"the {side}"
