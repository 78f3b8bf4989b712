"""Positions of inner datasets in saved states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiostream_data._engine.resume.lineage_reader import Book
from aiostream_data._engine.resume.lineage_writer import BookWriter, Encoded, Spaces
from aiostream_data._engine.resume.merge_log import StreamPlace
from aiostream_data._engine.resume.position import Position, State
from aiostream_data.rows.lineage import Lineage

MOST_FOUND: Final = 64
"""Maximum number of inner datasets that keep an object for their position."""


@dataclass
class InnerPlace:
    """Position of one inner dataset.

    Attributes:
        outer: Outer row (input element) that produced the inner dataset.
        first: Number of rows emitted before this run opened the inner dataset.
        state: Saved state from which the inner dataset was resumed, or None.
        book: Table of the rows that ``state`` refers to.
        position: Position of the inner dataset's run. None for small in-memory datasets, which need only a row number.
    """

    outer: Lineage
    first: int
    state: State
    book: Book
    position: Position | None = None
    _encoded: tuple[Spaces, Encoded] | None = None

    def at(self, given: int, book: BookWriter) -> State:
        if self.position is None:
            inner = self.book.carried_over(self.state, book)
        else:
            inner = self.position.at(given - self.first, book)
        if self._encoded is None or self._encoded[0] is not book.spaces:
            self._encoded = book.spaces, book.spaces.encode(self.outer)
        return {"outer": book.add(self._encoded[1]), "inner": inner}

    def forget(self, given: int) -> None:
        if self.position is not None:
            self.position.forget(given - self.first)


class JoinedPlaces(Sequence[StreamPlace]):
    """Positions of datasets whose rows were joined.

    Args:
        outer: Outer rows that produced the datasets.
        position_of: Returns the position of a dataset by its place; None for small datasets in memory.
    """

    def __init__(
        self, outer: Lineage, book: Book, position_of: Callable[[int], Position | None] = lambda number: None
    ) -> None:
        self._outer, self._book, self._position_of = outer, book, position_of
        self._found: dict[int, InnerPlace] = {}  # keep their encoded outer rows

    def __len__(self) -> int:
        return len(self._outer)

    def __getitem__(self, number: Any) -> Any:
        found = self._found.get(number)
        if found is None:
            if len(self._found) == MOST_FOUND:
                self._found.clear()
            outer = self._outer.slice(number, number + 1)
            found = InnerPlace(outer, 0, None, self._book, self._position_of(number))
            self._found[number] = found
        return found
