"""Decode the rows that a saved state names into row ids of the current run.

Every value is validated, because a state is a file that may be damaged.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.resume.lineage_writer import FIRST, IDS, KINDS, NONE, PAD, ROWS, BookWriter
from aiostream_data._engine.resume.origins import SAVED, Cached, Hint, Namespace, Origins
from aiostream_data.errors import DamagedStateError, StateMismatchError
from aiostream_data.rows.id_arrays import SPLIT_MASK
from aiostream_data.rows.lineage import Beside, Lineage, MadeOf
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.state_fields import Part
from aiostream_data.transforms.packed_ids import unpack

_CLASSES = {letter: kind for kind, letter in KINDS.items()}
MAX_SPACES = 1 << 16
MAX_DEPTH = 32

LEAST_VALUES: Final = 1 << 20
VALUES_PER_CHARACTER: Final = 64
"""Maximum number of unpacked values per character of packed ids, in addition to LEAST_VALUES values."""

TABLE: Final = Part(None, 'state["rows"]')
_DAMAGED: Final = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


class Book:
    """Decoded rows that a saved state names. A saved state is untrusted input, so every value is validated.

    Args:
        contents: Result of :meth:`.BookWriter.contents`; None if the state names no rows.
        origins: Table of sources to which the sources of these rows are added.

    Raises:
        DamagedStateError: The contents in the saved state are damaged.
    """

    def __init__(self, contents: Any, origins: Origins) -> None:
        contents = {"spaces": [], "rows": []} if contents is None else contents
        fields = Part(contents, TABLE.path).fields("spaces", "rows", optional=("batches",))  # origins have "batches"
        spaces = fields["spaces"].items(most=MAX_SPACES)
        self._rows: list[Any] = fields["rows"].listed()
        self._spaces: dict[int, Namespace] = {}
        for space in spaces:
            code, namespace = _opened(space, origins)
            if code in self._spaces:
                raise space.refused("must have a unique code")
            self._spaces[code] = namespace
        self._read: dict[int, Lineage] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def _entry(self, number: int) -> Part:
        return Part(self._rows[number], f'{TABLE.path}["rows"][{number}]')

    def rows_declared(self, number: int) -> int:
        """Return the number of rows that the header of an entry declares, without unpacking the entry."""
        return self._entry(number).items(2, 3)[1].entry("rows").integer()

    def check(self) -> None:
        """Decode every entry.

        Raises:
            DamagedStateError: An entry in the saved state is damaged.
        """
        for number in range(len(self._rows)):
            self._numbered(number)

    def rows(self, reference: Any) -> Lineage:
        """Return the rows that a reference from ``BookWriter.rows`` refers to.

        Raises:
            DamagedStateError: No entry has the reference's number, or the entry is damaged.
        """
        if reference is None:
            return Lineage(RowIds.none())
        return self._numbered(reference.get(ROWS) if isinstance(reference, dict) else reference)

    def carried_over(self, state: Any, book: BookWriter) -> Any:
        """Copy a part of the saved state that contained these rows into a new state.

        ``book`` collects the rows that the new state names.
        """
        if isinstance(state, dict):
            if state.keys() == {ROWS}:
                return book.rows(self.rows(state))
            return {key: self.carried_over(value, book) for key, value in state.items()}
        return [self.carried_over(value, book) for value in state] if isinstance(state, list) else state

    def _numbered(self, number: Any) -> Lineage:
        if type(number) is not int or not 0 <= number < len(self._rows):
            raise DamagedStateError(TABLE.path, f"has no rows with number {number!r}")
        if number not in self._read:
            entry = self._entry(number)
            try:
                self._read[number] = self._lineage(entry.value, Lineage, 0)
            except _DAMAGED as error:
                raise DamagedStateError(entry.path, f"cannot be read: {error}") from error
        return self._read[number]

    def epochs_of(self, source: int) -> list[int]:
        """Return the epochs of all rows that the saved state names and that came from source number ``source``."""
        return [space.epoch for space in self._spaces.values() if space.number == source]

    def ordinals_of(self, source: int) -> NDArray[np.int64]:
        """Return the sorted ordinals (record numbers) of the named rows that came from source number ``source``."""
        found = [np.empty(0, np.int64)]
        bases = [space.base for space in self._spaces.values() if space.number == source]
        for number in range(len(self._rows)):
            _collect(self._numbered(number), bases, found)
        return np.unique(np.concatenate(found))

    def _lineage(self, value: Any, kind: type[Lineage], depth: int) -> Lineage:
        if not isinstance(value, list) or not 2 <= len(value) <= 3 or depth > MAX_DEPTH:
            raise ValueError("an entry must be a list of 2 or 3 values")
        ids = self._ids(value[0], value[1])
        expected = None if kind is Beside else len(ids)  # zip() has an entry per input, not per row
        return kind(ids, self._entries(value[2], expected, depth + 1) if len(value) == 3 else None)

    def _ids(self, width: Any, packed: Any) -> RowIds:
        columns = _unpacked(packed)
        if not isinstance(width, int) or width < 2 or width % 2 or columns.shape[1] != width // 2 * 3:
            raise ValueError("an entry has a wrong number of columns")
        ids = np.empty((len(columns), width), np.int64)
        for pair in range(width // 2):
            codes, splits = columns[:, 3 * pair], columns[:, 3 * pair + 1]
            if len(codes) and not 0 <= splits.min() <= splits.max() <= SPLIT_MASK:
                raise ValueError("an entry refers to an impossible split")
            ids[:, 2 * pair] = np.where(codes == PAD, -1, self._bases(codes) | splits)
            ids[:, 2 * pair + 1] = np.where(codes == PAD, -1, columns[:, 3 * pair + 2])
        return RowIds.from_padded(ids)

    def _bases(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert namespace codes to the upper bits of split numbers, which identify namespaces."""
        found, which = np.unique(codes, return_inverse=True)
        bases = np.zeros(len(found), np.int64)
        for place, code in enumerate(found.tolist()):
            if code >= FIRST or code < 0:
                if code not in self._spaces:
                    raise ValueError("an entry refers to an unknown source")
                bases[place] = self._spaces[code].base
        return bases[which.reshape(-1)]

    def _entries(self, value: Any, number: int | None, depth: int) -> list[MadeOf | None]:
        kinds = value.get("kinds") if isinstance(value, dict) else None
        if not isinstance(kinds, str) or (number is not None and len(kinds) != number):
            raise ValueError("the rows of batches are missing")
        flat = self._ids(*value["ids"]) if value["ids"] else RowIds.none()
        _check_entries(value, kinds, len(flat))
        parts = iter(_cut(flat, value["sizes"]))
        deep: dict[tuple[int, str], Lineage] = {}
        which = iter(value["which"])
        entries: list[MadeOf | None] = []
        for letter in kinds:
            if letter == NONE:
                entries.append(None)
            elif letter == IDS:
                entries.append(next(parts))
            else:
                key = (next(which), letter)
                if key not in deep:
                    deep[key] = self._lineage(value["deep"][key[0]], _CLASSES[letter], depth)
                entries.append(deep[key])
        return entries


def read_book(contents: Any, origins: Origins) -> Book:
    """Decode the rows that a saved state names.

    Raises:
        StateMismatchError: The contents in the saved state are damaged.
    """
    try:
        return Book(contents, origins)
    except StateMismatchError:
        raise
    except _DAMAGED as error:
        raise DamagedStateError(TABLE.path, f"cannot be read: {error}") from error


def _check_entries(value: dict[str, Any], kinds: str, rows: int) -> None:
    """Validate the encoded origins of batches: the counts match the letters, and all numbers are in range."""
    sizes, which, deep = value["sizes"], value["which"], value["deep"]
    if not all(isinstance(part, list) for part in (sizes, which, deep)):
        raise ValueError("the rows of batches must be lists")
    if not all(type(size) is int and size >= 0 for size in sizes) or sum(sizes) != rows:
        raise ValueError(f"the sizes of batches must be integers that sum up to {rows}")
    if not all(type(number) is int and 0 <= number < len(deep) for number in which):
        raise ValueError(f"batches must refer to entries 0 to {len(deep) - 1}")
    letters = Counter(kinds)
    if letters.keys() - {NONE, IDS, *_CLASSES} or len(sizes) != letters[IDS]:
        raise ValueError("the letters of batches do not match their sizes")
    if len(which) != sum(letters[letter] for letter in _CLASSES):
        raise ValueError("the letters of batches do not match their entries")


def _unpacked(packed: Any) -> NDArray[np.int64]:
    """Unpack the row ids in a saved state.

    Repeated rows use no bytes in packed form, so the number of unpacked values has a separate limit.
    """
    data = packed.get("data") if isinstance(packed, dict) else None
    characters = len(data) if isinstance(data, str) else 0
    return unpack(packed, max_values=LEAST_VALUES + VALUES_PER_CHARACTER * characters)


def _cut(ids: RowIds, sizes: list[int]) -> list[RowIds]:
    stops = [0, *np.cumsum(sizes).tolist()]
    return [ids.slice(start, stop) for start, stop in pairwise(stops)]


def _collect(lineage: Lineage, bases: list[int], found: list[NDArray[np.int64]]) -> None:
    for pair in lineage.ids.pairs():
        for base in bases:
            found.append(pair.ordinals[pair.splits & ~SPLIT_MASK == base])
    for entry in lineage.made_of or ():
        if entry is not None:
            _collect(entry if isinstance(entry, Lineage) else Lineage(entry), bases, found)


def _opened(space: Part, origins: Origins) -> tuple[int, Namespace]:
    code, number, epoch, caches, *packed = space.items(4, 6)
    first = code.integer(FIRST)
    listed = packed[1].text() if len(packed) == 2 else ""
    try:
        has_hints = packed and (packed[0].value is not None or not listed)
        hints = _unpacked(packed[0].value) if has_hints else np.empty((0, 3), np.int64)
    except _DAMAGED as error:
        raise DamagedStateError(packed[0].path, f"cannot be read: {error}") from error
    if hints.shape[1] != 3 or (len(hints) and (hints.min() < 0 or (hints[:, 1] > hints[:, 2]).any())):
        raise packed[0].refused("must be triples of a shard, a record, and the byte where the record begins")
    known = [Hint(*row) for row in hints.tolist()]
    source = number.integer()
    name = f"source {source}"
    cached = tuple(_cached(cache) for cache in caches.items(most=MAX_DEPTH))
    return first, origins.open(SAVED, source, epoch.epoch(), lambda _: name, cached, lambda *_: known, listed)


def _cached(part: Part) -> Cached:
    cache, epoch = part.items(2, 2)
    return Cached(cache.integer(), epoch.epoch())
