"""What a format is: something that cuts a stream of bytes into records, with no event loop inside."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aiostream_data.records import VarColumn


class Framer(Protocol):
    """Cuts one stream into records, block by block. Not thread-safe; one per open shard."""

    def feed(self, block: NDArray[np.uint8], headroom: int) -> VarColumn:
        """Return the records that are complete with this block.

        Args:
            block: uint8; ``block[headroom:]`` are the next bytes of the stream. ``block[:headroom]``
                is scratch that the framer may overwrite, so that a record cut by the previous block's
                end can be joined without copying this block. The framer, and the records that it
                returns, keep the block alive.
            headroom: Length of the scratch, in bytes; may be 0.

        Raises:
            CorruptRecordError: The bytes are damaged. No record at or after the damage was returned.
        """

    def finish(self) -> VarColumn:
        """Return what the end of the stream completes (a last line without newline, say).

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
