"""Slot store that keeps row data in a file and only an index in memory.

Memory contains the id and the file address of each row (36 bytes for an id of two numbers), and one segment of the
file. If all rows have one layout, they are returned as columns. After the first chunk of a different layout, the store
returns rows as elements, as :class:`.ListSlots` does. Elements that cannot be serialized to bytes stay in
memory. Arrays, numbers, bytes, str, and dicts, tuples and lists of these types can be serialized.

Each row in the file has a form: the layout of its columns, or pickled. Layouts differ only in marks of missing values.
The store numbers the forms, and keeps a number for each row once there are two forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data import _native
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.object_nbytes import object_nbytes
from aiostream_data.rows.records import Chunk, Columns, Items, gather, same_layout, with_equal_marks
from aiostream_data.rows.row_id_buffer import RowIdBuffer
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.transforms.list_slots import as_items, owned_elements
from aiostream_data.transforms.row_bytes import ColumnBytes, element_bytes, element_of, has_bytes
from aiostream_data.transforms.shuffle_slots import (
    DenseSlots,
    MadeOfSlots,
    Slots,
    marks_nbytes,
    without_rows,
)
from aiostream_data.transforms.spill_file import SpillFile
from aiostream_data.transforms.spill_log import SpillLog

MIN_SEGMENT_NBYTES: Final = 64 << 10
MAX_SEGMENT_NBYTES: Final = 4 << 20

MEMORY_SHARE: Final = 8
"""Divisor of the memory limit: a shuffle keeps at most 1/8 of the limit in memory before its rows move to a file."""

SEGMENT_SHARE: Final = 64
"""Divisor of the memory limit that sets the segment size: each write to the file has 1/64 of the limit.
"""

PICKLED: Final = -1
"""Form of a row that is stored as an element."""

Numbers = NDArray[np.int64]
Forms = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Spill:
    """Settings for moving rows of a shuffle buffer from memory to a file.

    Attributes:
        folder: Folder of the spill file.
        memory_nbytes: Total size of the rows in bytes above which the rows move from memory to the file.
        segment_nbytes: Number of bytes written to the file at a time.
    """

    folder: str
    memory_nbytes: int
    segment_nbytes: int

    @staticmethod
    def within(folder: str, memory_limit: int) -> Spill:
        """Return the spill settings for a loader with this memory limit."""
        segment = min(MAX_SEGMENT_NBYTES, max(MIN_SEGMENT_NBYTES, memory_limit // SEGMENT_SHARE))
        return Spill(folder, memory_limit // MEMORY_SHARE, segment)


@dataclass(slots=True)
class _Found:
    """Addresses, lengths and checksums of stored rows.

    A negative address refers to an element in memory instead of a row in the file.
    """

    addresses: Numbers
    lengths: Numbers
    checksums: NDArray[np.uint32]


class SpilledSlots:
    """Slot store that keeps row data in a file.

    This class is not thread-safe. The method :meth:`close` deletes the file.

    Args:
        example: Chunk of the layout, for which :func:`~.row_bytes.has_bytes` is True; None to store elements.
        max_slots: Maximum number of slots in the store.
        spill: Folder and size settings of the file.

    Raises:
        SpillError: A file operation failed, or a checksum differs. Any method can raise this error.
    """

    def __init__(self, example: Columns | None, max_slots: int, spill: Spill) -> None:
        nothing = np.empty(0, np.int64)
        self._layout = None if example is None else without_rows(example)  # None: rows are elements
        self._columns = [] if example is None else [ColumnBytes(example)]
        self._file = SpillFile(spill.folder)
        self._log = SpillLog(self._file, spill.segment_nbytes)
        self._ids = RowIdBuffer(max_slots)
        self._made_of = MadeOfSlots()
        self._addresses = DenseSlots(nothing, max_slots)
        self._lengths = DenseSlots(nothing, max_slots)
        self._checksums = DenseSlots(np.empty(0, np.uint32), max_slots)
        self._forms: DenseSlots | None = None if example is not None else DenseSlots(np.empty(0, np.int32), max_slots)
        self._max_slots = max_slots
        self._kept: dict[int, Any] = {}
        self._kept_nbytes = 0
        self._next_kept = -1
        self._used = 0
        self._rows_nbytes = 0

    @property
    def nbytes(self) -> int:
        """Allocated memory of the store in bytes, including unused capacity."""
        index = self._ids.nbytes + self._addresses.nbytes + self._lengths.nbytes + self._checksums.nbytes
        forms = 0 if self._forms is None else self._forms.nbytes
        return index + forms + self._log.nbytes + self._kept_nbytes

    @property
    def nbytes_on_disk(self) -> int:
        """Size of the spill file in bytes."""
        return self._file.nbytes

    def rows_nbytes(self, rows: int) -> int:
        """Return the size in bytes of a chunk with all ``rows`` stored rows, without marks of missing values."""
        return self._rows_nbytes + self._ids.row_nbytes * rows

    def fill(self, first: int, rows: Chunk, final: Slots | None = None) -> None:
        """Store rows in the next free slots, starting at ``first``.

        :meth:`rearrange` later moves the rows to slots ``final``.
        """
        slots = np.arange(first, first + len(rows)) if final is None else final
        rows = self.as_held(rows)
        found = self._put(rows, slots)
        self._ids.fill(first, rows.ids)
        self._made_of.fill(first, rows)
        self._addresses.fill(first, found.addresses)
        self._lengths.fill(first, found.lengths)
        self._checksums.fill(first, found.checksums)
        if self._forms is not None:
            self._forms.fill(first, self._forms_of(rows))
        self._used = first + len(rows)

    def rearrange(self, slots: Slots) -> None:
        """For all slots i, move the row in slot i to slot ``slots[i]``.

        Every filled slot must still contain its row.
        """
        rows = np.argsort(slots)
        for part in (self._addresses, self._lengths, self._checksums, self._forms):
            if part is not None:
                part.fill(0, part.take(rows))
        ids, made_of = self._ids.take(rows), self._made_of.take(rows)
        self._ids.fill(0, ids)
        self._made_of.fill(0, Items([None] * len(rows), ids, None, made_of))

    def exchange(self, slots: Slots, rows: Chunk) -> Chunk:
        rows = self.as_held(rows)
        found = self._put(rows, slots)
        out = _Found(
            self._addresses.exchange(slots, found.addresses),
            self._lengths.exchange(slots, found.lengths),
            self._checksums.exchange(slots, found.checksums),
        )
        forms = None if self._forms is None else self._forms.exchange(slots, self._forms_of(rows))
        chunk = self._rows(out, forms, self._ids.exchange(slots, rows.ids), self._made_of.exchange(slots, rows))
        self._rows_nbytes -= _data_nbytes(chunk)
        self._forget(out)
        self._pack()
        return chunk

    def take(self, slots: Slots) -> Chunk:
        forms = None if self._forms is None else self._forms.take(slots)
        return self._rows(self._found(slots), forms, self._ids.take(slots), self._made_of.take(slots))

    def lineage(self, slots: Slots) -> Lineage:
        return Lineage(self._ids.take(slots), self._made_of.take(slots))

    def close(self) -> None:
        """Delete the file and release the stored rows. Idempotent."""
        self._log.close()
        self._kept.clear()

    # -- rows in

    def as_held(self, rows: Chunk) -> Chunk:
        """Convert incoming rows to columns or elements, depending on what this store returns."""
        if self._layout is not None:
            layout, rows = with_equal_marks([self._layout, rows])
            if same_layout([layout, rows]):
                assert isinstance(layout, Columns)
                if layout.structure != self._layout.structure:
                    self._add_form(layout)
                return rows
            self._become_elements()
        return as_items(rows)

    def _add_form(self, layout: Columns) -> None:
        self._number_forms()
        self._layout = layout
        self._columns.append(ColumnBytes(layout))

    def _become_elements(self) -> None:
        self._number_forms()
        self._layout = None
        piece = max(1, self._log.nbytes * self._used // max(1, self._rows_nbytes))
        parts = (np.arange(first, min(self._used, first + piece)) for first in range(0, self._used, piece))
        self._rows_nbytes = sum(_data_nbytes(self.take(part)) for part in parts)

    def _number_forms(self) -> None:
        if self._forms is None:
            self._forms = DenseSlots(np.empty(0, np.int32), self._max_slots)
            self._forms.fill(0, np.zeros(self._used, np.int32))

    def _forms_of(self, rows: Chunk) -> Forms:
        return np.full(len(rows), PICKLED if isinstance(rows, Items) else len(self._columns) - 1, np.int32)

    def _put(self, rows: Chunk, slots: Slots) -> _Found:
        self._rows_nbytes += _data_nbytes(rows)
        if isinstance(rows, Items):
            return self._put_elements(rows.values, slots)
        values, lengths = self._columns[-1].packed(rows)
        return self._put_bytes(values, lengths, slots)

    def _put_elements(self, elements: list[Any], slots: Slots) -> _Found:
        pieces = [element_bytes(element) for element in elements]
        rows = np.flatnonzero([piece is not None for piece in pieces])
        lengths = np.array([len(piece) for piece in pieces if piece is not None], np.int64)
        values = np.frombuffer(b"".join(piece for piece in pieces if piece is not None), np.uint8)
        found = self._put_bytes(values, lengths, slots[rows])
        if len(rows) == len(elements):
            return found
        whole = _Found(*(np.zeros(len(elements), part.dtype) for part in (found.addresses, lengths, found.checksums)))
        whole.addresses[rows], whole.lengths[rows], whole.checksums[rows] = found.addresses, lengths, found.checksums
        for row in np.flatnonzero([piece is None for piece in pieces]).tolist():
            whole.addresses[row] = self._keep(elements[row])
        return whole

    def _put_bytes(self, values: NDArray[np.uint8], lengths: Numbers, slots: Slots) -> _Found:
        checksums = _native.crc32c_spans(values, np.cumsum(lengths) - lengths, lengths)
        return _Found(self._log.add(values, lengths, slots), lengths, checksums)

    def _keep(self, element: Any) -> int:
        address = self._next_kept
        self._next_kept -= 1
        self._kept[address] = element
        self._kept_nbytes += object_nbytes(element)
        return address

    # -- rows out

    def _found(self, slots: Slots) -> _Found:
        return _Found(self._addresses.take(slots), self._lengths.take(slots), self._checksums.take(slots))

    def _rows(self, found: _Found, forms: Forms | None, ids: RowIds, made_of: Any) -> Chunk:
        values = self._log.read(*self._in_file(found))
        if forms is None:
            return self._columns[0].chunk(values, found.lengths, ids, made_of)
        if self._layout is None:
            return Items(self._elements(found, values, forms), ids, None, made_of)
        parts: list[Chunk] = [self._layout]
        which, rows = np.zeros(len(forms), np.int32), np.zeros(len(forms), np.int64)
        for there, part in self._in_columns(found, values, forms):
            which[there], rows[there] = len(parts), np.arange(len(there))
            parts.append(part)
        return replace(gather(parts, which, rows), ids=ids, made_of=made_of)

    def _in_columns(self, found: _Found, values: NDArray[np.uint8], forms: Forms) -> Iterator[tuple[Numbers, Columns]]:
        """Return the rows of each layout: their positions and a chunk with arbitrary ids."""
        starts = np.cumsum(found.lengths) - found.lengths
        for form in np.unique(forms[forms != PICKLED]).tolist():
            there, columns = np.flatnonzero(forms == form), self._columns[form]
            lengths = found.lengths[there]
            bytes_of_rows, _ = _native.compact(values, starts[there], lengths)
            yield there, columns.chunk(bytes_of_rows, lengths, RowIds.run(0, 0, len(there)), None)

    def _in_file(self, found: _Found) -> tuple[Numbers, Numbers, NDArray[np.uint32]]:
        if not self._kept:
            return found.addresses, found.lengths, found.checksums
        there = found.addresses >= 0
        return found.addresses[there], found.lengths[there], found.checksums[there]

    def _elements(self, found: _Found, values: NDArray[np.uint8], forms: Forms) -> list[Any]:
        stops = np.cumsum(found.lengths)
        starts = stops - found.lengths
        elements: list[Any] = [None] * len(stops)
        view = values.data
        for row in np.flatnonzero(forms == PICKLED).tolist():
            address = int(found.addresses[row])
            elements[row] = self._kept[address] if address < 0 else element_of(view[starts[row] : stops[row]])
        for there, part in self._in_columns(found, values, forms):
            for row, element in zip(there.tolist(), owned_elements(part), strict=True):
                elements[row] = element
        return elements

    def _forget(self, found: _Found) -> None:
        addresses, lengths, _ = self._in_file(found)
        self._log.forget(addresses, lengths)
        for address in found.addresses[found.addresses < 0].tolist() if self._kept else ():
            self._kept_nbytes -= object_nbytes(self._kept.pop(address))

    def _pack(self) -> None:
        """Reclaim space while stored rows fill less than half of the file."""
        while (number := self._log.emptiest()) is not None:
            slots = self._log.slots_of(number)
            if len(slots) and not 0 <= slots[0] <= slots[-1] < self._used:
                raise self._file.damaged("the slot numbers read back differ from those written")
            slots = slots[self._log.is_in(number, self._addresses.take(slots))]
            found = self._found(slots)
            packed = self._log.packed(number, slots, found.addresses, found.lengths, found.checksums)
            self._addresses.put(slots, packed)


def _data_nbytes(rows: Chunk) -> int:
    return rows.nbytes - rows.ids.nbytes - marks_nbytes(rows)


def can_spill(held: Chunk) -> bool:
    """Return True if rows like these can move to a file: elements, or columns without object references."""
    return isinstance(held, Items) or has_bytes(held)
