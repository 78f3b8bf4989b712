"""Interfaces of record formats, which split byte streams into records without using an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.columns import VarColumn
from aiostream_data.rows.records import ShardRef


class Framer(Protocol):
    """Incremental parser (framer) that splits one byte stream into records.

    An open shard has its own parser, because parsers are not thread-safe.
    """

    def feed(self, block: NDArray[np.uint8], headroom: int, most_rows: int = ...) -> Iterator[VarColumn]:
        """Yield all records that end in this block, in columns of at least one row each.

        The iterator parses lazily. The caller must exhaust the iterator before the next call.

        Args:
            block: uint8 array. The slice ``block[headroom:]`` contains the next bytes of the stream. The framer may
                copy the beginning of an incomplete record into ``block[:headroom]``, which avoids a copy of the whole
                block. The framer and the returned records keep the block alive.
            headroom: Number of unused bytes before the data in ``block``; may be 0.
            most_rows: Approximate maximum number of rows per column. Each row of a column needs 32 bytes for its index.

        Raises:
            CorruptRecordError: The stream contains damaged bytes. The parser has already yielded all records before the
                damage, and yields no records after the damage.
        """

    def finish(self) -> Iterator[VarColumn]:
        """Yield the remaining records at the end of the stream, such as a last line without a newline.

        Raises:
            CorruptRecordError: The stream ends inside a record.
        """


class Format(Protocol):
    """Description of a record format that creates one framer per shard. Frozen, hashable and picklable."""

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
    """A record format that rejects records above its maximum size."""

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""


@runtime_checkable
class KnowsEnd(Protocol):
    """A framer (record parser) for a format in which each record declares its length."""

    def check_end(self, nbytes: int) -> None:
        """Check that the incomplete record fits into the stream, which has ``nbytes`` bytes in total.

        Raises:
            CorruptRecordError: The record declares a length that exceeds the end of the stream.
        """


@runtime_checkable
class HandsOver(Protocol):
    """A framer that learns from the start of a stream how to read the rest, as from a header."""

    def hand_over(self, receiver: object) -> None:
        """Pass this knowledge to the recovery after damage. See also ``CuttingFramer.succeed``."""


class Loss(NamedTuple):
    """A range of damaged bytes that the parser skipped.

    Attributes:
        offset: Offset of the first damaged byte in the decompressed stream.
        nbytes: Number of damaged bytes; None if the rest of the stream is lost.
        reason: Description of the damaged bytes.
    """

    offset: int
    nbytes: int | None
    reason: str


Report: TypeAlias = Callable[[Loss], None]
"""Function to call for each loss (range of damaged bytes), between the records before and after the loss."""


class Recovery(Protocol):
    """Parser that finds the next valid records after damaged bytes.

    An open shard has its own parser, because parsers are not thread-safe.
    """

    @property
    def consumed(self) -> int:
        """Index of the first byte that :meth:`cut` did not process.

        The next call of :meth:`cut` must begin with this byte.
        """

    @property
    def in_sync(self) -> bool:
        """True if a valid record probably begins at index ``consumed``, after a call of :meth:`cut`."""

    @property
    def wanted(self) -> int:
        """Minimum number of bytes for the next call of :meth:`cut`, if the last call did not find a record."""

    def begin(self) -> None:
        """Start a recovery. The next call of :meth:`cut` must begin with the damaged record."""

    def cut(
        self, values: NDArray[np.uint8], start: int, stop: int, base: int, end: int | None
    ) -> Iterator[VarColumn | Loss]:
        """Yield the records in ``values[start:stop]`` and the losses (damaged ranges), in the order of the stream.

        The caller must exhaust the iterator before the next call. The division of the stream into blocks does not
        affect the combined output of all calls.

        Args:
            values: Contiguous uint8 array; the yielded records keep the array alive.
            start, stop: Range of the indices in ``values`` to parse.
            base: Byte offset of ``values[0]`` in the stream; may be negative.
            end: Index in ``values`` at which the stream ends, or None if unknown. In the last call for a stream,
                ``stop`` equals ``end``.
        """


@runtime_checkable
class TakesReason(Protocol):
    """A :class:`Recovery` that reports the reason which the framer found."""

    def explain(self, reason: str) -> None:
        """Set the reason of the next loss."""


@runtime_checkable
class Recovers(Format, Protocol):
    """A record format that can find the next valid records after damaged bytes."""

    def recovery(self) -> Recovery:
        """Create a parser for damaged bytes of one stream."""


@runtime_checkable
class ChoosesObjects(Protocol):
    """A format that reads only some objects of a listing, as their names tell."""

    def chosen(self, shards: Sequence[ShardRef]) -> Sequence[ShardRef]:
        """Return the objects to read, in the order of the listing. Call it on a worker thread.

        Raises:
            NoMatchError: The listing lacks objects that the format needs.
            PlanError: The description of the format is incomplete.
        """


@runtime_checkable
class ReadsIndex(Protocol):
    """A format with an index of its own, which lists the objects of a data set."""

    def indexed(self, index_url: str, content: bytes) -> Sequence[ShardRef]:
        """Return the objects that an index lists. Call it on a worker thread.

        Raises:
            DataError: The index is invalid.
        """


class HoldsOneRecord(Format, Protocol):
    """A format in which an uncompressed object can be one record, without bytes around it."""

    def is_one_record(self, nbytes: int | None) -> bool:
        """Return True if every uncompressed object of ``nbytes`` bytes is one record. None: the size is unknown."""


def holds_one_record(format: Format) -> TypeGuard[HoldsOneRecord]:
    """Return True if an object of a format can be one record. ``isinstance()`` of a protocol would take far longer."""
    return hasattr(format, "is_one_record")


LEFT: Final = -1
"""Number of rows of an object that must be read by a :class:`.RecordStream`."""

LATER: Final = -2
"""Number of rows of an object that waits until the rows of the objects before it were taken. It is split then."""


class SmallObjects(NamedTuple):
    """Records of many objects.

    Attributes:
        column: Records of all objects that were split, in order.
        rows: Number of records of each object, int64; ``LEFT`` for objects that were not split.
    """

    column: VarColumn
    rows: NDArray[np.int64]


@runtime_checkable
class SplitsObjects(Format, Protocol):
    """A format that can split many uncompressed objects at once."""

    @property
    def split_proves_format(self) -> bool:
        """True if :meth:`split_objects` succeeds only on objects of this format, as checksums prove.

        If False, objects that may be compressed or of another known file kind are not split at once.
        """

    def split_objects(
        self, values: NDArray[np.uint8], bounds: NDArray[np.int64], most_rows: int
    ) -> SmallObjects | None:
        """Split the objects ``values[bounds[i]:bounds[i + 1]]``.

        Return None if any object might be damaged, or if they have more than ``most_rows`` records together.

        The column contains the same records as one framer per object would yield. It refers to ``values``, or to a copy
        if the bytes were re-encoded.
        """

    def most_rows(self, values: NDArray[np.uint8], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the maximum number of records of each object, int64. It is needed only if there are many records."""


def splits_objects(format: Format) -> TypeGuard[SplitsObjects]:
    """Return True if a format can split many uncompressed objects at once.

    ``isinstance()`` of a protocol looks up every attribute of the class, which takes as long as reading a small shard.
    """
    return all(hasattr(format, name) for name in ("split_objects", "split_proves_format", "most_rows"))
