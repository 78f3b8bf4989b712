"""One run of a plan in another process, as it is read in this one.

How this works. What the process sends is heard on the thread that receives, and read on the loop of the engine. The
other way, questions and what may be forgotten go from any thread over the process's link.
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
    """What a run needs of the process it is in."""

    def ask(self, question: str, *args: Any) -> Any:
        """Return the answer to a question, or raise WorkerDiedError."""

    def tell(self, *message: Any) -> None:
        """Send a message; nothing where the process has ended."""

    def drop(self, number: int) -> None:
        """Forget a run. Never waits."""


class Arrived(NamedTuple):
    """A chunk of another process, over memory that is this process's now.

    Attributes:
        nbytes: What the other process counts it as.
    """

    chunk: Chunk
    nbytes: int


class RemoteRun:
    """One run of a plan in another process, read on the loop of the engine.

    Args:
        process: Where it runs.
        number: The process's name for it.
        on_drained: Called on the loop when its sources have read their last row.
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
        """Return the next chunk; None after the last.

        Raises:
            BaseException: What the run failed with.
            CardinalityError: Rows were lost on the way.
        """
        while not self._arrived:
            self._waiter = self._loop.create_future()
            await self._waiter
        found = self._arrived.popleft()
        if isinstance(found, Arrived):
            self._rows += len(found.chunk)
            return found
        self._arrived.append(found)  # asked again, it answers the same
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
        """Whether :meth:`next` would not wait."""
        return bool(self._arrived)

    def taken(self, nbytes: int) -> None:
        """Acknowledge a chunk, so that the other process may send more."""
        self._process.tell("taken", self._number, nbytes, 1)

    def place(self, rows: int) -> dict[str, Any]:
        """Return where it goes on behind a row, as parts of a state. From any thread.

        Raises:
            WorkerDiedError: The process that knows has died.
        """
        found: dict[str, Any] = self._process.ask("place", self._number, rows)
        return found

    def forget(self, rows: int) -> None:
        """Discard history before row ``rows``. From any thread."""
        self._process.tell("forget", self._number, rows)

    def stop(self) -> None:
        """End it, if it has not ended. Nobody reads it any more; its places can still be asked for."""
        self._is_read = False
        self._on_drained = _nothing
        self._arrived.clear()
        self._process.tell("stop", self._number)

    def drop(self) -> None:
        """Discard the history of this run. Never waits; finalizers call it too."""
        self._process.drop(self._number)

    # -- on the thread that receives

    def hear(self, what: Arrived | BaseException | int | None) -> None:
        """Take in what has arrived: a chunk, the error it failed with, its rows at the end; None for drained."""
        with suppress(RuntimeError):  # the engine has ended, and nobody reads it
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
