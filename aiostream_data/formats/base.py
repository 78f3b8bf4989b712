"""What a format is: something that cuts a stream of bytes into records, with no event loop inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from aiostream_data.rows.records import VarColumn


class Framer(Protocol):
    """Cuts one stream into records, block by block. Not thread-safe; one per open shard."""

    def feed(self, block: NDArray[np.uint8], headroom: int, most_rows: int = ...) -> Iterator[VarColumn]:
        """Yield the records that are complete with this block, in columns of at least one row.

        The work is done as the iterator advances. Run it to its end before the next call.

        Args:
            block: uint8; ``block[headroom:]`` are the next bytes of the stream. ``block[:headroom]``
                is scratch that the framer may overwrite, so that a record cut by the previous block's
                end can be joined without copying this block. The framer, and the records that it
                returns, keep the block alive.
            headroom: Length of the scratch, in bytes; may be 0.
            most_rows: Rows that a column may have, about: an index takes 32 bytes a row, however short a record is.

        Raises:
            CorruptRecordError: The bytes are damaged. All records before the damage were given, and none behind it.
        """

    def finish(self) -> Iterator[VarColumn]:
        """Yield what the end of the stream completes (a last line without newline, say).

        Raises:
            CorruptRecordError: The stream ends inside a record.
        """


class Format(Protocol):
    """A frozen, hashable, picklable description of a format; makes one framer per shard."""

    @property
    def name(self) -> str:
        """Short name for messages, such as ``tfrecord``."""

    @property
    def whole(self) -> bool:
        """True when a record is a whole object, so that reading it in pieces gains nothing."""

    def framer(self, url: str) -> Framer:
        """Return a framer at the start of a (decompressed) stream; ``url`` is for messages."""


@runtime_checkable
class KnowsLargest(Protocol):
    """A format that refuses records above some size."""

    @property
    def largest_nbytes(self) -> int:
        """Bytes of the largest record."""


@runtime_checkable
class KnowsEnd(Protocol):
    """A framer whose records declare their length."""

    def check_end(self, nbytes: int) -> None:
        """Raise if a record of which a part was received ends behind byte ``nbytes``, the end of the stream.

        Raises:
            CorruptRecordError: It does.
        """


class Loss(NamedTuple):
    """Damaged bytes that were skipped.

    Attributes:
        offset: Of the first of them, in the decompressed stream.
        nbytes: Their number; None if the rest of the stream is lost.
        reason: What is wrong with them.
    """

    offset: int
    nbytes: int | None
    reason: str


Report: TypeAlias = Callable[[Loss], None]
"""Receives each loss when all records before it were given, and none behind it."""


class Recovery(Protocol):
    """Finds records behind damage. Not thread-safe; one per open shard."""

    @property
    def consumed(self) -> int:
        """After :meth:`cut`: index of the first byte that has to be given again."""

    @property
    def in_sync(self) -> bool:
        """After :meth:`cut`: a record begins there, as far as is known."""

    @property
    def wanted(self) -> int:
        """If it is not in sync: how many bytes from there on make the next call worth its while."""

    def begin(self) -> None:
        """Go to a damaged record, with which the bytes of the next call begin."""

    def cut(
        self, values: NDArray[np.uint8], start: int, stop: int, base: int, end: int | None
    ) -> Iterator[VarColumn | Loss]:
        """Yield records of ``values[start:stop]``, and losses, in the order of the stream.

        Run it to its end before the next call. What all calls yield depends on the stream, not on where it is cut.

        Args:
            values: uint8, contiguous; the records keep it alive.
            base: Offset in the stream of ``values[0]``; may be negative.
            end: Index at which the stream ends, if that is known. ``stop == end`` if nothing follows.
        """


@runtime_checkable
class Recovers(Format, Protocol):
    """A format in which records can be found again behind damage."""

    def recovery(self) -> Recovery:
        """Return what finds them in one stream."""
