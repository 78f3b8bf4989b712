"""The place of a merge of streams: where its order stood, and which row of each stream came next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.position import Log, State
from aiostream_data._engine.state_writer import BookWriter
from aiostream_data.transforms.interleave import InterleaveOrder, Mark


class StreamPlace(Protocol):
    """Where one of the merged streams is, and how to find it again."""

    def at(self, given: int, book: BookWriter) -> State:
        """Return how to open the stream again behind its first ``given`` rows."""

    def forget(self, given: int) -> None:
        """Hear that nobody will ask for less than ``given`` rows."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Before one step of the order.

    Attributes:
        places: Of the streams that sat in slots.
        opened: Streams given out until then.
        which: Slots of the step's rows where the order does not repeat; else None.
    """

    mark: Mark
    places: Mapping[int, StreamPlace]
    opened: int
    which: NDArray[np.int32] | None


class MergeLog:
    """Steps of one merge by the row with which they begin. Safe from any thread."""

    def __init__(self) -> None:
        self._log: Log[Entry] = Log()

    def add(self, row: int, entry: Entry) -> None:
        """Note a step that begins with row ``row``."""
        self._log.add(row, entry)

    def at(self, rows: int, book: BookWriter) -> tuple[dict[str, Any], int] | None:
        """Return the merge's own state, and how many streams had been given out; None before the first step."""
        found = self._log.find(rows)
        if found is None:
            return None
        start, entry = found
        given, drop = _given(entry, rows - start)
        order = InterleaveOrder.state_at(entry.mark._replace(given=given))
        streams = [entry.places[slot].at(int(given[slot]), book) for slot in _occupied(given)]
        return {"order": order, "streams": streams, "drop": drop}, entry.opened

    def forget(self, rows: int) -> int | None:
        """Hear that nobody will ask for less than ``rows`` rows; return how many streams had been given out."""
        found = self._log.find(rows)
        if found is None:
            return None
        _, entry = found
        for slot in _occupied(entry.mark.given):
            entry.places[slot].forget(int(entry.mark.given[slot]))
        self._log.forget(rows)
        return entry.opened


def _occupied(given: NDArray[np.int64]) -> list[int]:
    return np.flatnonzero(given >= 0).tolist()


def _given(entry: Entry, rows: int) -> tuple[NDArray[np.int64], int]:
    """Return the rows given of each stream ``rows`` rows after the mark, and how many rows come once more."""
    if entry.which is None:
        return entry.mark.given, rows
    taken = np.bincount(entry.which[:rows], minlength=len(entry.mark.given))
    return np.where(entry.mark.given >= 0, entry.mark.given + taken, entry.mark.given), 0
