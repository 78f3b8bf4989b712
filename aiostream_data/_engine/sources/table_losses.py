"""Error policy of one file with a directory of row groups: retry damaged parts, or skip and count them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from aiostream_data._engine.failures.carried_error import PartlyDone
from aiostream_data._engine.failures.shard_losses import Lost
from aiostream_data._engine.failures.tracebacks import empty_frames
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.loss_account import LossAccount
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.sources.shard_damage import Damage, damage_of
from aiostream_data.errors import CorruptRecordError, MemoryBudgetError
from aiostream_data.failing.policies import handling_of
from aiostream_data.formats.base import Loss
from aiostream_data.formats.cutting import no_records
from aiostream_data.formats.row_groups import RowGroup
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.tables import TableFile
from aiostream_data.rows.records import records_chunk
from aiostream_data.rows.row_ids import RowIds

T = TypeVar("T")


class SkippedPart(NamedTuple):
    """Part of a file that is left out. Without an error policy, ``error`` would end the run."""

    error: Damage

    @property
    def is_of_the_rest(self) -> bool:
        """True if no later part of the file can be read."""
        return not isinstance(self.error, CorruptRecordError)


class Apart(NamedTuple):
    """Small row groups that were read together, one of which is damaged: they are read again one by one."""

    groups: Sequence[RowGroup]


async def or_apart(read: Callable[[], Awaitable[T]], separated: Callable[[], Sequence[RowGroup]]) -> T | Apart:
    """Read a group. If it is damaged or needs too much memory, and consists of several groups, return these.

    Args:
        separated: Function that returns the groups of which the group consists.
    """
    try:
        return await read()
    except Exception as error:
        may_help = isinstance(error, MemoryBudgetError) or damage_of(error, delivers_later=False) is not None
        parts = separated() if may_help else ()
        if len(parts) < 2:
            raise
        empty_frames(error)  # they refer to the bytes, which are no longer charged
        return Apart(parts)


class TableLosses:
    """Losses in one run of a file. A loss does not change the row ids of other rows, which are numbered in the file.

    Args:
        split: Split number of the row ids.
        counters: Counters of the stage.
    """

    def __init__(self, context: RunContext, node: TableFile, split: int, counters: StageCounters) -> None:
        self._url = node.url
        self._split = split
        self._counters = counters
        self._handling = handling_of(node.on_error)
        self._skips = self._handling.kind == "skip"
        self._later = context.losses
        is_own = self._skips and self._later is None
        self._account = LossAccount(context, node, counters) if is_own else None

    async def attempted(self, read: Callable[[], Awaitable[T]]) -> T | SkippedPart:
        """Read a part of the file, again after damage if the policy retries. Return the damage if it is skipped."""
        attempts = 0
        while True:
            try:
                return await read()
            except Exception as error:
                damage = damage_of(error, delivers_later=False)
                if damage is None or not self._handling.interferes:
                    raise
                if attempts == self._handling.retries:
                    if not self._skips:
                        raise
                    empty_frames(error)  # they refer to the bytes, which are no longer charged
                    return SkippedPart(damage)
            self._counters.retries += 1
            await asyncio.sleep(self._handling.pause_s(attempts))
            attempts += 1

    async def lose_file(self, damage: SkippedPart, rows: int, ordinal: int, outlet: Outlet) -> None:
        """Count and log a file that cannot be read from row ``ordinal`` on, after ``rows`` rows of this run.

        Args:
            outlet: Outlet of the run. If a later stage counts the losses, it gets a mark.

        Raises:
            ErrorBudgetError: Too many records or files were lost.
        """
        await self._lose(rows, Lost(self._url, self._split, ordinal, damage.error), outlet)

    async def lose_group(self, damage: SkippedPart, rows: int, group: RowGroup, outlet: Outlet) -> None:
        """Count and log a row group; see :meth:`lose_file`."""
        assert isinstance(damage.error, CorruptRecordError), "otherwise the rest of the file is lost"
        what = Loss(damage.error.offset, group.stored_nbytes, damage.error.reason)
        await self._lose(rows, Lost(self._url, self._split, group.first_row, what), outlet)

    def count(self, rows: int) -> None:
        """Count the rows that this run has sent, ``rows`` in all, unless a later stage counts them.

        All open files share one error budget.
        """
        if self._account is not None:
            self._account.take(rows, ())

    async def _lose(self, rows: int, lost: Lost, outlet: Outlet) -> None:
        if self._later is not None:
            self._later.put(rows, lost)
            await outlet.send_mark(records_chunk(no_records(), RowIds.none()))
            return
        assert self._account is not None, "the policy skips damage"
        try:
            self._account.take(rows, [lost])
        except PartlyDone as partly:
            raise partly.error from partly.error.__cause__
        await self._account.write()
