"""Read the first records of a text file, to infer a schema from them. Damaged records are skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import Format, Loss
from aiostream_data.formats.placed_records import PlacedColumn
from aiostream_data.formats.skipping_stream import SkippingStream
from aiostream_data.formats.stream import RecordStream
from aiostream_data.rows.columns import VarColumn

MOST_RECORDS: Final = 1000
"""Maximum number of records that determine a schema."""


class FirstRecords:
    """First records of a file, without the damaged ones.

    Args:
        format: Format of the file.
        url: URL of the file, for error messages.
        compression: Argument ``compression`` of the source.
        content: First bytes of the file.
        nbytes: Size of the file in bytes.

    Attributes:
        is_whole: True if ``content`` is the whole file.
        damage: Error that a reader without an error policy would raise at the first damaged record; None if no record
            is damaged.

    Raises:
        CsvSchemaError: The first row of the file is no usable header.
    """

    def __init__(self, format: Format, url: str, compression: str, content: bytes, nbytes: int) -> None:
        self.url = url
        self.is_whole = len(content) == nbytes
        losses: list[Loss] = []
        stream = SkippingStream(format, url, compression, report=losses.append, nbytes=nbytes)
        self._columns = list(_first_columns(stream, content, self.is_whole))
        self.damage: CorruptRecordError | None = None
        if losses:
            unskipped = _error_of(RecordStream(format, url, compression), content, self.is_whole)
            self.damage = unskipped or CorruptRecordError(url, losses[0].offset, losses[0].reason)

    @property
    def is_blank(self) -> bool:
        """True if the file contains nothing that helps to infer a schema, and nothing damaged."""
        return not self._columns and self.damage is None

    @cached_property
    def records(self) -> Sequence[bytes]:
        """The records in the order of the file."""
        return [record for column in self._columns for record in column.elements()]

    def place_of(self, number: int) -> tuple[int | None, int | None]:
        """Return the line of a record and its byte offset in the stream; None if unknown."""
        for column in self._columns:
            if number < len(column):
                return column.place_of(number) if isinstance(column, PlacedColumn) else (None, None)
            number -= len(column)
        return None, None


def _first_columns(stream: RecordStream, content: bytes, is_whole: bool) -> Iterator[VarColumn]:
    """Yield the first records, as columns."""
    missing = MOST_RECORDS
    for column in _columns(stream, content, is_whole):
        if len(column):
            yield column.slice(0, missing)
        missing -= len(column)
        if missing <= 0:
            return


def _columns(stream: RecordStream, content: bytes, is_whole: bool) -> Iterator[VarColumn]:
    yield from stream.feed(np.frombuffer(content, np.uint8), 0)
    if is_whole:
        yield from stream.finish()


def _error_of(stream: RecordStream, content: bytes, is_whole: bool) -> CorruptRecordError | None:
    """Return the error that ends a stream, or None."""
    try:
        for _ in _columns(stream, content, is_whole):
            pass
    except CorruptRecordError as error:
        return error
    return None
