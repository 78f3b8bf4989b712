"""Read the output of subprocesses that run a stage's input, and merge it into the order of a single process."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from aiostream_data._engine.flow.stage import Stage
from aiostream_data._engine.flow.stage_io import Inlet, Outlet
from aiostream_data._engine.processes.process_manager import Hosting, mixtures_of
from aiostream_data._engine.processes.remote_run import Arrived, RemoteRun
from aiostream_data._engine.resume.cached_epochs import CachedEpochs
from aiostream_data._engine.resume.lineage_writer import BookWriter
from aiostream_data._engine.resume.position import State
from aiostream_data._engine.resume.weight_changes import WeightChanges
from aiostream_data.errors import CardinalityError, PlanError
from aiostream_data.rows.records import Chunk, gather


@dataclass
class SubprocessStage(Stage):
    """Stage that runs an ``InSubprocess`` node: it receives rows from subprocesses.

    The saved position of the stage is the position reported by the subprocess that sent the last row. On resume, all
    subprocesses start at this saved position. Any process can send the first row, because the content of a row depends
    only on its number.
    """

    _state: State = None
    _runs: list[RemoteRun] = field(default_factory=list)
    _drained: int = 0

    def __post_init__(self) -> None:
        if self.context.path != 0:
            raise PlanError(
                "a dataset returned by the function of flat_map() or interleave() cannot have in_subprocess(). "
                "Put in_subprocess() after flat_map() or interleave()."
            )

    async def run(self, inlets: Sequence[Inlet], outlet: Outlet) -> None:
        hosting, node = self._hosting, self.node
        processes = await self.hop(hosting.processes_of, node, self.context, self.context.services.root_seed)
        self._runs += [process.begin(self.context.epoch, self._state, self._has_drained) for process in processes]
        weakref.finalize(self, _drop, self._runs).atexit = False
        try:
            if len(self._runs) == 1:
                await self._forward(self._runs[0], outlet)
            else:
                await _Dealer(self, self._runs).deal(outlet)
        finally:
            for run in self._runs:
                run.stop()
            if self._drained == len(self._runs):
                self.context.drained.begin()  # balances the second end() call, which the stage's supervisor makes

    @property
    def _hosting(self) -> Hosting:
        hosting = self.context.services.features.find(Hosting)
        assert hosting is not None, "a plan with processes has somebody who hosts them"
        return hosting

    def _has_drained(self) -> None:
        """Record that the sources of one subprocess have read their last row.

        When the sources of all subprocesses have read their last row, the next epoch may begin.
        """
        self._drained += 1
        if self._drained == len(self._runs):
            self.context.drained.end()

    async def _forward(self, run: RemoteRun, outlet: Outlet) -> None:
        while (arrived := await self.next_of(run)) is not None:
            await outlet.send(arrived.chunk)
            run.taken(arrived.nbytes)

    async def next_of(self, run: RemoteRun) -> Arrived | None:
        """Return the next chunk of a subprocess; count the chunk's rows and the waiting time."""
        started = perf_counter()
        arrived = await run.next()
        self.counters.input_wait_s += perf_counter() - started
        if arrived is not None:
            self.counters.rows_in += len(arrived.chunk)
        return arrived

    # -- saved position

    def at(self, rows: int, book: BookWriter) -> State:
        if rows == 0 or not self._runs:
            return self.context.services.book.carried_over(self._state, book)
        worker, before = (rows - 1) % len(self._runs), (rows - 1) // len(self._runs)
        place = self._runs[worker].place(before + 1)
        services = self.context.services
        services.features.of(CachedEpochs).update({(self.context.path, key): epoch for key, epoch in place["caches"]})
        services.features.of(WeightChanges).known_elsewhere(mixtures_of(self.node, self.context.keys), place["weights"])
        return book.include(place["position"], place["rows"], place["row_checks"])

    def forget(self, rows: int) -> None:
        for number, run in enumerate(self._runs):
            run.forget(len(range(number, rows, len(self._runs))))

    def resume(self, state: State) -> Sequence[State]:
        self._state = state
        return ()


def _drop(runs: list[RemoteRun]) -> None:
    for run in runs:
        run.drop()


@dataclass
class _Dealer:
    """Merge of n subprocesses, each of which emits every n-th element.

    Attributes:
        heads: Current chunk of each subprocess, or None.
        dealt: For each subprocess, the number of rows of its current chunk that were already emitted.
    """

    stage: SubprocessStage
    runs: Sequence[RemoteRun]
    turn: int = 0

    def __post_init__(self) -> None:
        self.heads: list[Arrived | None] = [None] * len(self.runs)
        self.dealt = [0] * len(self.runs)

    async def deal(self, outlet: Outlet) -> None:
        """Send the elements of all subprocesses in their common order.

        Raises:
            CardinalityError: The numbers of elements from the subprocesses do not match.
        """
        try:
            await self._deal(outlet)
        finally:
            self.heads = [None] * len(self.runs)  # a stored error can refer to this object for the loader's lifetime

    async def _deal(self, outlet: Outlet) -> None:
        while await self._has_more(self.turn):
            await outlet.send(await self.stage.hop(self._dealt_out, self._ready_turns()))
            for number in range(len(self.runs)):
                self._let_go(number)
        for number, run in enumerate(self.runs):
            if number != self.turn and (self.heads[number] is not None or await run.next() is not None):
                raise CardinalityError(
                    "the processes of in_subprocess() do not make the same elements: a source or function of the "
                    "chain returns other rows in every process. Use workers=1."
                )

    async def _has_more(self, number: int) -> bool:
        if self.heads[number] is None:
            self.heads[number] = await self.stage.next_of(self.runs[number])
        return self.heads[number] is not None

    def _ready_turns(self) -> list[int]:
        """Return, in order, the subprocess index of each row that can be emitted without waiting.

        Advance ``turn`` accordingly.
        """
        left = [
            0 if head is None else len(head.chunk) - dealt for head, dealt in zip(self.heads, self.dealt, strict=True)
        ]
        turns = []
        while left[self.turn]:
            turns.append(self.turn)
            left[self.turn] -= 1
            self.turn = (self.turn + 1) % len(self.runs)
        return turns

    def _dealt_out(self, turns: list[int]) -> Chunk:
        chunks = [head.chunk for head in self.heads if head is not None]
        places = np.cumsum([head is not None for head in self.heads]) - 1
        workers = np.array(turns)
        rows = np.empty(len(turns), np.int64)
        for number in range(len(self.runs)):
            mine = workers == number
            rows[mine] = self.dealt[number] + np.arange(int(mine.sum()))
            self.dealt[number] += int(mine.sum())
        return gather(chunks, places[workers].astype(np.int32), rows)

    def _let_go(self, number: int) -> None:
        head = self.heads[number]
        if head is not None and self.dealt[number] == len(head.chunk):
            self.heads[number], self.dealt[number] = None, 0
            self.runs[number].taken(head.nbytes)
