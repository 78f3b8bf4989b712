"""One object's bytes to records: find out the compression, decompress in bounded blocks, cut.

How this works: the first ``PROBE_NBYTES`` of a stream are waited for, so that what they look like does
not depend on where blocks end. From then on a plain stream goes straight to the framer; a compressed
one is decompressed into blocks of at most ``BLOCK_NBYTES``, each with headroom for the framer's joins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from aiostream_data.codecs.compression import (
    MAX_STEP_NBYTES,
    Compression,
    Decompressor,
    canonical,
    decompressor,
    detect,
)
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import Format
from aiostream_data.formats.cutting import Tail
from aiostream_data.records import VarColumn

PROBE_NBYTES = 64
BLOCK_NBYTES = 1 << 20
"""Most that one block of a decompressed stream holds."""

_HEADROOM_NBYTES = 64 << 10


@runtime_checkable
class Recognises(Protocol):
    """A format that can tell its own uncompressed bytes from any others."""

    def recognises(self, first_bytes: bytes) -> bool:
        """Return True only when there is no doubt."""


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
    def record_nbytes(self) -> int: ...


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

    Raises:
        PlanError: There is no such compression.
    """

    def __init__(self, format: Format, url: str, compression: str, offset: int = 0) -> None:
        if compression.lower() != "auto":
            canonical(compression)
        self._format = format
        self._url = url
        self._asked = compression
        self._framer = format.framer(url)
        self._probe: Tail | None = Tail()  # until enough is there to look at
        self._first_bytes = b""
        self._actual: Compression = ""
        self._decompressor: Decompressor | None = None
        self.first_offset = offset
        if offset:
            if not isinstance(self._framer, Resumable):
                raise ValueError(f"a {format.name} object cannot be read from byte {offset} on")
            self._framer.resume(offset)
            self._probe = None

    def offset_of(self, start: int) -> int | None:
        """Return the byte of the object at which a record begins, or None where it could not be read from there.

        Args:
            start: Where the record starts in the column that was given last.
        """
        if self._decompressor is not None or not isinstance(self._framer, Resumable):
            return None
        return self._framer.offset_of(start)

    @property
    def held_nbytes(self) -> int:
        """Bytes of memory held for records of which a part has yet to come."""
        probe = self._probe.held_nbytes if self._probe is not None else 0
        return probe + (self._framer.held_nbytes if isinstance(self._framer, HoldsBack) else 0)

    @property
    def record_nbytes(self) -> int:
        """Bytes of the record of which a part has yet to come, as far as they are known."""
        return self._framer.record_nbytes if isinstance(self._framer, HoldsBack) else 0

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
        if self._actual:
            self._decompressor = decompressor(self._actual, self._url)

    def _records(self, block: NDArray[np.uint8], headroom: int) -> Iterator[VarColumn]:
        if self._decompressor is None:
            yield self._framer.feed(block, headroom)
            return
        try:
            for piece in _gathered(self._decompressor.feed(block[headroom:].data)):
                yield self._framer.feed(piece, _HEADROOM_NBYTES)
        except CorruptRecordError:
            self._raise_earlier_damage()
            raise

    def _last_records(self) -> Iterator[VarColumn]:
        if self._decompressor is not None:
            try:
                self._decompressor.finish()
            except CorruptRecordError:
                self._raise_earlier_damage()
                raise
        yield self._framer.finish()

    def _raise_earlier_damage(self) -> None:
        """Let the framer raise what it has put off, which stands before anything the decompressor found."""
        self._framer.feed(np.empty(0, np.uint8), 0)

    def _explained(self, columns: Iterator[VarColumn]) -> Iterator[VarColumn]:
        """Pass the columns on; when the stream is damaged, say so if it looks like something else altogether."""
        try:
            yield from columns
        except CorruptRecordError as error:
            looks = resolve("auto", self._format, self._first_bytes)
            if looks == self._actual:
                raise
            what = looks or (f"a plain {self._format.name}" if self._recognised() else "no compressed stream")
            hint = f"the object starts like {what}, but compression={self._asked!r} was asked for"
            raise CorruptRecordError(self._url, error.offset, f"{error.reason}; {hint}") from None

    def _recognised(self) -> bool:
        return _recognised(self._format, self._first_bytes)


def _gathered(pieces: Iterable[bytes]) -> Iterator[NDArray[np.uint8]]:
    """Join small pieces into blocks of at most ``BLOCK_NBYTES`` behind ``_HEADROOM_NBYTES`` of scratch.

    When the pieces end with an error, those before it are given first.
    """
    waiting: list[bytes] = []
    nbytes = 0
    failure: CorruptRecordError | None = None
    try:
        for piece in pieces:
            waiting.append(piece)
            nbytes += len(piece)
            if nbytes > BLOCK_NBYTES - MAX_STEP_NBYTES:
                yield _block(waiting, nbytes)
                waiting, nbytes = [], 0
    except CorruptRecordError as error:
        failure = error
    if nbytes:
        yield _block(waiting, nbytes)
    if failure is not None:
        raise failure


def _block(pieces: list[bytes], nbytes: int) -> NDArray[np.uint8]:
    block = np.empty(_HEADROOM_NBYTES + nbytes, np.uint8)
    block[_HEADROOM_NBYTES:] = np.frombuffer(b"".join(pieces), np.uint8)
    return block
