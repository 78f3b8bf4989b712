"""Copy batches to the device directly from memory that another process has written.

A worker process of ``in_subprocess()`` writes its batches into blocks of shared memory. After use, each block returns
to the worker process for reuse. When a block first arrives, this process *adopts* the block, which means that the
system page-locks the block's memory. Each block is page-locked only once. The device then copies large arrays directly
from the block. Only the small arrays of the batch are written into a host slot.

A block returns to its worker process when the last array in the block is garbage-collected. The host slot of a batch
keeps the batch's arrays alive in a :class:`Lent` object until the copies of the batch have finished. A block is
*disowned* (unlocked) when the worker process no longer writes into the block, and no copy reads the block. Closing the
stage also disowns all blocks. An adopted block stays mapped, so a block is always disowned before it is unmapped.

If a block cannot be adopted, its batches are copied through host slots. The statistics count these copies. The number
of adopted blocks and their total size are limited. If the system refuses to page-lock a block, a warning is issued, and
no more blocks are adopted.
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
"""Minimum size in bytes of arrays that the device copies directly from shared memory.

Smaller arrays are copied through a host slot, which is faster for small sizes.
"""

MAX_BLOCKS = 256
"""Maximum number of blocks of shared memory that can be adopted (page-locked) at the same time."""

MAX_NBYTES = 1 << 30
"""Default maximum number of bytes of shared memory that can be adopted (page-locked) at the same time."""


class SharedMemory(Protocol):
    """Shared memory that another process writes.

    The memory stays mapped in this process as long as an array refers to the memory.
    """

    @property
    def nbytes(self) -> int:
        """Size of the memory in bytes."""

    @property
    def retired(self) -> bool:
        """True if no process will write into the shared memory again."""

    def view(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return bytes ``start`` to ``stop`` as an array. The array keeps the shared memory mapped."""


FindShared: TypeAlias = Callable[[NDArray[Any]], SharedMemory | None]
"""Function that returns the shared memory that an array refers to, or None if the array uses other memory."""


def nothing_shared(array: NDArray[Any]) -> None:
    """Return None for every array, so that no array is treated as shared memory."""


@dataclass(frozen=True, slots=True)
class SharedStats:
    """Statistics of batches that arrived in shared memory blocks.

    Attributes:
        blocks, nbytes: Number and total size in bytes of the blocks that are currently adopted (page-locked).
        adopted: Number of adoptions (page locks) so far. If ``adopted`` is far above ``blocks``, blocks are not reused.
        in_place_nbytes: Number of bytes copied to the device directly from shared memory.
        host_copies: Number of large arrays in shared memory that could not be copied directly and were copied through a
            host slot.
        refused: True after the system has refused to page-lock a block.
    """

    blocks: int = 0
    nbytes: int = 0
    adopted: int = 0
    in_place_nbytes: int = 0
    host_copies: int = 0
    refused: bool = False


class _Adopted:
    """A page-locked block of shared memory that the device may read.

    Attributes:
        readers: One entry for each batch with copies that may read the block. A deque is used because threads can
            change it without a lock.
        abandoned: True if the block is never unlocked, because the end of a copy that reads the block is unknown.
    """

    __slots__ = ("abandoned", "block", "memory", "readers")

    def __init__(self, memory: SharedMemory, block: HostBlock) -> None:
        self.memory = memory
        self.block = block
        self.readers: deque[None] = deque()
        self.abandoned = False


class Lent:
    """Shared memory of other processes that contains parts of one batch.

    The host slot returns this memory to its owner after the copies.

    Attributes:
        nbytes: Number of bytes of lent memory.
        lease: Object that counts the lent bytes against a memory limit, or None if no limit applies.
    """

    __slots__ = ("_adopted", "_arrays", "lease", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self.lease: object = None
        self._arrays: list[NDArray[Any]] = []
        self._adopted: list[_Adopted] = []

    def add(self, array: NDArray[Any], adopted: _Adopted) -> None:
        """Keep ``array`` alive, and register the batch as a reader of the array's block."""
        adopted.readers.append(None)
        self._adopted.append(adopted)
        self._arrays.append(array)
        self.nbytes += array.nbytes

    def abandon(self) -> None:
        """Mark the lent blocks as permanently in use, because the end of their copies is unknown."""
        for adopted in self._adopted:
            adopted.abandoned = True

    def end(self) -> None:
        """Return the lent blocks to the process that lent the blocks.

        Repeated calls have no effect. The method takes no lock and does not call the device.
        """
        while self._adopted:
            self._adopted.pop().readers.pop()
        self._arrays.clear()
        self.lease = None
        self.nbytes = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """Copies that move one batch to a device slot, partly from shared memory.

    Attributes:
        staged: Layout of the arrays to write into the host slot; may be empty.
        sources: The arrays to write into the host slot, one for each entry of ``staged.arrays``.
        copies: Copies that transfer the batch to the device slot.
        lent: Memory of other processes that the copies read; the host slot owns this object.
    """

    staged: BatchLayout
    sources: Sequence[NDArray[Any] | Parts]
    copies: Sequence[SlotCopy]
    lent: Lent | None = None


class SharedSlots:
    """Shared memory blocks of other processes that a device reads directly.

    Any thread may use a ``SharedSlots`` object.

    Args:
        find: Function that returns the shared memory that an array refers to, or None.
        max_nbytes, max_blocks: Maximum number of bytes and maximum number of blocks that may be adopted (page-locked)
            at the same time.
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
        self._adopted: dict[int, _Adopted] = {}  # keyed by id(memory); the value keeps the memory alive
        self._nbytes = self._count = self._in_place_nbytes = self._host_copies = 0
        self._refused = self._closed = False
        self._closed_with: SharedStats | None = None

    def transfer(self, parts: TakenApart, lease: object = None) -> Transfer:
        """Plan the copies of a batch to a device slot, and adopt (page-lock) the blocks of the batch's large arrays.

        The call waits while the system page-locks a new block, which happens only once per block.

        Args:
            lease: Object to keep alive until the batch's arrays are released.

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
            lent.add(source, adopted)  # the lock prevents disowning the block before it has a reader
        return ArrayPlace(adopted.block, source.ctypes.data - adopted.block.bytes.ctypes.data)

    def _adopt(self, memory: SharedMemory) -> _Adopted | None:
        """Adopt (page-lock) a block. Return None if the block cannot be adopted.

        The caller must hold the lock.
        """
        if self._closed:
            return None
        known = self._adopted.get(id(memory))
        if known is not None:
            return known
        if memory.retired:
            return None  # no further batch will arrive in this block
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
            f"could not page-lock {nbytes:,} bytes of memory shared by in_subprocess() ({error}). "
            "Its batches are copied into slots first, which is slower. Raise the limit of locked memory (ulimit -l)",
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
        del self._adopted[key]  # after disown_shared, because the block may now be unmapped
        self._nbytes -= adopted.memory.nbytes

    def stats(self) -> SharedStats:
        """Return the statistics of the shared memory blocks.

        After :meth:`close`, ``blocks`` and ``nbytes`` keep their last values.
        """
        return self._closed_with or SharedStats(
            blocks=len(self._adopted),
            nbytes=self._nbytes,
            adopted=self._count,
            in_place_nbytes=self._in_place_nbytes,
            host_copies=self._host_copies,
            refused=self._refused,
        )

    def stop(self, timeout_s: float) -> bool:
        """Stop lending memory.

        Return False if a thread is still adopting a block after ``timeout_s`` seconds.
        """
        self._closed = True
        stopped = self._lock.acquire(timeout=timeout_s)
        if stopped:
            self._lock.release()
        return stopped

    @property
    def idle(self) -> bool:
        """True if no block is being read by an unfinished copy. Abandoned copies do not count."""
        return all(adopted.abandoned or not adopted.readers for adopted in list(self._adopted.values()))

    def close(self, keep_all: bool = False) -> list[HostBlock]:
        """Disown (stop page-locking) all blocks that no copy reads.

        The method does nothing if it was already called, or in a forked child process.

        Call this method after :meth:`stop`, when every loan of memory has ended or was abandoned.

        Args:
            keep_all: True to keep all blocks page-locked, because the device has failed or does not respond.

        Returns:
            The blocks that are still page-locked. A copy may still read these blocks. The caller must never free the
            blocks.
        """
        if os.getpid() != self._pid:
            return []
        self._closed_with = self.stats()
        if not keep_all:
            with self._lock:
                for key, adopted in list(self._adopted.items()):
                    if not adopted.readers:
                        with suppress(DeviceError):  # a block that cannot be disowned is returned
                            self._give_up(key)
        left = [adopted.block for adopted in list(self._adopted.values())]
        self._adopted.clear()
        self._nbytes = 0
        return left
