"""Convert row ids of a subprocess to row ids of the loader's process.

A subprocess has its own namespaces, where a namespace is one run of one source (see
:mod:`~aiostream_data._engine.resume.origins`). Each chunk lists the namespaces opened since the previous chunk. The
loader's process opens a matching namespace for each of these. If several processes share the rows of one plan, they run
the same sources, and equal runs map to one namespace. Usually the numbers of the namespaces are equal in both
processes, so ids need no conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from aiostream_data._engine.processes.chunk_transfer import Handed, IdsSideBySide
from aiostream_data._engine.resume.origins import Cached, Hint, Namespace, Origins
from aiostream_data.rows.id_arrays import SPLIT_BITS
from aiostream_data.rows.lineage import Lineage, MadeOf
from aiostream_data.rows.row_ids import RowIds

REMEMBERED: Final = 1 << 16
"""Maximum number of stored namespaces that several processes may share."""

Ask: TypeAlias = Callable[..., Any]
"""Function that sends a request, ``ask("url", number, split)`` or ``ask("locate", number, splits, ordinals)``."""


class Space(NamedTuple):
    """Namespace of another process.

    For fields that are not listed here, see :class:`~aiostream_data._engine.resume.origins.Namespace`.

    Attributes:
        place: Number of the namespace in the process that opened it.
        is_located: True if the other process knows the byte offsets of records in this namespace.
    """

    place: int
    source: int
    number: int
    epoch: int
    cached: tuple[Cached, ...]
    is_located: bool
    listed: str
    times: int | None
    kind: str


def spaces_since(origins: Origins, place: int) -> list[Space]:
    """Return the namespaces with number ``place`` or higher, to be sent to another process."""
    return [
        Space(
            space.base >> SPLIT_BITS,
            space.source,
            space.number,
            space.epoch,
            space.cached,
            space.locate is not None,
            space.listed,
            space.times,
            space.kind,
        )
        for space in origins.opened_since(place)
    ]


class Alike:
    """Namespaces of this process, keyed by the run of their source.

    All processes of one ``in_subprocess()`` node share this object.
    """

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._lock = Lock()
        self._known = {_meaning(space): space for space in origins.opened_since(1)}  # namespaces of the state

    def space(self, sent: Space, url_of: Callable[[int], str], locate: Any) -> Namespace:
        """Return the namespace of this process that matches a namespace of another process.

        If no namespace matches, open a new namespace.

        Thread-safe.
        """
        meaning = sent.source, sent.number, sent.epoch, sent.cached, sent.kind
        with self._lock:
            if meaning not in self._known:
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                more = sent.cached, locate, sent.listed, sent.times, sent.kind
                self._known[meaning] = self._origins.open(sent.source, sent.number, sent.epoch, url_of, *more)
            return self._known[meaning]


def _meaning(space: Namespace) -> tuple[int, int, int, tuple[Cached, ...], str]:
    return space.source, space.number, space.epoch, space.cached, space.kind


class Adopted:
    """Mapping from the namespaces of one other process to namespaces of this process.

    This class is not thread-safe: use it from one thread at a time.

    Args:
        ask: Function that sends a request to the other process. The function raises an error if the other process does
            not answer.
    """

    def __init__(self, alike: Alike, ask: Ask) -> None:
        self._alike = alike
        self._ask = ask
        self._same_below: int | None = None  # first number that differs; None if all numbers are equal
        self._moved: dict[int, int] = {}

    def learn(self, spaces: Sequence[Space]) -> None:
        """Record the namespaces that the other process has opened."""
        for sent in spaces:
            locate = _Locate(self._ask, sent.place) if sent.is_located else None
            base = self._alike.space(sent, _Names(self._ask, sent), locate).base
            if self._same_below is None and base != sent.place << SPLIT_BITS:
                self._same_below = sent.place
            if self._same_below is not None:
                self._moved[sent.place] = base

    def renamed(self, sent: Handed) -> Handed:
        """Convert the row ids of a chunk received from the other process."""
        if self._same_below is None:
            return sent
        made_of = sent.made_of
        if isinstance(made_of, IdsSideBySide):
            made_of = replace(made_of, whole=self._ids(made_of.whole))
        elif made_of is not None:
            made_of = [self._made_of(entry) for entry in made_of]
        return replace(sent, ids=self._ids(sent.ids), made_of=made_of)

    def _made_of(self, entry: MadeOf | None) -> MadeOf | None:
        if not isinstance(entry, Lineage):
            return None if entry is None else self._ids(entry)
        parts = None if entry.made_of is None else [self._made_of(part) for part in entry.made_of]
        return type(entry)(self._ids(entry.ids), parts)

    def _ids(self, ids: RowIds) -> RowIds:
        return ids.renamed(lambda number: self._moved.get(number, number << SPLIT_BITS))


class _Names:
    """Names of splits (shards), requested from the other process on first use."""

    def __init__(self, ask: Ask, sent: Space) -> None:
        self._ask = ask
        self._sent = sent
        self._known: dict[int, str] = {}

    def __call__(self, split: int) -> str:
        if split not in self._known:
            try:
                self._known[split] = self._ask("url", self._sent.place, split)
            except Exception:  # noqa: BLE001 - a name is for messages, and must not replace the one it is asked for
                return f"source {self._sent.number} of a process that has ended"
        return self._known[split]


class _Locate:
    """Byte offsets of records, requested from the other process; empty if that process has ended."""

    def __init__(self, ask: Ask, place: int) -> None:
        self._ask = ask
        self._place = place

    def __call__(self, splits: NDArray[np.int64], ordinals: NDArray[np.int64]) -> Sequence[Hint]:
        try:
            found: list[Hint] = self._ask("locate", self._place, splits, ordinals)
        except Exception:  # noqa: BLE001 - rows are then read from the start of their shard, which is right and slower
            return ()
        return found
