"""Resolve the split numbers of row ids to sources, epochs and shards.

A row id is a pair (split, ordinal). The upper bits of the split number name a *namespace*: one run of one source in
one epoch. The lower bits name the split inside that namespace.
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
from aiostream_data.rows.lineage import Lineage, MadeOf
from aiostream_data.rows.row_ids import SPLIT_BITS, SPLIT_MASK, RowIds
from aiostream_data.safe_url import safe_url
from aiostream_data.transforms.randomness import key_of

_REMEMBERED: Final = 1 << 18


class Cached(NamedTuple):
    """Mark of rows that a cache emitted in a later epoch than the one in which it read them.

    Attributes:
        cache: Stable name of the cache, equal in every run.
        epoch: Epoch of the source in which the cache read the rows.
    """

    cache: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Namespace:
    """One run of one source in one epoch.

    Attributes:
        source: Stable name of the source, equal in every run.
        number: Number of the source in its own plan.
        epoch: Epoch of the run.
        url_of: Function that returns the URL or name of a split, for messages.
        base: Namespace bits of split numbers; add the number of the split inside the run.
        cached: Caches that emitted the rows in a later epoch, the outermost first.
        locate: Function that returns known record offsets for splits and ordinals of rows, or None.
        listed: Digest of the shard list, if the state has no other summary of the list.
    """

    source: int
    number: int
    epoch: int
    url_of: Callable[[int], str]
    base: int
    cached: tuple[Cached, ...] = ()
    locate: Locate | None = None
    listed: str = ""


Locate: TypeAlias = "Callable[[NDArray[np.int64], NDArray[np.int64]], Sequence[Hint]]"
"""Function from arrays of splits and ordinals to known offsets of records at or before these rows."""


class Hint(NamedTuple):
    """Byte offset of one record: record ``ordinal`` of split ``split`` begins at byte ``offset`` of the object."""

    split: int
    ordinal: int
    offset: int


Rename: TypeAlias = "Callable[[Namespace], Namespace]"

SAVED: Final = -2
"""Value of ``Namespace.source`` for a namespace of a saved state. Rows in it are requests to recall them."""

_FORGOTTEN: Final = Namespace(-1, -1, 0, lambda _: "<forgotten source>", 0)


def source_of(path: int, number: int) -> int:
    """Compute the name of a source, which is equal in every run.

    Args:
        path: Path of the source's plan.
        number: Number of the source in that plan.
    """
    return int(key_of(path, number)) >> 1


def local(ids: RowIds) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the splits within the source and the ordinals of rows that come directly from a source."""
    return ids.splits & SPLIT_MASK, ids.ordinals.copy()


class Origins:
    """Table of namespaces, which resolves row ids. Reading is safe from any thread."""

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
    ) -> Namespace:
        """Create a namespace. Safe from any thread."""
        with self._opening:
            place, self._next = self._next, self._next + 1
        namespace = Namespace(source, number, epoch, url_of, place << SPLIT_BITS, cached, locate, listed)
        self._known[place] = namespace
        if len(self._known) > _REMEMBERED:  # bounds memory with millions of inner data sets
            self._known.popitem(last=False)
        return namespace

    def opened_since(self, number: int) -> list[Namespace]:
        """Return the stored namespaces from number ``number`` on, in order. Safe from any thread."""
        found = (self._known.get(later) for later in range(number, self._next))
        return [namespace for namespace in found if namespace is not None]

    def namespace(self, number: int) -> Namespace:
        """Return the namespace with this number (the upper bits of a split number)."""
        return self._known.get(number, _FORGOTTEN)

    def adopt(self, ids: RowIds, other: Origins, moved: dict[int, int], name: Rename) -> RowIds:
        """Translate ids of the table ``other`` into ids of this table for the same rows. Call from the loop.

        Args:
            moved: Map from namespace numbers of ``other`` to bases in this table; reuse it between calls.
            name: Returns the new description of a namespace of ``other``.
        """
        for number in ids.namespaces():
            if number not in moved:
                known = other.namespace(number)
                now = name(known)
                is_same = now is known and other is self
                moved[number] = number << SPLIT_BITS if is_same else self._reopened(now).base
        return ids.renamed(moved.__getitem__)

    def _reopened(self, known: Namespace) -> Namespace:
        return self.open(
            known.source, known.number, known.epoch, known.url_of, known.cached, known.locate, known.listed
        )

    def adopt_made_of(self, entry: MadeOf | None, other: Origins, moved: dict[int, int], name: Rename) -> MadeOf | None:
        """Translate the ``made_of`` entry of an element; see :meth:`adopt`."""
        if isinstance(entry, Lineage):
            return self.adopt_lineage(entry, other, moved, name)
        return None if entry is None else self.adopt(entry, other, moved, name)

    def adopt_lineage(self, rows: Lineage, other: Origins, moved: dict[int, int], name: Rename) -> Lineage:
        """Translate a lineage; see :meth:`adopt`."""
        made_of = rows.made_of
        if made_of is not None:
            made_of = [self.adopt_made_of(part, other, moved, name) for part in made_of]
        return type(rows)(self.adopt(rows.ids, other, moved, name), made_of)

    def url_and_index(self, split: int, ordinal: int) -> tuple[str, int]:
        """Return the URL or source name of a row, and its record index."""
        namespace = self._known.get(split >> SPLIT_BITS)
        return (namespace or _FORGOTTEN).url_of(split & SPLIT_MASK), ordinal

    def telling(self, pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Return the most informative pair of a row's ids: the first one from a stored file, or else the first one."""
        read = (pair for pair in pairs if self.namespace(pair[0] >> SPLIT_BITS).locate is not None)
        return next(read, pairs[0])

    def offset_of(self, split: int, ordinal: int) -> Hint | None:
        """Return the last known record offset at or before a row of a file; None if none is known."""
        locate = self.namespace(split >> SPLIT_BITS).locate
        hints = locate(np.array([split & SPLIT_MASK]), np.array([ordinal])) if locate is not None else ()
        return hints[0] if hints else None

    def describe(self, ids: RowIds, row: int) -> str:
        """Return "URL record N" for row ``row`` of ``ids``, with the byte offset if it is known."""
        if not 0 <= row < len(ids):
            return "an unknown record"
        return self.name_of(ids.pairs_of(row))

    def name_of(self, pairs: Sequence[tuple[int, int]]) -> str:
        """Return the text of :meth:`describe` for the pairs of one row's ids."""
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
        """Return (source, epoch, split inside the source), which is equal in every run of the plan."""
        source, epoch = self.name_of_namespace(split >> SPLIT_BITS)
        return source, epoch, split & SPLIT_MASK

    def name_of_namespace(self, number: int) -> tuple[int, int]:
        """Return (source, epoch) of a namespace, which is equal in every run of the plan.

        Raises:
            CardinalityError: The namespace belongs to a saved state and can only be used to recall rows.
        """
        namespace = self.namespace(number)
        if namespace.source == SAVED:
            raise CardinalityError(
                f"a row that was read again kept its name of the saved state ({namespace.url_of(0)}); this is a bug "
                "in aiostream_data, and the order and random draws of what follows cannot be trusted"
            )
        return namespace.source, namespace.epoch
