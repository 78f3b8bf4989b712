"""Open inner datasets in order: each with a channel of its own, or many small ones together."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

from aiostream_data._engine.calls.user_code import CallResults
from aiostream_data._engine.failures.carried_error import PartlyDone, as_raisable
from aiostream_data._engine.flow.channel import Receiver, Sender, open_channel
from aiostream_data._engine.flow.chunk_sizes import CHUNK_ROWS, most_chunk_nbytes
from aiostream_data._engine.flow.context import RunContext
from aiostream_data._engine.flow.merge import ReadyStreams, Stream
from aiostream_data._engine.flow.sizes import chunk_nbytes
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.memory.budget import READ_AHEAD, Budget
from aiostream_data._engine.resume.emission_log import NO_ROWS
from aiostream_data._engine.resume.origins import Namespace
from aiostream_data._engine.resume.position import State
from aiostream_data._engine.sources.files_read import BegunFile
from aiostream_data._engine.sources.memory_rows import chunks_of
from aiostream_data._engine.sources.shard_damage import damage_of
from aiostream_data._engine.stages.interleaving.file_groups import FileGroups, plans_of_files
from aiostream_data._engine.stages.interleaving.file_losses import FileLosses
from aiostream_data._engine.stages.interleaving.inner_calls import CallsAhead, InnerCalls
from aiostream_data._engine.stages.interleaving.inner_places import InnerPlace, JoinedPlaces
from aiostream_data._engine.stages.interleaving.inner_rows import Inner, is_small, joined, of_one, with_outer
from aiostream_data._engine.stages.interleaving.inner_runs import forward, go_on
from aiostream_data._engine.stages.interleaving.made_datasets import MadeDatasets, SmallDatasets
from aiostream_data._engine.stages.interleaving.outer_rows import OuterRows
from aiostream_data._engine.stages.interleaving.small_batches import batches_if_sound
from aiostream_data.errors import ShardGoneError, StateMismatchError
from aiostream_data.failing.policies import handling_of
from aiostream_data.metrics.counters import StageCounters
from aiostream_data.plan.base import Node, walk
from aiostream_data.plan.operators import Batch, Interleave
from aiostream_data.plan.sources import PythonIterable, ReadFiles
from aiostream_data.plan.tables import TableFile, reads_files
from aiostream_data.plan.written import function_name
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.records import Chunk, lineage_of

CALLS_PER_HOP = 64
"""Maximum number of elements for which one worker-thread call runs the user function."""

QUICK_CALLS_PER_HOP = 8192
"""The same maximum while the function is quick, and returns small datasets in memory."""

QUICK_S = 0.005
"""Functions are quick if a call on a worker thread takes less than this time, in seconds."""

_INNER_RECORD = re.compile(r"record: from_iterable\(.*\) record (\d+)")
"""Regular expression for an error note that contains the number of the failed record of an iterable."""


class MakesInner(Protocol):
    """Interface of the stage that makes inner datasets of elements."""

    node: Interleave
    context: RunContext
    counters: StageCounters

    async def hop(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call ``work(*args)`` on a worker thread."""

    @property
    def counts_losses(self) -> bool:
        """True if the stage counts the losses of its files."""

    @property
    def calls(self) -> InnerCalls:
        """The calls of the user's function."""

    async def results_of(self, rows: Chunk) -> CallResults:
        """Call the user's function for every row."""

    async def inners_from(self, rows: Chunk, results: CallResults) -> Sequence[Inner]:
        """Return the inner datasets, given the results of the user's function."""

    async def inners_of(self, rows: Chunk) -> Sequence[Inner]:
        """Call the user's function for every row and return the inner datasets."""

    async def inners_made_before(self, rows: Chunk) -> Sequence[Inner]:
        """Call the user's function again for rows that were not skipped in an earlier run. Return the datasets."""

    def plan_of(self, inner: Inner) -> Node:
        """Return the plan of an inner dataset."""

    def context_of(self, inner: Node, outer: Lineage) -> RunContext:
        """Return the run context of an inner plan."""

    def namespace_of_small(self, inner: Node) -> Namespace:
        """Return the namespace shared by all small inner datasets."""


@dataclass
class InnerStreams:
    """Streams of inner datasets.

    This class calls the user's function for each element and opens the returned dataset. Small datasets in memory are
    joined.

    Attributes:
        losses: Losses of the files that the datasets read; None if the files count their losses themselves.
    """

    stage: MakesInner
    inlet: Inlet
    outlet: Outlet
    group: asyncio.TaskGroup
    losses: FileLosses | None = None
    _made: MadeDatasets = field(default_factory=lambda: MadeDatasets([], NO_ROWS))
    _opened: deque[Stream | ReadyStreams] = field(default_factory=deque)
    _calls: int = 1  # number of elements of the next call on a worker thread
    _given: int = 0
    _failure: Exception | None = None  # raised after the inner datasets made so far
    _ahead: CallsAhead | None = None  # if each hop calls the function for a single element
    _files: FileGroups | None = None  # if each dataset reads one file

    def __post_init__(self) -> None:
        stage, calls = self.stage, self.stage.calls
        self._rows = OuterRows(self.inlet)
        self._most_nbytes = most_chunk_nbytes(stage.context.services.budget.limit)
        if calls.is_apart:
            self._ahead = CallsAhead(stage, self._rows, self.group, calls.at_once)
        elif reads_files(stage.node.function):
            self._files = self._file_groups()

    def _file_groups(self) -> FileGroups | None:
        """Return groups of datasets of files; None if the options of the run allow no groups."""
        if self.stage.context.services.workers.one_at_a_time:
            return None
        groups = FileGroups(self.stage, self.outlet, self._rows, self.group)
        return groups if groups.are_possible else None

    @property
    def is_ready(self) -> bool:
        return bool(self._opened) and isinstance(self._opened[0], ReadyStreams)

    async def next(self) -> Stream | ReadyStreams | None:
        await self._open_ahead()
        if self._opened:
            stream = self._opened.popleft()
            self._given += isinstance(stream, Stream)
            return stream
        if self._failure is not None:
            raise self._failure
        return None

    async def again(self, state: State, given: int) -> Stream | None:
        stage = self.stage
        outer = stage.context.services.book.rows(state["outer"])
        try:
            rows = await stage.context.recall_held(stage.node.input, outer)
        except ShardGoneError:
            if outer.of(0) is not None:  # the outer row has several source rows, and some shards may still exist
                raise
            return None
        self._given += 1
        may_be_left_out = not given and state["inner"] is None  # the row may have been skipped with an empty dataset
        (made,) = await (stage.inners_of(rows) if may_be_left_out else stage.inners_made_before(rows))
        inner = stage.plan_of(made)
        if state["inner"] is None and given and not is_small(inner):
            raise StateMismatchError(
                [f"the state lacks the position of {inner.label}, which had emitted {given} rows"],
                f"Return the same kind of dataset as before from the function of {stage.node.label}().",
            )
        stage.context.services.runner.check_inner(inner, state["inner"], given)
        return self._open(inner, lineage_of(rows), given, state["inner"])

    def ended(self) -> None:
        self._given -= 1

    async def _open_ahead(self) -> None:
        node: Interleave = self.stage.node
        while self._given + len(self._opened) <= node.cycle_length:
            if not self._made.left and not (self._may_make_more and await self._has_made_more()):
                return
            small = self._made.take_small(self._most_nbytes)
            if self._files is not None and small.files:
                await self._open_files(self._files, small)
            elif small.inners:
                await self._open_small(small)
            else:
                self._opened.append(self._open_next(*self._made.take()))

    @property
    def _may_make_more(self) -> bool:
        """True if no dataset is open, or if more datasets can be made without a wait."""
        if not self._opened:
            return True
        if self._files is not None:
            files = sum(len(each.rows) for each in self._opened if isinstance(each, ReadyStreams))
            return files <= self.stage.node.cycle_length and self._files.is_next_read
        return self._ahead is None or self._ahead.is_next_done

    async def _open_small(self, small: SmallDatasets) -> None:
        """Open small datasets together, or leave datasets whose batches cannot be built to runs of their own."""
        try:
            self._opened.append(await self._join(small))
        except Exception:
            if not any(isinstance(inner, Batch) for inner in small.inners):
                raise
            self._made.put_back(len(small.inners))

    async def _join(self, small: SmallDatasets) -> ReadyStreams:
        stage = self.stage
        inners, rows, outer, _ = small
        describe = stage.context.services.origins.describe
        chunk = await stage.hop(joined, inners, rows, outer, stage.namespace_of_small, describe)
        if chunk is not None:
            chunk = chunk.with_lease(stage.context.services.budget.charge(chunk_nbytes(chunk), READ_AHEAD))
        return ReadyStreams(chunk, rows, JoinedPlaces(outer, stage.context.services.book))

    async def _open_files(self, groups: FileGroups, small: SmallDatasets) -> None:
        """Open small files whose rows have been read. Leave a file with other columns to a run of its own."""
        count = groups.accepted(small)
        if count < len(small.files):
            self._made.put_back(len(small.files) - count)
        if not count:
            return
        files, outer, rows = small.files[:count], small.outer.slice(0, count), small.rows[:count]
        if self.losses is not None:
            first = self.stage.plan_of(small.inners[0])
            self.losses.know(first, self.stage.context_of(first, outer.slice(0, 1)))
        chunk = self._made.rows_of(files)
        if chunk is not None:
            chunk = await self.stage.hop(with_outer, chunk, outer, rows)
        places = JoinedPlaces(outer, self.stage.context.services.book, lambda number: files[number].position)
        self._opened.append(ReadyStreams(chunk, rows, places))

    async def _has_made_more(self) -> bool:
        """Call the user's function for the next elements. Return True if inner datasets are ready to open."""
        if self._failure is None:
            try:
                await self._make_more()
            except Exception as error:  # noqa: BLE001 - raised when the data sets before are used up
                self._failure = error
        return self._made.left > 0

    async def _make_more(self) -> None:
        if self._ahead is not None:
            await self._make_next(self._ahead)
            return
        if self._files is not None:
            await self._make_files(self._files)
            return
        least = min(CALLS_PER_HOP, self.stage.node.cycle_length + 1)
        part = await self._rows.take(max(least, self._calls))
        if part is None:
            return
        began = perf_counter()
        try:
            self._made = MadeDatasets(await self.stage.inners_of(part), lineage_of(part))
        except PartlyDone as partly:
            self._made = MadeDatasets(partly.done, lineage_of(part))
            self._failure = as_raisable(partly.error)
            return
        self._calls = self._next_calls(perf_counter() - began)
        await self._group_files(self._made)

    async def _group_files(self, made: MadeDatasets) -> None:
        """Read files together from now on, beginning with these datasets, if each of these reads one file."""
        if plans_of_files(made.inners) is not None and (groups := self._file_groups()) is not None:
            self._files = groups
            self._made = MadeDatasets(made.inners, made.outer, await groups.first(made.inners, made.outer))

    async def _make_next(self, ahead: CallsAhead) -> None:
        """Make the inner dataset of the next element, whose call may have finished already."""
        found = await ahead.next()
        if found is None:
            return
        row, results = found
        try:
            self._made = MadeDatasets(await self.stage.inners_from(row, results), lineage_of(row))
        except PartlyDone as partly:
            self._made = MadeDatasets(partly.done, lineage_of(row))
            self._failure = as_raisable(partly.error)

    async def _make_files(self, groups: FileGroups) -> None:
        """Make the datasets of the next files, whose rows may have been read already."""
        found = await groups.next()
        if found is not None:
            self._made, self._failure = MadeDatasets(found.inners, found.outer, found.read), found.failure

    def _next_calls(self, took_s: float) -> int:
        """Return the number of elements of the next call on a worker thread, after a call that took ``took_s``."""
        rows = self._made.rows
        if self.stage.context.services.workers.one_at_a_time or (rows < 0).any():
            return 1
        quick = int(len(rows) * QUICK_S / max(took_s, 1e-9))
        in_rows = len(rows) * CHUNK_ROWS // max(1, int(rows.sum()))
        in_memory = int(self._most_nbytes / max(self._made.mean_nbytes, 1.0))
        return max(1, min(2 * len(rows), QUICK_CALLS_PER_HOP, quick, in_rows, in_memory))

    def _open_next(self, inner: Inner, outer: Lineage, begun: BegunFile | None) -> Stream:
        """Open a dataset that is not small. Of a file that was begun, the first rows are known."""
        if begun is None or self._files is None or not self._files.counted(inner, outer, begun):
            return self._open(self.stage.plan_of(inner), outer)
        plan = self.stage.plan_of(inner)
        sender, receiver = self._channel()
        place = InnerPlace(outer, 0, None, self.stage.context.services.book)
        chunk = self._made.rows_of([begun.output])
        work = go_on(self.stage.context_of(plan, outer), plan, sender, place, self._name_inner, begun, chunk)
        self.group.create_task(work, name=f"inner {plan.label}")
        return Stream(receiver, place)

    def _channel(self) -> tuple[Sender[Chunk], Receiver[Chunk]]:
        budget = self.stage.context.services.budget
        sender, receiver = open_channel(2, budget.channel_nbytes)
        receiver.counters = self.stage.counters
        receiver.wanted_for(self.outlet.is_awaited)
        receiver.on_wait = budget.look_soon
        return sender, receiver

    def _open(self, inner: Node, outer: Lineage, given: int = 0, state: State = None) -> Stream:
        services = self.stage.context.services
        sender, receiver = self._channel()
        place = InnerPlace(outer, given, state, services.book)
        chunks = self._rows_in_memory(inner, given) if is_small(inner) else None
        if chunks is not None:
            _fill(sender, chunks, outer, services.budget)
            return Stream(receiver, place)
        context, losses = self.stage.context_of(inner, outer), None
        if self.losses is not None:
            context, losses = self.losses.of(inner, context)
        work = forward(context, inner, sender, place, self._name_inner)
        self.group.create_task(work, name=f"inner {inner.label}")
        return Stream(receiver, place, losses)

    def _rows_in_memory(self, inner: Node, given: int) -> Iterable[Chunk] | None:
        """Return the rows of a small dataset after the ``given`` ones; None if its batches cannot be built."""
        stage = self.stage
        if not isinstance(inner, Batch):
            return chunks_of(inner, stage.namespace_of_small(inner), given)
        batches = batches_if_sound(inner, stage.namespace_of_small, stage.context.services.origins.describe)
        return None if batches is None else [each.slice(given, len(each)) for each in batches if given < len(each)]

    def _name_inner(self, error: BaseException, inner: Node, outer: Lineage) -> None:
        """Add notes that name the outer row and the user function to an error of an inner dataset."""
        node: Interleave = self.stage.node
        record = self.stage.context.services.origins.describe(outer.ids, 0)
        name = function_name(node.function)
        if not isinstance(inner, PythonIterable):
            error.add_note(f"in the {made_by(node, f' for {record}')}")
            if _could_skip(inner, error):
                error.add_note(_how_to_skip(node, name))
            return
        notes = getattr(error, "__notes__", [])
        for number, note in enumerate(notes):
            if note == inner.noted:
                notes[number] = node.noted
            elif found := _INNER_RECORD.fullmatch(note):
                notes[number] = f"record: element {found[1]} of those made for {record}"
        error.add_note(f"function: {name}")


def made_by(node: Interleave, what: str = "") -> str:
    """Describe the datasets of a stage, for an error note.

    Args:
        what: Text that names the element from which one dataset was made.
    """
    return f"dataset that {function_name(node.function)} returned{what}, by {node.noted.removeprefix('stage: ')}"


def _how_to_skip(node: Interleave, name: str) -> str:
    if reads_files(node.function):
        return "to skip this: pass on_error= to the constructor of the dataset that reads the files"
    return (
        f"to skip this: pass on_error= to the dataset that {name} returns, since "
        f"on_error= of {node.label}() and open() does not apply to its files"
    )


def _could_skip(inner: Node, error: BaseException) -> bool:
    """Return True if ``error`` is damage that a source of the inner plan could skip with ``on_error="skip"``."""
    notes = getattr(error, "__notes__", [])
    return damage_of(error, delivers_later=False) is not None and any(
        isinstance(part, (ReadFiles, TableFile)) and part.noted in notes and handling_of(part.on_error).kind == "raise"
        for part in walk(inner)
    )


def _fill(sender: Sender[Chunk], chunks: Iterable[Chunk], outer: Lineage, budget: Budget) -> None:
    with sender:
        for chunk in chunks:
            nbytes = chunk_nbytes(chunk)
            sender.put(of_one(chunk, outer).with_lease(budget.charge(nbytes, READ_AHEAD)), nbytes)
