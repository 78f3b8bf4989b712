"""What a format is: something that cuts a stream of bytes into records, with no event loop inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from aiostream_data.records import VarColumn


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
