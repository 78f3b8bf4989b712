"""Row ids in a state: written such that another process can find the same rows again.

How this works. Inside a run, the upper bits of a split number name a namespace: one run of one source.
Those numbers mean nothing elsewhere, so a state has a table of the namespaces that its rows use, and ids
refer to the table. A namespace is written as the source's number in its plan, the epoch, and what
the source knows about where its records are (:class:`Hint`), so that reading a row again need not begin
at the start of its shard. Reading a state opens a namespace for every entry, so that ids from a state
and ids of this run are one kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.origins import SPLIT_BITS, SPLIT_MASK, Hint, Namespace, Origins
from aiostream_data.errors import StateMismatchError
from aiostream_data.records import NO_PAIR, Beside, CutFrom, Ids, Lineage, MadeOf
from aiostream_data.transforms.packed_ids import pack, unpack

_PAD, _MARK, _FIRST = 0, 1, 2
_KINDS = {CutFrom: "c", Beside: "b", Lineage: "m"}
_CLASSES = {letter: kind for kind, letter in _KINDS.items()}
_IDS, _NONE = "i", "-"
MAX_SPACES = 1 << 16
MAX_DEPTH = 32


class BookWriter:
    """Collects the rows that a state mentions. One per state."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._codes: dict[int, int] = {-1: _PAD, 0: _MARK}
        self._spaces: list[Namespace] = []
        self._alike: dict[Any, int] = {}
        self._mentioned: dict[int, list[Ids]] = {}
        self._rows: list[Any] = []

    def rows(self, lineage: Lineage) -> int | None:
        """Note rows, and return the number under which the state finds them; None for no rows."""
        if not len(lineage):
            return None
        self._rows.append(self._written(lineage))
        return len(self._rows) - 1

    def contents(self) -> dict[str, Any]:
        """Return everything noted, as plain data."""
        spaces = [
            [space.number, space.epoch, space.read_epoch, *self._hints(number, space)]
            for number, space in enumerate(self._spaces)
        ]
        return {"spaces": spaces, "rows": self._rows}

    def _hints(self, number: int, space: Namespace) -> list[Any]:
        if space.locate is None:
            return []
        pairs = np.concatenate(self._mentioned[number])
        hints = space.locate(pairs[:, 0], pairs[:, 1])
        return [pack(np.array(hints, np.int64).reshape(-1, 3))] if hints else []

    def _written(self, lineage: Lineage) -> Any:
        packed = [lineage.ids.shape[1], pack(self._columns(lineage.ids))]
        if lineage.made_of is None or all(entry is None for entry in lineage.made_of):
            return packed
        return [*packed, self._made_of(lineage.made_of)]

    def _made_of(self, entries: Sequence[MadeOf | None]) -> Any:
        kinds, flat, sizes = [], [], []
        deep: list[Any] = []
        known: dict[int, int] = {}
        which: list[int] = []
        for entry in entries:
            if entry is None:
                kinds.append(_NONE)
            elif isinstance(entry, Lineage):
                kinds.append(_KINDS[type(entry)])
                if id(entry) not in known:
                    known[id(entry)] = len(deep)
                    deep.append(self._written(entry))
                which.append(known[id(entry)])
            else:
                kinds.append(_IDS)
                flat.append(entry)
                sizes.append(len(entry))
        widths = [part.shape[1] for part in flat]
        columns = [self._columns(part, max(widths)) for part in flat]
        return {
            "kinds": "".join(kinds),
            "ids": [max(widths), pack(np.concatenate(columns))] if flat else None,
            "sizes": sizes,
            "deep": deep,
            "which": which,
        }

    def _columns(self, ids: Ids, width: int = 0) -> NDArray[np.int64]:
        """Return three columns per pair: namespace in the table, split, ordinal."""
        width = max(width, ids.shape[1])
        columns = np.zeros((len(ids), width // 2 * 3), np.int64)
        for pair in range(ids.shape[1] // 2):
            numbers = ids[:, 2 * pair] >> SPLIT_BITS
            first = int(numbers[0]) if len(numbers) else -1
            if (numbers == first).all():
                codes: Any = self._code(first)
            else:
                found, inverse = np.unique(numbers, return_inverse=True)
                codes = np.array([self._code(int(number)) for number in found])[inverse]
            splits = ids[:, 2 * pair] & SPLIT_MASK
            splits[numbers < 0] = 0
            columns[:, 3 * pair], columns[:, 3 * pair + 1] = codes, splits
            columns[:, 3 * pair + 2] = ids[:, 2 * pair + 1]
            self._mention(numbers, splits, ids[:, 2 * pair + 1])
        return columns

    def _mention(self, numbers: NDArray[np.int64], splits: NDArray[np.int64], ordinals: NDArray[np.int64]) -> None:
        for number in np.unique(numbers).tolist():
            if number > 0:
                rows = numbers == number
                place = self._codes[number] - _FIRST
                self._mentioned.setdefault(place, []).append(np.stack([splits[rows], ordinals[rows]], axis=1))

    def _code(self, number: int) -> int:
        if number not in self._codes:
            space = self._origins.namespace(number)
            alike = (space.number, space.epoch, space.read_epoch, space.locate)
            if alike not in self._alike:  # data sets made by flat_map() by the thousand need one entry in all
                self._alike[alike] = _FIRST + len(self._spaces)
                self._spaces.append(space)
            self._codes[number] = self._alike[alike]
        return self._codes[number]


class Book:
    """The rows that a state mentions, read back. Everything is checked, since a state is a file.

    Args:
        contents: What :meth:`BookWriter.contents` gave; None for no rows.
        origins: Where namespaces for them are opened.

    Raises:
        ValueError: The contents are damaged.
    """

    def __init__(self, contents: Any, origins: Origins) -> None:
        contents = {"spaces": [], "rows": []} if contents is None else contents
        if not isinstance(contents, dict) or not isinstance(contents.get("rows"), list):
            raise ValueError("the state has no table of rows")
        spaces = contents.get("spaces")
        if not isinstance(spaces, list) or len(spaces) > MAX_SPACES:
            raise ValueError("the state has no table of sources")
        self._rows: list[Any] = contents["rows"]
        self._spaces = [_opened(space, origins) for space in spaces]
        self._read: dict[int, Lineage] = {}

    def rows(self, number: Any) -> Lineage:
        """Return rows by the number that ``BookWriter.rows`` gave.

        Raises:
            ValueError: There are none of that number, or they are damaged.
        """
        if number is None:
            return Lineage(np.empty((0, 2), np.int64))
        if not isinstance(number, int) or not 0 <= number < len(self._rows):
            raise ValueError(f"the state has no rows of number {number!r}")
        if number not in self._read:
            self._read[number] = self._lineage(self._rows[number], Lineage, 0)
        return self._read[number]

    def ordinals_of(self, source: int) -> NDArray[np.int64]:
        """Return the sorted ordinals of all rows of one source, by its number, that any part of the state mentions."""
        found = [np.empty(0, np.int64)]
        bases = [space.base for space in self._spaces if space.number == source]
        for number in range(len(self._rows)):
            _collect(self.rows(number), bases, found)
        return np.unique(np.concatenate(found))

    def _lineage(self, value: Any, kind: type[Lineage], depth: int) -> Lineage:
        if not isinstance(value, list) or not 2 <= len(value) <= 3 or depth > MAX_DEPTH:
            raise ValueError("the state's table of rows is damaged")
        ids = self._ids(value[0], value[1])
        expected = None if kind is Beside else len(ids)  # zip() has an entry per input, not per row
        return kind(ids, self._entries(value[2], expected, depth + 1) if len(value) == 3 else None)

    def _ids(self, width: Any, packed: Any) -> Ids:
        columns = unpack(packed)
        if not isinstance(width, int) or width < 2 or width % 2 or columns.shape[1] != width // 2 * 3:
            raise ValueError("the state's table of rows is damaged: wrong number of columns")
        ids = np.empty((len(columns), width), np.int64)
        bases = np.array([0, 0, *(space.base for space in self._spaces)], np.int64)
        for pair in range(width // 2):
            codes, splits = columns[:, 3 * pair], columns[:, 3 * pair + 1]
            if len(codes) and not 0 <= codes.min() <= codes.max() < len(bases):
                raise ValueError("the state's table of rows is damaged: it refers to an unknown source")
            if len(codes) and not 0 <= splits.min() <= splits.max() <= SPLIT_MASK:
                raise ValueError("the state's table of rows is damaged: it refers to an impossible split")
            ids[:, 2 * pair] = np.where(codes == _PAD, NO_PAIR, bases[codes] | splits)
            ids[:, 2 * pair + 1] = columns[:, 3 * pair + 2]
        return ids

    def _entries(self, value: Any, number: int | None, depth: int) -> list[MadeOf | None]:
        kinds = value.get("kinds") if isinstance(value, dict) else None
        if not isinstance(kinds, str) or (number is not None and len(kinds) != number):
            raise ValueError("the state's table of rows is damaged: what batches were made of is missing")
        flat = self._ids(*value["ids"]) if value["ids"] else np.empty((0, 2), np.int64)
        parts = iter(np.split(flat, np.cumsum(value["sizes"])[:-1]) if value["sizes"] else [])
        deep: dict[tuple[int, str], Lineage] = {}
        which = iter(value["which"])
        entries: list[MadeOf | None] = []
        for letter in kinds:
            if letter == _NONE:
                entries.append(None)
            elif letter == _IDS:
                entries.append(next(parts))
            else:
                key = (next(which), letter)
                if key not in deep:
                    deep[key] = self._lineage(value["deep"][key[0]], _CLASSES[letter], depth)
                entries.append(deep[key])
        return entries


def read_book(contents: Any, origins: Origins) -> Book:
    """Return the rows that a state mentions.

    Raises:
        StateMismatchError: The contents are damaged.
    """
    try:
        return Book(contents, origins)
    except ValueError as error:
        raise StateMismatchError([str(error)]) from error


def _collect(lineage: Lineage, bases: list[int], found: list[NDArray[np.int64]]) -> None:
    for pair in range(lineage.ids.shape[1] // 2):
        for base in bases:
            found.append(lineage.ids[lineage.ids[:, 2 * pair] & ~SPLIT_MASK == base, 2 * pair + 1])
    for entry in lineage.made_of or ():
        if entry is not None:
            _collect(entry if isinstance(entry, Lineage) else Lineage(entry), bases, found)


def _opened(value: Any, origins: Origins) -> Namespace:
    if not isinstance(value, list) or not 3 <= len(value) <= 4 or not all(isinstance(part, int) for part in value[:3]):
        raise ValueError("the state's table of sources is damaged")
    number, epoch, read_epoch = value[:3]
    hints = unpack(value[3]) if len(value) == 4 else np.empty((0, 3), np.int64)
    if hints.shape[1] != 3:
        raise ValueError("the state's table of sources is damaged: wrong hints")
    known = [Hint(*row) for row in hints.tolist()]
    return origins.open(-1, number, epoch, lambda _: f"source {number}", read_epoch, lambda *_: known)
