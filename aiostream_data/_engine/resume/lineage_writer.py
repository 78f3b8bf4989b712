"""Encode row ids in a saved state, so that another process can find the same rows.

How this works. During a run, the upper bits of a split number identify a namespace: one run of one source. Namespace
numbers are valid only in one process, so a saved state contains a table of the namespaces of its rows. For each
namespace, the table stores the source's number in the plan, the epoch, and known byte offsets of records
(:class:`Hint`). With these byte offsets, recomputing a row does not require reading its shard from the start.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.resume.origins import Hint, Namespace, Origins
from aiostream_data.rows.id_arrays import SPLIT_MASK
from aiostream_data.rows.lineage import Beside, CutFrom, Lineage, MadeOf
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.state_checksum import checksum_of
from aiostream_data.transforms.packed_ids import pack

PAD: Final = 0
MARK: Final = 1
FIRST: Final = 2
"""Codes in encoded row ids: PAD for a missing pair, MARK for a pair without a source, FIRST for the first namespace."""

KINDS: Final[dict[type[Lineage], str]] = {CutFrom: "c", Beside: "b", Lineage: "m"}
IDS: Final = "i"
NONE: Final = "-"
"""Letters that encode the kinds of ``made_of`` entries."""


ROWS: Final = "rows"
"""Key of a reference to rows in a saved state.

A reference is a dict with only this key, so code that walks through a state can find all references.
"""

Reference: TypeAlias = dict[str, int]


class Encoded(NamedTuple):
    """Rows in the form that a saved state contains.

    Attributes:
        value: Encoded row ids, as JSON-compatible data.
        hints: For each namespace code, the known byte offsets of records.
        check: Checksum of ``value``.
    """

    value: Any
    hints: Mapping[int, Sequence[Hint]]
    check: int


class Spaces:
    """Assigns codes to namespaces.

    A namespace has the same code in all states of one run, so encoded rows can be reused.

    Use this object from only one thread at a time.

    Args:
        first: The first code. Several processes that write parts of the same state need separate ranges of codes.
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
        """Encode rows in the form that a saved state contains."""
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
        alike: dict[str, int] = {}  # after resuming, equal rows are separate objects
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
        """Return the width of the row ids and the packed columns: namespace code, split and ordinal of each pair."""
        pairs = list(RowIds(ids.padded()).pairs())
        columns = np.empty((3 * len(pairs), len(ids)), np.int64).T  # pack() reads column by column
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
            # Thousands of inner data sets of flat_map() share one entry, as do several runs of one file.
            source = None if space.locate is None else space.source
            alike = (source, space.number, space.epoch, space.cached, space.listed)
            if alike not in self._alike:
                self._alike[alike] = self._first + len(self._spaces)
                self._spaces[self._alike[alike]] = space
            self._codes[number] = self._alike[alike]
        return self._codes[number]


class BookWriter:
    """Collector of the rows that one saved state names.

    Attributes:
        checks: Checksums of the encoded rows, in order.
    """

    def __init__(self, spaces: Spaces) -> None:
        self.spaces = spaces
        self._hints: dict[int, dict[Hint, None]] = {}
        self._rows: list[Any] = []
        self._written: list[list[Any]] = []
        self.checks: list[int] = []

    def rows(self, lineage: Lineage) -> Reference | None:
        """Add rows to the state and return a reference to them, or None if there are no rows."""
        return self.add(self.spaces.encode(lineage)) if len(lineage) else None

    def add(self, encoded: Encoded) -> Reference:
        """Add rows that are already encoded, and return a reference to these rows."""
        for code, hints in encoded.hints.items():
            self._hints.setdefault(code, {}).update(dict.fromkeys(hints))
        self._rows.append(encoded.value)
        self.checks.append(encoded.check)
        return {ROWS: len(self._rows) - 1}

    def include(self, position: Any, contents: Mapping[str, Any], checks: Sequence[int]) -> Any:
        """Add all rows that another process collected for the same state.

        Return the position of the other process, with references adjusted to this collector.
        """
        first = len(self._rows)
        self._rows += contents["rows"]
        self._written += contents["spaces"]
        self.checks += checks
        return _shifted(position, first) if first else position

    def contents(self) -> dict[str, Any]:
        """Return all collected namespaces and rows as JSON-compatible data."""
        return {"spaces": [*(self._space(code) for code in self._hints), *self._written], "rows": self._rows}

    def _space(self, code: int) -> list[Any]:
        space, hints = self.spaces[code], self._hints[code]
        described: list[Any] = [code, space.number, space.epoch, [list(cached) for cached in space.cached]]
        if hints or space.listed:
            described.append(pack(_table_of(hints)) if hints else None)
        return [*described, space.listed] if space.listed else described


def _table_of(hints: Collection[Hint]) -> NDArray[np.int64]:
    """Return byte offsets as an array with one row for each. NumPy would convert a list of tuples far slower."""
    return np.fromiter(chain.from_iterable(hints), np.int64, 3 * len(hints)).reshape(-1, 3)


def _shifted(state: Any, by: int) -> Any:
    """Return a copy of a part of a state, with ``by`` added to the number of each row reference."""
    if isinstance(state, dict):
        if state.keys() == {ROWS}:
            return {ROWS: state[ROWS] + by}
        return {key: _shifted(value, by) for key, value in state.items()}
    return [_shifted(value, by) for value in state] if isinstance(state, list) else state


def _distinct(numbers: NDArray[np.int64]) -> list[int]:
    """Return the distinct numbers in order of appearance, so that codes do not depend on the start order of runs."""
    if len(numbers) and (numbers == numbers[0]).all():
        return [int(numbers[0])]
    found, firsts = np.unique(numbers, return_index=True)
    in_order: list[int] = found[np.argsort(firsts)].tolist()
    return in_order
