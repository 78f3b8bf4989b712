"""Row ids in a state: written such that another process can find the same rows again.

How this works. Inside a run, the upper bits of a split number name a namespace: one run of one source.
Those numbers mean nothing elsewhere, so a state has a table of the namespaces that its rows use, and ids
refer to the table. A namespace is written as the source's number in its plan, the epoch, and what
the source knows about where its records are (:class:`Hint`), so that reading a row again need not begin
at the start of its shard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.resume.origins import Hint, Namespace, Origins
from aiostream_data.rows.lineage import Beside, CutFrom, Lineage, MadeOf
from aiostream_data.rows.row_ids import SPLIT_MASK, RowIds
from aiostream_data.state_check import checksum_of
from aiostream_data.transforms.packed_ids import pack

PAD: Final = 0
MARK: Final = 1
FIRST: Final = 2
"""Codes: of a pair that a row lacks, of one that names no source, and the first of namespaces."""

KINDS: Final[dict[type[Lineage], str]] = {CutFrom: "c", Beside: "b", Lineage: "m"}
IDS: Final = "i"
NONE: Final = "-"
"""Letters for what an element was made of."""


ROWS: Final = "rows"
"""The one key of what a state refers to rows by, so that all of them can be found in it."""

Reference: TypeAlias = dict[str, int]


class Encoded(NamedTuple):
    """Rows as a state holds them; plain data but for ``hints``.

    Attributes:
        hints: For every namespace that the rows are of, by its code, where to find them.
        check: Checksum of the value.
    """

    value: Any
    hints: Mapping[int, Sequence[Hint]]
    check: int


class Spaces:
    """Gives namespaces codes that stay the same in all states of one run, so that encoded rows can be used again.

    Safe from one thread at a time.

    Args:
        first: The first code; processes that write parts of one state must not use the same ones.
    """

    def __init__(self, origins: Origins, first: int = FIRST) -> None:
        self._origins = origins
        self._first = first
        self._codes: dict[int, int] = {-1: PAD, 0: MARK}
        self._alike: dict[Any, int] = {}
        self._spaces: dict[int, Namespace] = {}

    def __getitem__(self, code: int) -> Namespace:
        return self._spaces[code]

    def encode(self, lineage: Lineage) -> Encoded:
        """Return rows in the form that a state holds them in."""
        hints: dict[int, list[Hint]] = {}
        value = self._written(lineage, hints)
        return Encoded(value, hints, checksum_of(value))

    def _written(self, lineage: Lineage, hints: dict[int, list[Hint]]) -> Any:
        packed = self._packed(lineage.ids, hints)
        if lineage.made_of is None or all(entry is None for entry in lineage.made_of):
            return packed
        return [*packed, self._made_of(lineage.made_of, hints)]

    def _made_of(self, entries: Sequence[MadeOf | None], hints: dict[int, list[Hint]]) -> Any:
        kinds, flat, sizes = [], [], []
        deep: list[Any] = []
        known: dict[int, int] = {}
        alike: dict[str, int] = {}  # a resumed run makes equal rows apart from each other
        which: list[int] = []
        for entry in entries:
            if entry is None:
                kinds.append(NONE)
            elif isinstance(entry, Lineage):
                kinds.append(KINDS[type(entry)])
                if id(entry) not in known:
                    written = self._written(entry, hints)
                    known[id(entry)] = alike.setdefault(json.dumps(written), len(deep))
                    if known[id(entry)] == len(deep):
                        deep.append(written)
                which.append(known[id(entry)])
            else:
                kinds.append(IDS)
                flat.append(entry)
                sizes.append(len(entry))
        ids = self._packed(RowIds.concat(flat), hints) if flat else None
        return {"kinds": "".join(kinds), "ids": ids, "sizes": sizes, "deep": deep, "which": which}

    def _packed(self, ids: RowIds, hints: dict[int, list[Hint]]) -> list[Any]:
        """Return the width in columns, and three packed columns per pair: code of the namespace, split, ordinal."""
        pairs = list(RowIds(ids.padded()).pairs())
        columns = np.empty((len(ids), 3 * len(pairs)), np.int64)
        for place, pair in enumerate(pairs):
            numbers, splits = pair.namespaces, pair.splits & SPLIT_MASK
            splits[~pair.exists] = 0
            columns[:, 3 * place + 1], columns[:, 3 * place + 2] = splits, pair.ordinals
            for number in _distinct(numbers):
                rows: Any = slice(None) if len(numbers) == 0 or (numbers == number).all() else numbers == number
                code = self._code(number)
                columns[rows, 3 * place] = code
                if number > 0:
                    locate, known = self._spaces[code].locate, hints.setdefault(code, [])
                    if locate is not None:
                        known += locate(splits[rows], pair.ordinals[rows])
        return [2 * len(pairs), pack(columns)]

    def _code(self, number: int) -> int:
        if number not in self._codes:
            space = self._origins.namespace(number)
            alike = (space.number, space.epoch, space.cached, space.locate, space.listed)
            if alike not in self._alike:  # data sets made by flat_map() by the thousand need one entry in all
                self._alike[alike] = self._first + len(self._spaces)
                self._spaces[self._alike[alike]] = space
            self._codes[number] = self._alike[alike]
        return self._codes[number]


class BookWriter:
    """Collects the rows that a state mentions. One per state.

    Attributes:
        checks: Checksums of the rows, in their order.
    """

    def __init__(self, spaces: Spaces) -> None:
        self.spaces = spaces
        self._hints: dict[int, dict[Hint, None]] = {}
        self._rows: list[Any] = []
        self._written: list[list[Any]] = []
        self.checks: list[int] = []

    def rows(self, lineage: Lineage) -> Reference | None:
        """Note rows, and return what the state refers to them by; None for no rows."""
        return self.add(self.spaces.encode(lineage)) if len(lineage) else None

    def add(self, encoded: Encoded) -> Reference:
        """Note rows that were encoded before."""
        for code, hints in encoded.hints.items():
            self._hints.setdefault(code, {}).update(dict.fromkeys(hints))
        self._rows.append(encoded.value)
        self.checks.append(encoded.check)
        return {ROWS: len(self._rows) - 1}

    def include(self, position: Any, contents: Mapping[str, Any], checks: Sequence[int]) -> Any:
        """Note all rows of another process's writer, and return part of its state with references to them here."""
        first = len(self._rows)
        self._rows += contents["rows"]
        self._written += contents["spaces"]
        self.checks += checks
        return _shifted(position, first) if first else position

    def contents(self) -> dict[str, Any]:
        """Return everything noted, as plain data."""
        return {"spaces": [*(self._space(code) for code in self._hints), *self._written], "rows": self._rows}

    def _space(self, code: int) -> list[Any]:
        space, hints = self.spaces[code], self._hints[code]
        described: list[Any] = [code, space.number, space.epoch, [list(cached) for cached in space.cached]]
        if hints or space.listed:
            described.append(pack(np.array(list(hints), np.int64)) if hints else None)
        return [*described, space.listed] if space.listed else described


def _shifted(state: Any, by: int) -> Any:
    """Return part of a state whose references are to rows of so much higher numbers."""
    if isinstance(state, dict):
        if state.keys() == {ROWS}:
            return {ROWS: state[ROWS] + by}
        return {key: _shifted(value, by) for key, value in state.items()}
    return [_shifted(value, by) for value in state] if isinstance(state, list) else state


def _distinct(numbers: NDArray[np.int64]) -> list[int]:
    """Return the numbers in order of first appearance: codes must not depend on the order in which runs began."""
    if len(numbers) and (numbers == numbers[0]).all():
        return [int(numbers[0])]
    found, firsts = np.unique(numbers, return_index=True)
    in_order: list[int] = found[np.argsort(firsts)].tolist()
    return in_order
