"""One end of a link between two processes. The link transfers Python objects and copies their arrays only once.

Each message is pickled, but its large buffers stay outside the pickle. A small message is sent through the socket. A
larger message is written into a block of shared memory (:mod:`.blocks`), and only a short header passes through the
socket. The arrays that the receiver gets are views of the block. A frame is

    head | number of bytes of each part, blocks to unmap | the parts, if they are not in a block

The first part of a message is the pickle. Each part begins at a multiple of 64 bytes, and so does the data after the
header. Parts that must still be assembled (:class:`Unwritten`) come last, and are written directly into the message.

A block returns to the sender when the receiver's last array in the block is garbage-collected. A block counts as lent
until the block returns to its sender. To limit memory use, a sender waits for the return of a block if it has already
lent ``max_nbytes`` bytes. A receiver must call ``lease.release()`` before it passes arrays of a message to code that
may store the arrays. Without ``release``, both processes could wait for each other forever.
"""

from __future__ import annotations

import math
import os
import pickle
import select
import socket
import struct
import threading
from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.executors.blocks import ALIGNMENT, BlockLease, Borrower, Lender, LinkEnded, SharedBlock, shut_down
from aiostream_data.executors.forks import keep_from_forks
from aiostream_data.executors.pickling import dumps_apart

BLOCK_NBYTES = 1 << 16
"""Minimum size in bytes of messages that are sent in a block of shared memory.

Smaller messages are sent through the socket, which is equally fast.
"""

CLOSE_S = 1.0
"""Maximum time in seconds for which ``close`` waits until other threads stop using the socket."""

_HEAD = struct.Struct("<4sIIIiqq")
_MAGIC = b"asd\2"
_MAX_PARTS = 1 << 22
_ROOM_FOR_DESCRIPTORS = 256
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # not on every system
_NO_MESSAGE = (
    "cannot read a message from the other process: its header is invalid. Install the same version of "
    "aiostream-data for both processes"
)


class Unwritten(Protocol):
    """Part of a message that is assembled directly in its final memory."""

    @property
    def nbytes(self) -> int:
        """Number of bytes."""

    def write_to(self, memory: NDArray[np.uint8]) -> None:
        """Write all bytes to ``memory``, which has exactly ``nbytes`` bytes."""


Part: TypeAlias = memoryview | Unwritten


class ReceivedMessage(NamedTuple):
    """A received message and its lease, which counts the message's arrays against the sender's memory limit.

    Attributes:
        written: The parts that the sender passed in ``unwritten``, as uint8 arrays.
    """

    message: Any
    lease: BlockLease
    written: Sequence[NDArray[np.uint8]] = ()


class Exchange:
    """One end of a link between two processes.

    One thread may send while another thread receives; any thread may close the link.

    Args:
        sock: Connected Unix stream socket. The exchange takes ownership of the socket.
        max_nbytes: Maximum number of bytes that this end of the link lends at the same time. A message larger than
            ``max_nbytes`` is sent only while no other bytes are lent.
    """

    def __init__(self, sock: socket.socket, max_nbytes: int) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._lender = Lender(max_nbytes)
        self._borrower = Borrower()
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False
        keep_from_forks(self)

    @property
    def lent_nbytes(self) -> int:
        """Number of lent bytes of shared memory that count against the limit."""
        return self._lender.lent_nbytes

    @property
    def idle_nbytes(self) -> int:
        """Number of bytes of shared memory that are unused and kept for later messages."""
        return self._lender.idle_nbytes

    def send(self, message: object, unwritten: Sequence[Unwritten] = ()) -> None:
        """Send a message. The call waits while too much memory is lent or the socket buffer is full.

        Arrays of the message are copied before the method returns. The other end must receive messages. If both ends
        only send, they deadlock.

        Args:
            unwritten: Additional parts of the message, which are assembled directly in the shared memory.

        Raises:
            LinkEnded: The other process ended, or this end of the link was closed.
            Exception: The message cannot be pickled, and no part was sent. An exception from an ``unwritten`` part also
                ends the link.
        """
        pickled, buffers = dumps_apart(message)
        parts: list[Part] = [memoryview(pickled), *buffers, *unwritten]
        places, nbytes = _layout([part.nbytes for part in parts])
        with self._sending:
            lent = self._lender.borrow(nbytes) if nbytes >= BLOCK_NBYTES and not self._closed else None
            if lent is None:
                self._send_all([self._head(parts, len(unwritten), nbytes), *_padded(parts)])
                return
            block, descriptors = lent
            try:
                memory = block.memory()
                for place, part in zip(places, parts, strict=True):
                    _write(part, memory[place : place + part.nbytes])
                head = self._head(parts, len(unwritten), nbytes, block, new=bool(descriptors))
                self._send_all([head], descriptors)
            except BaseException:
                shut_down(self._sock)  # the receiver will never return this block
                raise
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def receive(self) -> ReceivedMessage:
        """Wait for a message.

        The arrays in the received message are writable. Their memory stays valid as long as the arrays exist.

        Raises:
            LinkEnded: The other process ended, or this end of the link was closed.
            Exception: The message cannot be unpickled. The link remains usable.
        """
        with self._receiving:
            try:
                sizes, unwritten, memory, lease = self._read_frame()
            except BaseException:
                shut_down(self._sock)  # the start of the next message is unknown
                raise
        places, _ = _layout(sizes)
        views = [memory[place : place + size] for place, size in zip(places, sizes, strict=True)]
        del memory
        whole = len(views) - unwritten
        return ReceivedMessage(pickle.loads(views[0].data, buffers=views[1:whole]), lease, views[whole:])

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until a message begins to arrive or the link ends. Return False after ``timeout_s`` seconds."""
        descriptor = self._sock.fileno()
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000))))

    def close(self) -> None:
        """End the link and wake all threads that wait for it. Received arrays stay valid. Idempotent."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        shut_down(self._sock)
        self._lender.wake()
        with ExitStack() as held:
            # Threads in send and receive were woken, and must leave before the descriptor numbers can be reused.
            for lock in (self._sending, self._receiving):
                if lock.acquire(timeout=CLOSE_S):
                    held.callback(lock.release)
            self._sock.close()
            self._lender.close()
            self._borrower.close()

    def let_go(self) -> None:
        """Close the link in a forked copy of this process, without notifying the other process."""
        self._closed = True
        self._sock.close()
        self._lender.close()
        self._borrower.let_go()

    def _head(
        self, parts: list[Part], unwritten: int, nbytes: int, block: SharedBlock | None = None, *, new: bool = False
    ) -> bytes:
        retired = self._lender.take_retired()
        number, block_nbytes = (-1, nbytes) if block is None else (block.number, block.nbytes if new else 0)
        head = _HEAD.pack(_MAGIC, len(parts), unwritten, len(retired), number, block_nbytes, nbytes)
        table = struct.pack(f"<{len(parts)}q{len(retired)}i", *(part.nbytes for part in parts), *retired)
        return head + table + bytes(-len(table) % ALIGNMENT)

    def _send_all(self, pieces: list[bytes | memoryview], descriptors: list[int] | None = None) -> None:
        try:
            first = memoryview(_joined(pieces))
            if descriptors:
                first = first[socket.send_fds(self._sock, [first], descriptors) :]
            self._sock.sendall(first)
            for piece in pieces:
                self._sock.sendall(piece)
        except OSError as error:
            raise self._ended("the other process has ended") from error

    def _read_frame(self) -> tuple[list[int], int, NDArray[np.uint8], BlockLease]:
        head, descriptors = self._read_head()
        try:
            magic, count, unwritten, retired, number, block_nbytes, nbytes = _HEAD.unpack(head)
            if magic != _MAGIC or not unwritten < count <= _MAX_PARTS or retired > _MAX_PARTS or nbytes < 0:
                raise LinkEnded(_NO_MESSAGE)
            table = struct.Struct(f"<{count}q{retired}i")
            payload = -(-table.size // ALIGNMENT) * ALIGNMENT
            memory = self._read(payload + (nbytes if number < 0 else 0))
            entries = table.unpack_from(memory.data)
            sizes = list(entries[:count])
            if min(sizes) < 0 or _layout(sizes)[1] != nbytes:
                raise LinkEnded(_NO_MESSAGE)
            for old in entries[count:]:
                self._borrower.forget(old)
            if number < 0:
                return sizes, unwritten, memory[payload:], BlockLease()
            if block_nbytes:
                self._borrower.learn(number, block_nbytes, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        memory, lease = self._borrower.open(number)
        return sizes, unwritten, memory, lease

    def _read_head(self) -> tuple[bytes, list[int]]:
        descriptors = array("i")
        try:
            head, others, _, _ = self._sock.recvmsg(_HEAD.size, _ROOM_FOR_DESCRIPTORS, _CLOSE_ON_EXEC)
        except OSError as error:
            raise self._ended("the other process has ended") from error
        for level, kind, data in others:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if not head:
            raise self._ended("the other process has ended")
        if len(head) < _HEAD.size:
            head += self._read(_HEAD.size - len(head)).tobytes()
        return head, descriptors.tolist()

    def _read(self, nbytes: int) -> NDArray[np.uint8]:
        try:
            memory = np.empty(nbytes, np.uint8)
        except (MemoryError, ValueError) as error:
            raise LinkEnded(f"not enough memory for a message of {nbytes:,} bytes from the other process") from error
        left = memory.data
        while left.nbytes:
            try:
                got = self._sock.recv_into(left)
            except OSError as error:
                raise self._ended("the other process has ended") from error
            if got == 0:
                raise self._ended("the other process ended in the middle of a message")
            left = left[got:]
        return memory

    def _ended(self, why: str) -> LinkEnded:
        return LinkEnded("the link was closed" if self._closed else why)


def linked(max_nbytes: int) -> tuple[Exchange, Exchange]:
    """Return both ends of a new link within this process."""
    here, there = socket.socketpair()
    return Exchange(here, max_nbytes), Exchange(there, max_nbytes)


def _layout(sizes: list[int]) -> tuple[list[int], int]:
    """Return the offsets of parts with the given sizes, and the total size in bytes."""
    *places, nbytes = accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0)
    return places, nbytes


def _write(part: Part, memory: NDArray[np.uint8]) -> None:
    if isinstance(part, memoryview):
        memory[:] = np.frombuffer(part, np.uint8)
    else:
        part.write_to(memory)


def _padded(parts: list[Part]) -> list[bytes | memoryview]:
    """Return the parts of a message, with padding after each part."""
    pieces: list[bytes | memoryview] = []
    for part in parts:
        if not isinstance(part, memoryview):
            memory = np.empty(part.nbytes, np.uint8)
            part.write_to(memory)
            part = memory.data
        pieces += [part, bytes(-part.nbytes % ALIGNMENT)]
    return pieces


def _joined(pieces: list[bytes | memoryview]) -> bytes:
    """Remove small pieces from the front of the list, and return them joined for one system call."""
    taken, nbytes = 0, 0
    while taken < len(pieces) and nbytes + len(pieces[taken]) <= 2 * BLOCK_NBYTES:
        nbytes += len(pieces[taken])
        taken += 1
    first = b"".join(pieces[: max(1, taken)])
    del pieces[: max(1, taken)]
    return first
