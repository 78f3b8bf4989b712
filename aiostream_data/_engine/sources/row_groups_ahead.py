"""Request the bytes of the next row groups of a file while earlier groups are decoded and emitted.

Without read-ahead, each group of a distant store would cost one round trip. Groups are decoded one at a time and in
order, because a directory may be used by one thread at a time only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from aiostream_data._engine.failures.tracebacks import empty_frames
from aiostream_data._engine.flow.context import value_of
from aiostream_data._engine.flow.root_cause import forget_frames
from aiostream_data.executors.base import Outcome
from aiostream_data.formats.row_groups import RowGroup
from aiostream_data.storage.read_ahead import ReadAhead

F = TypeVar("F")
D = TypeVar("D")

AHEAD_NBYTES: Final = 16 << 20
"""Maximum size in bytes of the groups that are requested ahead. A larger group is requested when it is decoded next."""

AHEAD_SHARE: Final = 32
"""Groups of one file that are requested ahead use at most this fraction (1/32) of the memory limit."""

AHEAD_GROUPS: Final = 16
"""Maximum number of groups of a distant object that are requested ahead."""

NEAR_GROUPS: Final = 1
"""Maximum number of groups of a near object that are requested ahead.

A near object has no latency, so more requests would only delay the first group.
"""


class _GroupTask(NamedTuple):
    """A row group, and the task that fetches or decodes it. The outcome holds an error until the group's turn."""

    group: RowGroup
    task: asyncio.Task[Outcome]


class RowGroupsAhead(Generic[F, D]):
    """Row groups of one file, in order. For one event loop.

    Args:
        groups: The groups to read.
        tasks: Task group for all requests.
        fetch: Function ``fetch(group, is_next)`` that fetches the bytes of a group. ``is_next()`` returns True while
            the group is the next one to decode.
        decode: Function ``decode(group, fetched)`` that decodes a group. ``fetched`` awaits the bytes.
        wake: Function that is called when another group has become the next one, which may now be urgent.
        pace: Controller of the number of groups that are requested ahead.
        most: Maximum number of groups that are requested ahead.
        most_nbytes: Maximum size in bytes of the groups that are requested ahead.
    """

    def __init__(
        self,
        groups: Iterable[RowGroup],
        tasks: asyncio.TaskGroup,
        fetch: Callable[[RowGroup, Callable[[], bool]], Awaitable[F]],
        decode: Callable[[RowGroup, Callable[[], Awaitable[F]]], Awaitable[D]],
        wake: Callable[[], None],
        pace: ReadAhead,
        most: int,
        most_nbytes: int,
    ) -> None:
        self._groups = iter(groups)
        self._tasks = tasks
        self._fetch, self._decode, self._wake = fetch, decode, wake
        self._pace = pace
        self._most, self._most_nbytes = most, most_nbytes
        self._waiting = next(self._groups, None)  # the first group that is not requested
        self._fetching: deque[_GroupTask] = deque()
        self._decoding: _GroupTask | None = None
        self._has_begun = False

    async def next(self) -> tuple[RowGroup, D] | None:
        """Return the next group and its rows, and begin to decode the group after it. Return None after the last.

        Raises:
            Exception: The error of the group.
        """
        if self._decoding is None:
            self._begin_next()
        if self._decoding is None:
            return None
        group, decoded = self._decoding
        found: D = value_of(await decoded)
        self._begin_next()
        return group, found

    def stop(self) -> None:
        """Cancel all requests."""
        self._waiting = None
        if self._decoding is not None:
            self._decoding.task.cancel()
        for each in self._fetching:
            each.task.cancel()
        self._fetching.clear()
        self._decoding = None

    def _begin_next(self) -> None:
        self._decoding = None
        self._request()
        if self._fetching:
            group, fetched = self._fetching.popleft()
            if self._has_begun:  # the first group is always late
                self._pace.took(self._most, was_there=fetched.done())
            self._has_begun = True
            self._decoding = _GroupTask(group, self._tasks.create_task(self._decoded(group, fetched)))
            self._request()
            self._wake()

    def _request(self) -> None:
        """Request groups ahead while they are small, and at least one if no group is being decoded."""
        held = sum(_nbytes(each.group) for each in self._fetching)
        while self._waiting is not None and len(self._fetching) < min(self._most, self._pace.reads):
            group = self._waiting
            is_needed = not self._fetching and self._decoding is None
            if not is_needed and held + _nbytes(group) > self._most_nbytes:
                return
            held += _nbytes(group)
            self._fetching.append(_GroupTask(group, self._tasks.create_task(self._fetched(group))))
            self._waiting = next(self._groups, None)

    async def _fetched(self, group: RowGroup) -> Outcome:
        try:
            return Outcome(await self._fetch(group, lambda: self._is_next(group)))
        except asyncio.CancelledError as error:
            forget_frames(error)
            raise
        except Exception as error:  # noqa: BLE001 - raised in the turn of the group
            empty_frames(error)  # they refer to the bytes, which are no longer charged
            return Outcome(error=error)

    async def _decoded(self, group: RowGroup, fetching: asyncio.Task[Outcome]) -> Outcome:
        waiting = [fetching]
        del fetching  # so that the bytes of a failed attempt are released

        async def fetched() -> F:
            if waiting:
                found: F = value_of(await waiting.pop())
                return found
            return await self._fetch(group, lambda: True)

        try:
            return Outcome(await self._decode(group, fetched))
        except asyncio.CancelledError as error:
            forget_frames(error)
            raise
        except Exception as error:  # noqa: BLE001 - raised in the turn of the group
            return Outcome(error=error)

    def _is_next(self, group: RowGroup) -> bool:
        return self._decoding is not None and self._decoding.group is group


def _nbytes(group: RowGroup) -> int:
    return group.stored_nbytes + group.nbytes
