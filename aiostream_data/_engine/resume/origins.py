"""Find the source, epoch and shard of a row from the split numbers in its row id.

A row id is a pair of numbers (split, ordinal). The upper bits of the split number identify a *namespace*: one run of
one source in one epoch. The lower bits of the split number identify the split (e.g. a shard) inside the namespace.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CardinalityError
from aiostream_data.rows.id_arrays import SPLIT_BITS, SPLIT_MASK
from aiostream_data.rows.lineage import Lineage, MadeOf
from aiostream_data.rows.records import ShardRef
from aiostream_data.rows.row_ids import RowIds
from aiostream_data.safe_url import safe_url
from aiostream_data.transforms.randomness import key_of

_REMEMBERED: Final = 1 << 18
"""Maximum number of namespaces in a table. Most of them belong to sources that have ended."""


def always(name: str) -> Callable[[int], str]:
    """Return a function that gives every split the same name.

    The function refers to nothing but the name. A reference to the source would keep its data in memory after its end.
    """
    return lambda _: name


class Cached(NamedTuple):
    """Marker for rows that a cache read in one epoch and emitted in a later epoch.

    Attributes:
        cache: Name of the cache, which is equal in every run.
        epoch: Epoch of the source when the cache read the rows.
    """

    cache: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Namespace:
    """Namespace: one run of one source in one epoch.

    Attributes:
        source: Name of the source, which is equal in every run.
        number: Number of the source in the plan that contains it.
        epoch: Number of the epoch in which the source ran.
        url_of: Function that returns the URL or name of a split, for error messages.
        base: Upper bits of all split numbers in this namespace. The lower bits are the number of the split inside the
            run.
        cached: Caches that emitted the rows in a later epoch, outermost cache first.
        locate: Function that returns known byte offsets of records for splits and ordinals of rows, or None.
        listed: Digest of the shard list; set if the saved state contains no other summary of the list.
        times: Number of epochs of a source that repeats its rows itself. Each repetition is a split.
        kind: Distinguishes the small datasets of one operator, which differ only in the names of their sources.
        object_of: Function that returns the object that a row names, by its ordinal; None unless the rows name objects.
    """

    source: int
    number: int
    epoch: int
    url_of: Callable[[int], str]
    base: int
    cached: tuple[Cached, ...] = ()
    locate: Locate | None = None
    listed: str = ""
    times: int | None = None
    kind: str = ""
    object_of: ObjectOf | None = None

    def epoch_of(self, split: int) -> int:
        """Return the number of the epoch to which the rows of a split belong."""
        return self.epoch if self.times is None else self.epoch * self.times + split


Locate: TypeAlias = "Callable[[NDArray[np.int64], NDArray[np.int64]], Sequence[Hint]]"
"""Function that takes arrays of splits and ordinals, and returns byte offsets of records at or before these rows."""

ObjectOf: TypeAlias = Callable[[int], ShardRef | None]
"""Function that returns an object as it was listed, or None if it is no longer listed."""


class Hint(NamedTuple):
    """Byte offset of a record: record ``ordinal`` of split ``split`` begins at byte ``offset`` of the file."""

    split: int
    ordinal: int
    offset: int


Rename: TypeAlias = "Callable[[Namespace], Namespace]"

SAVED: Final = -2
"""Value of ``Namespace.source`` for a namespace that was read from a saved state.

The rows in a namespace from a saved state are rows to recompute.
"""

_FORGOTTEN: Final = Namespace(-1, -1, 0, lambda _: "<forgotten source>", 0)


def source_of(path: int, number: int) -> int:
    """Compute the numeric name of a source. The name is equal in every run.

    Args:
        path: Key of the position of the plan that contains the source.
        number: Number of the source in its plan.
    """
    return int(key_of(path, number)) >> 1


def local(ids: RowIds) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the splits within the source and the ordinals of rows that come directly from a source."""
    return ids.splits & SPLIT_MASK, ids.ordinals.copy()


class Origins:
    """Table of namespaces (runs of sources), used to find the source of a row id. Any thread may read this table."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Namespace] = OrderedDict()
        self._next = 1  # 0 is reserved for pairs without a source
        self._opening = Lock()

    def open(
        self,
        source: int,
        number: int,
        epoch: int,
        url_of: Callable[[int], str],
        cached: tuple[Cached, ...] = (),
        locate: Locate | None = None,
        listed: str = "",
        times: int | None = None,
        kind: str = "",
        object_of: ObjectOf | None = None,
    ) -> Namespace:
        """Create a namespace. Safe from any thread."""
        with self._opening:
            place, self._next = self._next, self._next + 1
        more = cached, locate, listed, times, kind, object_of
        namespace = Namespace(source, number, epoch, url_of, place << SPLIT_BITS, *more)
        self._known[place] = namespace
        if len(self._known) > _REMEMBERED:  # bounds memory with millions of inner data sets
            self._known.popitem(last=False)
        return namespace

    def opened_since(self, number: int) -> list[Namespace]:
        """Return all stored namespaces whose number is at least ``number``, in order. Safe from any thread."""
        found = (self._known.get(later) for later in range(number, self._next))
        return [namespace for namespace in found if namespace is not None]

    def namespace(self, number: int) -> Namespace:
        """Return the namespace that has this number (the upper bits of a split number)."""
        return self._known.get(number, _FORGOTTEN)

    def adopt(self, ids: RowIds, other: Origins, moved: dict[int, int], name: Rename) -> RowIds:
        """Convert row ids of the table ``other`` into ids of this table for the same rows. Call from the loop.

        Args:
            moved: Maps namespace numbers of ``other`` to ``base`` values of namespaces in this table. Reuse the dict in
                later calls.
            name: Function that returns the new description of a namespace of ``other``.
        """
        for number in ids.namespaces():
            if number not in moved:
                known = other.namespace(number)
                now = name(known)
                is_same = now is known and other is self
                moved[number] = number << SPLIT_BITS if is_same else self._reopened(now).base
        return ids.renamed(moved.__getitem__)

    def _reopened(self, known: Namespace) -> Namespace:
        more = known.cached, known.locate, known.listed, known.times, known.kind, known.object_of
        return self.open(known.source, known.number, known.epoch, known.url_of, *more)

    def adopt_made_of(self, entry: MadeOf | None, other: Origins, moved: dict[int, int], name: Rename) -> MadeOf | None:
        """Convert the row ids in the ``made_of`` entry of an element; see :meth:`adopt`."""
        if isinstance(entry, Lineage):
            return self.adopt_lineage(entry, other, moved, name)
        return None if entry is None else self.adopt(entry, other, moved, name)

    def adopt_lineage(self, rows: Lineage, other: Origins, moved: dict[int, int], name: Rename) -> Lineage:
        """Convert the row ids in a lineage; see :meth:`adopt`."""
        made_of = rows.made_of
        if made_of is not None:
            made_of = [self.adopt_made_of(part, other, moved, name) for part in made_of]
        return type(rows)(self.adopt(rows.ids, other, moved, name), made_of)

    def url_and_index(self, split: int, ordinal: int) -> tuple[str, int]:
        """Return the URL or source name of a row, and the index of the record in this source."""
        namespace = self._known.get(split >> SPLIT_BITS)
        return (namespace or _FORGOTTEN).url_of(split & SPLIT_MASK), ordinal

    def telling(self, pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Return the first pair of a row's ids that refers to a stored file. If no pair does, return the first pair."""
        read = (pair for pair in pairs if self.namespace(pair[0] >> SPLIT_BITS).locate is not None)
        return next(read, pairs[0])

    def offset_of(self, split: int, ordinal: int) -> Hint | None:
        """Return the last known byte offset of a record at or before this row of a file; None if unknown."""
        locate = self.namespace(split >> SPLIT_BITS).locate
        hints = locate(np.array([split & SPLIT_MASK]), np.array([ordinal])) if locate is not None else ()
        return hints[0] if hints else None

    def describe(self, ids: RowIds, row: int) -> str:
        """Return "URL record N" for the row number ``row`` of ``ids``, with the byte offset if it is known."""
        if not 0 <= row < len(ids):
            return "an unknown record"
        return self.name_of(ids.pairs_of(row))

    def name_of(self, pairs: Sequence[tuple[int, int]]) -> str:
        """Return the text "URL record N" for the pairs of numbers in one row's ids."""
        split, ordinal = self.telling(pairs)
        url, index = self.url_and_index(split, ordinal)
        hint = self.offset_of(split, ordinal)
        url = safe_url(url)
        if hint is None or (hint.ordinal == 0 and index > 0):
            return f"{url} record {index}"
        after = index - hint.ordinal
        where = f"at byte {hint.offset}" if not after else f"{after} records behind the one at byte {hint.offset}"
        return f"{url} record {index}, {where}"

    def stable(self, split: int) -> tuple[int, int, int]:
        """Return (source, epoch, split inside the source) for a split number.

        The result is equal in every run of the plan.
        """
        source, epoch = self.name_of_namespace(split >> SPLIT_BITS)
        return source, epoch, split & SPLIT_MASK

    def name_of_namespace(self, number: int) -> tuple[int, int]:
        """Return (source, epoch) of a namespace. The result is equal in every run of the plan.

        Raises:
            CardinalityError: The namespace belongs to a saved state; its rows can only be recomputed.
        """
        namespace = self.namespace(number)
        if namespace.source == SAVED:
            raise CardinalityError(
                f"a row that was read again kept its id of the saved state ({namespace.url_of(0)}). "
                "This is a bug in aiostream_data: report it, and discard this epoch."
            )
        return namespace.source, namespace.epoch
