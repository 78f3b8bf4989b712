"""Footer and postscript of ArrayRecord files: protocol buffers in the last chunks of a Riegeli file.

The postscript is a chunk in the last block of 64 KiB, and contains the offset of the footer. The footer is a chunk that
ends before the last block. Its first record describes the file, and each other record describes one chunk.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.protobuf_fields import fields_of, integer_fields
from aiostream_data.formats.riegeli import (
    BLOCK_NBYTES,
    CHUNK_HEADER_NBYTES,
    FIRST_CHUNK,
    RiegeliChunks,
    may_begin_chunk,
    stored_nbytes,
)
from aiostream_data.formats.varints import Numbers
from aiostream_data.rows.columns import VarColumn

_MAGIC: Final = 0x71930E704FDAE05E
_VERSION: Final = 1
_MAX_NBYTES: Final = 256 << 20
"""Maximum size of the footer in memory. It suffices for 20 million chunks."""

_MAX_CHUNK_NBYTES: Final = 1 << 40


class StoredChunks(NamedTuple):
    """Chunks with the records of a file.

    Attributes:
        offsets: Offset of each chunk in the file, and of the end of the last one; int64 of shape (n + 1,).
        first_rows: Number of the first record of each chunk, and the number of records; int64 of shape (n + 1,).
        nbytes: Size of the records of each chunk after decompression; int64 of shape (n,).
    """

    offsets: Numbers
    first_rows: Numbers
    nbytes: Numbers


def footer_offset(url: str, nbytes: int, postscript: memoryview) -> int:
    """Return the offset of the footer.

    Args:
        nbytes: Size of the file in bytes.
        postscript: Start of the last block of the file.

    Raises:
        CorruptRecordError: The file does not end with the postscript of an ArrayRecord file.
    """
    place = nbytes - BLOCK_NBYTES
    fields = fields_of(_records(url, place, nbytes, postscript).element(0))
    offset = (fields or {}).get(1)
    if fields is None or fields.get(2) != _MAGIC or not isinstance(offset, int):
        raise CorruptRecordError(url, place, "the postscript is not that of an ArrayRecord file")
    if not FIRST_CHUNK <= offset <= place - CHUNK_HEADER_NBYTES or not may_begin_chunk(offset):
        raise CorruptRecordError(url, place, f"the postscript names byte {offset} as the start of the footer")
    return offset


def footer_stop(url: str, offset: int, stop: int, head: memoryview) -> int:
    """Return the offset after the footer.

    Args:
        offset: Offset of the footer in the file.
        stop: Largest possible offset after the footer: that of the last block.
        head: First bytes of the footer.

    Raises:
        CorruptRecordError: The footer is damaged, or is larger than its place in the file.
    """
    nbytes = CHUNK_HEADER_NBYTES + RiegeliChunks(url, np.array([offset]), stop, head).data_nbytes()
    found = offset + stored_nbytes(offset, nbytes)
    if found > stop:
        raise CorruptRecordError(
            url, offset, f"the footer has {nbytes} bytes, more than fit before the end of the file"
        )
    return found


def chunks_of(url: str, offset: int, footer: memoryview) -> StoredChunks:
    """Return the chunks that the footer lists.

    Args:
        offset: Offset of the footer in the file.
        footer: Bytes of the footer.

    Raises:
        CorruptRecordError: The footer is damaged.
    """
    records = _records(url, offset, offset + len(footer), footer)
    count, rows = _described(url, offset, records.element(0))
    if count != len(records) - 1:
        raise CorruptRecordError(url, offset, f"the footer lists {len(records) - 1} chunks, but declares {count}")
    fields = integer_fields(records.values, records.starts[1:], records.lengths[1:], 3)
    if fields is None:
        raise CorruptRecordError(url, offset, "the footer has a damaged description of a chunk")
    chunks = StoredChunks(
        np.append(fields[:, 0], offset), np.concatenate((np.zeros(1, np.int64), np.cumsum(fields[:, 2]))), fields[:, 1]
    )
    _check(url, offset, chunks, fields[:, 2])
    if int(chunks.first_rows[-1]) != rows:
        raise CorruptRecordError(
            url, offset, f"the chunks have {chunks.first_rows[-1]} records, but the footer declares {rows}"
        )
    return chunks


def _records(url: str, offset: int, stop: int, data: memoryview) -> VarColumn:
    """Return the records of one chunk that begins at ``offset``."""
    chunk = RiegeliChunks(url, np.array([offset]), stop, data)
    headers = chunk.headers()
    nbytes, records = int(headers.nbytes[0]), int(headers.records[0])
    if nbytes > _MAX_NBYTES or not 0 < records <= _MAX_NBYTES // 8:
        raise CorruptRecordError(url, offset, f"the footer declares {records} records of {nbytes} bytes")
    return chunk.records(headers)


def _described(url: str, offset: int, record: bytes) -> tuple[int, int]:
    """Return the number of chunks and the number of records that the footer declares."""
    inner = (fields_of(record) or {}).get(1)
    fields = fields_of(inner) if isinstance(inner, bytes) else None
    if fields is None or fields.get(1) != _VERSION:
        raise CorruptRecordError(url, offset, "the footer is not that of an ArrayRecord file of version 1")
    count, rows = fields.get(2, 0), fields.get(3, 0)
    if not isinstance(count, int) or not isinstance(rows, int):
        raise CorruptRecordError(url, offset, "the footer is damaged")
    return count, rows


def _check(url: str, offset: int, chunks: StoredChunks, records: Numbers) -> None:
    """Check that the chunks follow each other in the file, and can contain as many records as they declare."""
    sizes = np.diff(chunks.offsets)
    is_valid = (
        (sizes >= CHUNK_HEADER_NBYTES)
        & may_begin_chunk(chunks.offsets[:-1])
        & (records <= sizes)  # a chunk has at least one byte for each record
        & (chunks.nbytes <= _MAX_CHUNK_NBYTES)
    )
    if int(chunks.offsets[0]) < FIRST_CHUNK or not bool(is_valid.all()):
        place = int(np.argmin(is_valid)) if len(is_valid) else 0
        raise CorruptRecordError(url, offset, f"the footer describes chunk {place} with numbers that cannot be true")
