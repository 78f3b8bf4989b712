"""Log of a merge of streams, used to compute the merge's saved state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, Protocol

from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Log, State
from aiostream_data.state_fields import MAX_COUNT, Part
from aiostream_data.transforms.interleave import InterleaveOrder, OrderMark


class StreamPlace(Protocol):
    """Interface of the position of one merged stream, which contains the information needed to reopen the stream."""

    def at(self, given: int, book: BookWriter) -> State:
        """Return the state from which the stream can resume after its first ``given`` rows."""

    def forget(self, given: int) -> None:
        """Discard the history before row ``given``, which no saved state will need."""


class ReadyPlaces(NamedTuple):
    """Positions of consecutive ready streams.

    Attributes:
        first: Number of the first stream among all ready streams of the merge.
        places: Position of each stream.
    """

    first: int
    places: Sequence[StreamPlace]

    @property
    def stop(self) -> int:
        """Number of the stream after the last of these."""
        return self.first + len(self.places)


@dataclass(frozen=True, slots=True)
class MergeEntry:
    """Position of a merge before its order (the rule that selects the next rows) takes a step.

    Attributes:
        mark: Position of the order.
        places: Position of the stream in each slot, except ready streams.
        opened: Number of streams opened before the step, except ready streams.
        ready: Positions of the ready streams that the step or the slots may use, in the order of the streams.
    """

    mark: OrderMark
    places: Mapping[int, StreamPlace]
    opened: int
    ready: Sequence[ReadyPlaces] = ()

    def place_in(self, order: InterleaveOrder, slot: int) -> StreamPlace:
        """Return the position of the stream in a slot of ``order``, which is at a row of this step."""
        number = order.ready_stream(slot)
        if number is None:
            return self.places[slot]
        group = next(group for group in reversed(self.ready) if group.first <= number)
        return group.places[number - group.first]


class _Reached(NamedTuple):
    """An order that is ``rows`` rows behind the begin of a step."""

    entry: MergeEntry
    rows: int
    order: InterleaveOrder


class MergeLog:
    """Log of the steps of one merge, sorted by the first row of each step. Safe from any thread."""

    def __init__(self) -> None:
        self._log: Log[MergeEntry] = Log()
        self._order: InterleaveOrder | None = None
        self._lock = Lock()
        self._latest: _Reached | None = None  # of at(): a loop that saves each step continues from the step before

    def begin(self, order: InterleaveOrder) -> None:
        """Set the order (the rule that selects the next rows) of the logged steps."""
        self._order = order

    def add(self, row: int, entry: MergeEntry) -> None:
        """Record a step of the merge whose first row is number ``row``."""
        self._log.add(row, entry)

    def at(self, rows: int, book: BookWriter) -> tuple[dict[str, Any], int] | None:
        """Return the state of the merge after ``rows`` rows, and the number of opened streams.

        Return None before any step.
        """
        found = self._log.find(rows)
        if found is None or self._order is None:
            return None
        start, entry = found
        with self._lock:
            order = self._order_at(self._order, entry, rows - start)
            state = order.state()
            occupied = [(slot, given) for slot, given in enumerate(state["given"]) if given is not None]
            places = [(entry.place_in(order, slot), given) for slot, given in occupied]
            opened = entry.opened + order.ready_opened
        return {"order": state, "streams": [place.at(given, book) for place, given in places]}, opened

    def _order_at(self, order: InterleaveOrder, entry: MergeEntry, rows: int) -> InterleaveOrder:
        """Return the order after ``rows`` rows of a step. Only :meth:`at` may use the order, until its next call."""
        latest = self._latest
        if latest is None or latest.entry is not entry or latest.rows > rows:
            reached = order.after(entry.mark, rows)
        else:
            reached = latest.order
            reached.go_on(rows - latest.rows)
        self._latest = _Reached(entry, rows, reached)
        return reached

    def forget(self, rows: int) -> int | None:
        """Discard the history before row ``rows``, which no saved state will need.

        Return the number of streams that were opened before row ``rows``.
        """
        found = self._log.find(rows)
        if found is None or self._order is None:
            return None
        _, entry = found
        order = self._order.after(entry.mark, 0)
        for slot, given in enumerate(order.state()["given"]):
            if given is not None:
                entry.place_in(order, slot).forget(given)
        self._log.forget(rows)
        return entry.opened + order.ready_opened


def check_merge(place: Place, order: Part, streams: Part, slots: tuple[int, int]) -> list[tuple[Part, int]]:
    """Validate the saved state of a merge.

    Return each saved stream with the number of rows that the stream emitted.

    Args:
        slots: Minimum and maximum number of streams that are merged at the same time.

    Raises:
        DamagedStateError: A value in the state is missing, of the wrong type, or out of range.
    """
    fields = order.fields("slot", "taken", "given", "more_streams")
    given = fields["given"].items(*slots)
    fields["slot"].integer(0, len(given) - 1)
    block = MAX_COUNT if place.node is None or not place.scope.exact else place.node.block_length
    fields["taken"].integer(0, block)
    fields["more_streams"].flag()
    rows = [part.integer(0, place.rows.most) for part in given if part.value is not None]
    return list(zip(streams.items(len(rows), len(rows)), rows, strict=True))
