"""Steps that read the header of a ``.npy`` file; see :data:`.Steps`."""

from __future__ import annotations

from typing import Final

from aiostream_data.codecs.npy_header import NpyHeader, header_nbytes, parse_header
from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.row_groups import Steps
from aiostream_data.rows.records import ByteRange

_HEAD_NBYTES: Final = 1 << 10


def first_bytes(nbytes: int) -> Steps[bytes]:
    """Return the first bytes of a file of ``nbytes`` bytes, which contain most headers."""
    (head,) = yield [ByteRange(0, min(nbytes, _HEAD_NBYTES))]
    return bytes(head)


def header_steps(url: str, nbytes: int, start: bytes) -> Steps[NpyHeader]:
    """Return the header of a file that begins with ``start``. A longer header is read once more.

    Raises:
        CorruptRecordError: The header is damaged.
    """
    try:
        needed = header_nbytes(start)
        if needed > len(start):
            (head,) = yield [ByteRange(0, min(nbytes, needed))]
            start = bytes(head)
        return parse_header(start)
    except ValueError as error:
        raise CorruptRecordError(url, 0, f"{error}") from error
