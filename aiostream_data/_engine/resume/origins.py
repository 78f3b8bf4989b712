"""Where rows came from: the split numbers in row ids, and what they stand for.

A row id is (split, ordinal). The upper bits of the split number name a *namespace* (one run of one
source in one epoch), the lower bits the split inside it.
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
    """A cache gave rows in another epoch than the one in which it had read them.

    Attributes:
        cache: Names the cache in its place, the same in every run.
        epoch: Of the source, when the cache read the rows.
    """

    cache: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Namespace:
    """One run of one source.

    Attributes:
        source: Names the source in its place, the same in every run.
        number: The source's number in its own plan.
        epoch: Which repetition this run is.
        url_of: Name of a split, for messages.
        base: What to add to a split's number inside the run.
        cached: The caches that gave the rows in another epoch, the outermost first.
        locate: Given splits and ordinals of rows, tells from where on they can be read.
        listed: Digest of the list of shards, where the state has no other summary of it.
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
"""Given splits and ordinals of rows, tells where records at or before them begin."""


class Hint(NamedTuple):
    """Record ``ordinal`` of a split begins at byte ``offset`` of the object."""

    split: int
    ordinal: int
    offset: int


Rename: TypeAlias = "Callable[[Namespace], Namespace]"

SAVED: Final = -2
"""In place of a source: a namespace of a saved state. Rows named by it are requests to read them again."""

_FORGOTTEN: Final = Namespace(-1, -1, 0, lambda _: "<forgotten source>", 0)


def source_of(path: int, number: int) -> int:
    """Return the name of a source that is the same in every run.

    Args:
        path: Of its plan.
        number: Of the source in that plan.
    """
    return int(key_of(path, number)) >> 1


def local(ids: RowIds) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the splits inside their source, and the ordinals, of rows that come straight from a source."""
    return ids.splits & SPLIT_MASK, ids.ordinals.copy()


class Origins:
    """Hands out namespaces and explains row ids. Reading is safe from any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, Namespace] = OrderedDict()
        self._next = 1  # 0 is for pairs that name no source
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
        """Return a new namespace. Safe from any thread."""
        with self._opening:
            place, self._next = self._next, self._next + 1
        namespace = Namespace(source, number, epoch, url_of, place << SPLIT_BITS, cached, locate, listed)
        self._known[place] = namespace
        if len(self._known) > _REMEMBERED:  # millions of tiny inner data sets must not pile up
            self._known.popitem(last=False)
        return namespace

    def opened_since(self, number: int) -> list[Namespace]:
        """Return the namespaces opened from this number on that are still known, in order. Safe from any thread."""
        found = (self._known.get(later) for later in range(number, self._next))
        return [namespace for namespace in found if namespace is not None]

    def namespace(self, number: int) -> Namespace:
        """Return the namespace that the upper bits of a split number name."""
        return self._known.get(number, _FORGOTTEN)

    def adopt(self, ids: RowIds, other: Origins, moved: dict[int, int], name: Rename) -> RowIds:
        """Return ids that name the same rows as these, which ``other`` handed out. Call from the loop.

        Args:
            moved: Which of the other's namespaces became which of these; kept between calls.
            name: Returns what a namespace is from now on.
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
        """Like :meth:`adopt`, for what an element was made of."""
        if isinstance(entry, Lineage):
            return self.adopt_lineage(entry, other, moved, name)
        return None if entry is None else self.adopt(entry, other, moved, name)

    def adopt_lineage(self, rows: Lineage, other: Origins, moved: dict[int, int], name: Rename) -> Lineage:
        """Like :meth:`adopt`, for rows and what they were made of."""
        made_of = rows.made_of
        if made_of is not None:
            made_of = [self.adopt_made_of(part, other, moved, name) for part in made_of]
        return type(rows)(self.adopt(rows.ids, other, moved, name), made_of)

    def url_and_index(self, split: int, ordinal: int) -> tuple[str, int]:
        """Return the URL (or source name) and the record index of a row."""
        namespace = self._known.get(split >> SPLIT_BITS)
        return (namespace or _FORGOTTEN).url_of(split & SPLIT_MASK), ordinal

    def telling(self, pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Return the pair of a row's ids that says most: of what was read from a store, or else the first."""
        read = (pair for pair in pairs if self.namespace(pair[0] >> SPLIT_BITS).locate is not None)
        return next(read, pairs[0])

    def offset_of(self, split: int, ordinal: int) -> Hint | None:
        """Return the last known record at or before a row of a file; None where nothing is known."""
        locate = self.namespace(split >> SPLIT_BITS).locate
        hints = locate(np.array([split & SPLIT_MASK]), np.array([ordinal])) if locate is not None else ()
        return hints[0] if hints else None

    def describe(self, ids: RowIds, row: int) -> str:
        """Return "URL record N" of row ``row`` of ``ids``; with the byte where it begins, as far as that is known."""
        if not 0 <= row < len(ids):
            return "an unknown record"
        return self.name_of(ids.pairs_of(row))

    def name_of(self, pairs: Sequence[tuple[int, int]]) -> str:
        """Return what :meth:`describe` does for the pairs of one row's ids."""
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
        """Return (source, epoch, split inside the source): the same in every run of the plan."""
        source, epoch = self.name_of_namespace(split >> SPLIT_BITS)
        return source, epoch, split & SPLIT_MASK

    def name_of_namespace(self, number: int) -> tuple[int, int]:
        """Return (source, epoch) of a namespace: the same in every run of the plan.

        Raises:
            CardinalityError: It is the namespace of a saved state, which only tells where to read rows again.
        """
        namespace = self.namespace(number)
        if namespace.source == SAVED:
            raise CardinalityError(
                f"a row that was read again kept its name of the saved state ({namespace.url_of(0)}); this is a bug "
                "in aiostream_data, and the order and random draws of what follows cannot be trusted"
            )
        return namespace.source, namespace.epoch
