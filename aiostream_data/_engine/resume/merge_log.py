"""The place of a merge of streams: where its order stood, and which row of each stream came next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.places import Place
from aiostream_data._engine.resume.position import Log, State
from aiostream_data.state_parts import MAX_COUNT, Part
from aiostream_data.transforms.interleave import InterleaveOrder, OrderMark


class StreamPlace(Protocol):
    """Where one of the merged streams is, and how to find it again."""

    def at(self, given: int, book: BookWriter) -> State:
        """Return how to open the stream again behind its first ``given`` rows."""

    def forget(self, given: int) -> None:
        """Discard history before row ``given``."""


@dataclass(frozen=True, slots=True)
class MergeEntry:
    """Before one step of the order.

    Attributes:
        places: Of the streams that sat in slots.
        opened: Streams given out until then.
    """

    mark: OrderMark
    places: Mapping[int, StreamPlace]
    opened: int


class MergeLog:
    """Steps of one merge by the row with which they begin. Safe from any thread."""

    def __init__(self) -> None:
        self._log: Log[MergeEntry] = Log()
        self._order: InterleaveOrder | None = None

    def begin(self, order: InterleaveOrder) -> None:
        """Set the order that decides the steps."""
        self._order = order

    def add(self, row: int, entry: MergeEntry) -> None:
        """Note a step that begins with row ``row``."""
        self._log.add(row, entry)

    def at(self, rows: int, book: BookWriter) -> tuple[dict[str, Any], int] | None:
        """Return the merge's own state, and how many streams had been given out; None before the first step."""
        found = self._log.find(rows)
        if found is None or self._order is None:
            return None
        start, entry = found
        order = self._order.after(entry.mark, rows - start).state()
        occupied = [(slot, given) for slot, given in enumerate(order["given"]) if given is not None]
        streams = [entry.places[slot].at(given, book) for slot, given in occupied]
        return {"order": order, "streams": streams}, entry.opened

    def forget(self, rows: int) -> int | None:
        """Discard history before row ``rows``; return the number of streams opened by then."""
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
    """Check what :meth:`MergeLog.at` returned; return the streams, each with the number of rows that it gave.

    Args:
        slots: Least and largest number of slots.

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
