"""One object's bytes to records: find out the compression, decompress in bounded blocks, cut.

How this works: the first ``PROBE_NBYTES`` of a stream are waited for, so that what they look like does
not depend on where blocks end. From then on a plain stream goes straight to the framer; a compressed
one is decompressed into blocks of bounded size, each with headroom for the framer's joins. Nothing is decompressed
before the iterator is advanced, and each advance makes one block and one column at most: whoever runs it reserves
memory for that much first. An object too short to show its compression is decompressed if its
name, or its reader, has evidence of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.compression import Compression, Decompressor, canonical, damage_at, decompressor, detect
from aiostream_data.codecs.file_kinds import START_NBYTES, FileKind, kind_of
from aiostream_data.codecs.short_streams import Evidence, by_name, chosen, may_begin_any
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import Format, Framer, KnowsEnd
from aiostream_data.formats.cutting import MOST_ROWS, RecordTail, no_records
from aiostream_data.formats.text import TextFormat, first_line
from aiostream_data.rows.records import VarColumn

PROBE_NBYTES = 64
BLOCK_NBYTES = 1 << 20
"""Most that one block of a decompressed stream holds."""

HEADROOM_NBYTES = 64 << 10
"""Scratch before each block: a record that the end of the block before has cut is joined there, without a copy."""


def _fresh(nbytes: int) -> NDArray[np.uint8]:
    return np.empty(nbytes, np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStep:
    """How much a stream makes before whoever runs it can stop.

    Attributes:
        nbytes: Bytes of a decompressed block; one step of a decompressor may be more.
        headroom_nbytes: Bytes of scratch before each.
        rows: Rows of a column, about.
        lend: Returns memory for a block.
    """

    nbytes: int = BLOCK_NBYTES
    headroom_nbytes: int = HEADROOM_NBYTES
    rows: int = MOST_ROWS
    lend: Callable[[int], NDArray[np.uint8]] = _fresh


@runtime_checkable
class Recognises(Protocol):
    """A format that can tell its own uncompressed bytes from any others."""

    def recognises(self, first_bytes: bytes) -> bool:
        """Return True only when there is no doubt."""


@runtime_checkable
class Refuses(Protocol):
    """A format that could read some files of other formats, and would give records that make no sense."""

    def refuses(self, kind: FileKind) -> bool: ...


@runtime_checkable
class Resumable(Protocol):
    """A framer that can begin at any record."""

    def resume(self, offset: int) -> None: ...
    def offset_of(self, start: int) -> int | None: ...


@runtime_checkable
class HoldsBack(Protocol):
    """A framer that keeps the bytes of records that are not complete."""

    @property
    def held_nbytes(self) -> int: ...
    @property
    def tail_nbytes(self) -> int: ...
    @property
    def record_nbytes(self) -> int: ...


@runtime_checkable
class CountsBytes(Protocol):
    """A framer that knows which byte of the stream is behind the records that it gave out."""

    @property
    def offset(self) -> int: ...


def resolve(compression: str, format: Format, first_bytes: bytes) -> Compression:
    """Return the compression of a stream that starts with ``first_bytes``, asked for as ``compression``.

    ``"auto"`` goes by magic numbers, unless the format recognises the bytes as its own: the length of
    a TFRecord may begin like a gzip file.
    """
    if compression.lower() != "auto":
        return canonical(compression)
    return "" if _recognised(format, first_bytes) else detect(first_bytes)


def _recognised(format: Format, first_bytes: bytes) -> bool:
    return isinstance(format, Recognises) and format.recognises(first_bytes)


class RecordStream:
    """Reads the records of one object. Not thread-safe; has no event loop inside.

    Every iterator that it returns must be run to its end before the next call: the work is done as the
    iterator advances, so that whoever runs it can hand each column on before the next is made.

    Args:
        format: How to cut records.
        url: For messages.
        compression: ``"auto"``, ``""``, ``"gzip"``, ``"zlib"`` or ``"zstd"``, in upper or lower case.
        offset: Byte at which a record of a plain object begins; what is fed begins there.
        step: How much the iterators make at a time.

    Attributes:
        step: The same.
        is_over: Nothing more is given, whatever is fed.

    Raises:
        PlanError: There is no such compression.
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
        # What it can do is asked once: a look at all members of a protocol takes microseconds.
        self._resumable = self._framer if isinstance(self._framer, Resumable) else None
        self._holder = self._framer if isinstance(self._framer, HoldsBack) else None
        self._probe: RecordTail | None = RecordTail()  # until enough is there to look at
        self._first_bytes = b""
        self._start: bytes | None = b"" if offset else None  # of the decompressed stream
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
        """Return the byte of the object at which a record begins, or None where it could not be read from there.

        Args:
            start: Where the record starts in the column that was given last.
        """
        if self._decompressor is not None or self._resumable is None:
            return None
        return self._resumable.offset_of(start)

    @property
    def is_doubtful(self) -> bool:
        """True if the bytes fed so far are too few to show whether the object is compressed, and so is its name."""
        if self._probe is None or self._asked.lower() != "auto":
            return False
        first_bytes = self._probe.view().tobytes()
        named = chosen((by_name(self._url),), first_bytes)
        return named is None and may_begin_any(first_bytes) and not resolve("auto", self._format, first_bytes)

    def suppose(self, evidence: Evidence | None) -> None:
        """Use a compression for which other objects speak, if the whole object is too short to show one."""
        self._evidence = evidence

    @property
    def is_unknown(self) -> bool:
        """Whether too few bytes were received to tell how the stream is compressed."""
        return self._probe is not None

    @property
    def is_compressed(self) -> bool:
        """Whether the stream is decompressed; False until its first bytes were received."""
        return self._decompressor is not None

    @property
    def window_nbytes(self) -> int:
        """Bytes of memory that the decompressor holds, or is about to, with the window of output that it refers to.

        Where it becomes more, the iterators give an empty column first.
        """
        return 0 if self._decompressor is None else self._decompressor.held_nbytes

    def discard(self) -> None:
        """Free the memory of the decompressor. Nothing can be fed any more, nor may an iterator be advanced."""
        if self._decompressor is not None:
            self._decompressor.discard()

    @property
    def held_nbytes(self) -> int:
        """Bytes of memory held for records of which a part has yet to come."""
        probe = self._probe.held_nbytes if self._probe is not None else 0
        return probe + (0 if self._holder is None else self._holder.held_nbytes)

    @property
    def tail_nbytes(self) -> int:
        """Bytes of it that the next block is joined to."""
        return 0 if self._holder is None else self._holder.tail_nbytes

    @property
    def record_nbytes(self) -> int:
        """Bytes of the record of which a part has yet to come, as far as they are known."""
        return 0 if self._holder is None else self._holder.record_nbytes

    def check_end(self, nbytes: int) -> None:
        """Raise if a record of a plain object declares a length beyond the object's end.

        Args:
            nbytes: Of the object.

        Raises:
            CorruptRecordError: It does.
        """
        if not self.is_unknown and not self.is_compressed and isinstance(self._framer, KnowsEnd):
            for _ in self._explained(_checked(self._framer, nbytes)):
                pass

    def feed(self, block: NDArray[np.uint8], headroom: int) -> Iterator[VarColumn]:
        """Give the records that are complete with this block: one column, or one per decompressed block.

        Args:
            block: uint8; ``block[headroom:]`` are the next bytes of the object. ``block[:headroom]`` is
                scratch that may be overwritten. The columns of a plain stream keep the block alive.
            headroom: Length of the scratch, in bytes; may be 0.

        Raises:
            CorruptRecordError: The bytes are damaged; every record before the damage has been given. Its
                offset counts decompressed bytes.
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
        """Give the records that the end of the stream completes.

        Raises:
            CorruptRecordError: The stream was cut short, or was damaged before.
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
                    yield from self._framer.feed(piece, self.step.headroom_nbytes, self.step.rows)
                del piece
                yield no_records()  # whoever runs this may stop here, and make room for another block
        except CorruptRecordError as error:
            self._raise_earlier_damage()
            raise damage_at(self._next_offset, error) from error.__cause__

    def _look_at(self, block: NDArray[np.uint8], headroom: int) -> None:
        """Look at the first bytes of the stream, once.

        Raises:
            CorruptRecordError: They begin a file of another kind, which the format refuses.
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
        """Byte of the decompressed stream behind the records that were given out."""
        return self._framer.offset if isinstance(self._framer, CountsBytes) else 0

    def _raise_earlier_damage(self) -> None:
        """Let the framer raise what it has put off, which stands before anything the decompressor found."""
        for _ in self._framer.feed(np.empty(0, np.uint8), 0):
            pass

    def _explained(self, columns: Iterator[VarColumn]) -> Iterator[VarColumn]:
        """Pass the columns on; when the stream is damaged, say so if it looks like something else altogether."""
        try:
            yield from columns
        except CorruptRecordError as error:
            hint = self._hint()
            if not hint:
                raise
            raise CorruptRecordError(self._url, error.offset, f"{error.reason}; {hint}") from None

    def _hint(self) -> str:
        """Return a clause for the message of damage if the cause may be the wrong compression, or the wrong reader."""
        if self._evidence is not None:
            held = f"the object holds {len(self._first_bytes)} bytes, and {self._evidence.reason}"
            return f"{held}; write it again, remove it, or pass compression='' if the source is not compressed"
        looks = resolve("auto", self._format, self._first_bytes)
        if looks == self._actual:
            return self._other_kind()
        what = looks or (f"a plain {self._format.name}" if self._recognised() else "no compressed stream")
        asked = f"but compression={self._asked!r} was asked for"
        return f"the object starts like {what}, {asked}; pass compression={looks!r}"

    def _other_kind(self) -> str:
        """Return a clause that says what the stream is, if it begins as no stream of its format does."""
        start = self._start or b""
        kind = kind_of(start)
        if self._format.whole or (_recognised(self._format, start) and not self._refused(kind)):
            return ""
        if kind is not None:
            return f"this is {kind.name}: {kind.cure}"
        is_text = self._format.name == "tfrecord" and len(start) > 0 and TextFormat().recognises(start)
        return f"this starts like text{first_line(start)}: use from_text()" if is_text else ""

    def _refused(self, kind: FileKind | None) -> bool:
        return kind is not None and isinstance(self._format, Refuses) and self._format.refuses(kind)

    def _recognised(self) -> bool:
        return _recognised(self._format, self._first_bytes)

    def _gathered(self, pieces: Iterable[bytes]) -> Iterator[NDArray[np.uint8]]:
        """Join pieces into blocks of at most ``step.nbytes``, or of one piece, behind scratch for the framer.

        When the pieces end with an error, those before it are given first. Empty ones are passed on.
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
        """Return a block that begins with scratch and holds ``pieces``, of which none are left."""
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
