"""Interfaces of record formats, which split byte streams into records without using an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.records import VarColumn


class Framer(Protocol):
    """Incremental parser that splits one stream into records. Not thread-safe; one per open shard."""

    def feed(self, block: NDArray[np.uint8], headroom: int, most_rows: int = ...) -> Iterator[VarColumn]:
        """Yield the records that this block completes, in columns of at least one row.

        The iterator parses lazily. Exhaust it before the next call.

        Args:
            block: uint8; ``block[headroom:]`` are the next bytes of the stream. The framer may overwrite
                ``block[:headroom]`` to join a record that the previous block cut, without copying this block. The
                framer and the returned records keep the block alive.
            headroom: Length in bytes of the scratch space before the data; may be 0.
            most_rows: Approximate maximum number of rows per column. Each row adds 32 bytes of index.

        Raises:
            CorruptRecordError: The bytes are damaged. All records before the damage, and none after it, were yielded.
        """

    def finish(self) -> Iterator[VarColumn]:
        """Yield the records that the end of the stream completes, such as a last line without newline.

        Raises:
            CorruptRecordError: The stream ends inside a record.
        """


class Format(Protocol):
    """A frozen, hashable, picklable description of a format, which creates one framer per shard."""

    @property
    def name(self) -> str:
        """Short name for error messages, such as ``tfrecord``."""

    @property
    def whole(self) -> bool:
        """True if each object is a single record."""

    def framer(self, url: str) -> Framer:
        """Create a framer for a new (decompressed) stream; ``url`` appears in error messages."""


@runtime_checkable
class KnowsLargest(Protocol):
    """A format that rejects records above a maximum size."""

    @property
    def largest_nbytes(self) -> int:
        """Maximum size of a record in bytes."""


@runtime_checkable
class KnowsEnd(Protocol):
    """A framer whose records declare their length."""

    def check_end(self, nbytes: int) -> None:
        """Check that the partially received record ends within the stream, which has ``nbytes`` bytes.

        Raises:
            CorruptRecordError: The record declares a length beyond the end of the stream.
        """


class Loss(NamedTuple):
    """A range of damaged bytes that was skipped.

    Attributes:
        offset: Offset of the first damaged byte in the decompressed stream.
        nbytes: Number of damaged bytes; None if the rest of the stream is lost.
        reason: Description of the damage.
    """

    offset: int
    nbytes: int | None
    reason: str


Report: TypeAlias = Callable[[Loss], None]
"""Callback for each loss, called after all records before the loss and before any record after it."""


class Recovery(Protocol):
    """Parser that finds the next records after damage. Not thread-safe; one per open shard."""

    @property
    def consumed(self) -> int:
        """After :meth:`cut`: index of the first unprocessed byte, with which the next call must begin."""

    @property
    def in_sync(self) -> bool:
        """After :meth:`cut`: True if a record presumably begins at ``consumed``."""

    @property
    def wanted(self) -> int:
        """After :meth:`cut` without sync: minimum bytes from ``consumed`` that the next call needs for progress."""

    def begin(self) -> None:
        """Start a recovery. The bytes of the next :meth:`cut` begin with the damaged record."""

    def cut(
        self, values: NDArray[np.uint8], start: int, stop: int, base: int, end: int | None
    ) -> Iterator[VarColumn | Loss]:
        """Yield the records and losses in ``values[start:stop]``, in stream order.

        Exhaust the iterator before the next call. The combined output of all calls does not depend on the block size.

        Args:
            values: uint8, contiguous; the records keep it alive.
            start, stop: Range of the bytes to parse.
            base: Stream offset of ``values[0]``; may be negative.
            end: Index at which the stream ends, or None if unknown. ``stop == end`` for the last bytes.
        """


@runtime_checkable
class Recovers(Format, Protocol):
    """A format that can find the next records after damage."""

    def recovery(self) -> Recovery:
        """Create a recovery for one stream."""
