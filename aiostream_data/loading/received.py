"""Track the received elements: their number, their rows, and the position to resume from."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from aiostream_data._engine.consumer.bridge import Parcel
from aiostream_data._engine.engine import Engine
from aiostream_data._engine.resume.row_keys import RowNames
from aiostream_data.errors import UnknownElementError
from aiostream_data.loading.opening import Opening
from aiostream_data.loading.state_format import Saved
from aiostream_data.metrics.stream_hash import Delivered, StreamHash
from aiostream_data.ranks import LoaderWorkers
from aiostream_data.ranks.padding import has_padding, padding_rows
from aiostream_data.rows.lineage import MadeOf, are_own_rows, source_ids
from aiostream_data.rows.provenance import Origin
from aiostream_data.rows.row_ids import RowIds

PARCELS_REMEMBERED = 64
"""Number of parcels (groups of elements) after which the engine discards history that no future state needs."""

NBYTES_REMEMBERED: Final = 32 << 20
"""Size in bytes of the parcels after which it does the same: the history can refer to the data of inner datasets."""

COUNTED_AT_ONCE: Final = 32
"""Number of elements whose rows are added to the stream hash at once."""

LAST_ELEMENT: Final = object()
"""Default argument that means "the last received element". None is unsuitable as this default, because an element may
be None."""


class Received:
    """Counter of the elements received from one engine. Only one consumer may use the counter at a time.

    The argument ``left`` of several methods is the consumer's iterator. The remaining length of ``left`` determines the
    consumer's position within the current group of elements.
    """

    def __init__(self, opening: Opening, engine: Engine) -> None:
        saved = opening.saved
        self._opening = opening
        self._engine = engine
        self._before = 0 if saved is None else saved.elements
        self._taken = 0  # elements of earlier parcels, skipped or emitted
        self._parcels = 0  # since the engine discarded history
        self._nbytes = 0
        self._parcel: Parcel | None = None
        self._elements: Sequence[Any] = ()
        self._numbers: Sequence[int] = ()  # positions in the parcel of the emitted elements
        self._delivered = _delivered(opening, engine)
        self._runs: deque[RowIds] = deque()  # row ids of the parcel that are not counted yet
        self._counted = 0  # elements of the parcel whose rows are counted
        self._stop = opening.only[1] if opening.only is not None else None

    @property
    def complete(self) -> bool:
        """True if all requested elements were received."""
        return self._stop is not None and self._before + self._taken >= self._stop

    def wanted(self, parcel: Parcel) -> Sequence[int]:
        """Return the indices of those elements of a new parcel (group of elements) that are not skipped."""
        first, count = self._before + self._taken, len(parcel.elements)
        steering, only = self._opening.steering, self._opening.only
        if not steering.skip and only is None:
            return range(count)
        start, stop = only or (0, first + count)
        spans = steering.kept(first, count)
        return [number for span in spans for number in range(*span) if start <= first + number < stop]

    def take(self, parcel: Parcel, numbers: Sequence[int], elements: Sequence[Any]) -> Iterator[Any]:
        """Make ``parcel`` the current group of elements, and return an iterator over its emitted elements.

        Args:
            numbers: Indices of the emitted elements within the parcel, from :meth:`wanted`.
            elements: The emitted elements in the form that the consumer receives.
        """
        self._parcel = parcel
        self._runs = deque(parcel.runs or ())
        self._elements, self._numbers = elements, numbers
        return iter(self._elements)

    def let_go(self) -> tuple[int, int]:
        """Drop the parcel (group of elements) after the consumer received all of it.

        Return the number of emitted elements of the parcel, and the size of the parcel in bytes.
        """
        parcel = self._parcel
        if parcel is None:
            return 0, 0
        given = len(self._numbers)
        self._count(given)
        self._taken += len(parcel.elements)
        self._drop_parcel()
        self._parcels += 1
        self._nbytes += parcel.nbytes
        if self._parcels >= PARCELS_REMEMBERED or self._nbytes >= NBYTES_REMEMBERED:
            self._engine.state.forget(self._taken)
            self._parcels = self._nbytes = 0
        return given, parcel.nbytes

    def given(self, left: Iterator[Any]) -> int:
        """Return how many elements of the current parcel (group of elements) the consumer has received."""
        return len(self._elements) - operator.length_hint(left)

    def is_in_parcel(self, left: Iterator[Any]) -> bool:
        """Return True if the consumer has received more than one element of the current parcel (group of elements)."""
        return self.given(left) > 1

    def number(self, left: Iterator[Any]) -> int:
        """Return the number of the next element. Elements are numbered from the start of the stream."""
        return self._before + self._place(left)

    def saved(self, left: Iterator[Any]) -> Saved:
        """Return the loader state for resuming after the last received element."""
        engine, place = self._engine, self._place(left)
        ranks = self._opening.ranks
        stream = self.hash(left)
        return Saved(
            elements=self._before + place,
            epoch=engine.options.epoch,
            seed=engine.state.root_seed,
            pipeline=engine.state.identity.stored(),
            stream={
                **stream.state(),
                "next_index": self._delivered.next_index,
                "share": ranks.share,
                "shares": ranks.shares,
                "policy": self._opening.sharing.policy,
                **_worker(self._opening.workers),
            },
            steering=self._opening.steering.as_dict(),
            **engine.state.place(place),
        )

    def hash(self, left: Iterator[Any]) -> StreamHash:
        """Return the stream hash of all received rows."""
        self._count(self.given(left))
        return self._delivered.value()

    def last_ids(self, left: Iterator[Any]) -> RowIds | None:
        """Return the row ids of the last received element; None if no element of the current parcel was received."""
        given = self.given(left)
        if self._parcel is None or given == 0:
            return None
        return self._ids_of(self._parcel, self._numbers[given - 1])

    def origins(self, left: Iterator[Any], element: Any) -> list[Origin]:
        """Return the origins (files and records) of an element's rows."""
        given = self.given(left)
        if self._parcel is None or given == 0:
            raise UnknownElementError("origins() has no element: none was received yet, or the last one was released")
        # Only the last hand-over of an object is unambiguous: Python and user functions reuse one object for many rows.
        if element is not LAST_ELEMENT and element is not self._elements[given - 1]:
            raise UnknownElementError(
                f"origins() received a {type(element).__name__} that is not the last element. "
                "Call loader.origins() without an argument before requesting the next element."
            )
        entry, own = self._entry(self._parcel, self._numbers[given - 1])
        return self._engine.state.origins_of(own, entry)

    def settle(self, left: Iterator[Any]) -> None:
        """Report the final number of received elements to the engine."""
        self._engine.settle(self._place(left))

    def freeze(self, left: Iterator[Any]) -> int:
        """Discard the elements of the current parcel that were not received. Return the number of received elements."""
        if self._parcel is None:
            return 0
        given, place = self.given(left), self._place(left)
        self._count(given)
        self._taken = place
        self._drop_parcel()
        return given

    def _place(self, left: Iterator[Any]) -> int:
        """Return how many elements of this engine precede the consumer's position."""
        given = self.given(left)
        return self._taken + (self._numbers[given - 1] + 1 if self._parcel is not None and given else 0)

    def _drop_parcel(self) -> None:
        self._parcel, self._elements, self._numbers, self._counted = None, (), (), 0

    def _count(self, given: int) -> None:
        """Add the rows of the parcel's first ``given`` elements to the stream hash, each row only once."""
        parcel, numbers = self._parcel, self._numbers[self._counted : given]
        if parcel is None or not numbers:
            return
        self._counted = given
        if self._runs and isinstance(numbers, range) and isinstance(parcel.ids, list):
            is_rest = numbers.stop == len(parcel.ids)
            counted = self._runs if is_rest else parcel.ids[numbers.start : numbers.stop]
            self._count_of_runs(sum(map(_rows_in, counted)))
        elif isinstance(parcel.ids, list) and not _are_own_rows(parcel.ids, numbers):
            for start in range(0, len(numbers), COUNTED_AT_ONCE):
                ids = [self._ids_of(parcel, number) for number in numbers[start : start + COUNTED_AT_ONCE]]
                self._delivered.add(_without_padding(RowIds.concat(ids)))
        elif isinstance(numbers, range):
            self._delivered.add(_without_padding(parcel.own_ids.slice(numbers.start, numbers.stop)))
        else:
            self._delivered.add(_without_padding(parcel.own_ids.take(list(numbers))))

    def _count_of_runs(self, rows: int) -> None:
        while rows > 0:
            run = self._runs.popleft()
            self._delivered.add(_without_padding(run.slice(0, rows)))
            if len(run) > rows:
                self._runs.appendleft(run.slice(rows, len(run)))
            rows -= len(run)

    def _ids_of(self, parcel: Parcel, number: int) -> RowIds:
        entry, own = self._entry(parcel, number)
        return source_ids(own, entry)

    def _entry(self, parcel: Parcel, number: int) -> tuple[MadeOf | None, RowIds]:
        made_of = parcel.ids[number] if isinstance(parcel.ids, list) else None
        return made_of, parcel.own_ids.row(number)


def _worker(workers: LoaderWorkers) -> dict[str, Any]:
    """Return the entry of a saved state that identifies the DataLoader worker; empty if the rank has a single
    process."""
    return {} if workers.count == 1 else {"worker": [workers.number, workers.count]}


def _delivered(opening: Opening, engine: Engine) -> Delivered:
    """Return the stream hash of the received rows. The hash starts with the value in the saved state."""
    share, shares = opening.ranks.share, opening.ranks.shares
    delivered = Delivered(RowNames(engine.state.origins), next_index=share, step=shares)
    stream = None if opening.saved is None else opening.saved.stream
    if stream is None:
        return delivered
    if (stream["share"], stream["shares"]) == (share, shares):
        own = {"hash": stream["hash"], "rows": stream["rows"], "next_index": stream["next_index"]}
    else:  # other ranks resume: the first one inherits the joint hash, if it is known
        rows = stream["next_index"] - stream["share"]
        known = stream["shares"] == 1 and share == 0
        start = {"hash": stream["hash"], "rows": stream["rows"]} if known else StreamHash().state()
        own = {**start, "next_index": rows + share}
    delivered.restore(own)
    return delivered


def _are_own_rows(entries: list[MadeOf | None], numbers: Sequence[int]) -> bool:
    return isinstance(numbers, range) and are_own_rows(entries[numbers.start : numbers.stop])


def _rows_in(made_of: MadeOf | None) -> int:
    return 1 if made_of is None else len(made_of)


def _without_padding(ids: RowIds) -> RowIds:
    return ids.keep(~padding_rows(ids)) if has_padding(ids) else ids
