"""Positions of plans over small files, in saved states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.position import Position, State
from aiostream_data.plan.base import Node
from aiostream_data.plan.operators import SkipFirst, Take


class PlanPosition(NamedTuple):
    """Position of the run of a plan over a small file, of which the first rows are known.

    Attributes:
        file: Position of the file.
        operators: Nodes from the first operator to the last.
        rows_in, rows_out: Number of rows that each operator received and emitted.
        kept: For each filter, the numbers of the input rows that it kept; None for other operators.
    """

    file: Position
    operators: Sequence[Node]
    rows_in: Sequence[int]
    rows_out: Sequence[int]
    kept: Sequence[NDArray[np.int64] | None]

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state of the last operator after its first ``rows`` rows."""
        if not rows:
            return None
        states: list[dict[str, Any]] = []
        for node, rows_in, rows_out, kept in reversed(self._steps()):
            if isinstance(node, Take):
                states.append({"op": "take", "taken": rows})
            elif isinstance(node, SkipFirst):
                states.append({"op": "skip", "skipped": node.count})
                rows += node.count
            elif kept is not None:
                rows = rows_in if rows == rows_out else int(kept[rows - 1]) + 1
        return _around(states, self.file.at(rows, book))

    def at_end(self, consumed: int, book: BookWriter) -> State:
        """Return the state from which a run calls no function again, after ``consumed`` rows of the file."""
        states: list[dict[str, Any]] = []
        for node, rows_in, _, _ in reversed(self._steps()):
            if isinstance(node, Take):
                states.append({"op": "take", "taken": rows_in})
            elif isinstance(node, SkipFirst):
                states.append({"op": "skip", "skipped": min(rows_in, node.count)})
        return _around(states, self.file.at(consumed, book))

    def forget(self, rows: int) -> None:
        """Do nothing: there is no history."""

    def _steps(self) -> list[tuple[Node, int, int, NDArray[np.int64] | None]]:
        return list(zip(self.operators, self.rows_in, self.rows_out, self.kept, strict=True))


def _around(states: Sequence[dict[str, Any]], state: State) -> State:
    """Return the state of the last operator, given the states of operators from the last one, and of the file."""
    for each in reversed(states):
        state = each | {"input": state}
    return state
