"""What one device stage did: how much it copied, how fast, and which side waited for which."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from aiostream_data.metrics.sizes import as_size

Side = Literal["source", "device", "consumer", "nobody"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCopies:
    """Counters of one ``to_device``, at one instant. Seconds are of the host's clock, except for ``copy_s``.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        batches, copied_nbytes: Batches sent to the device, and the bytes copied for them, with the padding between
            arrays.
        launches: Copies and kernels enqueued for them, to the device and out of its slots.
        copy_s: Seconds that the copies to the device took there; None without ``open(profile=True)``.
        timed_nbytes: Bytes of the copies that ``copy_s`` is about: those that have run.
        exposed_s: Seconds that consumers stood still, at most, for batches that were still on their way; 0.0 on
            ``cpu``.
        late: Such batches.
        source_waits, source_wait_s: Waits for batches to send: what comes before is slower than the device.
        host_slot_waits, host_slot_wait_s: Waits for a host slot to be written: copies, or writing, are slower than
            the source. Not those while filled slots waited for the consumer.
        device_slot_waits, device_slot_wait_s: Waits of written batches for a device slot: the consumer is slower.
        host_slots, device_slots: How many there are.
        device_slots_asked: How many there were to be; more than ``device_slots`` when the device had no room.
        host_nbytes, device_nbytes: What they take now, or took when the stage was closed.
        pinned_nbytes: How much of ``host_nbytes`` is page-locked; 0 on ``cpu``.
        written_nbytes: Bytes written into host slots.
        rewritten_nbytes: Those of them that stood in an array of the whole batch before, so that they were copied once
            more than a batch is that is put together in its slot.
        in_place_nbytes: Bytes copied to the device from where a process of ``in_subprocess()`` wrote them.
        shared_blocks, shared_nbytes: Blocks of such memory that are page-locked now, and their bytes.
        shared_blocks_locked: Blocks page-locked so far; far more of them than there are now are not used again.
        shared_arrays_rewritten: Arrays in such memory that were written into a host slot all the same.
        shared_refused: True once the system has refused to page-lock such a block.
        regrows: Slots replaced by larger ones; each of these held everything up.
        leaked_leases: Batches lent out that the garbage collector had to give back.
        abandoned_nbytes: Memory never freed because a copy might still reach it.
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
        """True when all host slots are page-locked, and there are some."""
        return 0 < self.host_nbytes == self.pinned_nbytes

    @property
    def h2d_gbps(self) -> float | None:
        """10**9 bytes per second of the copies to the device, while they ran; None without a profile."""
        return None if not self.copy_s else self.timed_nbytes / self.copy_s / 1e9

    @property
    def exposed_share(self) -> float | None:
        """``exposed_s`` as a share of the seconds that copies took, at most 1; None without a profile."""
        return None if not self.copy_s else min(1.0, self.exposed_s / self.copy_s)

    @property
    def launches_per_batch(self) -> float:
        """Copies and kernels enqueued per batch."""
        return self.launches / max(1, self.batches)

    @property
    def host_copies(self) -> float:
        """How often a byte was copied on the host from where batches are made: 1 when they are made in their slots.

        Or when they are copied from where another process made them.
        """
        return 1.0 + self.rewritten_nbytes / max(1, self.written_nbytes + self.in_place_nbytes)

    @property
    def slowest(self) -> Side:
        """Who was waited for most: what makes batches, the copies of them, or the consumer of them."""
        waits: dict[Side, float] = {
            "source": self.source_wait_s,
            "device": self.host_slot_wait_s,
            "consumer": self.device_slot_wait_s,
        }
        side = max(waits, key=waits.__getitem__)
        return side if waits[side] > 0.0 else "nobody"

    def as_dict(self) -> dict[str, Any]:
        """Return the same, and what follows from it, as JSON-safe data."""
        derived = ("pinned", "h2d_gbps", "exposed_share", "launches_per_batch", "host_copies", "slowest")
        return asdict(self) | {name: getattr(self, name) for name in derived}

    @property
    def sentences(self) -> list[str]:
        """What a report says of it, a line each."""
        return [self._copied(), self._waited(), *self._odd()]

    def _copied(self) -> str:
        speed = "" if self.h2d_gbps is None else f" at {self.h2d_gbps:.1f} GB/s"
        share = "" if self.exposed_share is None else f", {self.exposed_share:.1%} of the copies"
        exposed = f"; waited for on the device {self.exposed_s:.3f} s at most{share}" if self.device != "cpu" else ""
        total = f"{self.copied_nbytes / (1 << 20):.1f} MiB in {self.batches:,} batches"
        return f"{self.device}: {total}{speed}, {self.host_copies:.2f} copies on the host{exposed}"

    def _waited(self) -> str:
        pinned = "" if self.device == "cpu" else " page-locked" if self.pinned else " NOT page-locked"
        slots = f"{self.host_slots} host slots of together {as_size(self.host_nbytes)}{pinned}"
        waits = (
            f"for batches {self.source_wait_s:.2f} s, for host slots {self.host_slot_wait_s:.2f} s, "
            f"for device slots {self.device_slot_wait_s:.2f} s"
        )
        return f"  {slots}, {self.device_slots} device slots; waited {waits}: slowest is {_named(self.slowest)}"

    def _odd(self) -> list[str]:
        lines = []
        if self.in_place_nbytes:
            lines.append(
                f"  {as_size(self.in_place_nbytes)} of them were copied from where in_subprocess() wrote them, in "
                f"{self.shared_blocks_locked:,} blocks of memory"
            )
        if self.shared_arrays_rewritten:
            why = ", as none is page-locked any more" if self.shared_refused else ""
            lines.append(f"  {self.shared_arrays_rewritten:,} arrays of in_subprocess() were written into slots{why}")
        if self.device_slots < self.device_slots_asked:
            lines.append(f"  the device had room for {self.device_slots} of {self.device_slots_asked} slots")
        if self.regrows:
            lines.append(f"  slots were replaced by larger ones {self.regrows:,} times, as batches grew")
        if self.leaked_leases:
            lines.append(f"  {self.leaked_leases:,} batches were never released; the garbage collector did it")
        if self.abandoned_nbytes:
            lines.append(f"  {as_size(self.abandoned_nbytes)} were not freed, as copies might still reach them")
        return lines


def _named(side: Side) -> str:
    return side if side == "nobody" else f"the {side}"
