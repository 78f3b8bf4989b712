"""A format with row groups as users write one: two columns of numbers, and a directory in JSON at the end."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from aiostream_data import CorruptRecordError
from aiostream_data.formats.extending import ByteRange, Column, Directory, RowGroup, Steps, TableRows

TYPES = {"label": np.dtype("<i8"), "x": np.dtype(("<f4", 64))}
MARK = b"GROUPED1"


@dataclass(frozen=True)
class GroupedFormat:
    """Format of files of row groups. The directory lists the rows, the offset and the checksums of each group."""

    columns: tuple[str, ...] = ("label", "x")
    name: ClassVar[str] = "grouped"
    kind: ClassVar[type[GroupedDirectory]]

    def directory(self, url: str, nbytes: int) -> Steps[Directory]:
        (end,) = yield [ByteRange(max(0, nbytes - 12), nbytes)]
        size = int.from_bytes(end[:4], "little")
        if bytes(end[4:]) != MARK or size > nbytes - 12:
            raise CorruptRecordError(url, max(0, nbytes - 12), "the file does not end with a directory")
        (text,) = yield [ByteRange(nbytes - 12 - size, nbytes - 12)]
        try:
            return self.kind(self.columns, url, json.loads(bytes(text)), nbytes)
        except (ValueError, TypeError, KeyError):
            raise CorruptRecordError(url, nbytes - 12 - size, "the directory is damaged") from None


class GroupedDirectory:
    def __init__(self, columns: Sequence[str], url: str, stored: Any, nbytes: int) -> None:
        self.columns, self.url = columns, url
        self.groups: list[RowGroup] = []
        self.sums: list[list[int]] = []
        self.rows = 0
        for rows, start, sums in stored:
            if min(rows, start) < 0 or start + 264 * rows > nbytes:
                raise ValueError("outside of the file")
            places = {"label": ByteRange(start, start + 8 * rows), "x": ByteRange(start + 8 * rows, start + 264 * rows)}
            self.groups.append(RowGroup(self.rows, rows, tuple(places[name] for name in columns), 0))
            self.sums.append([sums[name] for name in columns])
            self.rows += rows

    @property
    def types(self) -> Mapping[str, str | None]:
        return {name: str(TYPES[name]) for name in self.columns}

    def groups_from(self, first_row: int) -> Iterator[RowGroup]:
        return (group for group in self.groups if group.first_row + group.rows > first_row)

    def decoded_nbytes(self, group: RowGroup, parts: Sequence[memoryview]) -> int:
        return group.nbytes  # the columns are views of the bytes of the file

    def decode(self, group: RowGroup, parts: Sequence[memoryview], *, filtered: bool = True) -> list[TableRows]:
        columns: dict[str, Column] = {}
        sums = self.sums[self.groups.index(group)]
        for name, place, part, checksum in zip(self.columns, group.ranges, parts, sums, strict=True):
            if zlib.crc32(part) != checksum:
                raise CorruptRecordError(self.url, place.start, f"the checksum of column {name!r} is wrong")
            columns[name] = np.frombuffer(part, TYPES[name])
        return [TableRows.of(columns, group.first_row)]


GroupedFormat.kind = GroupedDirectory


def grouped(rows: Sequence[Mapping[str, Any]], group_rows: int, start: int = 0) -> bytes:
    """Return a file of rows, which begins at byte ``start`` of the whole file."""
    data, groups = bytearray(), []
    for first in range(0, len(rows), group_rows):
        part = rows[first : first + group_rows]
        columns = {name: np.array([row[name] for row in part], TYPES[name].base).tobytes() for name in TYPES}
        groups.append((len(part), start + len(data), {name: zlib.crc32(columns[name]) for name in TYPES}))
        data += columns["label"] + columns["x"]
    directory = json.dumps(groups).encode()
    return bytes(data + directory + len(directory).to_bytes(4, "little") + MARK)
