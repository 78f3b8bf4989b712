"""The rows that a state mentions, read back into ids of this run. Everything is checked, since a state is a file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.origins import SPLIT_MASK, Hint, Namespace, Origins
from aiostream_data._engine.state_writer import FIRST, IDS, KINDS, NONE, PAD, ROWS, BookWriter
from aiostream_data.errors import StateMismatchError
from aiostream_data.lineage import NO_PAIR, Beside, Ids, Lineage, MadeOf
from aiostream_data.transforms.packed_ids import unpack

_CLASSES = {letter: kind for kind, letter in KINDS.items()}
MAX_SPACES = 1 << 16
MAX_DEPTH = 32


class Book:
    """The rows that a state mentions, read back. Everything is checked, since a state is a file.

    Args:
        contents: What :meth:`.BookWriter.contents` gave; None for no rows.
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
        self._spaces = dict(_opened(space, origins) for space in spaces)
        self._read: dict[int, Lineage] = {}

    def rows(self, reference: Any) -> Lineage:
        """Return rows by what ``BookWriter.rows`` gave.

        Raises:
            ValueError: There are none of that number, or they are damaged.
        """
        if reference is None:
            return Lineage(np.empty((0, 2), np.int64))
        return self._numbered(reference.get(ROWS) if isinstance(reference, dict) else reference)

    def carried_over(self, state: Any, book: BookWriter) -> Any:
        """Return part of the state that this book belongs to as part of another, whose rows ``book`` collects."""
        if isinstance(state, dict):
            if state.keys() == {ROWS}:
                return book.rows(self.rows(state))
            return {key: self.carried_over(value, book) for key, value in state.items()}
        return [self.carried_over(value, book) for value in state] if isinstance(state, list) else state

    def _numbered(self, number: Any) -> Lineage:
        if not isinstance(number, int) or not 0 <= number < len(self._rows):
            raise ValueError(f"the state has no rows of number {number!r}")
        if number not in self._read:
            self._read[number] = self._lineage(self._rows[number], Lineage, 0)
        return self._read[number]

    def ordinals_of(self, source: int) -> NDArray[np.int64]:
        """Return the sorted ordinals of all rows of one source, by its number, that any part of the state mentions."""
        found = [np.empty(0, np.int64)]
        bases = [space.base for space in self._spaces.values() if space.number == source]
        for number in range(len(self._rows)):
            _collect(self._numbered(number), bases, found)
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
        for pair in range(width // 2):
            codes, splits = columns[:, 3 * pair], columns[:, 3 * pair + 1]
            if len(codes) and not 0 <= splits.min() <= splits.max() <= SPLIT_MASK:
                raise ValueError("the state's table of rows is damaged: it refers to an impossible split")
            ids[:, 2 * pair] = np.where(codes == PAD, NO_PAIR, self._bases(codes) | splits)
            ids[:, 2 * pair + 1] = columns[:, 3 * pair + 2]
        return ids

    def _bases(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what to add to split numbers for namespaces by their codes."""
        found, which = np.unique(codes, return_inverse=True)
        bases = np.zeros(len(found), np.int64)
        for place, code in enumerate(found.tolist()):
            if code >= FIRST or code < 0:
                if code not in self._spaces:
                    raise ValueError("the state's table of rows is damaged: it refers to an unknown source")
                bases[place] = self._spaces[code].base
        return bases[which.reshape(-1)]

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


def _opened(value: Any, origins: Origins) -> tuple[int, Namespace]:
    if not isinstance(value, list) or not 4 <= len(value) <= 5 or not all(type(part) is int for part in value[:4]):
        raise ValueError("the state's table of sources is damaged")
    code, number, epoch, read_epoch = value[:4]
    hints = unpack(value[4]) if len(value) == 5 else np.empty((0, 3), np.int64)
    if code < FIRST or hints.shape[1] != 3 or (len(hints) and hints.min() < 0):
        raise ValueError("the state's table of sources is damaged: wrong hints")
    known = [Hint(*row) for row in hints.tolist()]
    return code, origins.open(-1, number, epoch, lambda _: f"source {number}", read_epoch, lambda *_: known)
