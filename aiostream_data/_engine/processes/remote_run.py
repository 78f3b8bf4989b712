"""Reading end of a plan's run in another process.

The receiving thread queues the messages of the process, and the engine's event loop reads them. Any thread may send
requests and ``forget`` messages to the process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from aiostream_data._engine.failures.carried_error import as_raisable
from aiostream_data.errors import CardinalityError
from aiostream_data.rows.records import Chunk


class Link(Protocol):
    """Connection of a run to its process."""

    def ask(self, question: str, *args: Any) -> Any:
        """Send a request and return the answer. Raise WorkerDiedError if the process does not answer."""

    def tell(self, *message: Any) -> None:
        """Send a message. Does nothing if the process has ended."""

    def drop(self, number: int) -> None:
        """Forget a run. Never blocks."""


class Arrived(NamedTuple):
    """Chunk received from another process. This process owns its memory.

    Attributes:
        nbytes: Size of the chunk in bytes, as counted by the other process.
    """

    chunk: Chunk
    nbytes: int


class RemoteRun:
    """Run of a plan in another process, read on the engine's event loop.

    Args:
        process: Connection to the process.
        number: Number of the run in the process.
        on_drained: Called on the event loop when the sources of the run have read their last row.
    """

    def __init__(self, process: Link, number: int, on_drained: Callable[[], None]) -> None:
        self._process = process
        self._number = number
        self._on_drained = on_drained
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[Arrived | BaseException | int] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._rows = 0
        self._is_read = True

    async def next(self) -> Arrived | None:
        """Return the next chunk, or None after the last.

        Raises:
            BaseException: The error of the run.
            CardinalityError: Rows were lost between the processes.
        """
        while not self._arrived:
            self._waiter = self._loop.create_future()
            await self._waiter
        found = self._arrived.popleft()
        if isinstance(found, Arrived):
            self._rows += len(found.chunk)
            return found
        self._arrived.append(found)  # later calls return or raise the same
        if isinstance(found, BaseException):
            raise as_raisable(found)
        if found != self._rows:
            raise CardinalityError(
                f"{found} rows were handed over and {self._rows} arrived; this is a bug in aiostream_data, and the "
                "epoch cannot be trusted"
            )
        return None

    @property
    def ready(self) -> bool:
        """True if :meth:`next` would not block."""
        return bool(self._arrived)

    def taken(self, nbytes: int) -> None:
        """Acknowledge a chunk, so that the process can send more."""
        self._process.tell("taken", self._number, nbytes, 1)

    def place(self, rows: int) -> dict[str, Any]:
        """Return the parts of a state that resume the run after row ``rows``. Thread-safe.

        Raises:
            WorkerDiedError: The process has died.
        """
        found: dict[str, Any] = self._process.ask("place", self._number, rows)
        return found

    def forget(self, rows: int) -> None:
        """Discard history before row ``rows``. Thread-safe."""
        self._process.tell("forget", self._number, rows)

    def stop(self) -> None:
        """Stop the run and discard its unread chunks. :meth:`place` still works afterwards."""
        self._is_read = False
        self._on_drained = _nothing
        self._arrived.clear()
        self._process.tell("stop", self._number)

    def drop(self) -> None:
        """Discard the history of this run. Never blocks, so finalizers may call it."""
        self._process.drop(self._number)

    # -- on the receiving thread

    def hear(self, what: Arrived | BaseException | int | None) -> None:
        """Queue a message: a chunk, an error, the number of rows at the end, or None when the sources are drained."""
        with suppress(RuntimeError):  # the engine's loop is closed, so the run is no longer read
            self._loop.call_soon_threadsafe(self._hear, what)

    def _hear(self, what: Arrived | BaseException | int | None) -> None:
        if what is None:
            self._on_drained()
            return
        if self._is_read:
            self._arrived.append(what)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _nothing() -> None:
    """Do nothing."""
