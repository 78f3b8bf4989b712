"""Skip damaged lines of text: lines that are too long or cannot be decoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiostream_data import _native
from aiostream_data.formats.base import Loss
from aiostream_data.formats.cutting import Bytes
from aiostream_data.formats.lines import Indices, LineRules, first_newline
from aiostream_data.rows.columns import VarColumn

WINDOW_NBYTES: Final = 64 << 10
"""Number of bytes of text checked per step, unless a single line is longer. If all lines are empty, the line index uses
16 times as much memory as the text."""


class LineRecovery:
    """Parser that finds the next valid lines after damage. See :class:`~.base.Recovery`."""

    def __init__(self, rules: LineRules) -> None:
        self._rules = rules
        self._lost_from: int | None = None  # offset of an unfinished line that is too long
        self.consumed = 0
        self.wanted = 1

    @property
    def in_sync(self) -> bool:
        return self._lost_from is None

    def begin(self) -> None:
        self._lost_from = None

    def cut(self, values: Bytes, start: int, stop: int, base: int, end: int | None) -> Iterator[VarColumn | Loss]:
        at = start
        if self._lost_from is not None:
            newline = first_newline(values[start:stop])
            at = stop if newline is None else start + newline + 1
            if newline is not None:
                yield Loss(self._lost_from, base + at - self._lost_from, self._rules.too_long())
                self._lost_from = None
        while at < stop:
            starts, lengths, behind = self._lines(values, at, stop)
            if behind == at:
                if self._rules.is_too_long(stop - at):
                    self._lost_from, at = base + at, stop
                break
            yield from self._judged(values, starts, lengths, behind, base)
            at = behind
        if self._lost_from is not None and stop == end:
            yield Loss(self._lost_from, None, self._rules.too_long())
            self._lost_from = None
        self.consumed = at

    def _lines(self, values: Bytes, start: int, stop: int) -> tuple[Indices, Indices, int]:
        """Return the starts and lengths of complete lines, and the index after the last one.

        If no line is complete, the index is ``start``.
        """
        window = min(stop, start + WINDOW_NBYTES)
        found = _native.find_lines(values, start, window)
        if found[2] > start:
            return found
        newline = first_newline(values[window:stop])
        return found if newline is None else _native.find_lines(values, start, window + newline + 1)

    def _judged(
        self, values: Bytes, starts: Indices, lengths: Indices, behind: int, base: int
    ) -> Iterator[VarColumn | Loss]:
        """Yield the valid lines that end before index ``behind``, and a :class:`~.base.Loss` for each invalid line."""
        whole = self._rules.checked(values, int(starts[0]), starts, lengths, behind)
        if whole.problem is None:
            yield whole.column
            return
        view, first = values.data, 0
        bounds = [*starts.tolist(), behind]
        for row, nbytes in enumerate(lengths.tolist()):
            start = bounds[row]
            problem = self._rules.problem_of(view[start : start + nbytes], base + start)
            if problem is None:
                continue
            if first < row:
                yield self._rules.checked(values, bounds[first], starts[first:row], lengths[first:row], start).column
            yield Loss(base + start, bounds[row + 1] - start, problem)
            first = row + 1
        if first < len(starts):
            yield self._rules.checked(values, bounds[first], starts[first:], lengths[first:], behind).column
