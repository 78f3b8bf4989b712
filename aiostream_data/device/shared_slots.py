"""Copy to the device straight out of memory that another process has written.

How this works. A process of ``in_subprocess()`` writes its batches into blocks of shared memory, which go back to it
and are written again. When a batch first comes in a block, the block is *adopted*: page-locked where it stands, once,
for as long as it is used. The device then copies large arrays straight from it, and only the rest of the batch is
written into a host slot.

A block goes back when the last array dies that looks into it. So the batch's host slot keeps those arrays, as a
:class:`Lent`, until the mark behind its copies was joined: a block is under the same rule as the slot itself. A block
is *disowned* when its owner writes no more into it and no copy reads it, or when the stage closes, and always before
it is unmapped: what is adopted is kept mapped here.

What cannot be adopted goes through the host slots as everything else does, and is counted: blocks beyond a number and a
sum of bytes, and all further ones once the system has refused to page-lock one, of which a warning tells.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import DeviceBackend, HostBlock
from aiostream_data.device.batch_layout import BatchLayout
from aiostream_data.device.copies import ArrayPlace, SlotCopy, plan_copies, whole
from aiostream_data.device.layout import TakenApart
from aiostream_data.errors import DeviceError, DeviceMemoryError
from aiostream_data.rows.parts import Parts

IN_PLACE_NBYTES = 1 << 15
"""Smaller arrays go through a host slot: writing them there costs less than a copy of their own."""

MAX_BLOCKS = 256
"""Most blocks that are adopted at once."""

MAX_NBYTES = 1 << 30
"""Most bytes of them, where nothing else is said."""


class SharedMemory(Protocol):
    """Memory that another process writes, mapped here for as long as anything looks into it."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""

    @property
    def retired(self) -> bool:
        """True when nobody will write into it again."""

    def view(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return these bytes, as an array that keeps the memory mapped."""


FindShared: TypeAlias = Callable[[NDArray[Any]], SharedMemory | None]
"""Returns the shared memory that an array looks into; None where its memory is of another kind."""


def nothing_shared(array: NDArray[Any]) -> None:
    """Return None: no array is known to look into shared memory."""


@dataclass(frozen=True, slots=True)
class SharedStats:
    """What became of batches that came in shared memory.

    Attributes:
        blocks, nbytes: Blocks adopted now, and their bytes.
        adopted: Blocks adopted so far; far more than ``blocks`` when they are not used again.
        in_place_nbytes: Bytes copied to the device from where another process wrote them.
        host_copies: Large arrays in shared memory that were copied into a host slot all the same.
        refused: True once the system has refused to page-lock a block.
    """

    blocks: int = 0
    nbytes: int = 0
    adopted: int = 0
    in_place_nbytes: int = 0
    host_copies: int = 0
    refused: bool = False


class _Adopted:
    """A block that the device may copy from.

    Attributes:
        readers: As long as the number of batches whose copies may read it. Changed without a lock, which is why it is
            a deque: a batch may end inside a garbage collection.
        abandoned: A copy that nobody waits for any more may read it for ever.
    """

    __slots__ = ("abandoned", "block", "memory", "readers")

    def __init__(self, memory: SharedMemory, block: HostBlock) -> None:
        self.memory = memory
        self.block = block
        self.readers: deque[None] = deque()
        self.abandoned = False


class Lent:
    """What the copies of one batch read of other processes' memory. Its owner ends it when they have run.

    Attributes:
        nbytes: How much.
        lease: What counts these bytes against a limit, if anything.
    """

    __slots__ = ("_adopted", "_arrays", "lease", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self.lease: object = None
        self._arrays: list[NDArray[Any]] = []
        self._adopted: list[_Adopted] = []

    def add(self, array: NDArray[Any], adopted: _Adopted) -> None:
        """Keep an array, and with it the block that it looks into."""
        adopted.readers.append(None)
        self._adopted.append(adopted)
        self._arrays.append(array)
        self.nbytes += array.nbytes

    def abandon(self) -> None:
        """Mark it as endless: the end of its copies cannot be known."""
        for adopted in self._adopted:
            adopted.abandoned = True

    def end(self) -> None:
        """Return the blocks to their lender. Idempotent; takes no lock and calls no device."""
        while self._adopted:
            self._adopted.pop().readers.pop()
        self._arrays.clear()
        self.lease = None
        self.nbytes = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """How a batch reaches a device slot.

    Attributes:
        staged: Layout of what is to be written into the host slot; it may have no arrays.
        sources: The arrays to write there, one per ``staged.arrays``.
        copies: To the device slot.
        lent: What the copies read beside the host slot. The slot is its owner.
    """

    staged: BatchLayout
    sources: Sequence[NDArray[Any] | Parts]
    copies: Sequence[SlotCopy]
    lent: Lent | None = None


class SharedSlots:
    """The blocks of other processes that a device copies from. Safe to use from any thread.

    Args:
        find: Tells which arrays stand in such blocks.
        max_nbytes, max_blocks: Most that is adopted at once.
    """

    def __init__(
        self,
        backend: DeviceBackend,
        find: FindShared = nothing_shared,
        max_nbytes: int = MAX_NBYTES,
        max_blocks: int = MAX_BLOCKS,
    ) -> None:
        self._backend = backend
        self._find = find
        self._max_nbytes = max_nbytes
        self._max_blocks = max_blocks
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._adopted: dict[int, _Adopted] = {}  # by the identity of the memory, which is kept with it
        self._nbytes = self._count = self._in_place_nbytes = self._host_copies = 0
        self._refused = self._closed = False
        self._closed_with: SharedStats | None = None

    def transfer(self, parts: TakenApart, lease: object = None) -> Transfer:
        """Return how a batch reaches a device slot; adopts the blocks that its large arrays stand in.

        Waits while the system page-locks a block, which happens once for each.

        Args:
            lease: Kept as long as the batch's arrays are.

        Raises:
            DeviceError: The device failed.
        """
        lent = Lent()
        try:
            places = [self._place_of(source, lent) for source in parts.sources]
        except BaseException:
            lent.end()
            raise
        if not lent.nbytes:
            return Transfer(parts.layout, parts.sources, whole(parts.layout))
        plan = plan_copies(parts.layout, places)
        staged = [source for source, own in zip(parts.sources, places, strict=True) if own is None]
        lent.lease = lease
        with self._lock:
            self._in_place_nbytes += lent.nbytes
        return Transfer(plan.staged, staged, plan.copies, lent)

    def _place_of(self, source: NDArray[Any] | Parts, lent: Lent) -> ArrayPlace | None:
        if isinstance(source, Parts) or source.nbytes < IN_PLACE_NBYTES:
            return None
        memory = self._find(source)
        if memory is None:
            return None
        with self._lock:
            adopted = self._adopt(memory) if source.flags.c_contiguous else None
            if adopted is None:
                self._host_copies += 1
                return None
            lent.add(source, adopted)  # under the lock, so that the block is not given up in between
        return ArrayPlace(adopted.block, source.ctypes.data - adopted.block.bytes.ctypes.data)

    def _adopt(self, memory: SharedMemory) -> _Adopted | None:
        """Return the block as adopted; None when it cannot be. The caller holds the lock."""
        if self._closed:
            return None
        known = self._adopted.get(id(memory))
        if known is not None:
            return known
        if memory.retired:
            return None  # this is the last batch that comes in it
        self._give_up_retired()
        if self._refused or len(self._adopted) >= self._max_blocks or self._nbytes + memory.nbytes > self._max_nbytes:
            return None
        try:
            block = self._backend.adopt_shared(memory.view(0, memory.nbytes))
        except DeviceMemoryError as error:
            self._refuse(memory.nbytes, error)
            return None
        adopted = self._adopted[id(memory)] = _Adopted(memory, block)
        self._nbytes += memory.nbytes
        self._count += 1
        return adopted

    def _refuse(self, nbytes: int, error: Exception) -> None:
        self._refused = True
        warnings.warn(
            f"{nbytes:,} bytes of memory shared with a process of in_subprocess() could not be page-locked ({error}); "
            "its batches are copied into slots first, which is slower. Raise the limit of locked memory (ulimit -l)",
            RuntimeWarning,
            stacklevel=2,
        )

    def _give_up_retired(self) -> None:
        for key, adopted in list(self._adopted.items()):
            if adopted.memory.retired and not adopted.readers:
                self._give_up(key)

    def _give_up(self, key: int) -> None:
        adopted = self._adopted[key]
        self._backend.disown_shared(adopted.block)
        del self._adopted[key]  # behind it: from here on the block may be unmapped
        self._nbytes -= adopted.memory.nbytes

    def stats(self) -> SharedStats:
        """Return what the blocks did so far; ``blocks`` and ``nbytes`` stay what they were when it was closed."""
        return self._closed_with or SharedStats(
            blocks=len(self._adopted),
            nbytes=self._nbytes,
            adopted=self._count,
            in_place_nbytes=self._in_place_nbytes,
            host_copies=self._host_copies,
            refused=self._refused,
        )

    def stop(self, timeout_s: float) -> bool:
        """Lend nothing more from now on; False when a block is still being adopted after ``timeout_s``."""
        self._closed = True
        stopped = self._lock.acquire(timeout=timeout_s)
        if stopped:
            self._lock.release()
        return stopped

    @property
    def idle(self) -> bool:
        """True when nothing is lent that may yet end."""
        return all(adopted.abandoned or not adopted.readers for adopted in list(self._adopted.values()))

    def close(self, keep_all: bool = False) -> list[HostBlock]:
        """Give up all blocks that no copy reads. Idempotent; in a forked child this does nothing.

        Call it behind :meth:`stop`, when what was lent has ended or was abandoned.

        Args:
            keep_all: The device has failed, or does not answer, and is asked for nothing more.

        Returns:
            The blocks that a copy may still read, or that stay page-locked. Whoever gets them keeps them for ever.
        """
        if os.getpid() != self._pid:
            return []
        self._closed_with = self.stats()
        if not keep_all:
            with self._lock:
                for key, adopted in list(self._adopted.items()):
                    if not adopted.readers:
                        with suppress(DeviceError):  # it is returned, then, as one that cannot be let go of
                            self._give_up(key)
        left = [adopted.block for adopted in list(self._adopted.values())]
        self._adopted.clear()
        self._nbytes = 0
        return left
