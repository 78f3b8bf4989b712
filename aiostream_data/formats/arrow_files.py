"""Arrow IPC files (Feather V2) and streams: only the metadata and the wanted columns of the wanted batches are read."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiostream_data.errors import CorruptRecordError, MemoryBudgetError
from aiostream_data.formats.arrow_directory import ArrowDirectory, ArrowSchema, StoredBatch
from aiostream_data.formats.arrow_fields import fields_of
from aiostream_data.formats.arrow_messages import (
    BATCH,
    CONTINUATION,
    DICTIONARY,
    PREFIX_NBYTES,
    SCHEMA,
    Dictionary,
    Message,
    batch_of,
    dictionary_of,
    metadata_size,
    read_message,
)
from aiostream_data.formats.arrow_rows import explained, load_pyarrow
from aiostream_data.formats.compressed_tables import MARKS_NBYTES, compressed_kind, other_kind
from aiostream_data.formats.declared_types import Declared
from aiostream_data.formats.flatbuffers import Table
from aiostream_data.formats.known_ranges import KnownRanges, part_of
from aiostream_data.formats.row_groups import Ranges, Steps, joined
from aiostream_data.rows.records import ByteRange

_MAGIC: Final = b"ARROW1"
_FIRST_FEATHER: Final = b"FEA1"
_END_NBYTES: Final = 4 + len(_MAGIC)
_GAP_NBYTES: Final = 1 << 10
"""Maximum number of unwanted bytes between the metadata of two messages that are read as one."""

_WINDOW_NBYTES: Final = 64 << 10
"""Number of bytes to read at the end of a file, or at the next message of a stream of large messages."""

_SMALL_NBYTES: Final = 2 * _WINDOW_NBYTES
"""Maximum mean size of small messages. To find them, a stream is read without gaps, although its rows are read again
later. This takes less time than one request for each message."""

_STREAM_NBYTES: Final = 4 << 20
"""Maximum number of bytes of such a stream to read at once."""

_PIECE_NBYTES: Final = 1 << 20
"""Size in bytes of each of the requests for these bytes."""

MAX_BATCHES: Final = 1 << 20
"""Maximum number of record batches of a file."""


@dataclass(frozen=True, kw_only=True)
class ArrowFormat:
    """Format of Arrow IPC files and streams.

    Attributes:
        columns: Names of the columns to read, in the order of the elements; None for all columns. ``a.b`` selects the
            field ``b`` of the struct ``a``.
        declared: Types to which columns are converted.
    """

    columns: tuple[str, ...] | None = None
    declared: Declared = ()

    @property
    def name(self) -> str:
        return "arrow"

    def directory(self, url: str, nbytes: int) -> Steps[ArrowDirectory]:
        """Read the metadata of a file or of a stream, which are recognized by their first and last bytes."""
        reader = _Reader(load_pyarrow("ipc", "Arrow", "arrow"), self, url, nbytes)
        size = min(nbytes, _WINDOW_NBYTES)
        (tail,) = yield [ByteRange(nbytes - size, nbytes)]
        if bytes(tail[-len(_MAGIC) :]) == _MAGIC and nbytes > _END_NBYTES + len(_MAGIC):
            return (yield from reader.file(tail))
        (head,) = [tail] if size == nbytes else (yield [ByteRange(0, size)])
        if bytes(head[:4]) != CONTINUATION:
            raise reader.error(0, _wrong_kind(bytes(head[:MARKS_NBYTES])))
        return (yield from reader.stream(head))


def _wrong_kind(start: bytes) -> str:
    if (compressed := compressed_kind(start)) is not None:
        return compressed
    if start.startswith(_MAGIC):
        return "the Arrow file is cut short: its end is not that of an Arrow file"
    if start[:4] == _FIRST_FEATHER:
        return "this is a Feather file of version 1. Write it again with pyarrow.feather.write_feather(version=2)"
    return f"this is neither an Arrow IPC file (Feather V2) nor an Arrow IPC stream. {other_kind(start)}"


class _Reader:
    """Reader of the metadata of one file.

    Args:
        format: The format, with the columns to read.
        nbytes: Size of the file in bytes.
    """

    def __init__(self, pyarrow: Any, format: ArrowFormat, url: str, nbytes: int) -> None:
        self._pyarrow = pyarrow
        self._format = format
        self._url = url
        self._nbytes = nbytes
        self._stream_nbytes = _STREAM_NBYTES

    def error(self, offset: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(self._url, offset, reason)

    # -- files

    def file(self, tail: memoryview) -> Steps[ArrowDirectory]:
        """Read the footer, and the metadata of each record batch and dictionary."""
        size = int.from_bytes(tail[-_END_NBYTES : -len(_MAGIC)], "little", signed=True)
        start = self._nbytes - _END_NBYTES - size
        if size <= 0 or start < len(_MAGIC):
            raise self.error(self._nbytes - _END_NBYTES, f"the footer has {size} bytes in a file of {self._nbytes}")
        if size + _END_NBYTES > len(tail):
            (tail,) = yield [ByteRange(start, self._nbytes)]
        footer = Table(tail[-_END_NBYTES - size : -_END_NBYTES], None, self._url, start)
        schema = self._schema(footer.table(1), start, self._opened(tail))
        blocks = [self._blocks(footer, number) for number in (2, 3)]
        messages = yield from self._messages([*blocks[0], *blocks[1]])
        dictionaries = tuple(self._dictionary(one) for one in messages[: len(blocks[0])])
        batches = [StoredBatch(self._batch(one)) for one in messages[len(blocks[0]) :]]
        return (yield from self._directory(schema, dictionaries, batches))

    def _opened(self, tail: memoryview) -> Any:
        start = self._nbytes - len(tail)
        file = KnownRanges(self._nbytes, [ByteRange(start, self._nbytes)], [tail])
        with explained(self._pyarrow, self._url, start), self._pyarrow.ipc.open_file(file) as reader:
            return reader.schema

    def _blocks(self, footer: Table, number: int) -> list[ByteRange]:
        """Return the places of messages without their bodies."""
        blocks = footer.structs(number, "<qi4xq")
        if len(blocks) > MAX_BATCHES:
            raise footer.error(f"the file has {len(blocks)} record batches, more than {MAX_BATCHES}")
        for start, metadata, body in blocks:
            if min(start, metadata, body) < 0 or start + metadata + body > self._nbytes:
                raise footer.error(f"the footer places {metadata} and {body} bytes at byte {start}")
        return [ByteRange(start, start + metadata) for start, metadata, _ in blocks]

    def _messages(self, ranges: list[ByteRange]) -> Generator[Ranges, Sequence[memoryview], list[Message]]:
        near = joined(ranges, _GAP_NBYTES)
        parts = (yield near) if near else []
        return [self._message(place.start, part_of(place, near, parts)) for place in ranges]

    def _message(self, start: int, part: memoryview) -> Message:
        prefix, size = metadata_size(part[:PREFIX_NBYTES], self._url, start)
        if prefix + size > len(part):
            raise self.error(start, f"the metadata of a message has {size} bytes instead of {len(part) - prefix}")
        metadata = memoryview(bytes(part[prefix : prefix + size]))  # a copy, which does not keep the other bytes
        return read_message(metadata, self._url, start + prefix, self._nbytes)

    # -- streams

    def stream(self, window: memoryview) -> Steps[ArrowDirectory]:
        """Read the metadata of each message from the start of a stream to its end mark."""
        at = start = messages = 0  # place of the next message, place of the window, number of messages
        first: list[Dictionary] = []
        later: list[Dictionary] = []
        batches: list[StoredBatch] = []
        schema: ArrowSchema | None = None
        while True:
            prefix = window[at - start : at - start + PREFIX_NBYTES]
            size = sum(metadata_size(prefix, self._url, at)) if len(prefix) == PREFIX_NBYTES else PREFIX_NBYTES
            if at - start + size > len(window):
                is_dense = at <= messages * _SMALL_NBYTES
                start, window = at, (yield from self._window(at, size, 2 * len(window) if is_dense else 0))
                continue
            if not metadata_size(prefix, self._url, at)[1]:
                self._check_end(at + size)
                break
            message = self._message(at, window[at - start :])
            if schema is None:
                schema = self._stream_schema(message, window[at - start : at - start + size], at)
            elif message.kind == DICTIONARY:
                (later if batches else first).append(self._dictionary(message))
            else:
                batches.append(StoredBatch(self._batch(message), tuple(later)))
            if len(batches) + len(later) > MAX_BATCHES:
                raise self.error(at, f"the stream has more than {MAX_BATCHES} record batches")
            at, messages = message.stop, messages + 1
        if schema is None:
            raise self.error(at, "the stream has no schema")
        return (yield from self._directory(schema, tuple(first), batches))

    def _check_end(self, stop: int) -> None:
        left = self._nbytes - stop
        if left:
            reason = f"{left} bytes follow the end mark of the stream, such as another stream"
            raise self.error(stop, f"{reason}. Write each stream to a file of its own")

    def _window(self, at: int, size: int, wanted: int) -> Generator[Ranges, Sequence[memoryview], memoryview]:
        """Read the next ``size`` bytes of the stream and, within the memory limit, up to ``wanted`` bytes."""
        if at + size > self._nbytes:
            raise self.error(at, "the stream is cut short: its end mark is missing")
        least = max(size, _WINDOW_NBYTES)
        stop = min(self._nbytes, at + max(least, min(wanted, self._stream_nbytes)))
        try:
            parts = yield [ByteRange(each, min(stop, each + _PIECE_NBYTES)) for each in range(at, stop, _PIECE_NBYTES)]
        except MemoryBudgetError:
            self._stream_nbytes = 0
            parts = yield [ByteRange(at, min(self._nbytes, at + least))]
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _stream_schema(self, message: Message, stored: memoryview, at: int) -> ArrowSchema:
        if message.kind != SCHEMA:
            raise self.error(at, "the stream does not begin with a schema")
        with explained(self._pyarrow, self._url, at):
            schema = self._pyarrow.ipc.read_schema(self._pyarrow.py_buffer(stored))
        return self._schema(message.header, at, schema)

    # -- both

    def _schema(self, table: Table | None, offset: int, schema: Any) -> ArrowSchema:
        if table is None:
            raise self.error(offset, "the file has no schema")
        if table.scalar(0, "<h"):
            raise self.error(
                offset, "the numbers in the file have big-endian byte order. Write it again on this machine"
            )
        with explained(self._pyarrow, self._url, offset):
            return ArrowSchema(self._pyarrow, fields_of(self._pyarrow, schema, table), offset)

    def _batch(self, message: Message) -> Any:
        if message.kind != BATCH:
            raise self.error(message.start, f"a message of kind {message.kind} stands in place of a record batch")
        return batch_of(message)

    def _dictionary(self, message: Message) -> Dictionary:
        if message.kind != DICTIONARY:
            raise self.error(message.start, f"a message of kind {message.kind} stands in place of a dictionary")
        return dictionary_of(message)

    def _directory(
        self, schema: ArrowSchema, dictionaries: tuple[Dictionary, ...], batches: list[StoredBatch]
    ) -> Steps[ArrowDirectory]:
        found = ArrowDirectory(schema, self._url, batches, self._format.columns, self._format.declared)
        wanted = found.wanted(dictionaries)
        ranges = [ByteRange(one.batch.start, one.batch.start + one.batch.nbytes) for one in wanted]
        parts = (yield ranges) if ranges else []
        found.keep(wanted, ranges, parts)
        return found
