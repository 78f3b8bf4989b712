"""Positions of running nodes, used to compute saved states. A stream can resume after any row.

How this works. Every running node counts the rows that it has emitted since its run began. ``at(n)`` returns the saved
state after the node's row number ``n``. ``at(n)`` computes the corresponding row numbers of the inputs, calls ``at`` on
each input, and adds the node's own data. The node's own data consists of counters and the ids of buffered rows. The
consumer's position is a row number ``n`` of the last node in the plan. Chunks of rows store no position data. If a node
does not emit one row per input row, it logs its progress in a short :class:`Log`. ``forget`` discards log entries that
are no longer needed for any saved state.

States are JSON-compatible data. In a state, ``None`` means the beginning of a stream.
"""

from __future__ import annotations

from bisect import bisect_right
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data.errors import StateMismatchError

State: TypeAlias = Any
"""JSON-compatible state of one node and all its inputs."""

POSITION: Final = 'state["position"]'
"""Path of the plan position inside a saved state. Error messages use this path."""

E = TypeVar("E")


class Position(Protocol):
    """Position of one running node. Safe from any thread."""

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state from which the stream can resume after its first ``rows`` rows."""

    def forget(self, rows: int) -> None:
        """Discard the history before row ``rows``. Later saved states must not need this history."""


class RememberedPosition:
    """Position of an input that remembers its last state.

    Most inputs of a large mixture emit no row between two states.
    """

    def __init__(self, position: Position) -> None:
        self._position = position
        self._forgotten = 0
        self._last: tuple[int, State] | None = None

    def at(self, rows: int, book: BookWriter) -> State:
        """Return the state after the first ``rows`` rows; see :class:`Position`."""
        if self._last is not None and self._last[0] == rows:
            return self._last[1]
        named_before = len(book.checks)
        state = self._position.at(rows, book)
        if len(book.checks) == named_before:  # references to rows are valid only in the state of one book
            self._last = rows, state
        return state

    def forget(self, rows: int) -> None:
        """Discard the history before row ``rows``; see :class:`Position`."""
        if rows > self._forgotten:
            self._position.forget(rows)
            self._forgotten = rows


class Log(Generic[E]):
    """Log entries, sorted by the first row of each entry.

    Each entry applies from its first row until the next entry begins. Safe from any thread.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._entries: list[E] = []
        self._lock = Lock()

    @property
    def first(self) -> int:
        """First row of the oldest log entry; 0 if the log is empty."""
        with self._lock:
            return self._starts[0] if self._starts else 0

    def add(self, start: int, entry: E) -> None:
        """Add an entry. If the last entry begins at ``start``, replace the last entry."""
        with self._lock:
            if self._starts and self._starts[-1] == start:
                self._entries[-1] = entry
            else:
                self._starts.append(start)
                self._entries.append(entry)

    def find(self, row: int) -> tuple[int, E] | None:
        """Return the last log entry that begins at or before ``row``, and the first row of this entry."""
        with self._lock:
            number = bisect_right(self._starts, row) - 1
            return (self._starts[number], self._entries[number]) if number >= 0 else None

    def since(self, row: int) -> list[tuple[int, E]]:
        """Return the entry that :meth:`find` would return for ``row``, and all later entries."""
        with self._lock:
            number = max(0, bisect_right(self._starts, row) - 1)
            return list(zip(self._starts[number:], self._entries[number:], strict=True))

    def forget(self, row: int) -> None:
        """Discard all log entries before the entry that :meth:`find` would return for ``row``."""
        with self._lock:
            number = bisect_right(self._starts, row) - 1
            if number > 0:
                del self._starts[:number], self._entries[:number]


def in_order_only(what: str) -> StateMismatchError:
    """Return the error for an ordered run that cannot be resumed with ``ordered=False``."""
    return StateMismatchError(
        [f"the state was saved by an ordered run, and counts {what}"],
        "Resume with deterministic=True and ordered=True.",
    )


def taken_up(state: State, kind: str) -> dict[str, Any]:
    """Return a copy of the saved state of a node of kind ``kind``.

    Raises:
        StateMismatchError: The state was saved by a different kind of node.
    """
    found = state.get("op") if isinstance(state, dict) else type(state).__name__
    if found != kind:
        raise StateMismatchError(
            [f"the state contains the position of {found!r}, but this plan has {kind!r} here"],
            "Open the pipeline that the state was saved from.",
        )
    return dict(state)
