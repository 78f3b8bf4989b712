"""Convert the bytes of one object to records: detect the compression, decompress the bytes, and split them.

The stream buffers the first ``PROBE_NBYTES`` bytes. Compression detection therefore does not depend on block sizes.
Uncompressed data then goes directly to the framer, which splits bytes into records. Compressed data is decompressed
into blocks of limited size. Each block begins with free space (headroom) for the framer. Each iterator step
decompresses at most one block and yields at most one column. The caller can reserve memory before each step. If an
object is too short for compression detection, its name or the caller can supply the compression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol, cast, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.compression import Compression, Decompressor, canonical, damage_at, decompressor, detect
from aiostream_data.codecs.compression_by_suffix import Evidence, by_name, chosen, may_begin_any
from aiostream_data.codecs.file_kinds import START_NBYTES, TWICE, FileKind, kind_of
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import Format, Framer, KnowsEnd
from aiostream_data.formats.cutting import MOST_ROWS, CuttingFramer, RecordTail, no_records
from aiostream_data.formats.record_limit import RecordLimit
from aiostream_data.formats.skipping import SkippingFramer
from aiostream_data.formats.text import TextFormat, first_line
from aiostream_data.rows.columns import VarColumn

PROBE_NBYTES = 64
"""Number of bytes at the start of an object that are inspected to detect its compression."""

BLOCK_NBYTES = 4 << 20
"""Default maximum size of a decompressed block, in bytes. Each block becomes a chunk, which costs a millisecond."""

HEADROOM_NBYTES = 64 << 10
"""Default size in bytes of the free space before each decompressed block. If a record spans two blocks, the framer
joins its parts in the free space before the second block."""


def _fresh(nbytes: int) -> NDArray[np.uint8]:
    return np.empty(nbytes, np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStep:
    """Limits for the output of one step of the stream's iterators.

    Attributes:
        nbytes: Maximum size of a decompressed block, in bytes. A single decompression step may produce a larger block.
        headroom_nbytes: Size in bytes of the free space before each block.
        rows: Approximate maximum number of rows in a column.
        lend: Function that returns a memory buffer of the given size for a block.
        limit: Limit of the records that decompression makes; None for no limit.
    """

    nbytes: int = BLOCK_NBYTES
    headroom_nbytes: int = HEADROOM_NBYTES
    rows: int = MOST_ROWS
    lend: Callable[[int], NDArray[np.uint8]] = _fresh
    limit: RecordLimit | None = None


@runtime_checkable
class Recognises(Protocol):
    """A file format that can recognize its own uncompressed data."""

    def recognises(self, first_bytes: bytes) -> bool:
        """Return True only if ``first_bytes`` are certainly the start of an uncompressed file of this format."""


@runtime_checkable
class Refuses(Protocol):
    """A file format that rejects files of other formats instead of parsing them into meaningless records."""

    def refuses(self, kind: FileKind) -> bool: ...


@runtime_checkable
class Resumable(Protocol):
    """A framer (record splitter) that can start at any record."""

    def resume(self, offset: int) -> None: ...
    def offset_of(self, start: int) -> int | None: ...


@runtime_checkable
class HoldsBack(Protocol):
    """A framer (record splitter) that buffers incomplete records."""

    @property
    def held_nbytes(self) -> int: ...
    @property
    def tail_nbytes(self) -> int: ...
    @property
    def record_nbytes(self) -> int: ...


_ABILITIES: Final[WeakKeyDictionary[type, tuple[bool, bool]]] = WeakKeyDictionary()
"""Whether framers of each class are :class:`Resumable`, and :class:`HoldsBack`."""


def _abilities(framer: Framer) -> tuple[Resumable | None, HoldsBack | None]:
    """Return the framer as the protocols that it implements. The checks take 60 us, so their results are kept."""
    kind = type(framer)
    if kind not in _ABILITIES:
        _ABILITIES[kind] = isinstance(framer, Resumable), isinstance(framer, HoldsBack)
    is_resumable, holds_back = _ABILITIES[kind]
    return cast("Resumable", framer) if is_resumable else None, cast("HoldsBack", framer) if holds_back else None


@runtime_checkable
class CountsBytes(Protocol):
    """A framer that tracks its byte offset in the stream: the end of the last yielded record."""

    @property
    def offset(self) -> int: ...


def resolve(compression: str, format: Format, first_bytes: bytes) -> Compression:
    """Determine the compression of a stream from the ``compression`` argument and its first bytes.

    ``"auto"`` detects the compression from magic numbers, unless the format recognizes its own uncompressed data. Magic
    numbers alone are ambiguous, because the length field of a TFRecord can look like a gzip header.
    """
    if compression.lower() != "auto":
        return canonical(compression)
    return "" if _recognised(format, first_bytes) else detect(first_bytes)


def _recognised(format: Format, first_bytes: bytes) -> bool:
    return _can_recognise(type(format)) and cast(Recognises, format).recognises(first_bytes)


@cache
def _can_recognise(kind: type[Format]) -> bool:
    """Return True for a class that implements :class:`Recognises`. A check takes microseconds, so it is cached."""
    return issubclass(kind, Recognises)


class RecordStream:
    """Reader that converts the bytes of one object to records, block by block.

    The reader is not thread-safe and uses no event loop.

    The returned iterators are lazy: the caller can process each column before the next column is computed. Exhaust each
    iterator before calling another method.

    Args:
        format: Format of the records.
        url: URL of the object, for error messages.
        compression: ``"auto"``, or a name of ``COMPRESSIONS`` in upper or lower case.
        offset: Byte offset in an uncompressed object at which a record starts. The first byte passed to :meth:`feed`
            must be the byte at ``offset``.
        step: Limits for the output of one iterator step.

    Attributes:
        step: Limits for the output of one iterator step.
        is_over: True if the stream will yield no more records, even if more bytes arrive.

    Raises:
        PlanError: The compression is unknown.
    """

    is_over = False

    def __init__(
        self, format: Format, url: str, compression: str, offset: int = 0, step: StreamStep | None = None
    ) -> None:
        if compression.lower() != "auto":
            canonical(compression)
        self._format = format
        self._url = url
        self._asked = compression
        self.step = step or StreamStep()
        self._framer = self._new_framer()
        self._resumable, self._holder = _abilities(self._framer)
        self._probe: RecordTail | None = RecordTail()  # None after detection
        self._first_bytes = b""
        self._start: bytes | None = b"" if offset else None  # first bytes of the decompressed stream
        self._actual: Compression = ""
        self._evidence: Evidence | None = None
        self._decompressor: Decompressor | None = None
        self.first_offset = offset
        if offset:
            if self._resumable is None:
                raise ValueError(f"a {format.name} object cannot be read from byte {offset} on")
            self._resumable.resume(offset)
            self._probe = None

    def _new_framer(self) -> Framer:
        return self._format.framer(self._url)

    def offset_of(self, start: int) -> int | None:
        """Return the byte offset of a record in the object, or None if a new reader cannot start at that record.

        Args:
            start: Index of the record's first byte in the last yielded column.
        """
        if self._decompressor is not None or self._resumable is None:
            return None
        return self._resumable.offset_of(start)

    def succeed(self, earlier: CuttingFramer) -> None:
        """Take over what a framer of the bytes before ``offset`` remembers. See :meth:`.CuttingFramer.succeed`."""
        if isinstance(self._framer, CuttingFramer | SkippingFramer):
            self._framer.succeed(earlier)

    @property
    def is_doubtful(self) -> bool:
        """True if the compression is uncertain: neither the received bytes nor the object's name determine it."""
        if self._probe is None or self._asked.lower() != "auto":
            return False
        first_bytes = self._probe.view().tobytes()
        named = chosen((by_name(self._url),), first_bytes)
        return named is None and may_begin_any(first_bytes) and not resolve("auto", self._format, first_bytes)

    def suppose(self, evidence: Evidence | None) -> None:
        """Set the compression to use if the object is too short to detect its compression."""
        self._evidence = evidence

    @property
    def is_unknown(self) -> bool:
        """True while the stream has received too few bytes to detect the compression."""
        return self._probe is not None

    @property
    def is_compressed(self) -> bool:
        """True if the stream is compressed. Before the compression is detected, the result is False."""
        return self._decompressor is not None

    @property
    def window_nbytes(self) -> int:
        """Memory in bytes that the decompressor uses or will allocate next, including its history window.

        Before the decompressor's memory grows, the iterators yield an empty column, so that the caller can reserve
        memory.
        """
        return 0 if self._decompressor is None else self._decompressor.held_nbytes

    def discard(self) -> None:
        """Free the memory of the decompressor.

        Do not use the stream or its iterators after calling :meth:`discard`.
        """
        if self._decompressor is not None:
            self._decompressor.discard()

    @property
    def held_nbytes(self) -> int:
        """Memory in bytes that buffers incomplete records."""
        probe = self._probe.held_nbytes if self._probe is not None else 0
        return probe + (0 if self._holder is None else self._holder.held_nbytes)

    @property
    def tail_nbytes(self) -> int:
        """Number of bytes of the incomplete record to copy in front of the next block."""
        return 0 if self._holder is None else self._holder.tail_nbytes

    @property
    def record_nbytes(self) -> int:
        """Length of the incomplete record in bytes.

        If the length is unknown, the value is the number of bytes received so far.
        """
        return 0 if self._holder is None else self._holder.record_nbytes

    def check_end(self, nbytes: int) -> None:
        """Check that an incomplete record of an uncompressed object does not extend beyond the end of the object.

        Args:
            nbytes: Size of the complete object in bytes.

        Raises:
            CorruptRecordError: The record declares a length beyond the end of the object.
        """
        if not self.is_unknown and not self.is_compressed and isinstance(self._framer, KnowsEnd):
            for _ in self._explained(_checked(self._framer, nbytes)):
                pass

    def feed(self, block: NDArray[np.uint8], headroom: int) -> Iterator[VarColumn]:
        """Yield columns with the records that are complete after reading this block.

        Compressed streams also yield empty columns. The caller can pause at each empty column to reserve memory.

        Args:
            block: Array of dtype uint8. ``block[headroom:]`` contains the next bytes of the object.
                ``block[:headroom]`` is free space that the framer may overwrite. If the stream is uncompressed, the
                yielded columns reference the memory of the block.
            headroom: Number of free bytes at the start of the block; may be 0.

        Raises:
            CorruptRecordError: The bytes are damaged. The stream yields all records before the damage, and then raises
                the error. The error's offset refers to the decompressed data.
            MemoryBudgetError: Decompression makes a record that exceeds ``step.limit``.
        """
        if self._probe is not None:
            if self._probe.nbytes + len(block) - headroom < PROBE_NBYTES:
                self._probe.append(block[headroom:])
                return
            values, start, stop = self._probe.join(block, headroom)
            self._begin(values[start:stop])
            block, headroom = values[:stop], start
        yield from self._explained(self._records(block, headroom))

    def finish(self) -> Iterator[VarColumn]:
        """Yield the last records, which are complete at the end of the stream.

        Raises:
            CorruptRecordError: The stream is truncated or damaged.
        """
        if self._probe is not None:
            rest = self._probe.view()
            self._begin(rest)
            yield from self._explained(self._records(rest, 0))
        yield from self._explained(self._last_records())

    def _begin(self, first: NDArray[np.uint8]) -> None:
        self._probe = None
        self._first_bytes = first[:PROBE_NBYTES].tobytes()
        self._actual = resolve(self._asked, self._format, self._first_bytes)
        is_whole = len(first) < PROBE_NBYTES
        if is_whole and not self._actual and self._asked.lower() == "auto":
            self._evidence = chosen((by_name(self._url), self._evidence), self._first_bytes)
            self._actual = "" if self._evidence is None else self._evidence.compression
        if self._actual:
            self._decompressor = decompressor(self._actual, self._url, self.step.nbytes)

    def _records(self, block: NDArray[np.uint8], headroom: int) -> Iterator[VarColumn]:
        if self._decompressor is None:
            self._look_at(block, headroom)
            yield from self._framer.feed(block, headroom, self.step.rows)
            return
        try:
            for piece in self._gathered(self._decompressor.feed(block[headroom:].data)):
                if len(piece):
                    self._look_at(piece, self.step.headroom_nbytes)
                    yield from self._limited(self._framer.feed(piece, self.step.headroom_nbytes, self.step.rows))
                del piece
                yield no_records()  # the caller may pause here to reserve memory for another block
        except CorruptRecordError as error:
            self._raise_earlier_damage()
            raise damage_at(self._next_offset, error) from error.__cause__

    def _limited(self, columns: Iterator[VarColumn]) -> Iterator[VarColumn]:
        """Yield the columns of a decompressed block.

        Raises:
            MemoryBudgetError: A record exceeds ``step.limit``, or the received part of an incomplete record.
        """
        limit = self.step.limit
        if limit is None:
            yield from columns
            return
        for column in columns:
            longest = int(column.lengths.max(initial=0))
            if longest > limit.nbytes:
                raise limit.error(self._url, self._actual, self._format, longest, is_all=True)
            yield column
        received = self.tail_nbytes or self.held_nbytes  # held_nbytes can include unused memory behind a tail
        if received > limit.nbytes:
            declared = self.record_nbytes if self.record_nbytes > self.held_nbytes else 0
            nbytes = max(received, declared)
            raise limit.error(self._url, self._actual, self._format, nbytes, is_all=declared > 0)

    def _look_at(self, block: NDArray[np.uint8], headroom: int) -> None:
        """Check the first bytes of the stream, on the first call only.

        Raises:
            CorruptRecordError: The first bytes belong to a file type that the format rejects.
        """
        if self._start is not None:
            return
        self._start = block[headroom : headroom + START_NBYTES].tobytes()
        if self._refused(kind_of(self._start)):
            raise CorruptRecordError(self._url, 0, f"cannot be read as {self._format.name}")

    def _last_records(self) -> Iterator[VarColumn]:
        if self._decompressor is not None:
            try:
                self._decompressor.finish()
            except CorruptRecordError as error:
                self._raise_earlier_damage()
                raise damage_at(self._next_offset, error) from error.__cause__
        yield from self._framer.finish()

    @property
    def _next_offset(self) -> int:
        """Byte offset in the decompressed stream: the end of the last yielded record."""
        return self._framer.offset if isinstance(self._framer, CountsBytes) else 0

    def _raise_earlier_damage(self) -> None:
        """Raise the error that the framer deferred, if any.

        In the stream, the damage that the framer found precedes the damage that the decompressor found.
        """
        for _ in self._framer.feed(np.empty(0, np.uint8), 0):
            pass

    def _explained(self, columns: Iterator[VarColumn]) -> Iterator[VarColumn]:
        """Yield the columns. If the stream is damaged, add a hint to the error about the probable file format."""
        try:
            yield from columns
        except CorruptRecordError as error:
            hint = self._hint()
            if not hint:
                raise
            raise CorruptRecordError(self._url, error.offset, f"{error.reason}; {hint}") from None

    def _hint(self) -> str:
        """Return a hint if a wrong compression or a wrong reader may have caused the damage, else ""."""
        if self._evidence is not None:
            held = f"the object has {len(self._first_bytes)} bytes, and {self._evidence.reason}"
            return f"{held}; write it again, remove it, or pass compression='' if the source is not compressed"
        looks = resolve("auto", self._format, self._first_bytes)
        if looks == self._actual:
            return self._other_kind()
        what = looks or (f"a plain {self._format.name}" if self._recognised() else "no compressed stream")
        asked = f"but compression={self._asked!r} was requested"
        return f"the object starts like {what}, {asked}; pass compression={looks!r}"

    def _other_kind(self) -> str:
        """Return a hint for an error message that names the file's actual format; "" if the expected format matches."""
        start = self._start or b""
        kind = kind_of(start)
        if self._format.whole or (_recognised(self._format, start) and not self._refused(kind)):
            return ""
        if kind is not None:
            is_nested = bool(self._actual) and kind.is_compression
            return f"this is {kind.name}: " + (f"the file is compressed twice, {TWICE}" if is_nested else kind.cure)
        is_text = self._format.name == "tfrecord" and len(start) > 0 and TextFormat().recognises(start)
        return f"this starts like text{first_line(start)}: use from_text()" if is_text else ""

    def _refused(self, kind: FileKind | None) -> bool:
        return kind is not None and isinstance(self._format, Refuses) and self._format.refuses(kind)

    def _recognised(self) -> bool:
        return _recognised(self._format, self._first_bytes)

    def _gathered(self, pieces: Iterable[bytes]) -> Iterator[NDArray[np.uint8]]:
        """Join pieces into blocks of at most ``step.nbytes``. A single larger piece forms its own block.

        Each joined block begins with free space for the framer.

        An empty piece yields an empty array. If iterating ``pieces`` raises an error, the earlier pieces are yielded
        before the error is raised.
        """
        waiting: list[bytes] = []
        nbytes = 0
        failure: CorruptRecordError | None = None
        try:
            for piece in pieces:
                if nbytes and (not piece or nbytes + len(piece) > self.step.nbytes):
                    yield self._block(waiting, nbytes)
                    nbytes = 0
                if not piece:
                    yield _fresh(0)
                    continue
                waiting.append(piece)
                nbytes += len(piece)
                del piece
        except CorruptRecordError as error:
            failure = error
        if nbytes:
            yield self._block(waiting, nbytes)
        if failure is not None:
            raise failure

    def _block(self, pieces: list[bytes], nbytes: int) -> NDArray[np.uint8]:
        """Join ``pieces`` into one block that begins with free space for the framer, and clear the list."""
        block = self.step.lend(self.step.headroom_nbytes + nbytes)
        end = self.step.headroom_nbytes
        for piece in pieces:
            block[end : end + len(piece)] = np.frombuffer(piece, np.uint8)
            end += len(piece)
        pieces.clear()
        return block


def _checked(framer: KnowsEnd, nbytes: int) -> Iterator[VarColumn]:
    framer.check_end(nbytes)
    yield from ()
