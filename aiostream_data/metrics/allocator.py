"""What the C library's allocator holds of this process's memory, and how much of that is in use.

Memory that was freed may stay with the process: an arena of malloc gives back what lies at its end alone, and
every thread may have an arena of its own. A process then grows although nothing it can name does. That is told
apart from a leak here. Only glibc (2.33 or later) says what its arenas hold.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Final

MIB: Final = 1 << 20

WIDE_NBYTES: Final = 64 * MIB
"""Free bytes in arenas below this are not worth mentioning, ..."""

WIDE_SHARE: Final = 0.5
"""... nor are they below this fraction of what is in use."""


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


@dataclass(frozen=True, slots=True)
class AllocatorState:
    """Bytes of one process at one moment.

    Attributes:
        resident: In memory, of everything.
        arenas: What malloc's arenas have from the system.
        live: Of these, in use.
        free: Of these, freed and kept; what was given back by trimming is still counted.
        mapped: Large blocks, each mapped by itself and given back when freed.
    """

    resident: int
    arenas: int
    live: int
    free: int
    mapped: int

    @property
    def is_fragmented(self) -> bool:
        """Whether arenas hold far more than is in use, and it is in memory."""
        return self.kept > max(WIDE_NBYTES, WIDE_SHARE * (self.live + self.mapped))

    @property
    def kept(self) -> int:
        """Bytes that were freed and are in memory still, at most: trimming gives back those on whole pages."""
        return max(0, min(self.free, self.resident - self.mapped - self.live))

    @property
    def advice(self) -> str | None:
        """One sentence on what to set; None when there is nothing to gain."""
        if not self.is_fragmented:
            return None
        return (
            f"fragmentation: malloc's arenas hold {self.arenas / MIB:.0f} MiB, of which {self.live / MIB:.0f} MiB are "
            f"live; start the process with MALLOC_ARENA_MAX=2, or with MALLOC_MMAP_THRESHOLD_={MIB} and "
            f"MALLOC_TRIM_THRESHOLD_={MIB}, so that freed memory goes back to the system"
        )

    def __str__(self) -> str:
        resident, live, kept, arenas, mapped = (
            f"{nbytes / MIB:.1f} MiB" for nbytes in (self.resident, self.live, self.kept, self.arenas, self.mapped)
        )
        return (
            f"{resident} resident; malloc: {live} live and {kept} freed but kept, in arenas of {arenas}; "
            f"{mapped} mapped besides"
        )


def allocator_state() -> AllocatorState | None:
    """Return what the allocator of this process holds; None where it does not say (no glibc, or an old one)."""
    library = _glibc()
    resident = _resident_nbytes()
    if library is None or resident is None:
        return None
    found = library.mallinfo2()
    return AllocatorState(resident, found.arena, found.uordblks, found.fordblks, found.hblkhd)


def trim() -> None:
    """Give freed memory of all arenas back to the system, as far as whole pages are free; nothing without glibc."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _Mallinfo2
        library.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, TypeError, AttributeError):  # not on this platform
        return None
    return library


def _resident_nbytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
