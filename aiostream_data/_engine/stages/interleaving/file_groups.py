"""Make datasets each of which reads one small file, and read their rows ahead in groups."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from aiostream_data._engine.failures.carried_error import PartlyDone, as_raisable
from aiostream_data._engine.failures.tracebacks import empty_frames
from aiostream_data._engine.flow.context import RunContext, value_of
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage_io import Outlet
from aiostream_data._engine.flow.this_task import this_task
from aiostream_data._engine.memory.budget import READ_AHEAD
from aiostream_data._engine.sources.files_read import BegunFile, ContextOf, FilesRead, ReadsFiles, RowCost
from aiostream_data._engine.sources.small_shards import LOCAL, have_one_scheme, scheme_of
from aiostream_data._engine.sources.small_sources import SmallSources, read_alike, url_of
from aiostream_data._engine.sources.small_tables import SmallTables, are_tables_alike
from aiostream_data._engine.stages.interleaving.file_plans import File, FilePlan, file_plan, have_same_operators
from aiostream_data._engine.stages.interleaving.inner_rows import Inner
from aiostream_data._engine.stages.interleaving.made_datasets import SmallDatasets
from aiostream_data._engine.stages.interleaving.memory_groups import InMemory, SmallMemory, are_memory_alike
from aiostream_data._engine.stages.interleaving.outer_rows import OuterRows
from aiostream_data._engine.stages.interleaving.small_plans import count_rows, with_operators
from aiostream_data.executors.base import Outcome
from aiostream_data.metrics.counters import BYTES_WAIT
from aiostream_data.plan.base import Node
from aiostream_data.plan.tables import TableFile
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, ShardRef, lineage_of
from aiostream_data.storage.read_ahead import ReadAhead

FIRST_FILES: Final = 4
"""Number of files of the first group, so that the first rows arrive early, and of groups of other datasets."""

UNASKED_FILES: Final = 64
"""Number of next files whose sizes are not requested after a group without small files.

The run of a large file asks for its size again, so each question would cost a request."""

QUICK_S: Final = 0.02
"""Groups grow while each step of one takes less than this time, in seconds: the calls of the function, and decoding.

Other work waits for the thread, and the first rows wait for the whole group."""

LOCAL_GROUPS: Final = 2
REMOTE_GROUPS: Final = 8
"""Maximum number of groups that are read at the same time or have arrived."""


class MakesFiles(Protocol):
    """Interface of the stage that makes datasets of files."""

    @property
    def node(self) -> Any: ...

    @property
    def context(self) -> RunContext: ...

    @property
    def counts_losses(self) -> bool:
        """True if the stage counts the rows and losses of its files."""

    async def inners_of(self, rows: Chunk) -> Sequence[Inner]:
        """Call the function for every row and return the inner datasets."""

    def context_of(self, inner: Node, outer: Lineage) -> RunContext:
        """Return the run context of an inner plan."""


class MadeGroup(NamedTuple):
    """Inner datasets of consecutive elements.

    Attributes:
        inners: The datasets.
        outer: Lineage of the elements.
        read: Rows of the datasets that are small files; None if no dataset was tried to be read as one.
        failure: Error of the element after them, or None.
        calls_s: Time that the calls of the function took, in seconds.
    """

    inners: Sequence[Inner]
    outer: Lineage
    read: FilesRead | None
    failure: Exception | None
    calls_s: float


class FileGroups:
    """Groups of datasets of files, in the order of the elements. For one event loop.

    Args:
        stage: Stage whose function makes the dataset of a file.
        outlet: Outlet of the stage.
        rows: Elements of the input.
        tasks: Task group of the stage.
    """

    def __init__(self, stage: MakesFiles, outlet: Outlet, rows: OuterRows, tasks: asyncio.TaskGroup) -> None:
        self._stage, self._outlet, self._rows, self._tasks = stage, outlet, rows, tasks
        context = stage.context.sharing(stage.node.cycle_length)
        self._tables = SmallTables(context, not stage.counts_losses)
        self._sources = SmallSources(context)
        self._memory = SmallMemory(context)
        self._ahead: deque[asyncio.Task[Outcome]] = deque()
        self._pace = ReadAhead()
        self._files = FIRST_FILES
        self._unasked = 0  # number of next files that are probably large
        self._is_local = self._are_read = True
        self._awaited: asyncio.Task[Outcome] | None = None
        self._calling = asyncio.Lock()  # one call of the user's function at a time, in order
        self._has_failed = False
        self._cost: RowCost | None = None  # of operators, for earlier files

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
        began = perf_counter()
        if not first.done():
            self._stage.context.services.budget.poke()
        made: MadeGroup = value_of(await first)
        self._count_wait(made, began)
        self._took(made)
        await self._begin_more(may_wait=False)
        return made

    async def first(self, inners: Sequence[Inner], outer: Lineage) -> FilesRead | None:
        """Read the rows of datasets that the function has returned before. Begin to read groups after them."""
        self._awaited = asyncio.current_task()
        began = perf_counter()
        read = await self._read(inners, outer)
        made = MadeGroup(inners, outer, read, None, 0.0)
        self._count_wait(made, began)
        self._took(made)
        await self._begin_more(may_wait=False)
        return read

    def _count_wait(self, made: MadeGroup, began: float) -> None:
        """Count the time from ``began`` until the bytes of a group had arrived, during which the merge waited."""
        waited_s = 0.0 if made.read is None else made.read.arrived_at - began
        plan = file_plan(made.inners[0]) if made.inners else None
        if waited_s > 0 and plan is not None:
            self._stage.context_of(plan.last, made.outer.slice(0, 1)).counters(plan.file).add(BYTES_WAIT, waited_s)

    def _took(self, made: MadeGroup) -> None:
        """Adapt the size and number of the next groups to a group that was read."""
        self._are_read = made.read is not None and bool(made.read.files)
        self._files = self._next_files(made)
        if made.read is not None and (made.read.are_costly or not made.read.files):
            self._unasked = UNASKED_FILES

    @property
    def _most_groups(self) -> int:
        """Maximum number of groups that may be made ahead: few of datasets that are not read in groups."""
        if not self._are_read:
            return 1
        return LOCAL_GROUPS if self._is_local else REMOTE_GROUPS

    def _next_files(self, made: MadeGroup) -> int:
        """Return the number of files of the next group, after a group."""
        plan = file_plan(made.inners[0]) if made.inners else None
        reader = self._reader_for(plan.file) if plan is not None else self._tables
        most_files = reader.most_files(is_local=self._is_local)
        mean_nbytes, took_s = (None, None) if made.read is None else (made.read.mean_nbytes, made.read.took_s)
        fitting = most_files if mean_nbytes is None else int(reader.most_nbytes / max(1.0, mean_nbytes))
        quick = int(len(made.inners) * QUICK_S / max(took_s or 0.0, made.calls_s, 1e-9))
        grown = 2 * self._files if self._are_read else FIRST_FILES
        return max(1, min(grown, most_files, fitting, quick))

    async def _begin_more(self, *, may_wait: bool) -> None:
        """Begin to read groups ahead. Wait for an element only if ``may_wait`` is True and no group is being read."""
        while len(self._ahead) < min(self._pace.reads, self._most_groups):
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
        async with self._calling:
            inners, calls_s, failure = await self._called(part)
        outer = lineage_of(part)
        read = await self._read(inners, outer) if asks else None
        return MadeGroup(inners, outer, read, failure, calls_s)

    async def _called(self, part: Chunk) -> tuple[Sequence[Inner], float, Exception | None]:
        """Call the function for some elements, unless it failed for an element before them."""
        if self._has_failed:
            return [], 0.0, None
        began = perf_counter()
        try:
            inners, failure = await self._stage.inners_of(part), None
        except PartlyDone as partly:
            inners, failure = partly.done, as_raisable(partly.error)
            self._has_failed = True
        except Exception:
            self._has_failed = True
            raise
        return inners, perf_counter() - began, failure

    async def _read(self, inners: Sequence[Inner], outer: Lineage) -> FilesRead | None:
        """Read small files and run their operators, if all datasets read one file each and are alike otherwise."""
        plans = plans_of_files(inners)
        if plans is None:
            return None
        this, files = this_task(), [plan.file for plan in plans]
        self._is_local = isinstance(files[0], InMemory) or scheme_of(_shard_of(files[0])) == LOCAL

        def is_wanted() -> bool:
            return self._awaited is this() and self._outlet.is_awaited()

        contexts = self._contexts(plans, outer)
        read = await self._reader_for(files[0]).read(files, contexts, is_wanted)
        if not plans[0].operators or not read.files:
            return read
        read = await self._with_operators(read, plans, contexts, is_wanted)
        self._cost = None if read.are_costly else read.cost
        return read

    async def _with_operators(
        self, read: FilesRead, plans: Sequence[FilePlan], contexts: ContextOf, is_wanted: Callable[[], bool]
    ) -> FilesRead:
        services = self._stage.context.services
        most_nbytes = self._tables.most_nbytes
        lease = None if read.chunk is None else read.chunk.lease
        room = await services.budget.room_for_step(2 * most_nbytes, is_wanted)
        try:
            work = with_operators, read, plans, contexts, most_nbytes, self._cost
            done: FilesRead = value_of(await services.pool.submit(*work))
        finally:
            room.end()
        if done.chunk is None:
            return done
        charge = services.budget.charge(chunk_nbytes(done.chunk), READ_AHEAD)
        return done._replace(chunk=done.chunk.with_lease((lease, charge)))  # rows may refer to the bytes of the files

    def accepted(self, small: SmallDatasets) -> int:
        """Count the rows of files in their turn. See :meth:`.ReadsFiles.accepted`."""
        plans = [plan for inner in small.inners if (plan := file_plan(inner)) is not None]
        contexts = self._contexts(plans, small.outer)
        files = [plan.file for plan in plans]
        count = self._reader_for(files[0]).accepted(files, small.files, contexts)
        count_rows(small.files[:count], plans[0], contexts(0))
        return count

    def counted(self, inner: Inner, outer: Lineage, begun: BegunFile) -> bool:
        """Count the first rows of a file that was begun. Return False if it must be read alone from its start."""
        rows = np.array([begun.output.rows])
        return bool(self.accepted(SmallDatasets([inner], rows, outer, [begun.output])))

    def _reader_for(self, file: File) -> ReadsFiles:
        if isinstance(file, InMemory):
            return self._memory
        return self._tables if type(file) is TableFile else self._sources

    def _contexts(self, plans: Sequence[FilePlan], outer: Lineage) -> ContextOf:
        return cache(lambda place: self._stage.context_of(plans[place].last, outer.slice(place, place + 1)))


def plans_of_files(inners: Sequence[Inner]) -> Sequence[FilePlan] | None:
    """Return the plans of datasets that can be read together, with the same kinds of operators. Return None for others.

    They read files of one kind of store, with equal options, or rows in memory with equal types.
    """
    plans: list[FilePlan] = []
    for inner in inners:
        plan = file_plan(inner)
        if plan is None or (plans and not have_same_operators(plans[0], plan)):
            return None
        plans.append(plan)
    return plans if plans and _are_alike([plan.file for plan in plans]) else None


def _are_alike(files: Sequence[File]) -> bool:
    first, *others = files
    if isinstance(first, InMemory):
        return are_memory_alike(files)
    alike = are_tables_alike(files) if type(first) is TableFile else read_alike(files)
    return alike and all(have_one_scheme(_shard_of(first), _shard_of(other)) for other in others)


def _shard_of(file: Any) -> ShardRef:
    """Return the file of a dataset, of unknown size."""
    return ShardRef(file.url if isinstance(file, TableFile) else url_of(file))
