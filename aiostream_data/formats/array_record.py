"""ArrayRecord files: records of bytes in chunks, whose places the footer of the file lists.

An ArrayRecord file is a Riegeli file whose last two chunks are the footer and the postscript.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.array_record_footer import StoredChunks, chunks_of, footer_offset, footer_stop
from aiostream_data.formats.riegeli import BLOCK_NBYTES, MAX_SIZE_NBYTES, SIGNATURE, RiegeliChunks
from aiostream_data.formats.row_groups import RowGroup, Steps, TableRows
from aiostream_data.rows.records import ByteRange

_POSTSCRIPT_NBYTES: Final = 1 << 10
"""Number of bytes to read of the last block. The rest of this block is padding."""

_FOOTER_NBYTES: Final = 16 << 10
"""Number of bytes to read at the start of the footer, which suffice for about a thousand chunks."""

_GROUP_NBYTES: Final = 8 << 20
"""Stored and decoded size of the chunks that are read together, if one chunk is not larger."""

_ROW_NBYTES: Final = MAX_SIZE_NBYTES + 64
"""Memory for the size and the places of a record while a chunk is decoded."""


@dataclass(frozen=True, kw_only=True)
class ArrayRecordFormat:
    """Format of ArrayRecord files. Records are ``bytes``."""

    @property
    def name(self) -> str:
        return "array_record"

    def directory(self, url: str, nbytes: int) -> Steps[ArrayRecordDirectory]:
        """Read the postscript and the footer."""
        end = nbytes - BLOCK_NBYTES
        if end < BLOCK_NBYTES or nbytes % BLOCK_NBYTES:
            (head,) = yield [ByteRange(0, min(nbytes, len(SIGNATURE)))]
            raise CorruptRecordError(url, 0, _wrong_kind(bytes(head)))
        (postscript,) = yield [ByteRange(end, end + _POSTSCRIPT_NBYTES)]
        try:
            offset = footer_offset(url, nbytes, postscript)
        except CorruptRecordError:
            (head,) = yield [ByteRange(0, len(SIGNATURE))]
            if bytes(head) != SIGNATURE:
                raise CorruptRecordError(url, 0, _wrong_kind(bytes(head))) from None
            raise
        (footer,) = yield [ByteRange(offset, min(offset + _FOOTER_NBYTES, end))]
        stop = footer_stop(url, offset, end, footer)
        if stop > offset + len(footer):
            (footer,) = yield [ByteRange(offset, stop)]
        return ArrayRecordDirectory(url, chunks_of(url, offset, footer[: stop - offset]))


def _wrong_kind(head: bytes) -> str:
    if head == SIGNATURE:
        return (
            "the file does not end with the footer of an ArrayRecord file. It is cut short, or is another Riegeli file"
        )
    return "this is not an ArrayRecord file"


class ArrayRecordDirectory:
    """Chunks of one file.

    Args:
        url: URL of the file, for error messages.
        chunks: The chunks.
    """

    def __init__(self, url: str, chunks: StoredChunks) -> None:
        self._url = url
        self._chunks = chunks
        costs = np.diff(chunks.offsets) + np.minimum(chunks.nbytes, _GROUP_NBYTES)
        self._costs = np.concatenate((np.zeros(1, np.int64), np.cumsum(costs)))

    @property
    def rows(self) -> int:
        return int(self._chunks.first_rows[-1])

    @property
    def types(self) -> Mapping[str, str | None]:
        return {}

    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        offsets, first_rows, nbytes = self._chunks
        start = int(np.searchsorted(first_rows, first_row, "right")) - 1
        while start < len(nbytes):
            limit = self._costs[start] + _GROUP_NBYTES
            stop = max(start + 1, int(np.searchsorted(self._costs, limit, "right")) - 1)
            rows = int(first_rows[stop] - first_rows[start])
            stored = ByteRange(int(offsets[start]), int(offsets[stop]))
            needed = stored.nbytes + 2 * int(nbytes[start:stop].sum()) + rows * _ROW_NBYTES
            if rows:
                yield RowGroup(int(first_rows[start]), rows, (stored,), needed)
            start = stop

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        return group.nbytes

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        offsets, first_rows, nbytes = self._chunks
        start, stop = np.searchsorted(offsets, (group.ranges[0].start, group.ranges[0].stop)).tolist()
        chunks = RiegeliChunks(self._url, offsets[start:stop], int(offsets[stop]), parts[0])
        headers = chunks.headers()
        declared = np.diff(first_rows[start : stop + 1])
        for chunk in np.flatnonzero((headers.records != declared) | (headers.nbytes != nbytes[start:stop]))[:1]:
            place = int(offsets[start + chunk])
            raise CorruptRecordError(self._url, place, "the header of a chunk differs from the footer of the file")
        return [TableRows.of(chunks.records(headers), group.first_row)]
