"""Blocks of shared memory that one process lends to another, and gets back when nothing looks into them.

How this works. A block is anonymous memory: no name in any folder, nothing that outlives the processes.
Its descriptor is sent once and its number ever after; each side maps it once. A fresh block costs a page
fault on either side for every 4 KiB, many times what writing it again costs, and so blocks are kept.

The first words of a block tell how it stands, by the number of the loan: which loan was last given
back, and which was last disowned. The borrower writes them when its last array dies, on whatever thread
that happens and inside a garbage collection too; then it rings the :class:`Bell`, which never blocks. The
lender looks at the words whenever the bell has rung. Nothing is lost when the bell's buffer is full: there
is then a ring that the lender has yet to hear.
"""

from __future__ import annotations

import os
import socket
import threading
import warnings
import weakref

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import SharedMemoryError
from aiostream_data.executors.mapping import Mapping

ALIGNMENT = 64
"""Arrays in a block begin at multiples of this, and the first after as many bytes."""

GRAIN_NBYTES = 1 << 16
"""Blocks are multiples of this, and of an eighth of the power of two below them."""

MAX_BLOCKS = 1024
"""Blocks in the hands of one borrower. Systems map a few ten thousand at most; what is more goes through the socket."""

_LOAN, _RETURNED, _DISOWNED = range(3)


class LinkEnded(EOFError):
    """The other process is gone, or the link was closed at this end."""


class SharedBlock:
    """One mapping of shared memory, as either side has it."""

    def __init__(self, number: int, mapping: Mapping) -> None:
        self.number = number
        self.nbytes = mapping.nbytes
        self.words = mapping.view(0, ALIGNMENT).view(np.int64)
        self._mapping = mapping

    def memory(self) -> NDArray[np.uint8]:
        """Return the bytes behind the words. What is cut out of this array keeps it, and the mapping, alive."""
        return self._mapping.view(ALIGNMENT, self.nbytes)

    def retire(self) -> None:
        """Mark the block as never lent again, so that its page-locks can be released."""
        self._mapping.retired = True


def rounded(nbytes: int) -> int:
    """Return the size of the block for that many bytes: few sizes, at most an eighth larger or a grain."""
    grain = max(GRAIN_NBYTES, 1 << max(0, nbytes.bit_length() - 4))
    return -(-(nbytes + ALIGNMENT) // grain) * grain


class Lender:
    """The blocks that one end of a link sends its messages in. Used by one thread at a time, :meth:`close` by any.

    Args:
        max_nbytes: Most bytes lent at once and not disowned, and most kept idle beside them. A larger
            block is lent when no other is.
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
        """Return a block with room for ``nbytes``, and descriptors to send with it; wait while too much is lent.

        The caller closes the descriptors. None means that the borrower keeps very many, or that the system has no
        memory to share: a warning has said so, once.

        Raises:
            LinkEnded: There is nobody who could give anything back.
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
        """Return the numbers of blocks that the borrower may forget."""
        retired, self.retired = self.retired, []
        return retired

    def wake(self) -> None:
        """End a :meth:`borrow` that waits, on another thread, with LinkEnded."""
        shut_down(self._ear)

    def close(self) -> None:
        """Release all blocks; the memory goes when the borrower's last array does."""
        self._ear.close()
        self._bell.close()
        self._lent.clear()
        self._disowned.clear()
        self._idle.clear()
        self.lent_nbytes = self.idle_nbytes = 0

    def _collect(self, *, wait: bool) -> None:
        """Take back what was given back since the bell last rang."""
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
            raise LinkEnded("the other process is gone")
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
                f"no {nbytes:,} bytes of memory could be shared with another process ({error}); what does not fit is "
                "copied through a socket, which is slower. Give the container more memory, or send smaller batches",
                RuntimeWarning,
                stacklevel=2,
            )


class Bell:
    """Tells the lender that a block came back. May be rung on any thread, and inside a garbage collection."""

    def __init__(self, wire: socket.socket) -> None:
        wire.setblocking(False)
        self._wire = wire
        self._lock = threading.Lock()
        self._wanted = False
        self.works = True

    def ring(self) -> None:
        self._wanted = True
        # Whoever finds the lock taken leaves the ringing to its holder, who looks again after letting go.
        while self._wanted and self._lock.acquire(blocking=False):
            try:
                self._wanted = False
                self._wire.send(b"\1")
            except OSError:
                pass  # full: a ring waits to be heard. Broken or closed: nobody listens any more
            finally:
                self._lock.release()

    def close(self) -> None:
        self.works = False
        with self._lock:  # a number of a closed descriptor may soon stand for another file
            self._wire.close()

    def let_go(self) -> None:
        self.works = False
        self._wire.close()


class BlockLease:
    """What the arrays of one message hold of the sender's memory: ``nbytes`` of its limit, until they die.

    A message without shared memory has a lease of no bytes.
    """

    def __init__(self, nbytes: int = 0, memory: weakref.ref[NDArray[np.uint8]] | None = None) -> None:
        self.nbytes = nbytes
        self._memory = memory
        self._block: SharedBlock | None = None
        self._bell: Bell | None = None

    def release(self) -> None:
        """Hand this memory to the receiver. It no longer keeps the sender from sending.

        The arrays stay good for ever. Their block goes back to the sender when they die. Call it before
        arrays are handed to somebody who may keep them. From any thread, any number of times.
        """
        memory = None if self._memory is None else self._memory()
        # While the array lives the loan cannot end, and so the word cannot be that of a later one.
        if memory is not None and self._block is not None and self._bell is not None and self._bell.works:
            self._block.words[_DISOWNED] = self._block.words[_LOAN]
            self._bell.ring()


class Borrower:
    """The blocks that the other end of a link has sent. Used by one thread at a time."""

    def __init__(self) -> None:
        self._blocks: dict[int, SharedBlock] = {}
        self._ends: dict[int, weakref.ref[NDArray[np.uint8]]] = {}
        self._bell: Bell | None = None

    def learn(self, number: int, nbytes: int, descriptors: list[int]) -> None:
        """Map a new block. The caller closes the descriptors that are left in the list.

        Raises:
            OSError: The descriptor did not arrive, or cannot be mapped.
        """
        if not descriptors:
            raise SharedMemoryError(
                "a block of shared memory came without descriptor: this process has too many files open"
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
        """Return the bytes of a block that was just lent, and the lease on it.

        Raises:
            LinkEnded: There is no such block: the other end has lost count.
        """
        block, bell = self._blocks.get(number), self._bell
        if block is None or bell is None:
            raise LinkEnded("the other process names a block of shared memory that it never sent")
        memory, words, loan = block.memory(), block.words, int(block.words[_LOAN])

        def give_back(_: object) -> None:
            if bell.works:  # not in a fork, where this is only a copy of the array
                words[_RETURNED] = loan
                bell.ring()

        self._ends[number] = end = weakref.ref(memory, give_back)
        lease = BlockLease(block.nbytes, end)
        lease._block, lease._bell = block, bell
        return memory, lease

    def close(self) -> None:
        """Release all blocks; arrays that still look into them stay good."""
        if self._bell is not None:
            self._bell.close()
        self._ends.clear()  # they lead to the words of their blocks, and nobody listens any more
        for block in list(self._blocks.values()):
            block.retire()
        self._blocks.clear()

    def let_go(self) -> None:
        if self._bell is not None:
            self._bell.let_go()


def shut_down(link: socket.socket) -> None:
    """End all traffic of a socket and wake its waiters; do nothing if it has ended."""
    try:
        link.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # closed, or the other end is gone: nobody waits then


def _anonymous() -> int:
    """Return the descriptor of memory without a name, where the system has it; else of a file without one."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("aiostream_data", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _allocate(descriptor: int, nbytes: int) -> None:
    """Reserve all bytes now: to find that there are none when they are written would be the end of the process.

    Raises:
        OSError: There are none.
    """
    os.ftruncate(descriptor, nbytes)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, nbytes)
        return
    zeros = bytes(1 << 20)
    for start in range(0, nbytes, len(zeros)):
        os.pwrite(descriptor, zeros[: nbytes - start], start)
