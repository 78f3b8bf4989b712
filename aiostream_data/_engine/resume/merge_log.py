"""Log of a merge of streams, from which its state is computed: position of the order and of each stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Log, State
from aiostream_data.state_fields import MAX_COUNT, Part
from aiostream_data.transforms.interleave import InterleaveOrder, OrderMark


class StreamPlace(Protocol):
    """Position of one merged stream, and the information to reopen it."""

    def at(self, given: int, book: BookWriter) -> State:
        """Return the state from which the stream resumes after its first ``given`` rows."""

    def forget(self, given: int) -> None:
        """Discard history before row ``given``."""


@dataclass(frozen=True, slots=True)
class MergeEntry:
    """Position of a merge before one step of its order.

    Attributes:
        mark: Position of the order.
        places: Position of the stream in each slot.
        opened: Number of streams opened before the step.
    """

    mark: OrderMark
    places: Mapping[int, StreamPlace]
    opened: int


class MergeLog:
    """Log of the steps of one merge, ordered by the first row of each step. Safe from any thread."""

    def __init__(self) -> None:
        self._log: Log[MergeEntry] = Log()
        self._order: InterleaveOrder | None = None

    def begin(self, order: InterleaveOrder) -> None:
        """Set the order that decides the steps."""
        self._order = order

    def add(self, row: int, entry: MergeEntry) -> None:
        """Record a step that begins with row ``row``."""
        self._log.add(row, entry)

    def at(self, rows: int, book: BookWriter) -> tuple[dict[str, Any], int] | None:
        """Return the state of the merge after ``rows`` rows, and the number of opened streams; None before any step."""
        found = self._log.find(rows)
        if found is None or self._order is None:
            return None
        start, entry = found
        order = self._order.after(entry.mark, rows - start).state()
        occupied = [(slot, given) for slot, given in enumerate(order["given"]) if given is not None]
        streams = [entry.places[slot].at(given, book) for slot, given in occupied]
        return {"order": order, "streams": streams}, entry.opened

    def forget(self, rows: int) -> int | None:
        """Discard history before row ``rows``. Return the number of streams opened before that row."""
        found = self._log.find(rows)
        if found is None or self._order is None:
            return None
        _, entry = found
        for slot, given in enumerate(self._order.after(entry.mark, 0).state()["given"]):
            if given is not None:
                entry.places[slot].forget(given)
        self._log.forget(rows)
        return entry.opened


def check_merge(place: Place, order: Part, streams: Part, slots: tuple[int, int]) -> list[tuple[Part, int]]:
    """Check the state of a merge. Return the saved streams, each with the number of rows that it emitted.

    Args:
        slots: Minimum and maximum number of slots.

    Raises:
        DamagedStateError: A value is missing, of another type, or out of its range.
    """
    fields = order.fields("slot", "taken", "given", "more_streams")
    given = fields["given"].items(*slots)
    fields["slot"].integer(0, len(given) - 1)
    block = MAX_COUNT if place.node is None or not place.scope.exact else place.node.block_length
    fields["taken"].integer(0, block)
    fields["more_streams"].flag()
    rows = [part.integer(0, place.rows.most) for part in given if part.value is not None]
    return list(zip(streams.items(len(rows), len(rows)), rows, strict=True))
