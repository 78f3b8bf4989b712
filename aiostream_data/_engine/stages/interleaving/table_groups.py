"""Make the datasets of small files with a directory of row groups, and read their rows ahead in groups."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple, Protocol, cast

from aiostream_data._engine.failures.carried_error import PartlyDone, as_raisable
from aiostream_data._engine.failures.tracebacks import empty_frames
from aiostream_data._engine.flow.context import RunContext, value_of
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.sources.small_shards import LOCAL, scheme_of
from aiostream_data._engine.sources.small_tables import ContextOf, SmallTables, TablesRead
from aiostream_data._engine.stages.interleaving.inner_rows import Inner
from aiostream_data._engine.stages.interleaving.made_datasets import SmallDatasets
from aiostream_data._engine.stages.interleaving.outer_rows import OuterRows
from aiostream_data.executors.base import Outcome
from aiostream_data.plan.base import Node
from aiostream_data.plan.tables import TableFile
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, ShardRef, lineage_of
from aiostream_data.storage.read_ahead import ReadAhead

FIRST_FILES: Final = 4
"""Number of files of the first group, so that the first rows arrive early."""

MOST_FILES: Final = 64
"""Maximum number of files of a group. Objects of a store are requested at once."""

UNASKED_FILES: Final = 64
"""Number of files that are not asked for their sizes in a group after a group without small files.

The run of a large file asks for its size again, so each question would cost a request."""

QUICK_S: Final = 0.02
"""Groups grow while decoding one takes less than this time, in seconds, because other work waits for the thread."""

LOCAL_GROUPS: Final = 2
REMOTE_GROUPS: Final = 8
"""Maximum number of groups that are read at the same time or have arrived."""


class MakesTables(Protocol):
    """Interface of the stage that makes datasets of files."""

    @property
    def context(self) -> RunContext: ...

    async def inners_of(self, rows: Chunk) -> Sequence[Inner]:
        """Call the function for every row and return the inner datasets."""

    def context_of(self, inner: Node, outer: Lineage) -> RunContext:
        """Return the run context of an inner plan."""


class MadeGroup(NamedTuple):
    """Inner datasets of consecutive elements.

    Attributes:
        inners: The datasets.
        outer: Lineage of the elements.
        read: Rows of the datasets that are small files.
        failure: Error of the element after them, or None.
    """

    inners: Sequence[Inner]
    outer: Lineage
    read: TablesRead
    failure: Exception | None


class TableGroups:
    """Groups of files, in the order of the elements. For one event loop.

    Args:
        stage: Stage whose function makes the dataset of a file.
        outlet: Outlet of the stage.
        rows: Elements of the input.
        tasks: Task group of the stage.
    """

    def __init__(self, stage: MakesTables, outlet: Outlet, rows: OuterRows, tasks: asyncio.TaskGroup) -> None:
        self._stage, self._outlet, self._rows, self._tasks = stage, outlet, rows, tasks
        self._tables = SmallTables(stage.context)
        self._ahead: deque[asyncio.Task[Outcome]] = deque()
        self._pace = ReadAhead()
        self._files = FIRST_FILES
        self._unasked = 0  # number of next files that are probably large
        self._most_groups = LOCAL_GROUPS
        self._awaited: asyncio.Task[Outcome] | None = None

    @property
    def are_possible(self) -> bool:
        """True if the memory limit allows groups."""
        return self._tables.most_nbytes > 0

    @property
    def is_next_read(self) -> bool:
        """True if the next group has been read."""
        return bool(self._ahead) and self._ahead[0].done()

    async def next(self) -> MadeGroup | None:
        """Return the next group, and begin to read groups after it. Return None at the end.

        Raises:
            Exception: The input failed after all groups before it, or the function failed for the first element.
        """
        await self._begin_more(may_wait=not self._ahead)
        if not self._ahead:
            return None
        first = self._awaited = self._ahead.popleft()
        self._pace.took(self._most_groups, was_there=first.done())
        if not first.done():
            self._stage.context.services.budget.poke()
        made: MadeGroup = value_of(await first)
        self._files = self._next_files(made)
        if made.read.mean_nbytes and not made.read.files:
            self._unasked = UNASKED_FILES
        await self._begin_more(may_wait=False)
        return made

    def _next_files(self, made: MadeGroup) -> int:
        """Return the number of files of the next group, after a group."""
        mean_nbytes, took_s = made.read.mean_nbytes, made.read.took_s
        fitting = MOST_FILES if mean_nbytes is None else int(self._tables.most_nbytes / max(1.0, mean_nbytes))
        quick = int(len(made.inners) * QUICK_S / took_s) if took_s else MOST_FILES
        return max(1, min(2 * self._files, MOST_FILES, fitting, quick))

    async def _begin_more(self, *, may_wait: bool) -> None:
        """Begin to read groups ahead. Wait for an element only if ``may_wait`` is True and no group is being read."""
        while len(self._ahead) < self._pace.reads:
            asks = not self._unasked
            most = self._files if asks else min(self._files, self._unasked)
            part = await self._rows.take(most, may_wait=may_wait and not self._ahead)
            if part is None:
                return
            self._unasked -= 0 if asks else len(part)
            self._ahead.append(self._tasks.create_task(self._outcome(part, asks=asks), name="read small files"))

    async def _outcome(self, part: Chunk, *, asks: bool) -> Outcome:
        try:
            return Outcome(await self._made(part, asks=asks))
        except Exception as error:  # noqa: BLE001 - raised in the turn of the group
            empty_frames(error)  # they refer to the memory of the group
            return Outcome(error=error)

    async def _made(self, part: Chunk, *, asks: bool) -> MadeGroup:
        """Make the datasets of some elements. Read small files among them, unless ``asks`` is False."""
        this, outer = asyncio.current_task(), lineage_of(part)
        failure: Exception | None = None
        try:
            inners = await self._stage.inners_of(part)
        except PartlyDone as partly:
            inners, failure = partly.done, as_raisable(partly.error)
        if not asks or not _can_be_read_together(inners):
            return MadeGroup(inners, outer, TablesRead(None, {}, None, None), failure)
        files = cast(Sequence[TableFile], inners)
        if scheme_of(ShardRef(files[0].url)) != LOCAL:
            self._most_groups = REMOTE_GROUPS
        context_of = self._contexts(files, outer)
        read = await self._tables.read(files, context_of, lambda: self._awaited is this and self._outlet.is_awaited())
        return MadeGroup(inners, outer, read, failure)

    def accepted(self, small: SmallDatasets) -> int:
        """Count the rows of files in their turn. See :meth:`.SmallTables.accepted`."""
        files = cast(Sequence[TableFile], small.inners)
        return self._tables.accepted(files, small.files, self._contexts(files, small.outer))

    def _contexts(self, files: Sequence[TableFile], outer: Lineage) -> ContextOf:
        return cache(lambda place: self._stage.context_of(files[place], outer.slice(place, place + 1)))


def _can_be_read_together(inners: Sequence[Inner]) -> bool:
    """Return True if all datasets are files of one kind of store, with the same options."""
    files = [inner for inner in inners if type(inner) is TableFile]
    if not files or len(files) < len(inners):
        return False
    schemes = {scheme_of(ShardRef(file.url)) for file in files}
    return len(schemes) == 1 and all(file.storage_options is files[0].storage_options for file in files)
