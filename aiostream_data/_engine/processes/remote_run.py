"""Reader of the chunks of a plan that runs in another process.

The receiving thread queues the messages of the other process, and the engine's event loop reads this queue. Any thread
may send requests and ``forget`` messages to the other process.
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
    """Connection between a run and the process that executes it."""

    def ask(self, question: str, *args: Any) -> Any:
        """Send a request to the other process and return its answer.

        Raise WorkerDiedError if the other process does not answer.
        """

    def tell(self, *message: Any) -> None:
        """Send a message. If the other process has ended, do nothing."""

    def drop(self, number: int) -> None:
        """Forget a run. Never blocks."""


class Arrived(NamedTuple):
    """Chunk received from another process. The receiving process owns the memory of the chunk.

    Attributes:
        nbytes: Size of the chunk in bytes, as counted by the other process.
    """

    chunk: Chunk
    nbytes: int


class RemoteRun:
    """Run of a plan in another process; the engine's event loop reads its chunks.

    Args:
        process: Connection to the other process.
        number: Number that the other process uses for the run.
        on_drained: Function called on the event loop when the sources of the run have read their last row.
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
        """Return the next chunk, or None after the last chunk.

        Raises:
            BaseException: The error that ended the run in the other process.
            CardinalityError: Rows were lost between the two processes.
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
                f"rows of in_subprocess() were lost: {found} rows were sent and {self._rows} arrived. "
                "This is a bug in aiostream_data: report it, and discard this epoch."
            )
        return None

    @property
    def ready(self) -> bool:
        """True if :meth:`next` would not block."""
        return bool(self._arrived)

    def taken(self, nbytes: int) -> None:
        """Acknowledge a chunk, so that the other process can send more chunks."""
        self._process.tell("taken", self._number, nbytes, 1)

    def place(self, rows: int) -> dict[str, Any]:
        """Return the parts of a saved state from which the run resumes after row ``rows``. Thread-safe.

        Raises:
            WorkerDiedError: The other process has died.
        """
        found: dict[str, Any] = self._process.ask("place", self._number, rows)
        return found

    def forget(self, rows: int) -> None:
        """Discard the history before row ``rows``, which no saved state will need. Thread-safe."""
        self._process.tell("forget", self._number, rows)

    def stop(self) -> None:
        """Stop the run and discard the chunks that were not read. :meth:`place` can still be called afterwards."""
        self._is_read = False
        self._on_drained = _nothing
        self._arrived.clear()
        self._process.tell("stop", self._number)

    def drop(self) -> None:
        """Discard the complete history of this run. This method never blocks, so finalizers may call it."""
        self._process.drop(self._number)

    # -- on the receiving thread

    def hear(self, what: Arrived | BaseException | int | None) -> None:
        """Queue one message: a chunk, an error, the final number of rows, or None after the sources' last row."""
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
