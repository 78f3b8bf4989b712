"""Messages of Arrow files: schemas, record batches and dictionaries, and where their buffers are.

A message is a prefix, metadata and a body. The metadata is a FlatBuffers table. The body contains the buffers.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.flatbuffers import Table

PREFIX_NBYTES: Final = 8
"""Maximum size of the prefix of a message: a mark, and the size of the metadata."""

CONTINUATION: Final = b"\xff\xff\xff\xff"
"""Mark in front of the size of the metadata. Files older than Arrow 0.15 do not have it."""

SCHEMA: Final = 1
DICTIONARY: Final = 2
BATCH: Final = 3

_OLDEST_VERSION: Final = 3
V5: Final = 4
"""Version of the metadata since Arrow 1.0."""

_CODECS: Final = ("lz4", "zstd")


class Buffer(NamedTuple):
    """A buffer in the body of a message, in bytes from the start of the body."""

    offset: int
    nbytes: int


class ArraySizes(NamedTuple):
    """Sizes of an array."""

    length: int
    null_count: int


class Message(NamedTuple):
    """Metadata of a message, with the position of its body in the file.

    Attributes:
        kind: Kind of the message, such as :data:`BATCH`.
        version: Version of the metadata.
        header: Table of the schema, the record batch or the dictionary.
        start: Offset of the body in the file.
        nbytes: Size of the body.
    """

    kind: int
    version: int
    header: Table
    start: int
    nbytes: int

    @property
    def stop(self) -> int:
        return self.start + self.nbytes


class RecordBatch(NamedTuple):
    """A record batch, or the values of a dictionary.

    Attributes:
        rows: Number of rows.
        header: Table of the record batch.
        version: Version of the metadata.
        start: Offset of the body in the file.
        nbytes: Size of the body.
    """

    rows: int
    header: Table
    version: int
    start: int
    nbytes: int

    @property
    def codec(self) -> str | None:
        """Name of the compression of the buffers, or None."""
        compression = self.header.table(3)
        if compression is None:
            return None
        number = compression.scalar(0, "<b")
        if not 0 <= number < len(_CODECS) or compression.scalar(1, "<b") != 0:
            raise self.header.error(f"the buffers have an unknown compression ({number})")
        return _CODECS[number]

    def nodes(self) -> list[ArraySizes]:
        """Return the sizes of all arrays, in the order of the fields, each field before its children."""
        found = list(map(ArraySizes._make, self.header.structs(1, "<qq")))
        for node in found:
            if not 0 <= node.null_count <= node.length:
                raise self.header.error(f"{node.null_count} of {node.length} rows of an array are missing")
        return found

    def buffers(self) -> list[Buffer]:
        """Return the buffers of all arrays."""
        found = list(map(Buffer._make, self.header.structs(2, "<qq")))
        for offset, nbytes in found:
            if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
                raise self.header.error(
                    f"a buffer of {nbytes} bytes at byte {offset} is outside of its record batch of {self.nbytes} bytes"
                )
        return found

    def variadic_counts(self) -> list[int]:
        """Return the number of data buffers of each array of views."""
        return [count for (count,) in self.header.structs(4, "<q")]


class Dictionary(NamedTuple):
    """Values of a dictionary.

    Attributes:
        number: Number of the dictionary, to which the fields of the schema refer.
        is_delta: True if the values follow those of an earlier dictionary of this number.
        batch: The values, as a batch of one column.
    """

    number: int
    is_delta: bool
    batch: RecordBatch


def metadata_size(prefix: memoryview, url: str, offset: int) -> tuple[int, int]:
    """Return the sizes of the prefix and of the metadata of a message. The metadata of the end mark has 0 bytes.

    Raises:
        CorruptRecordError: The size is negative, or the prefix is incomplete.
    """
    start = len(CONTINUATION) if bytes(prefix[:4]) == CONTINUATION else 0
    if len(prefix) < start + 4:
        raise CorruptRecordError(url, offset, "the file is cut short within a message")
    (nbytes,) = struct.unpack_from("<i", prefix, start)
    if nbytes < 0:
        raise CorruptRecordError(url, offset, f"the metadata of a message has {nbytes} bytes")
    return start + 4, nbytes


def read_message(metadata: memoryview, url: str, offset: int, file_nbytes: int) -> Message:
    """Parse the metadata of a message.

    Args:
        metadata: The metadata without the prefix.
        offset: Offset of the metadata in the file. The body follows the metadata.
        file_nbytes: Size of the file.

    Raises:
        CorruptRecordError: The metadata is damaged, or the body is not inside the file.
    """
    table = Table(metadata, None, url, offset)
    version, nbytes = table.scalar(0, "<h"), table.scalar(3, "<q")
    header = table.table(2)
    start = offset + len(metadata)
    if header is None:
        raise table.error("a message has no header")
    if version < _OLDEST_VERSION:
        raise table.error("the file was written before Arrow 0.8. Write it again with a newer version")
    if nbytes < 0 or start + nbytes > file_nbytes:
        raise table.error(f"a message of {nbytes} bytes is longer than the file of {file_nbytes} bytes")
    return Message(table.scalar(1, "<B"), version, header, start, nbytes)


def batch_of(message: Message, header: Table | None = None) -> RecordBatch:
    """Return the record batch of a message."""
    header = header or message.header
    rows = header.scalar(0, "<q")
    if rows < 0:
        raise header.error(f"a record batch has {rows} rows")
    return RecordBatch(rows, header, message.version, message.start, message.nbytes)


def dictionary_of(message: Message) -> Dictionary:
    """Return the dictionary of a message."""
    values = message.header.table(1)
    if values is None:
        raise message.header.error("a dictionary has no values")
    return Dictionary(message.header.scalar(0, "<q"), bool(message.header.scalar(2, "<B")), batch_of(message, values))
