"""The state of an input without new rows is remembered, unless it refers to rows of one saved state."""

from __future__ import annotations

from typing import Any

import numpy as np

from aiostream_data._engine.resume.lineage_writer import BookWriter, Spaces
from aiostream_data._engine.resume.origins import Origins
from aiostream_data._engine.resume.position import RememberedPosition
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.row_ids import RowIds


class Counting:
    """Position that counts its calls, and names a row after row 10."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def at(self, rows: int, book: BookWriter) -> Any:
        self.calls.append(("at", rows))
        return {"rows": rows, "held": book.rows(Lineage(RowIds.of_source(0, np.arange(1)))) if rows > 10 else None}

    def forget(self, rows: int) -> None:
        self.calls.append(("forget", rows))


def book() -> BookWriter:
    return BookWriter(Spaces(Origins()))


def test_the_state_of_the_same_row_is_computed_once() -> None:
    position = Counting()
    remembered = RememberedPosition(position)
    assert [remembered.at(row, book()) for row in (3, 3, 4, 4, 3)] == [
        position.at(row, book()) for row in (3, 3, 4, 4, 3)
    ]
    assert position.calls[:3] == [("at", 3), ("at", 4), ("at", 3)]


def test_a_state_that_refers_to_rows_is_computed_for_each_book() -> None:
    position = Counting()
    remembered = RememberedPosition(position)
    first, second = book(), book()
    second.rows(Lineage(RowIds.of_source(0, np.arange(2))))
    assert remembered.at(11, first) == {"rows": 11, "held": {"rows": 0}}
    assert remembered.at(11, second) == {"rows": 11, "held": {"rows": 1}}


def test_history_is_discarded_once_for_each_row() -> None:
    position = Counting()
    remembered = RememberedPosition(position)
    for row in (0, 2, 2, 5):
        remembered.forget(row)
    assert position.calls == [("forget", 2), ("forget", 5)]
