"""Interfaces of record formats, which split byte streams into records without using an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.records import VarColumn


class Framer(Protocol):
    """Incremental parser (framer) that splits one byte stream into records.

    The parser is not thread-safe, and each open shard has its own parser.
    """

    def feed(self, block: NDArray[np.uint8], headroom: int, most_rows: int = ...) -> Iterator[VarColumn]:
        """Yield the records that end in this block, in columns of at least one row.

        The iterator parses lazily. Exhaust the returned iterator before the next call.

        Args:
            block: uint8 array; ``block[headroom:]`` are the next bytes of the stream. The framer may overwrite
                ``block[:headroom]`` with the beginning of an incomplete record, which avoids a copy of this block. The
                framer and the returned records keep the block alive.
            headroom: Length in bytes of the unused space before the data; may be 0.
            most_rows: Approximate maximum number of rows per column. Each row of a column needs 32 bytes for its index.

        Raises:
            CorruptRecordError: The bytes of the stream are damaged. The parser has then yielded all records before the
                damage, and no record after the damage.
        """

    def finish(self) -> Iterator[VarColumn]:
        """Yield the records that end at the end of the stream, such as a last line without newline.

        Raises:
            CorruptRecordError: The stream ends inside a record.
        """


class Format(Protocol):
    """A frozen, hashable, picklable description of a record format, which creates one framer per shard."""

    @property
    def name(self) -> str:
        """Short name of the format for error messages, such as ``tfrecord``."""

    @property
    def whole(self) -> bool:
        """True if each stored object is a single record."""

    def framer(self, url: str) -> Framer:
        """Create a framer (parser) for a new decompressed stream; ``url`` appears in error messages."""


@runtime_checkable
class KnowsLargest(Protocol):
    """A record format that rejects records above a maximum size."""

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""


@runtime_checkable
class KnowsEnd(Protocol):
    """A framer (record parser) for records that declare their length."""

    def check_end(self, nbytes: int) -> None:
        """Check that the partially received record ends before the end of the stream, which has ``nbytes`` bytes.

        Raises:
            CorruptRecordError: The record declares a length beyond the end of the stream.
        """


class Loss(NamedTuple):
    """A range of damaged bytes that was skipped.

    Attributes:
        offset: Offset of the first damaged byte in the decompressed stream.
        nbytes: Number of damaged bytes; None if the rest of the stream is lost.
        reason: Description of the damaged bytes.
    """

    offset: int
    nbytes: int | None
    reason: str


Report: TypeAlias = Callable[[Loss], None]
"""Callback for each loss (a range of damaged bytes), called between the records before and after the loss."""


class Recovery(Protocol):
    """Parser that finds the next valid records after damaged bytes.

    The parser is not thread-safe, and each open shard has its own parser.
    """

    @property
    def consumed(self) -> int:
        """After :meth:`cut`: index of the first unprocessed byte. The next call must begin with this byte."""

    @property
    def in_sync(self) -> bool:
        """After :meth:`cut`: True if a valid record presumably begins at ``consumed``."""

    @property
    def wanted(self) -> int:
        """After :meth:`cut` without finding a record: minimum number of bytes from ``consumed`` for the next call."""

    def begin(self) -> None:
        """Start a recovery. The bytes passed to the next :meth:`cut` begin with the damaged record."""

    def cut(
        self, values: NDArray[np.uint8], start: int, stop: int, base: int, end: int | None
    ) -> Iterator[VarColumn | Loss]:
        """Yield the records and the losses (damaged ranges) in ``values[start:stop]``, in stream order.

        Exhaust the returned iterator before the next call. The combined output of all calls does not depend on the
        sizes of the blocks.

        Args:
            values: Contiguous uint8 array; the yielded records keep the array alive.
            start, stop: Index range in ``values`` of the bytes to parse.
            base: Byte offset of ``values[0]`` in the stream; may be negative.
            end: Index in ``values`` at which the stream ends, or None if unknown. For the last bytes of the stream,
                ``stop == end``.
        """


@runtime_checkable
class Recovers(Format, Protocol):
    """A record format that can find the next valid records after damaged bytes."""

    def recovery(self) -> Recovery:
        """Create a recovery (a parser for damaged bytes) for one stream."""
