"""Where a running plan can be taken up again: what stages say of their place, as numbers of rows.

How this works. Every running node counts the rows it has given since its run began. Asked where the
stream goes on after row ``n`` of its own, it says how many rows of its inputs that stands for, asks them
in turn, and adds what it needs to know itself: counters, and which rows it held back at that moment. The
consumer's place is row ``n`` of the last node. Nothing travels with the data for it: a node that does not
give one row per row keeps a short :class:`Log` of what it did, which is forgotten as the consumer goes on.

Answers are plain data. ``None`` stands for the very beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data.errors import StateMismatchError

State: TypeAlias = Any
"""Plain data: where one node and all that it reads go on."""

POSITION: Final = 'state["position"]'
"""Path of the place of the whole plan."""

E = TypeVar("E")


class Position(Protocol):
    """The place of one running node. Safe from any thread."""

    def at(self, rows: int, book: BookWriter) -> State:
        """Return from where what follows the first ``rows`` rows of this run can be read."""

    def forget(self, rows: int) -> None:
        """Discard history before row ``rows``."""


class Log(Generic[E]):
    """Entries in order of the row from which each one holds. Safe from any thread."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._entries: list[E] = []
        self._lock = Lock()

    @property
    def first(self) -> int:
        """The row with which the first entry begins that is still known; 0 where there is none."""
        with self._lock:
            return self._starts[0] if self._starts else 0

    def add(self, start: int, entry: E) -> None:
        """Add an entry; it replaces one that begins at the same row."""
        with self._lock:
            if self._starts and self._starts[-1] == start:
                self._entries[-1] = entry
            else:
                self._starts.append(start)
                self._entries.append(entry)

    def find(self, row: int) -> tuple[int, E] | None:
        """Return the last entry that begins at ``row`` or before, with its start."""
        with self._lock:
            number = bisect_right(self._starts, row) - 1
            return (self._starts[number], self._entries[number]) if number >= 0 else None

    def since(self, row: int) -> list[tuple[int, E]]:
        """Return the entry that :meth:`find` gives, and all after it."""
        with self._lock:
            number = max(0, bisect_right(self._starts, row) - 1)
            return list(zip(self._starts[number:], self._entries[number:], strict=True))

    def forget(self, row: int) -> None:
        """Drop what is not needed to find rows from ``row`` on."""
        with self._lock:
            number = bisect_right(self._starts, row) - 1
            if number > 0:
                del self._starts[:number], self._entries[:number]


def in_order_only(what: str) -> StateMismatchError:
    """Return the error of a state that counts what came in order, for a plan in which it comes in any order."""
    return StateMismatchError(
        [f"the state counts {what}, which came in order; go on in order too: with deterministic=True and ordered=True"]
    )


def taken_up(state: State, kind: str) -> dict[str, Any]:
    """Return the state of a node of this kind.

    Raises:
        StateMismatchError: It is of another kind of node.
    """
    found = state.get("op") if isinstance(state, dict) else type(state).__name__
    if found != kind:
        raise StateMismatchError([f"the state holds the place of {found!r} where this plan has {kind!r}"])
    return dict(state)
