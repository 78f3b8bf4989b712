"""Blocks of shared memory.

A process lends a block to another process, and reuses the block after the other process has returned it.

A block is anonymous memory without a file name, and does not outlive the processes. With the first loan of a block, the
lender sends the file descriptor of the block. With later loans, the lender sends only the number of the block. Each
process maps each block only once. Reusing a block is far cheaper than creating a block, which costs both processes one
page fault per 4 KiB.

The header of a block contains the numbers of three loans: the current loan, the last returned loan, and the last
disowned loan. When the borrower's last array in the block is garbage-collected, the borrower updates the number of the
returned loan. Garbage collection can run on any thread. The borrower then notifies the lender through a :class:`Bell`,
which never blocks. The lender reads the loan numbers after each notification. A full notification buffer loses no
information, because the lender still has to read earlier notifications.
"""

from __future__ import annotations

import os
import socket
import threading
import warnings
import weakref
from functools import partial

import numpy as np
from numpy.typing import NDArray

from aiostream_data._native import finish
from aiostream_data.errors import SharedMemoryError
from aiostream_data.executors.mapping import Mapping

ALIGNMENT = 64
"""Alignment of arrays in a block, and size of the block's header, in bytes."""

GRAIN_NBYTES = 1 << 16
"""Smallest step between block sizes, in bytes; see :func:`rounded`."""

MAX_BLOCKS = 1024
"""Maximum number of blocks that one borrower may use at the same time, because systems limit the number of mappings.

If all blocks are in use, messages are sent through the socket.
"""

_LOAN, _RETURNED, _DISOWNED = range(3)


class LinkEnded(EOFError):
    """The other process ended, or this process closed its end of the link."""


class SharedBlock:
    """One mapping of a shared memory block, in the lender or the borrower."""

    def __init__(self, number: int, mapping: Mapping) -> None:
        self.number = number
        self.nbytes = mapping.nbytes
        self.words = mapping.view(0, ALIGNMENT).view(np.int64)
        self._mapping = mapping

    def memory(self) -> NDArray[np.uint8]:
        """Return the bytes of the block after its header. Views of the returned array keep the mapping alive."""
        return self._mapping.view(ALIGNMENT, self.nbytes)

    def retire(self) -> None:
        """Record that the block will not be lent again. Page locks of the block can then be released."""
        self._mapping.retired = True


def rounded(nbytes: int) -> int:
    """Return the size of a block for ``nbytes`` bytes, rounded up by at most one eighth or ``GRAIN_NBYTES``."""
    grain = max(GRAIN_NBYTES, 1 << max(0, nbytes.bit_length() - 4))
    return -(-(nbytes + ALIGNMENT) // grain) * grain


class Lender:
    """Pool of blocks that one end of a link uses to send messages.

    Only one thread at a time may use the pool, but any thread may close the pool.

    Args:
        max_nbytes: Maximum number of bytes on loan, without disowned blocks. The limit also applies to the sum of lent
            and unused bytes. A block larger than ``max_nbytes`` can be lent only while no other block is lent.
    """

    def __init__(self, max_nbytes: int) -> None:
        self.max_nbytes = max_nbytes
        self.lent_nbytes = 0
        self.idle_nbytes = 0
        self.retired: list[int] = []
        self._lent: dict[int, SharedBlock] = {}
        self._disowned: dict[int, SharedBlock] = {}
        self._idle: dict[int, SharedBlock] = {}  # oldest first
        self._next_number = 0
        self._warned = False
        self._ear, self._bell = socket.socketpair()

    def borrow(self, nbytes: int) -> tuple[SharedBlock, list[int]] | None:
        """Return a block with room for ``nbytes`` bytes, and the file descriptors to send with it.

        The call waits while too many bytes are lent.

        The caller must close the file descriptors. The result is None if the borrower already uses :data:`MAX_BLOCKS`
        blocks, or if the system cannot allocate shared memory. A warning is issued the first time that an allocation
        fails.

        Raises:
            LinkEnded: The other process ended, or this process closed the link.
        """
        size = rounded(nbytes)
        self._collect(wait=False)
        while self.lent_nbytes and self.lent_nbytes + size > self.max_nbytes:
            self._collect(wait=True)
        descriptors: list[int] = []
        block = self._idle_block(size)
        if block is None:
            if len(self._lent) + len(self._disowned) >= MAX_BLOCKS:
                return None
            self._retire_idle(self.max_nbytes - self.lent_nbytes - size)
            try:
                block, descriptor = self._new_block(size)
            except OSError as error:
                self._warn(size, error)
                return None
            descriptors.append(descriptor)
            if block.number == 0:
                descriptors.append(self._bell.detach())
        block.words[_LOAN] += 1
        self._lent[block.number] = block
        self.lent_nbytes += block.nbytes
        return block, descriptors

    def take_retired(self) -> list[int]:
        """Return the numbers of all blocks that the borrower may now unmap, and clear this list."""
        retired, self.retired = self.retired, []
        return retired

    def wake(self) -> None:
        """Interrupt a call of :meth:`borrow` that waits in another thread.

        The interrupted call raises ``LinkEnded``.
        """
        shut_down(self._ear)

    def close(self) -> None:
        """Release all blocks.

        The memory of a lent block is freed when the borrower's last array in the block is garbage-collected.
        """
        self._ear.close()
        self._bell.close()
        self._lent.clear()
        self._disowned.clear()
        self._idle.clear()
        self.lent_nbytes = self.idle_nbytes = 0

    def _collect(self, *, wait: bool) -> None:
        """If the borrower sent a notification, read the loan numbers of all blocks and reclaim the returned blocks."""
        if not self._heard(wait):
            return
        for number, block in list(self._lent.items()):
            loan, returned, disowned = block.words[:3].tolist()
            if loan in (returned, disowned):
                del self._lent[number]
                self.lent_nbytes -= block.nbytes
                self._disowned[number] = block
        for number, block in list(self._disowned.items()):
            if block.words[_LOAN] == block.words[_RETURNED]:
                del self._disowned[number]
                self._idle[number] = block
                self.idle_nbytes += block.nbytes
        self._retire_idle(self.max_nbytes - self.lent_nbytes)

    def _heard(self, wait: bool) -> bool:
        try:
            rings = self._ear.recv(4096, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            raise LinkEnded("the link was closed") from error
        if not rings:
            raise LinkEnded("the other process has ended")
        return True

    def _idle_block(self, size: int) -> SharedBlock | None:
        fitting = [block for block in self._idle.values() if size <= block.nbytes <= size + size // 2]
        if not fitting:
            return None
        block = min(fitting, key=lambda block: block.nbytes)
        del self._idle[block.number]
        self.idle_nbytes -= block.nbytes
        return block

    def _retire_idle(self, max_idle_nbytes: int) -> None:
        while self.idle_nbytes > max(0, max_idle_nbytes):
            number = next(iter(self._idle))
            self.idle_nbytes -= self._idle.pop(number).nbytes
            self.retired.append(number)

    def _new_block(self, size: int) -> tuple[SharedBlock, int]:
        descriptor = _anonymous()
        try:
            _allocate(descriptor, size)
            block = SharedBlock(self._next_number, Mapping(descriptor, size))
        except BaseException:
            os.close(descriptor)
            raise
        self._next_number += 1
        return block, descriptor

    def _warn(self, nbytes: int, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"could not share {nbytes:,} bytes of memory with another process ({error}). Such data is copied "
                "through a socket, which is slower. Give the container more memory, or send smaller batches",
                RuntimeWarning,
                stacklevel=2,
            )


class Bell:
    """Notifies the lender when the borrower has returned a block.

    Any thread may send a notification, even during garbage collection.
    """

    def __init__(self, wire: socket.socket) -> None:
        wire.setblocking(False)
        self._wire = wire
        self._lock = threading.Lock()
        self._wanted = False
        self.works = True

    def ring(self) -> None:
        self._wanted = True
        # If the lock is taken, its holder rings instead: it checks `_wanted` again after releasing the lock.
        while self._wanted and self._lock.acquire(blocking=False):
            try:
                self._wanted = False
                self._wire.send(b"\1")
            except OSError:
                pass  # buffer full: an unread ring is pending. Link closed: the lender is no longer reading
            finally:
                self._lock.release()

    def close(self) -> None:
        self.works = False
        with self._lock:  # ring() must not use a descriptor number that the system has reused
            self._wire.close()

    def let_go(self) -> None:
        self.works = False
        self._wire.close()


class BlockLease:
    """Lease of one received message.

    The lease counts ``nbytes`` bytes against the sender's memory limit until the message's arrays are
    garbage-collected.

    If a message does not use shared memory, its lease has zero bytes.
    """

    def __init__(self, nbytes: int = 0, memory: weakref.ref[NDArray[np.uint8]] | None = None) -> None:
        self.nbytes = nbytes
        self._memory = memory
        self._block: SharedBlock | None = None
        self._bell: Bell | None = None

    def release(self) -> None:
        """Stop counting the lent block against the sender's memory limit.

        The sender then no longer waits for the block.

        The arrays in the block stay valid. The block returns to the sender when its last array is garbage-collected.
        Call ``release`` before passing arrays in the block to code that may store them. Repeated calls of ``release``
        have no effect, and any thread may call the method.
        """
        memory = None if self._memory is None else self._memory()
        # The loan cannot end while `memory` lives, so the LOAN word still belongs to this loan.
        if memory is not None and self._block is not None and self._bell is not None and self._bell.works:
            self._block.words[_DISOWNED] = self._block.words[_LOAN]
            self._bell.ring()


class Borrower:
    """Blocks of shared memory that the other end of a link has lent to this process.

    Only one thread at a time may use a ``Borrower``.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, SharedBlock] = {}
        self._ends: dict[int, weakref.ref[NDArray[np.uint8]]] = {}
        self._bell: Bell | None = None

    def learn(self, number: int, nbytes: int, descriptors: list[int]) -> None:
        """Map a new block.

        The method may remove a descriptor from the list ``descriptors``. The caller must close all remaining
        descriptors.

        Raises:
            OSError: The file descriptor did not arrive, or its memory cannot be mapped.
        """
        if not descriptors:
            raise SharedMemoryError(
                "cannot receive shared memory: its file descriptor is missing, because this process has too many "
                "open files. Raise the limit (ulimit -n)"
            )
        if len(descriptors) > 1:
            self._bell = Bell(socket.socket(fileno=descriptors.pop()))
        self._blocks[number] = SharedBlock(number, Mapping(descriptors[0], nbytes))

    def forget(self, number: int) -> None:
        """Unmap a block that will not be lent again."""
        block = self._blocks.pop(number, None)
        if block is not None:
            block.retire()
        self._ends.pop(number, None)

    def open(self, number: int) -> tuple[NDArray[np.uint8], BlockLease]:
        """Return the bytes of a block that was just lent, and the lease of the block.

        Raises:
            LinkEnded: The other end sent the number of a block that does not exist.
        """
        block, bell = self._blocks.get(number), self._bell
        if block is None or bell is None:
            raise LinkEnded("the other process sent the number of an unknown block of shared memory")
        memory, words, loan = block.memory(), block.words, int(block.words[_LOAN])

        def give_back() -> None:
            if bell.works:  # False in a forked child, whose arrays are copies
                words[_RETURNED] = loan
                bell.ring()

        # An interrupt (Ctrl-C) in a callback would be lost, and with it the block.
        self._ends[number] = end = weakref.ref(memory, partial(finish, give_back))
        lease = BlockLease(block.nbytes, end)
        lease._block, lease._bell = block, bell
        return memory, lease

    def close(self) -> None:
        """Release all blocks. Arrays that use the memory of a block stay valid."""
        if self._bell is not None:
            self._bell.close()
        self._ends.clear()  # drops the callbacks, because the lender no longer reads the words
        for block in list(self._blocks.values()):
            block.retire()
        self._blocks.clear()

    def let_go(self) -> None:
        if self._bell is not None:
            self._bell.let_go()


def shut_down(link: socket.socket) -> None:
    """End all traffic of a socket and wake the threads that wait for the socket.

    The call has no effect if the traffic has already ended.
    """
    try:
        link.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # closed or disconnected, so no thread waits


def _anonymous() -> int:
    """Return a file descriptor of anonymous memory if the system supports it, else of an unnamed temporary file."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("aiostream_data", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _allocate(descriptor: int, nbytes: int) -> None:
    """Reserve all bytes of the memory immediately.

    Without reserved bytes, a later write could run out of memory, and the system would then kill the process.

    Raises:
        OSError: The system does not have enough memory.
    """
    os.ftruncate(descriptor, nbytes)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, nbytes)
        return
    zeros = bytes(1 << 20)
    for start in range(0, nbytes, len(zeros)):
        os.pwrite(descriptor, zeros[: nbytes - start], start)
