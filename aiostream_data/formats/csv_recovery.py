"""Skip damaged records of CSV files: records that are too long or cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiostream_data.formats.base import Loss
from aiostream_data.formats.csv_rules import CsvRules, Records, reordered
from aiostream_data.formats.cutting import Bytes
from aiostream_data.formats.lines import Indices, first_newline
from aiostream_data.rows.columns import VarColumn

_MOST_ROWS: Final = 4096
"""Maximum number of records checked per step."""


class CsvRecovery:
    """Parser that finds the next valid records after damage. See :class:`~.base.Recovery`.

    A record that is too long probably has an opening quote without a closing one. The parser therefore skips only the
    first line of the record, and continues with the next line.

    Attributes:
        order: Order of the columns of the file; see :func:`.reordered`.
    """

    def __init__(self, rules: CsvRules) -> None:
        self._rules = rules
        self._lost_from: int | None = None  # offset of an unfinished line that is too long
        self.order: Indices | None = None
        self.consumed = 0
        self.wanted = 1

    @property
    def in_sync(self) -> bool:
        return self._lost_from is None

    def begin(self) -> None:
        self._lost_from = None

    def cut(self, values: Bytes, start: int, stop: int, base: int, end: int | None) -> Iterator[VarColumn | Loss]:
        at = start
        while at < stop:
            if self._lost_from is None:
                found = self._rules.syntax.records(values, at, stop, _MOST_ROWS)
                if found.consumed > at:
                    yield from self._judged(values, at, found, base)
                    at = found.consumed
                    continue
                if not self._rules.is_too_long(stop - at):
                    break
                self._lost_from = base + at
            newline = first_newline(values[at:stop])
            at = stop if newline is None else at + newline + 1
            if newline is not None:
                yield Loss(self._lost_from, base + at - self._lost_from, self._rules.too_long())
                self._lost_from = None
        if self._lost_from is not None and stop == end:
            yield Loss(self._lost_from, None, self._rules.too_long())
            self._lost_from = None
        self.consumed = at

    def _judged(self, values: Bytes, at: int, found: Records, base: int) -> Iterator[VarColumn | Loss]:
        """Yield the valid records, and a :class:`~.base.Loss` for each invalid record."""
        starts, lengths = found.starts, found.lengths
        if not len(starts):
            return
        whole = self._rules.checked(values, int(starts[0]), starts, lengths, found.consumed)
        if whole.problem is None:
            yield self._delivered(whole.column)
            return
        view, first = values.data, 0
        bounds = [*starts.tolist(), found.consumed]
        for row, nbytes in enumerate(lengths.tolist()):
            start = bounds[row]
            problem = self._rules.problem_of(view[start : start + nbytes], base + start)
            if problem is None:
                continue
            if first < row:
                yield self._valid(values, starts[first:row], lengths[first:row], start)
            yield Loss(base + start, bounds[row + 1] - start, problem)
            first = row + 1
        if first < len(starts):
            yield self._valid(values, starts[first:], lengths[first:], found.consumed)

    def _valid(self, values: Bytes, starts: Indices, lengths: Indices, behind: int) -> VarColumn:
        return self._delivered(self._rules.checked(values, int(starts[0]), starts, lengths, behind).column)

    def _delivered(self, column: VarColumn) -> VarColumn:
        return reordered(column, self.order, self._rules.syntax)
