"""Memory that the C library's allocator has obtained from the system, and the part that is in use.

Freed memory can stay with the process instead of returning to the system. Each thread can have its own malloc arena,
which returns memory only from its end. The memory of a process can therefore grow without a memory leak. This module
distinguishes fragmentation of freed memory from a memory leak. Only glibc 2.33 or later reports the sizes of its
arenas.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Final

MIB: Final = 1 << 20

WIDE_NBYTES: Final = 64 * MIB
"""Fragmentation is reported only if at least ``WIDE_NBYTES`` bytes in malloc arenas are free."""

WIDE_SHARE: Final = 0.5
"""Fragmentation is reported only if the ratio of free to used bytes in malloc arenas is at least ``WIDE_SHARE``."""


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
    """Allocator statistics of one process at one moment, in bytes.

    Attributes:
        resident: Resident set size of the process.
        arenas: Memory that malloc obtained from the system for its arenas.
        live: Part of ``arenas`` that is in use.
        free: Part of ``arenas`` that was freed. The number ``free`` includes memory that trimming has already returned
            to the system.
        mapped: Large blocks outside the arenas. When the process frees a large block, its memory returns to the system.
    """

    resident: int
    arenas: int
    live: int
    free: int
    mapped: int

    @property
    def is_fragmented(self) -> bool:
        """True if the arenas keep far more resident memory than the process uses."""
        return self.kept > max(WIDE_NBYTES, WIDE_SHARE * (self.live + self.mapped))

    @property
    def kept(self) -> int:
        """Upper bound for memory in bytes that was freed but is still resident.

        Trimming can return the complete pages of freed memory to the system.
        """
        return max(0, min(self.free, self.resident - self.mapped - self.live))

    @property
    def advice(self) -> str | None:
        """Recommended allocator settings in one sentence; None if memory is not fragmented."""
        if not self.is_fragmented:
            return None
        return (
            f"fragmentation: malloc's arenas hold {self.arenas / MIB:.0f} MiB, of which {self.live / MIB:.0f} MiB are "
            f"live; start the process with MALLOC_ARENA_MAX=2, or with MALLOC_MMAP_THRESHOLD_={MIB} and "
            f"MALLOC_TRIM_THRESHOLD_={MIB}, so that freed memory is returned to the system"
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
    """Measure the memory of the allocator in this process. Return None if glibc is older than 2.33 or missing."""
    library = _glibc()
    resident = _resident_nbytes()
    if library is None or resident is None:
        return None
    found = library.mallinfo2()
    return AllocatorState(resident, found.arena, found.uordblks, found.fordblks, found.hblkhd)


def trim() -> None:
    """Return the free pages of all malloc arenas to the system. Does nothing without glibc."""
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
